"""One commit onto one branch, once however often it is started again: by GitHub's API, else by a push."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from bot.domain.errors import BotError
from bot.gate.conventions import OWN_PREFIX
from bot.github import (
    CannotExpressError,
    CommitFacts,
    GitHub,
    GitHubError,
    PullDraft,
    PullLink,
    RepoFacts,
    check_expressible,
    is_made,
)
from bot.github.errors import remedy_for
from bot.publishing.plan import CommitPlan
from bot.publishing.published import CommitRef, Published, RecordPart
from bot.publishing.redact import Redactor
from bot.publishing.text import code
from bot.workspace import Source, WorkflowsForbiddenError
from bot.workspace.change import Change, LargeFile
from bot.workspace.errors import GitError


class Pusher(Protocol):
    """The trusted git directory; `bot.workspace.Tree` is one."""

    async def replay(self, change: Change, onto: Source) -> Change:
        """The same change, made on another commit; the same one every time."""
        ...

    async def commit(self, change: Change, *, message: str) -> str:
        """Make the commit; the same id every time."""
        ...

    async def large_files_with(self, files: Sequence[LargeFile], holds: Callable[[str], bool]) -> list[str]:
        """The paths of those whose content has a part of which `holds` is true."""
        ...

    async def upload(self, files: Sequence[LargeFile], *, branch: str, url: str, token: str) -> None:
        """Have Git LFS keep the objects that a change points to."""
        ...

    async def push(self, sha: str, *, branch: str, expected: str, url: str, token: str) -> None:
        """Send it to the branch, which must stand at `expected`; empty for a branch that is not there yet.

        Raises:
            GitError: the server did not answer, or may take it the next time.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a publication may go.

    Attributes:
        repo: `owner/name`, from the job.
        default_branch: never written to.
        clone_url: for a push from the trusted git directory.
        html_url: the repository's page.
        node_id: what GraphQL calls the repository.
        branch_prefix: what the names of the bot's own branches begin with.
    """

    repo: str
    default_branch: str
    clone_url: str
    html_url: str
    node_id: str
    branch_prefix: str = OWN_PREFIX

    @classmethod
    def of(cls, repo: RepoFacts, branch_prefix: str = OWN_PREFIX) -> Self:
        """The repository as it is now."""
        return cls(
            repo=repo.full_name,
            default_branch=repo.default_branch,
            clone_url=repo.clone_url,
            html_url=repo.html_url,
            node_id=repo.node_id,
            branch_prefix=branch_prefix,
        )

    @property
    def server(self) -> str:
        """GitHub's address for people."""
        return self.html_url.removesuffix(f"/{self.repo}")


class ForbiddenTargetError(BotError):
    """Someone asked the publisher for what it has no verb for: a bug of ours, stopped before anything was sent."""


