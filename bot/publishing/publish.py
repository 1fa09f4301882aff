"""Send a publication: branch, commit, pull request, each at most once however often this is started again.

`publish` sends a `Publication`, `publish_review` a review. They only ever add: there is no force, no deletion, no tag,
and the default branch is out of reach. A commit is made by GitHub's API, or else pushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bot.domain.errors import BotError
from bot.domain.job import Job
from bot.git.change import Change, LargeFile
from bot.git.errors import ConflictError, GitError, LargeFileError, PushRejectedError, WorkflowsForbiddenError
from bot.git.mirror import Source
from bot.github.client import GitHub
from bot.github.graphql import check_expressible
from bot.github.repos import is_made
from bot.github.types import (
    CannotExpressError,
    CommitFacts,
    GitHubError,
    HeadMovedError,
    PullDraft,
    PullLink,
    RepoFacts,
    ReviewDraft,
    ReviewFacts,
    remedy_for,
)
from bot.permissions.levels import OWN_PREFIX
from bot.publishing.checks import Verdict
from bot.publishing.markdown import code, counted
from bot.publishing.plan import CommitPlan, Publication, branch_name, pull_body
from bot.publishing.redact import Redactor
from bot.publishing.status_view import CommitRef, Published, RecordPart, Withheld, WithheldCause

REPLAYS = 2
"""How often a change follows a branch that people push to, before it gets a branch of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What has been sent; every part may be missing.

    Attributes:
        branch: where the commit is.
        wip_url: the page that compares unfinished work with what it began from; for a branch without a pull request.
        review_url: the page of the review that was sent.
        withheld: what was not sent, and why; None when everything was.
        note: what went otherwise than planned, though all is there.
        replayed: whether the change was made again on other files than the agent's.
        would: for a dry run, in which nothing was sent: what would have been, as Markdown.
    """

    branch: str | None = None
    commit_sha: str | None = None
    commit_url: str | None = None
    pull_number: int | None = None
    pull_url: str | None = None
    pull_draft: bool = False
    wip_url: str | None = None
    review_url: str | None = None
    withheld: Withheld | None = None
    note: str = ""
    replayed: bool = False
    would: str = ""


class ForbiddenTargetError(BotError):
    """Someone asked the publisher for what it has no verb for: a bug of ours, stopped before anything was sent."""


class LeakError(BotError):
    """A secret of the bot's is in a file that was to be published."""


class _NothingLeftError(BotError):
    """Somebody pushed the same change."""


_CAUSES: Mapping[type[BotError], WithheldCause] = {
    LeakError: "secret",
    LargeFileError: "large-file",
    WorkflowsForbiddenError: "workflows",
    _NothingLeftError: "published-already",
}


async def publish(
    github: GitHub,
    record: RecordPart[Published],
    publication: Publication,
    *,
    job: Job,
    target: Target,
    pusher: Pusher,
    redactor: Redactor,
    replay: bool = False,
    dry_run: bool = False,
) -> Delivered:
    """Send what was planned and give back where it is.

    A branch that moved meanwhile is followed at most twice, then left alone and answered with a pull request into it. A
    pull request that GitHub refuses leaves the commit standing. Both are told.

    Args:
        github: acts for the job.
        record: what earlier attempts sent.
        publication: what to send.
        job: whose it is.
        target: where it may go.
        pusher: the trusted git directory.
        redactor: knows the secrets.
        replay: whether a branch that moved may be followed; else nothing is sent then.
        dry_run: send nothing, and tell what would be sent.

    Raises:
        ForbiddenTargetError: the plan aims at the default branch, or at no branch of ours.
        GitHubError: GitHub refused or stayed silent; starting again takes up where this stopped.
        WorkspaceError: git failed.
    """
    commit = publication.commit
    if commit is None:
        return Delivered(withheld=publication.withheld)
    sender = CommitSender(github=github, record=record, target=target, pusher=pusher, redactor=redactor)
    if not commit.create_branch and sender.is_default(commit.branch):
        return _withheld(
            "default-branch", "The pull request comes from the default branch, which the bot never pushes to."
        )
    try:
        if dry_run:
            await sender.check(commit)
            new, request = "new branch" if commit.create_branch else "branch", publication.pull_request
            would = f"A commit {code(commit.title)} on the {new} {code(commit.branch)}"
            if request is not None:
                would += f", and a {'draft ' if request.draft else ''}pull request from it into {code(request.base)}"
            return Delivered(withheld=publication.withheld, would=f"{would}.")
        sent = await sender.sent_before() or await _sent(sender, publication, commit, job, replay=replay)
    except (HeadMovedError, PushRejectedError) as error:
        moved = "moved while the bot was working, and " if isinstance(error, HeadMovedError) else ""
        return _withheld("branch-moved", f"The branch {moved}was not changed. {error}")
    except (LeakError, LargeFileError, WorkflowsForbiddenError, _NothingLeftError) as error:
        return _withheld(_CAUSES[type(error)], str(error))
    return await _told(sender, publication, commit, job, sent)


