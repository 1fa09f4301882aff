"""Send a publication: branch, commit, pull request, each at most once however often this is started again.

It only ever adds. There is no force, no deletion, no tag, and the default branch is out of reach.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from bot.errors import BotError
from bot.github import CannotExpressError, CommitFacts, GitHub, GitHubError, HeadMovedError, PullLink
from bot.publishing.plan import Commit, Publication, PullRequest
from bot.publishing.redact import Redactor
from bot.publishing.text import code
from bot.workspace import PushRejectedError
from bot.workspace.change import Change


class Memory(Protocol):
    """What a job has done so far, kept over restarts."""

    async def recall(self, key: str) -> str | None:
        """The value kept under `key`, or None."""
        ...

    async def remember(self, key: str, value: str) -> None:
        """Keep `value` under `key` before the next step is taken."""
        ...


class Pusher(Protocol):
    """The trusted git directory, for changes that GitHub's commit API cannot express; `bot.workspace.Tree` is one."""

    async def commit(self, change: Change, *, message: str) -> str:
        """Make the commit; the same id every time."""
        ...

    async def push(self, sha: str, *, branch: str, url: str, token: str) -> None:
        """Send it to the branch, without force."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a publication may go.

    Attributes:
        repo: `owner/name`, from the job.
        default_branch: never written to.
        clone_url: for a push from the trusted git directory.
    """

    repo: str
    default_branch: str
    clone_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What has been sent; every part may be missing.

    Attributes:
        withheld: what was not sent, and why.
    """

    branch: str | None = None
    commit_sha: str | None = None
    commit_url: str | None = None
    pull_number: int | None = None
    pull_url: str | None = None
    withheld: str = ""


class ForbiddenTargetError(BotError):
    """Someone asked the publisher for what it has no verb for: a bug of ours, stopped before anything was sent."""


async def publish(
    github: GitHub,
    memory: Memory,
    publication: Publication,
    *,
    target: Target,
    pusher: Pusher,
    redactor: Redactor,
) -> Delivered:
    """Send what was planned and give back where it is.

    A branch that moved meanwhile is left alone, and a pull request that GitHub refuses leaves the commit standing:
    both are told in `withheld`.

    Raises:
        ForbiddenTargetError: the plan aims at the default branch, or at no branch of ours.
        GitHubError: GitHub refused or stayed silent; starting again takes up where this stopped.
        WorkspaceError: git failed.
    """
    commit = publication.commit
    if commit is None:
        return Delivered(withheld=publication.withheld)
    if not commit.create_branch and _is_default(commit.branch, target):
        return Delivered(withheld="The pull request comes from the default branch, which the bot never writes to.")
    _check_target(commit, target)
    # It takes seconds for large files, and the event loop has leases to renew and deliveries to answer.
    leaks = await asyncio.to_thread(_leaks, commit.change, redactor)
    if leaks:
        return Delivered(withheld=f"A secret of the bot's stands in {leaks}. Nothing was published.")
    try:
        made = await _commit_once(github, memory, commit, target, pusher)
    except (HeadMovedError, PushRejectedError) as error:
        return Delivered(withheld=f"The branch moved while the bot was working, and was left alone. {error}")
    delivered = Delivered(branch=commit.branch, commit_sha=made.sha, commit_url=made.html_url)
    if publication.pull_request is None:
        return delivered
    return await _with_pull(github, memory, commit, publication.pull_request, target, delivered)


async def _commit_once(github: GitHub, memory: Memory, commit: Commit, target: Target, pusher: Pusher) -> CommitFacts:
    done = await memory.recall("commit")
    if done is not None:
        return await github.commit_facts(target.repo, done)
    try:
        made = await _commit(github, commit, target)
    except CannotExpressError:
        made = await _push(github, commit, target, pusher)
    await memory.remember("commit", made.sha)
    return made


async def _commit(github: GitHub, commit: Commit, target: Target) -> CommitFacts:
    earlier = await _made_earlier(github, commit, target)
    if earlier is not None:
        return earlier
    # Checked before the branch is made: a branch without its commit would be half a publication.
    github.check_expressible(commit.change)
    if commit.create_branch:
        await github.create_branch(target.repo, commit.branch, commit.expected_head)
    return await github.commit_on_branch(
        target.repo,
        branch=commit.branch,
        expected_head=commit.expected_head,
        title=commit.title,
        body=commit.body,
        change=commit.change,
    )


async def _made_earlier(github: GitHub, commit: Commit, target: Target) -> CommitFacts | None:
    """The commit of a try that was killed before it could remember it."""
    head = await github.branch_head(target.repo, commit.branch)
    if head is None or head == commit.expected_head:
        return None
    facts = await github.commit_facts(target.repo, head)
    ours = facts.parents == (commit.expected_head,) and facts.tree_sha == commit.change.tree_sha
    return facts if ours else None


async def _push(github: GitHub, commit: Commit, target: Target, pusher: Pusher) -> CommitFacts:
    sha = await pusher.commit(commit.change, message=github.redacted(f"{commit.title}\n\n{commit.body}\n"))
    token = await github.push_token(target.repo)
    await pusher.push(sha, branch=commit.branch, url=target.clone_url, token=token)
    return await github.commit_facts(target.repo, sha)


async def _with_pull(  # noqa: PLR0917 - one step of `publish`, cut out for its length
    github: GitHub, memory: Memory, commit: Commit, request: PullRequest, target: Target, so_far: Delivered
) -> Delivered:
    done = await memory.recall("pull")
    try:
        link = _remembered(done) if done is not None else await _open(github, commit, request, target)
    except GitHubError as error:
        if error.passing:
            raise
        return _extend(so_far, withheld=f"The commit is there, but the pull request is not. {error}")
    await memory.remember("pull", f"{link.number} {link.html_url}")
    return _extend(so_far, pull=link)


async def _open(github: GitHub, commit: Commit, request: PullRequest, target: Target) -> PullLink:
    return await github.create_pull(
        target.repo,
        head=commit.branch,
        base=request.base,
        title=request.title,
        body=request.body,
        draft=request.draft,
    )


def _extend(so_far: Delivered, *, pull: PullLink | None = None, withheld: str = "") -> Delivered:
    return Delivered(
        branch=so_far.branch,
        commit_sha=so_far.commit_sha,
        commit_url=so_far.commit_url,
        pull_number=pull.number if pull else None,
        pull_url=pull.html_url if pull else None,
        withheld=withheld,
    )


def _remembered(value: str) -> PullLink:
    number, _, url = value.partition(" ")
    return PullLink(number=int(number), html_url=url)


def _check_target(commit: Commit, target: Target) -> None:
    if _is_default(commit.branch, target):
        raise ForbiddenTargetError(f"{commit.branch} is the default branch of {target.repo}; nothing was sent.")
    if commit.branch.startswith(("refs/", "-")) or (
        commit.create_branch and not commit.branch.startswith("codepilot/")
    ):
        raise ForbiddenTargetError(f"{commit.branch!r} is no branch that the bot may write to; nothing was sent.")


def _is_default(branch: str, target: Target) -> bool:
    return branch.removeprefix("refs/heads/").casefold() == target.default_branch.casefold()


def _leaks(change: Change, redactor: Redactor) -> str:
    names = [
        file.path
        for file in change.files
        if redactor.holds(file.path) or (file.content and redactor.holds(file.content.decode("latin-1")))
    ]
    return ", ".join(code(redactor.redact(name)) for name in names)
