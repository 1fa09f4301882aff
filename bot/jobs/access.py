"""GitHub's answers about a job's place and the people who ask: the facts that permissions are decided by.

`check_access` costs two requests, since strangers can make the bot come as often as they comment. A `PhaseReader`
asks each question once in a phase of a job; before anything is published, all is asked again. `AccessChecks` hands
the answers of the acknowledgement to the worker that starts the job right after it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from bot.domain.access import Bounds, Role, can_command, is_app, is_workflow_command
from bot.domain.errors import BotError
from bot.domain.job import Actor, Job
from bot.git.errors import BranchGoneError
from bot.github.client import GitHub
from bot.github.types import (
    Annotation,
    BotIdentity,
    CommentFacts,
    JobFacts,
    PullLink,
    RedCheck,
    RepoFacts,
    ReviewFacts,
    RunFacts,
    Snapshot,
    thread_is_gone,
)
from bot.permissions.levels import ThreadState


class ReplacedRepositoryError(BotError):
    """The repository was deleted, and its name given to another, which is nobody's to answer in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """What GitHub was asked about a job's place: enough to turn away who may not command.

    Attributes:
        snapshot: the repository and the thread.
        roles: of the job's actor, and of the others that count.
        by_workflow: whether a workflow's file is what commands.
        reader: asks GitHub what else this phase of the job needs.
    """

    snapshot: Snapshot
    roles: tuple[Role, ...]
    reader: PhaseReader = field(compare=False)
    by_workflow: bool = False

    @property
    def repo(self) -> RepoFacts:
        """The repository."""
        return self.snapshot.repo

    @property
    def may_command(self) -> bool:
        """Whether everybody who asked may command the bot at all; only who may write can change a workflow's file."""
        return self.by_workflow or all(map(can_command, self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot(AccessCheck):
    """The place a job is about, as GitHub has it now.

    Attributes:
        thread: the issue or pull request.
        labels: the names of its labels.
    """

    thread: ThreadState
    labels: tuple[str, ...]

    @property
    def pull_link(self) -> PullLink | None:
        """The bot's own pull request in which work on an issue continues."""
        number = self.thread.continues
        return PullLink(number=number, html_url=f"{self.repo.html_url}/pull/{number}") if number else None


async def check_access(github: GitHub, job: Job, *, bounds: Bounds) -> AccessCheck:
    """See where a job is about, and who asks. Two requests: strangers can make the bot come as often as they comment.

    Args:
        github: acts for the job.
        job: the job.
        bounds: which bots and people may command at all; others have no rights here.

    Raises:
        ReplacedRepositoryError: the name belongs to another repository now.
        GitHubError: something could not be found out, which nobody may take for a yes.
    """
    name = job.repo.full_name
    place = job.thread
    asking = (
        github.threads.branch_snapshot(name, place.branch)
        if place.branch
        else github.threads.snapshot(name, place.number)
    )
    snapshot = await asking
    if snapshot.repo.id != job.repo.id:
        raise ReplacedRepositoryError(f"{name} is no longer the repository for which the command was given.")
    reader, people = PhaseReader(github), (job.actor, *job.others)
    roles = tuple([await _role(reader, snapshot.repo.full_name, job, each, bounds) for each in people])
    return AccessCheck(snapshot=snapshot, roles=roles, reader=reader, by_workflow=is_workflow_command(job))


async def _role(reader: PhaseReader, repo: str, job: Job, who: Actor, bounds: Bounds) -> Role:
    """What somebody may do, as far as the bot listens to them.

    CI that runs on the bot's own push has the bot for its actor; that push was somebody's wish. Of other Apps GitHub
    does not say what they may do in a repository, so the operator's word counts.
    """
    if job.origin.kind in {"workflow", "recipe"} and job.origin.vouched:
        return "write"
    if bounds.trusted_bots.has_account(who.id, who.login):
        return "write" if is_app(who.login) else await reader.role_of(repo, who.id, who.login)
    if is_app(who.login):
        return "write" if job.origin.kind == "ci" and who.id == (await reader.me()).id else "none"
    return await reader.role_of(repo, who.id, who.login) if bounds.is_allowed_user(who.login) else "none"


def fetch_snapshot(job: Job, access: AccessCheck) -> ThreadSnapshot:
    """Look at the thread, or at the branch, too.

    Raises:
        GitHubError: it is gone.
    """
    repo, thread, pull = access.repo, access.snapshot.thread, access.snapshot.pull
    head: tuple[str, str, int | None, str]
    if job.thread.kind == "branch":  # it has no thread, which somebody could close or lock
        thread, branch = None, job.thread.branch
        head = (access.snapshot.branch_head or "", branch, repo.id, branch)
    elif thread is None or (job.thread.kind == "pull" and pull is None):
        raise thread_is_gone(repo.full_name, job.thread.number)
    elif pull is not None:
        head = (pull.head_sha, pull.head_ref, pull.head_repo_id, pull.base_ref)
    else:
        head = (access.snapshot.default_head or "", repo.default_branch, repo.id, repo.default_branch)
    return ThreadSnapshot(
        snapshot=access.snapshot,
        labels=thread.labels if thread is not None else (),
        roles=access.roles,
        reader=access.reader,
        by_workflow=access.by_workflow,
        thread=ThreadState(
            default_branch=repo.default_branch,
            head_sha=head[0],
            head_ref=head[1],
            head_repo_id=head[2],
            base_ref=head[3],
            is_open=thread is None or thread.state == "open",
            locked=thread is not None and thread.locked,
            archived=repo.archived,
            private=repo.private,
            author_id=thread.author_id if thread is not None else None,
        ),
    )


async def head_of(github: GitHub, here: ThreadSnapshot, branch: str) -> str:
    """The commit that a branch stands at.

    Raises:
        BranchGoneError: there is no such branch.
        GitHubError: it could not be found out.
    """
    seen = here.snapshot
    if seen.pull is not None and seen.pull.base_ref == branch:
        sha = seen.base_head
    else:
        sha = await github.repos.branch_head(here.repo.full_name, branch)
    if sha is None:
        raise BranchGoneError(
            f"The branch `{branch}`, which the work is for, does not exist.", "Choose another and try again."
        )
    return sha


T = TypeVar("T")
_ANNOTATIONS = 20


class PhaseReader:
    """What GitHub says while a job begins, or while it publishes; later decisions use new requests.

    Args:
        github: acts for the job.
    """

    def __init__(self, github: GitHub) -> None:
        self._github = github
        self._answers: dict[Hashable, Any] = {}

    def continued_by(self, github: GitHub) -> PhaseReader:
        """The same phase with another client: the one that began it is closed."""
        reader = PhaseReader(github)
        reader._answers = self._answers
        return reader

    async def me(self) -> BotIdentity:
        """See `Accounts.me`."""
        return await self._github.accounts.me()

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        """See `Accounts.role_of`."""
        return await self._once(
            ("role", repo, account_id, login), lambda: self._github.accounts.role_of(repo, account_id, login)
        )

    async def file_at(self, repo: str, path: str) -> bytes | None:
        """A file on the default branch; see `Repos.file_at`."""
        return await self._once(("file", repo, path), lambda: self._github.repos.file_at(repo, path))

    async def comments(self, repo: str, number: int) -> tuple[CommentFacts, ...]:
        """See `Comments.of_thread`."""
        return await self._once(("comments", repo, number), lambda: self._github.comments.of_thread(repo, number))

    async def reviews(self, repo: str, number: int) -> tuple[ReviewFacts, ...]:
        """See `Reviews.of_pull`."""
        return await self._once(("reviews", repo, number), lambda: self._github.reviews.of_pull(repo, number))

    async def failing_checks(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """See `Checks.failing`."""
        return await self._once(("checks", repo, sha), lambda: self._github.checks.failing(repo, sha))

    async def annotations(self, repo: str, check_id: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run."""
        return await self._once(
            ("annotations", repo, check_id), lambda: self._github.checks.annotations(repo, check_id, _ANNOTATIONS)
        )

    async def run(self, repo: str, run_id: int) -> RunFacts:
        """See `Runs.get`."""
        return await self._once(("run", repo, run_id), lambda: self._github.runs.get(repo, run_id))

    async def jobs_of_run(self, repo: str, run_id: int) -> tuple[JobFacts, ...]:
        """See `Runs.jobs`."""
        return await self._once(("jobs", repo, run_id), lambda: self._github.runs.jobs(repo, run_id))

    async def _once(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        if question not in self._answers:
            self._answers[question] = await ask()
        answer: T = self._answers[question]
        return answer


FRESH_SECONDS = 15.0
"""Older answers are requested again. All are requested again before anything is published."""


class AccessChecks:
    """What was asked about jobs that are about to begin; each is given out once.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, AccessCheck]] = {}

    def keep(self, job_id: str, access: AccessCheck) -> None:
        """Keep what was asked just now."""
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] <= FRESH_SECONDS}
        self._kept[job_id] = now, access

    def take(self, job_id: str, github: GitHub) -> AccessCheck | None:
        """What was asked about a job, if that was just now; `github` goes on asking."""
        at, access = self._kept.pop(job_id, (0.0, None))
        if access is None or self._clock() - at > FRESH_SECONDS:
            return None
        return replace(access, reader=access.reader.continued_by(github))
