"""Send a publication: branch, commit, pull request, each at most once however often this is started again.

It only ever adds. There is no force, no deletion, no tag, and the default branch is out of reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bot.domain.errors import BotError
from bot.domain.job import Job
from bot.github import GitHub, GitHubError, HeadMovedError, PullDraft
from bot.publishing.plan import CommitPlan, Publication
from bot.publishing.published import Published, RecordPart
from bot.publishing.redact import Redactor
from bot.publishing.sending import CommitSender, ForbiddenTargetError, LeakError, Pusher, Sent, Target
from bot.publishing.text import code
from bot.publishing.verdict import Verdict
from bot.publishing.withheld import Withheld, WithheldCause
from bot.publishing.wording import branch_name, pull_body
from bot.workspace import ConflictError, LargeFileError, PushRejectedError, Source, WorkflowsForbiddenError

__all__ = ["Delivered", "ForbiddenTargetError", "Pusher", "Target", "publish"]

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
        head = await sender.github.repos.branch_head(sender.target.repo, commit.branch)
        if head is None or head == commit.expected_head:
            raise moved
        try:
            # Make the same change on the commit that the branch stands at now.
            earlier = (await sender.record.read()).onto
            token = await sender.github.tokens.for_clone(sender.target.repo)
            onto = Source(url=sender.target.clone_url, token=token, ref=f"refs/heads/{commit.branch}", sha=head)
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
                link = await sender.github.pulls.create(sender.target.repo, request, head=delivered.branch or "")
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
        return replace(delivered, wip_url=f"{sender.target.html_url}/compare/{compared}")
    return delivered


def _withheld(cause: WithheldCause, reason: str) -> Delivered:
    return Delivered(withheld=Withheld(cause=cause, reason=reason))