async def _sent(sender: CommitSender, publication: Publication, commit: CommitPlan, job: Job, *, replay: bool) -> Sent:
    """Send the commit; where people pushed to its branch meanwhile, follow them."""
    try:
        return await sender.send(commit, publication.pull_request if commit.create_branch else None)
    except (HeadMovedError, PushRejectedError) as moved:
        if commit.create_branch or not replay:
            raise
        return await _catch_up(sender, commit, job, moved)


async def _catch_up(sender: CommitSender, commit: CommitPlan, job: Job, moved: BotError) -> Sent:
    for _ in range(REPLAYS):
        head = await sender.github.repos.branch_head(sender.target.repo.full_name, commit.branch)
        if head is None or head == commit.expected_head:
            raise moved
        try:
            # Make the same change on the commit that the branch stands at now.
            earlier = (await sender.record.read()).onto
            token = await sender.github.tokens.for_clone(sender.target.repo.full_name)
            onto = Source(url=sender.target.repo.clone_url, token=token, ref=f"refs/heads/{commit.branch}", sha=head)
            change = await sender.pusher.replay(commit.change, onto)
            if change:
                await sender.note_onto(head)
                return await sender.send(replace(commit, expected_head=head, change=change))
            # It may have been sent by an attempt that was killed before it could note it.
            sent = await sender.sent_on(commit, head, parent=earlier)
            if sent is None:
                raise _NothingLeftError(
                    "Somebody pushed the same change in the meantime, so there was nothing to publish."
                )
            return await sender.note(sent)
        except ConflictError:
            break
        except (HeadMovedError, PushRejectedError):
            continue
    return await sender.send(
        replace(commit, branch=branch_name(job, prefix=sender.target.branch_prefix), create_branch=True)
    )


async def _told(sender: CommitSender, publication: Publication, commit: CommitPlan, job: Job, sent: Sent) -> Delivered:
    """Open the pull request that belongs to what was sent, and say where all of it is."""
    delivered = Delivered(
        branch=sent.branch,
        commit_sha=sent.facts.sha,
        commit_url=sent.facts.html_url,
        withheld=publication.withheld,
    )
    request = publication.pull_request
    if sent.branch != commit.branch:
        note = f"People pushed to {code(commit.branch)} in the meantime, and the change conflicts with that."
        report = publication.report
        body = pull_body(job, "", server=sender.target.server, report=report, notes=(note,))
        draft = report is not None and report.verdict is not Verdict.VERIFIED
        request = PullDraft(base=commit.branch, title=commit.title, body=body, draft=draft)
        delivered = replace(delivered, note=f"{note} It is on a separate branch, with a pull request into that one.")
    elif sent.facts.parents != (commit.expected_head,):
        note = f"People pushed to {code(commit.branch)} in the meantime; the change was applied on top of that."
        delivered = replace(delivered, note=note, replayed=True)
    if request is not None:
        link = (await sender.record.read()).pull
        try:
            if link is None:
                link = await sender.github.pulls.create(
                    sender.target.repo.full_name, request, head=delivered.branch or ""
                )
        except GitHubError as error:
            if error.passing:
                raise
            said = f"{publication.withheld.reason} " if publication.withheld else ""
            reason = f"{said}The commit was pushed, but the pull request could not be created. {error}"
            return replace(delivered, withheld=Withheld(cause="no-pull-request", reason=reason))
        await sender.record.update(lambda done: replace(done, pull=link))
        return replace(delivered, pull_number=link.number, pull_url=link.html_url, pull_draft=link.draft)
    if commit.create_branch:
        compared = f"{commit.expected_head}...{sent.branch}"
        return replace(delivered, wip_url=f"{sender.target.repo.html_url}/compare/{compared}")
    return delivered


