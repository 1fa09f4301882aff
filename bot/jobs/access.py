"""GitHub's answers about a job's thread and its users, on which permissions depend.

`check_access` costs two requests: strangers can trigger it with each comment.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from bot.domain.access import Bounds, Role, can_command, is_app, is_workflow_command
from bot.domain.errors import BotError
from bot.domain.job import Actor, Job
from bot.git.errors import BranchGoneError, CloneError, RepositoryEmptyError
from bot.github.client import GitHub
from bot.github.types import (
    Annotation,
    BotIdentity,
    CheckFacts,
    CommentFacts,
    GitHubError,
    JobFacts,
    LabelHistory,
    PullFacts,
    PullLink,
    RepoFacts,
    ReviewFacts,
    RunFacts,
    Snapshot,
    head_at,
    thread_not_found,
)
from bot.permissions.levels import ThreadState


class ReplacedRepositoryError(BotError):
    """The repository was deleted, and another one has its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """The facts that are needed to reject users without write access.

    Attributes:
        by_workflow: whether a workflow's file gives the command.
    """

    facts: Snapshot
    roles: tuple[Role, ...]
    reader: PhaseReader = field(compare=False)
    by_workflow: bool = False

    @property
    def repo(self) -> RepoFacts:
        return self.facts.repo

    @property
    def may_command(self) -> bool:
        """Whether all requesters have write access; a workflow's file proves it."""
        return self.by_workflow or all(map(can_command, self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot(AccessCheck):
    """The current state of the job's thread or branch."""

    thread: ThreadState
    labels: tuple[str, ...]

    @property
    def pull_link(self) -> PullLink | None:
        number = self.thread.continues
        return PullLink(number=number, html_url=f"{self.repo.html_url}/pull/{number}") if number else None


async def check_access(github: GitHub, job: Job, *, bounds: Bounds) -> AccessCheck:
    """Fetch the thread and the roles of its requesters in two requests.

    Raises:
        ReplacedRepositoryError: another repository has the name now.
        GitHubError: a fact is unknown; that grants no access.
    """
    name = job.repo.full_name
    place = job.thread
    request = (
        github.threads.branch_snapshot(name, place.branch)
        if place.branch
        else github.threads.snapshot(name, place.number)
    )
    snapshot = await request
    if snapshot.repo.id != job.repo.id:
        raise ReplacedRepositoryError(f"{name} is no longer the repository for which the command was given.")
    reader, people = PhaseReader(github), (job.actor, *job.other_actors)
    roles = tuple([await _role(reader, snapshot.repo.full_name, job, person, bounds) for person in people])
    return AccessCheck(facts=snapshot, roles=roles, reader=reader, by_workflow=is_workflow_command(job))


async def _role(reader: PhaseReader, repo: str, job: Job, account: Actor, bounds: Bounds) -> Role:
    """Return an account's role, limited by the operator's settings.

    CI on the bot's own push, which a user requested, has the bot as actor. GitHub does not report the roles of other
    Apps, so the operator's setting applies.
    """
    if job.origin.kind in {"workflow", "recipe", "event"} and job.origin.vouched:
        return "write"
    if bounds.trusted_bots.has_account(account.id, account.login):
        return "write" if is_app(account.login) else await reader.role_of(repo, account.id, account.login)
    if is_app(account.login):
        return "write" if job.origin.kind == "ci" and account.id == (await reader.me()).id else "none"
    return await reader.role_of(repo, account.id, account.login) if bounds.is_allowed_user(account.login) else "none"


def fetch_snapshot(job: Job, access: AccessCheck) -> ThreadSnapshot:
    """Fetch the thread or branch; GitHubError if it was deleted."""
    repo, thread, pull = access.repo, access.facts.thread, access.facts.pull
    head: tuple[str, str, int | None, str]
    if job.thread.kind == "branch":  # it has no thread, which somebody could close or lock
        thread, branch = None, job.thread.branch
        head = (access.facts.branch_head or "", branch, repo.id, branch)
    elif thread is None or (job.thread.kind == "pull" and pull is None):
        raise thread_not_found(repo.full_name, job.thread.number)
    elif pull is not None:
        head = (pull.head_sha, pull.head_ref, pull.head_repo_id, pull.base_ref)
    else:
        head = (access.facts.default_head or "", repo.default_branch, repo.id, repo.default_branch)
    return ThreadSnapshot(
        facts=access.facts,
        labels=thread.labels if thread is not None else (),
        roles=access.roles,
        reader=access.reader,
        by_workflow=access.by_workflow,
        thread=ThreadState(
            repo=repo,
            head_sha=head[0],
            head_ref=head[1],
            head_repo_id=head[2],
            base_ref=head[3],
            is_open=thread is None or thread.state == "open",
            locked=thread is not None and thread.locked,
            author_id=thread.author.id if thread is not None else None,
        ),
    )


async def branch_head(github: GitHub, snapshot: ThreadSnapshot, branch: str) -> str:
    """Return the branch's head commit; BranchGoneError if it does not exist."""
    facts = snapshot.facts
    if facts.pull is not None and facts.pull.base_ref == branch:
        sha = facts.base_head
    else:
        sha = await github.repos.branch_head(snapshot.repo.full_name, branch)
    if sha is None:
        raise BranchGoneError(
            f"The branch `{branch}`, which the work is for, does not exist.", "Choose another and try again."
        )
    return sha


async def confirm_refusal(github: GitHub, repo: str, error: CloneError) -> CloneError:
    """Return the error of git, or another one if GitHub's API shows the branch or commit that git does not show."""
    branch, reason = error.ref.removeprefix("refs/heads/"), error.reason
    try:
        if isinstance(error, BranchGoneError | RepositoryEmptyError) and branch != error.ref:
            reason = f"git on GitHub does not show `{branch}`."
            is_shown = await github.repos.branch_head(repo, branch) is not None
        else:
            is_shown = bool(error.sha and await github.repos.commit(repo, error.sha))
    except GitHubError:
        is_shown = False
    if not is_shown:
        return error
    return CloneError(
        f"{reason} GitHub's API shows it all the same.",
        "Give the command again later. If git still refuses it, check whether the bot may read the contents.",
    )


T = TypeVar("T")
_ANNOTATIONS = 20


class PhaseReader:
    """Cache GitHub's answers while a job starts or publishes; publishing requests all of them again."""

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._answers: dict[Hashable, Any] = {}

    def with_client(self, github: GitHub) -> PhaseReader:
        """Copy the cache for another client; the first one is closed."""
        reader = PhaseReader(github)
        reader._answers = self._answers
        return reader

    async def me(self) -> BotIdentity:
        return await self._github.accounts.me()

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        return await self._cached(
            ("role", repo, account_id, login), lambda: self._github.accounts.get_role(repo, account_id, login)
        )

    async def file_at(self, repo: str, path: str) -> bytes | None:
        return await self._cached(("file", repo, path), lambda: self._github.repos.read_file(repo, path))

    async def label_history(self, repo: str, number: int) -> LabelHistory:
        return await self._cached(("labels", repo, number), lambda: self._github.threads.label_history(repo, number))

    async def head_at(self, pull: PullFacts, repo_id: int, moment: datetime, own: Collection[str] = ()) -> str:
        """Return the head of a pull request at a moment; empty unless GitHub's record of pushes proves it.

        It is the present head if only `own` commits followed, each on the last.
        """
        name, branch = pull.head_repo, pull.head_ref
        if name is None:
            return ""
        try:
            pushes = await self._cached(("pushes", name, branch), lambda: self._github.repos.list_pushes(name, branch))
            # The owner of a fork could have given another repository its name, one with the commit from before.
            is_same = pull.head_repo_id == repo_id or (await self._github.repos.get(name)).id == pull.head_repo_id
            later = {push.after for push in pushes if push.at > moment and push.after in own}
            commits = [await self._github.repos.commit(name, sha) for sha in later]
        except GitHubError as error:
            if error.limited or error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                raise
            return ""
        parents = {commit.sha: commit.parents[0] for commit in commits}
        return head_at(pushes, moment, pull.head_sha, parents) if is_same else ""

    async def comments(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        return await self._cached(
            ("comments", repo, number), lambda: self._github.comments.list_for_thread(repo, number)
        )

    async def reviews(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        return await self._cached(("reviews", repo, number), lambda: self._github.reviews.list_for_pull(repo, number))

    async def failing_checks(self, repo: str, sha: str) -> tuple[CheckFacts, ...]:
        return await self._cached(("checks", repo, sha), lambda: self._github.checks.list_failing(repo, sha))

    async def annotations(self, repo: str, check_id: int) -> tuple[Annotation, ...]:
        return await self._cached(
            ("annotations", repo, check_id), lambda: self._github.checks.annotations(repo, check_id, _ANNOTATIONS)
        )

    async def run(self, repo: str, run_id: int) -> RunFacts:
        return await self._cached(("run", repo, run_id), lambda: self._github.runs.get(repo, run_id))

    async def jobs_of_run(self, repo: str, run_id: int) -> tuple[JobFacts, ...]:
        return await self._cached(("jobs", repo, run_id), lambda: self._github.runs.jobs(repo, run_id))

    async def _cached(self, key: Hashable, request: Callable[[], Awaitable[T]]) -> T:
        if key not in self._answers:
            self._answers[key] = await request()
        answer: T = self._answers[key]
        return answer


FRESH_SECONDS = 15.0
"""Older answers are requested again; publishing requests all of them again."""


class AccessChecks:
    """Hand the acknowledgement's access checks to the worker that starts the job."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._checks: dict[str, tuple[float, AccessCheck]] = {}

    def put(self, job_id: str, access: AccessCheck) -> None:
        now = self._clock()
        self._checks = {key: entry for key, entry in self._checks.items() if now - entry[0] <= FRESH_SECONDS}
        self._checks[job_id] = now, access

    def take(self, job_id: str, github: GitHub) -> AccessCheck | None:
        at, access = self._checks.pop(job_id, (0.0, None))
        if access is None or self._clock() - at > FRESH_SECONDS:
            return None
        return replace(access, reader=access.reader.with_client(github))
