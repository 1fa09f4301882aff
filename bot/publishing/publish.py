"""Publish to GitHub: a branch, a commit and a pull request, each at most once across restarts.

Nothing is forced, deleted, tagged, or written to the default branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bot.domain.branch_rules import find_rule
from bot.domain.errors import BotError
from bot.domain.job import Job
from bot.git.change import Change
from bot.git.errors import ConflictError, LargeFileError, PushRejectedError, WorkflowsForbiddenError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.github.client import GitHub
from bot.github.graphql import check_expressible
from bot.github.repos import is_same_commit
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
)
from bot.permissions.levels import BRANCH_PREFIX
from bot.publishing.checks import Verdict
from bot.publishing.description import Description
from bot.publishing.markdown import code, plural
from bot.publishing.outcome import CommitRef, Omission, OmissionCause, Published
from bot.publishing.plan import CommitPlan, Publication, branch_name, pull_body
from bot.publishing.redact import Redactor
from bot.publishing.status_view import RecordPart

REPLAYS = 2
"""Number of times a change follows a branch that other people push to, before it gets its own branch."""


class ForbiddenTargetError(BotError):
    """A plan for the default branch or for a foreign branch, which is a programming error."""


class LeakError(BotError):
    pass


class _EmptyReplayError(BotError):
    pass


_WITHHELD_CAUSES: Mapping[type[BotError], OmissionCause] = {
    LeakError: "secret",
    LargeFileError: "large-file",
    WorkflowsForbiddenError: "workflows",
    _EmptyReplayError: "published-already",
}


async def publish(
    github: GitHub,
    record: RecordPart[Published],
    publication: Publication,
    *,
    job: Job,
    target: Target,
    pusher: Tree,
    redactor: Redactor,
    replay: bool = False,
    dry_run: bool = False,
    last_try: bool = False,
) -> Published:
    """Send a planned publication, or only describe it (`dry_run`).

    With `replay`, follows a branch that moved at most `REPLAYS` times, then opens a pull request into it. If GitHub
    refuses the pull request for good, or at the `last_try`, the commit remains.

    Raises:
        ForbiddenTargetError: the plan names the default branch or a foreign branch.
        GitHubError: GitHub refused or did not answer; a retry resumes.
        WorkspaceError: git failed.
    """
    commit = publication.commit
    if commit is None:
        return Published(withheld=publication.withheld)
    sender = CommitSender(github=github, record=record, target=target, pusher=pusher, redactor=redactor)
    if not commit.create_branch and sender.is_default(commit.branch):
        reason = "The pull request comes from the default branch, which the bot never pushes to."
        return _withhold("default-branch", reason)
    try:
        if dry_run:
            await sender.check(commit)
            new, request = "new branch" if commit.create_branch else "branch", publication.pull_request
            summary = f"A commit {code(commit.title)} on the {new} {code(commit.branch)}"
            if request is not None:
                summary += f", and a {'draft ' if request.draft else ''}pull request from it into {code(request.base)}"
            return Published(withheld=publication.withheld, dry_run_note=f"{summary}.")
        sent = await sender.find_recorded() or await _send(sender, publication, commit, job, replay=replay)
    except (HeadMovedError, PushRejectedError) as error:
        moved = "moved while the bot was working, and " if isinstance(error, HeadMovedError) else ""
        return _withhold("branch-moved", f"The branch {moved}was not changed. {error}")
    except (GitHubError, LeakError, LargeFileError, WorkflowsForbiddenError, _EmptyReplayError) as error:
        if isinstance(error, GitHubError) and find_rule(error.message) is None:
            raise
        return _withhold(_WITHHELD_CAUSES.get(type(error), "refused"), " ".join(str(error).split()))
    return await _finish(sender, publication, commit, job, sent, last_try=last_try)


async def _send(sender: CommitSender, plan: Publication, commit: CommitPlan, job: Job, *, replay: bool) -> SentCommit:
    try:
        return await sender.send(commit, plan.pull_request if commit.create_branch else None)
    except (HeadMovedError, PushRejectedError) as moved:
        # A resolution of conflicts is of two certain commits.
        if commit.create_branch or not replay or commit.merge is not None:
            raise
        return await _follow_branch(sender, commit, job, moved)


async def _follow_branch(sender: CommitSender, commit: CommitPlan, job: Job, moved: BotError) -> SentCommit:
    for _ in range(REPLAYS):
        head = await sender.github.repos.branch_head(sender.target.repo.full_name, commit.branch)
        if head is None or head == commit.expected_head:
            raise moved
        try:
            # Apply the change to the branch's current head.
            earlier = (await sender.record.read()).onto
            token = await sender.github.tokens.for_clone(sender.target.repo.full_name)
            onto = Source(url=sender.target.repo.clone_url, token=token, ref=f"refs/heads/{commit.branch}", sha=head)
            change = await sender.pusher.replay(commit.change, onto)
            if change:
                await sender.record_replay_base(head)
                return await sender.send(replace(commit, expected_head=head, change=change))
            # An interrupted attempt may have sent it without recording it.
            sent = await sender.find_interrupted(commit, head, parents=() if earlier is None else (earlier,))
            if sent is None:
                raise _EmptyReplayError("The same change was pushed in the meantime, so there was nothing to publish.")
            return await sender.record_sent(sent)
        except ConflictError:
            break
        except (HeadMovedError, PushRejectedError):
            continue
    return await sender.send(
        replace(commit, branch=branch_name(job, prefix=sender.target.branch_prefix), create_branch=True)
    )


async def _finish(
    sender: CommitSender, plan: Publication, commit: CommitPlan, job: Job, sent_commit: SentCommit, *, last_try: bool
) -> Published:
    result = Published(commit=sent_commit.ref, withheld=plan.withheld)
    request = plan.pull_request
    if sent_commit.branch != commit.branch:
        note = f"People pushed to {code(commit.branch)} in the meantime, and the change conflicts with that."
        body = pull_body(
            job, "", server=sender.target.server, account=plan.account, verdict=plan.verdict, notes=(note,)
        )
        draft = plan.verdict not in {None, Verdict.VERIFIED}
        text = Description(title=commit.title, body=body).sealed
        request = PullDraft(base=commit.branch, title=text.title, body=text.body, draft=draft)
        result = replace(result, note=f"{note} It is on a separate branch, with a pull request into that one.")
    elif sent_commit.facts.parents != commit.parents:
        note = f"People pushed to {code(commit.branch)} in the meantime; the change was applied on top of that."
        result = replace(result, note=note, replayed=True)
    if request is not None:
        link = (await sender.record.read()).pull
        try:
            if link is None:
                link = await sender.github.pulls.create(sender.target.repo.full_name, request, head=sent_commit.branch)
        except GitHubError as error:
            if error.certainty != "definite" and not last_try:
                raise
            # Without an answer, the error may name an address of the operator's network.
            answer = f"{error}" if error.status else "GitHub did not answer."
            earlier = f"{plan.withheld.reason} " if plan.withheld else ""
            reason = f"{earlier}The commit was pushed, but the pull request could not be created. {answer}"
            return replace(result, withheld=Omission(cause="no-pull-request", reason=reason))
        await sender.record.update(lambda stored: replace(stored, pull=link))
        return replace(result, pull=link)
    if commit.create_branch:
        span = f"{commit.expected_head}...{sent_commit.branch}"
        return replace(result, wip_url=f"{sender.target.repo.html_url}/compare/{span}")
    return result


def _withhold(cause: OmissionCause, reason: str) -> Published:
    return Published(withheld=Omission(cause=cause, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewTarget:
    repo: str
    number: int
    marker: str


async def publish_review(
    github: GitHub, record: RecordPart[Published], draft: ReviewDraft, *, target: ReviewTarget, dry_run: bool = False
) -> Published:
    """Send a review, or only describe it (`dry_run`).

    Raises:
        GitHubError: GitHub refused or did not answer; a retry sends nothing twice.
    """
    if dry_run:
        count = len(draft.notes)
        return Published(dry_run_note=f"A review with {plural(count, 'comment')} on lines.")
    stored = await record.read()
    if stored.review_url is not None:
        return Published(review_url=stored.review_url)
    review = await _find_review(github, target) if stored.review_requested else None
    if review is None:
        # Recorded before the request: an attempt interrupted before its response must look for the review next time.
        await record.update(lambda stored: replace(stored, review_requested=True))
        marked = replace(draft, body=f"{draft.body}\n\n{target.marker}")
        try:
            review = await github.reviews.create(target.repo, target.number, marked)
        except GitHubError as error:
            # The response was lost, but the review may exist, now or soon. A second one could not be deleted, so a
            # retry looks for it first.
            if not error.may_have_succeeded or (review := await _find_review(github, target)) is None:
                raise
    url = review.html_url
    await record.update(lambda stored: replace(stored, review_url=url))
    return Published(review_url=url)


async def _find_review(github: GitHub, target: ReviewTarget) -> ReviewFacts | None:
    me = await github.accounts.me()
    reviews = await github.reviews.list_for_pull(target.repo, target.number)
    return next((review for review in reviews if review.author.id == me.id and target.marker in review.body), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    repo: RepoFacts
    branch_prefix: str = BRANCH_PREFIX

    @property
    def server(self) -> str:
        return self.repo.html_url.removesuffix(f"/{self.repo.full_name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCommit:
    branch: str
    facts: CommitFacts
    pull: PullLink | None = None

    @property
    def ref(self) -> CommitRef:
        return CommitRef(sha=self.facts.sha, branch=self.branch, url=self.facts.html_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSender:
    github: GitHub
    record: RecordPart[Published]
    target: Target
    pusher: Tree
    redactor: Redactor = field(repr=False)

    async def find_recorded(self) -> SentCommit | None:
        ref = (await self.record.read()).commit
        if ref is None:
            return None
        return SentCommit(branch=ref.branch, facts=await self.github.repos.commit(self.target.repo.full_name, ref.sha))

    async def send(self, commit: CommitPlan, request: PullDraft | None = None) -> SentCommit:
        """Create the commit on its branch, or find the one an interrupted attempt created.

        Raises:
            LeakError: the change contains a secret.
            HeadMovedError: the branch moved.
            PushRejectedError: the server rejected the push.
            WorkflowsForbiddenError: the token may not change workflow files.
            LargeFileError: Git LFS rejected an object.
            GitHubError: GitHub refused or did not answer.
        """
        await self.check(commit)
        if commit.change.large:  # objects that Git LFS has are skipped
            token = await self.github.tokens.for_push(self.target.repo.full_name)
            await self.pusher.upload(
                commit.change.large, branch=commit.branch, url=self.target.repo.clone_url, token=token
            )
        link = None
        try:
            facts, link = await self._commit(commit, request)
        except CannotExpressError:
            # An interrupted attempt may have pushed it without recording it.
            head, earlier = await self.github.repos.branch_head(self.target.repo.full_name, commit.branch), None
            if head is not None and head != commit.expected_head:
                tree = commit.change.tree_sha
                earlier = await self.find_interrupted(commit, head, parents=commit.parents, tree_sha=tree)
                if earlier is None and commit.merge is not None:
                    text = f"{code(commit.branch)} is at {head[:10]} now."
                    raise PushRejectedError(text, "Give the command again to merge into that.") from None
            facts = earlier.facts if earlier is not None else await self._push(commit)
        return await self.record_sent(SentCommit(branch=commit.branch, facts=facts, pull=link))

    async def find_interrupted(
        self, commit: CommitPlan, head: str, *, parents: tuple[str, ...], tree_sha: str | None = None
    ) -> SentCommit | None:
        facts = await self.github.repos.commit(self.target.repo.full_name, head)
        tree_sha, message = facts.tree_sha if tree_sha is None else tree_sha, self._message(commit)
        if not parents or not is_same_commit(facts, parents=parents, tree_sha=tree_sha, message=message):
            return None
        return SentCommit(branch=commit.branch, facts=facts)

    async def record_sent(self, sent_commit: SentCommit) -> SentCommit:
        pull = sent_commit.pull
        await self.record.update(lambda stored: replace(stored, commit=sent_commit.ref, pull=pull or stored.pull))
        return sent_commit

    async def record_replay_base(self, head: str) -> None:
        await self.record.update(lambda stored: replace(stored, onto=head))

    async def check(self, commit: CommitPlan) -> None:
        """Verify that a commit may be sent.

        Raises:
            ForbiddenTargetError: the branch is the default branch or foreign.
            LeakError: the change contains a secret.
            WorkflowsForbiddenError: the token may not change workflow files.
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
        # Takes seconds for large files, which would block the event loop.
        leaks = await asyncio.to_thread(_find_leaks, commit.change, self.redactor)
        leaks += await self.pusher.find_large_files(commit.change.large, self.redactor.has_secret)
        if leaks:
            names = ", ".join(code(self.redactor.redact(path)) for path in leaks)
            raise LeakError(f"{names} contains one of the bot's secrets. Nothing was published.")
        if commit.writes_workflows and await self.github.tokens.can_write_workflows() is False:
            raise WorkflowsForbiddenError

    def is_default(self, branch: str) -> bool:
        return branch.removeprefix("refs/heads/").casefold() == self.target.repo.default_branch.casefold()

    async def _commit(self, commit: CommitPlan, request: PullDraft | None) -> tuple[CommitFacts, PullLink | None]:
        # Before the branch is created: a branch without its commit would be a partial publication.
        if commit.merge is not None:
            raise CannotExpressError("GitHub's commit API makes no commit with two parents")
        check_expressible(commit.change)
        if commit.change.writes_workflows and await self.github.tokens.can_write_workflows() is None:
            raise CannotExpressError("the token may lack the permission; only a push makes branch and commit at once")
        if not commit.create_branch:
            facts = await self.github.commits.create(
                self.target.repo.full_name,
                branch=commit.branch,
                expected_head=commit.expected_head,
                title=commit.title,
                body=commit.body,
                change=commit.change,
            )
            return facts, None
        return await self.github.commits.create_with_branch(
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
        return self.github.redact_text(f"{commit.title}\n\n{commit.body}\n")

    async def _push(self, commit: CommitPlan) -> CommitFacts:
        sha = await self.pusher.commit(commit.change, message=self._message(commit), parents=commit.parents)
        token = await self.github.tokens.for_push(self.target.repo.full_name, workflows=commit.writes_workflows)
        expected, url = "" if commit.create_branch else commit.expected_head, self.target.repo.clone_url
        await self.pusher.push(sha, branch=commit.branch, expected=expected, url=url, token=token)
        return await self.github.repos.commit(self.target.repo.full_name, sha)


def _find_leaks(change: Change, redactor: Redactor) -> list[str]:
    return [
        file.path
        for file in change.files
        if redactor.has_secret(file.path) or (file.content and redactor.has_secret(file.content.decode("latin-1")))
    ]