def _withheld(cause: WithheldCause, reason: str) -> Delivered:
    return Delivered(withheld=Withheld(cause=cause, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlace:
    """Where a review goes.

    Attributes:
        repo: `owner/name`, from the job.
        number: of the pull request.
        marker: the job's, from `render.marker`; a review that was sent is known again by it.
    """

    repo: str
    number: int
    marker: str


async def publish_review(
    github: GitHub, record: RecordPart[Published], draft: ReviewDraft, *, place: ReviewPlace, dry_run: bool = False
) -> Delivered:
    """Review the pull request and give back where the review is.

    Args:
        github: acts for the job.
        record: what earlier attempts sent.
        draft: what to say.
        place: where.
        dry_run: send nothing, and tell what would be sent.

    Raises:
        GitHubError: GitHub refused or stayed silent; starting again sends nothing twice.
    """
    if dry_run:
        count = len(draft.notes)
        return Delivered(would=f"A review with {counted(count, 'comment')} on lines.")
    done = await record.read()
    if done.review_url is not None:
        return Delivered(review_url=done.review_url)
    review = await _find(github, place) if done.review_requested else None
    if review is None:
        # Noted first: who is stopped between the asking and the noting of the answer must look for it the next time.
        await record.update(lambda done: replace(done, review_requested=True))
        marked = replace(draft, body=f"{draft.body}\n\n{place.marker}")
        try:
            review = await github.reviews.create(place.repo, place.number, marked)
        except GitHubError as error:
            # The answer was lost, but the review may be there, now or in a moment. Nobody can take a second one
            # back, so this is started again later, and looks again first.
            if not error.may_be_done or (review := await _find(github, place)) is None:
                raise
    url = review.html_url
    await record.update(lambda done: replace(done, review_url=url))
    return Delivered(review_url=url)


async def _find(github: GitHub, place: ReviewPlace) -> ReviewFacts | None:
    me = await github.accounts.me()
    reviews = await github.reviews.of_pull(place.repo, place.number)
    return next((each for each in reviews if each.author_id == me.id and place.marker in each.body), None)


class Pusher(Protocol):
    """The trusted git directory; `bot.git.tree.Tree` is one."""

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
    """The repository that a publication may go to, and the prefix of the bot's own branches in it."""

    repo: RepoFacts
    branch_prefix: str = OWN_PREFIX

    @property
    def server(self) -> str:
        """Return GitHub's address for people."""
        return self.repo.html_url.removesuffix(f"/{self.repo.full_name}")


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
        return Sent(branch=noted.branch, facts=await self.github.repos.commit(self.target.repo.full_name, noted.sha))

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
            token = await self.github.tokens.for_push(self.target.repo.full_name)
            await self.pusher.upload(
                commit.change.large, branch=commit.branch, url=self.target.repo.clone_url, token=token
            )
        link = None
        try:
            made, link = await self._commit(commit, request)
        except CannotExpressError:
            # A try that pushed it may have been killed before it could note it.
            head, earlier = await self.github.repos.branch_head(self.target.repo.full_name, commit.branch), None
            if head is not None and head != commit.expected_head:
                parent, tree = commit.expected_head, commit.change.tree_sha
                earlier = await self.sent_on(commit, head, parent=parent, tree_sha=tree)
            made = earlier.facts if earlier is not None else await self._push(commit)
        return await self.note(Sent(branch=commit.branch, facts=made, pull=link))

    async def sent_on(
        self, commit: CommitPlan, head: str, *, parent: str | None, tree_sha: str | None = None
    ) -> Sent | None:
        """The commit that a branch stands at, when it is ours and was made on `parent`; of a tree, if one is given."""
        facts = await self.github.repos.commit(self.target.repo.full_name, head)
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
                f"{commit.branch} is the default branch of {self.target.repo.full_name}; nothing was pushed."
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
        return branch.removeprefix("refs/heads/").casefold() == self.target.repo.default_branch.casefold()

    async def _commit(self, commit: CommitPlan, request: PullDraft | None) -> tuple[CommitFacts, PullLink | None]:
        # Checked before the branch is made: a branch without its commit would be half a publication.
        check_expressible(commit.change)
        if commit.change.writes_workflows and await self.github.tokens.may_write_workflows() is None:
            raise CannotExpressError("where a token may lack the permission, only a push makes both branch and commit")
        if not commit.create_branch:
            facts = await self.github.commits.on_branch(
                self.target.repo.full_name,
                branch=commit.branch,
                expected_head=commit.expected_head,
                title=commit.title,
                body=commit.body,
                change=commit.change,
            )
            return facts, None
        return await self.github.commits.on_new_branch(
            self.target.repo.full_name,
            node_id=self.target.repo.node_id,
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
        token = await self.github.tokens.for_push(self.target.repo.full_name, workflows=commit.change.writes_workflows)
        expected, url = "" if commit.create_branch else commit.expected_head, self.target.repo.clone_url
        try:
            await self.pusher.push(sha, branch=commit.branch, expected=expected, url=url, token=token)
        except GitError as error:
            what = f"push to {commit.branch} of {self.target.repo.full_name}"
            raise GitHubError(what, 0, error.stderr.strip(), remedy_for(0, "")) from error
        return await self.github.repos.commit(self.target.repo.full_name, sha)


def _leaks(change: Change, redactor: Redactor) -> list[str]:
    return [
        file.path
        for file in change.files
        if redactor.holds(file.path) or (file.content and redactor.holds(file.content.decode("latin-1")))
    ]