class LeakError(BotError):
    """A secret of the bot's is in a file that was to be published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A commit that is on GitHub.

    Attributes:
        branch: where it is.
        pull: the pull request that was opened with it.
    """

    branch: str
    facts: CommitFacts
    pull: PullLink | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSender:
    """What sends a job's commit.

    Attributes:
        github: acts for the job.
        record: what earlier attempts sent.
        target: where it may go.
        pusher: for what GitHub's commit API cannot express.
        redactor: knows the secrets.
    """

    github: GitHub
    record: RecordPart[Published]
    target: Target
    pusher: Pusher
    redactor: Redactor = field(repr=False)

    async def sent_before(self) -> Sent | None:
        """What an earlier attempt sent and noted."""
        noted = (await self.record.read()).commit
        if noted is None:
            return None
        return Sent(branch=noted.branch, facts=await self.github.repos.commit(self.target.repo, noted.sha))

    async def send(self, commit: CommitPlan, request: PullDraft | None = None) -> Sent:
        """Make the commit where it is to be; what an earlier attempt sent without noting it is found.

        Args:
            commit: what to send.
            request: a pull request from its branch, which is opened with it where that is possible.

        Raises:
            ForbiddenTargetError: it aims at the default branch, or at no branch of ours.
            LeakError: a secret is in it.
            HeadMovedError: the branch does not stand where it is expected.
            PushRejectedError: the same, or the server said no.
            WorkflowsForbiddenError: it changes workflow files, and we may not.
            LargeFileError: Git LFS did not take what the commit points to.
            GitHubError: GitHub refused or stayed silent.
            WorkspaceError: git failed.
        """
        await self.check(commit)
        if commit.change.large:  # what Git LFS has already is not sent again
            token = await self.github.tokens.for_push(self.target.repo)
            await self.pusher.upload(commit.change.large, branch=commit.branch, url=self.target.clone_url, token=token)
        link = None
        try:
            made, link = await self._commit(commit, request)
        except CannotExpressError:
            # A try that pushed it may have been killed before it could note it.
            head, earlier = await self.github.repos.branch_head(self.target.repo, commit.branch), None
            if head is not None and head != commit.expected_head:
                parent, tree = commit.expected_head, commit.change.tree_sha
                earlier = await self.sent_on(commit, head, parent=parent, tree_sha=tree)
            made = earlier.facts if earlier is not None else await self._push(commit)
        return await self.note(Sent(branch=commit.branch, facts=made, pull=link))

    async def sent_on(
        self, commit: CommitPlan, head: str, *, parent: str | None, tree_sha: str | None = None
    ) -> Sent | None:
        """The commit that a branch stands at, when it is ours and was made on `parent`; of a tree, if one is given."""
        facts = await self.github.repos.commit(self.target.repo, head)
        tree_sha, message = facts.tree_sha if tree_sha is None else tree_sha, self._message(commit)
        if parent is None or not is_made(facts, parent=parent, tree_sha=tree_sha, message=message):
            return None
        return Sent(branch=commit.branch, facts=facts)

    async def note(self, sent: Sent) -> Sent:
        """Keep what was sent."""
        commit = CommitRef(sha=sent.facts.sha, branch=sent.branch)
        await self.record.update(lambda done: replace(done, commit=commit, pull=sent.pull or done.pull))
        return sent

    async def note_onto(self, head: str) -> None:
        """Keep the commit onto which the change is replayed next."""
        await self.record.update(lambda done: replace(done, onto=head))

    async def check(self, commit: CommitPlan) -> None:
        """See whether a commit may be sent at all.

        Raises:
            ForbiddenTargetError: it aims at the default branch, or at no branch of ours.
            LeakError: a secret is in it.
            WorkflowsForbiddenError: it changes workflow files, and we may not.
            GitHubError: GitHub was asked about that, and refused or stayed silent.
        """
        if self.is_default(commit.branch):
            raise ForbiddenTargetError(
                f"{commit.branch} is the default branch of {self.target.repo}; nothing was pushed."
            )
        if commit.branch.startswith(("refs/", "-")) or (
            commit.create_branch and not commit.branch.startswith(self.target.branch_prefix)
        ):
            raise ForbiddenTargetError(
                f"{commit.branch!r} is not a branch that the bot may write to; nothing was pushed."
            )
        # It takes seconds for large files, and the event loop has leases to renew and deliveries to answer.
        leaks = await asyncio.to_thread(_leaks, commit.change, self.redactor)
        leaks += await self.pusher.large_files_with(commit.change.large, self.redactor.holds)
        if leaks:
            named = ", ".join(code(self.redactor.redact(path)) for path in leaks)
            raise LeakError(f"{named} contains one of the bot's secrets. Nothing was published.")
        if commit.change.writes_workflows and await self.github.tokens.may_write_workflows() is False:
            raise WorkflowsForbiddenError

    def is_default(self, branch: str) -> bool:
        """Whether a branch is the one that is never written to."""
        return branch.removeprefix("refs/heads/").casefold() == self.target.default_branch.casefold()

    async def _commit(self, commit: CommitPlan, request: PullDraft | None) -> tuple[CommitFacts, PullLink | None]:
        # Checked before the branch is made: a branch without its commit would be half a publication.
        check_expressible(commit.change)
        if commit.change.writes_workflows and await self.github.tokens.may_write_workflows() is None:
            raise CannotExpressError("where a token may lack the permission, only a push makes both branch and commit")
        if not commit.create_branch:
            facts = await self.github.commits.on_branch(
                self.target.repo,
                branch=commit.branch,
                expected_head=commit.expected_head,
                title=commit.title,
                body=commit.body,
                change=commit.change,
            )
            return facts, None
        return await self.github.commits.on_new_branch(
            self.target.repo,
            node_id=self.target.node_id,
            branch=commit.branch,
            expected_head=commit.expected_head,
            title=commit.title,
            body=commit.body,
            change=commit.change,
            pull=request,
        )

    def _message(self, commit: CommitPlan) -> str:
        return self.github.redacted(f"{commit.title}\n\n{commit.body}\n")

    async def _push(self, commit: CommitPlan) -> CommitFacts:
        sha = await self.pusher.commit(commit.change, message=self._message(commit))
        token = await self.github.tokens.for_push(self.target.repo, workflows=commit.change.writes_workflows)
        expected, url = "" if commit.create_branch else commit.expected_head, self.target.clone_url
        try:
            await self.pusher.push(sha, branch=commit.branch, expected=expected, url=url, token=token)
        except GitError as error:
            what = f"push to {commit.branch} of {self.target.repo}"
            raise GitHubError(what, 0, error.stderr.strip(), remedy_for(0, "")) from error
        return await self.github.repos.commit(self.target.repo, sha)


def _leaks(change: Change, redactor: Redactor) -> list[str]:
    return [
        file.path
        for file in change.files
        if redactor.holds(file.path) or (file.content and redactor.holds(file.content.decode("latin-1")))
    ]
