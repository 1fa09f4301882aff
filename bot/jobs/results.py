"""Publish a result, request its approval or store it; revert the bot's last commit.

Start with `deliver`, which checks access again. Files whose approval nobody can give are left out.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from agent_runtime import Outcome, Status
from bot.domain.commands import Command, Describe, Edit, Plan, Review, Test
from bot.domain.difference import DiffLines
from bot.domain.job import Job, Thread
from bot.git.change import Change, FileChange
from bot.git.errors import ChangeError, WorkflowsForbiddenError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.github.rate_limit import Urgency
from bot.github.types import GitHubError, ReviewDraft
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot, check_access, fetch_snapshot
from bot.jobs.actions import apply_actions, plan_actions, request_actions
from bot.jobs.admission import Assignment, add_pull, branch_number, decide, pin_format, read_format, refresh_pull
from bot.jobs.context import JobContext
from bot.jobs.material import compare_pull
from bot.jobs.own_pulls import OWN_BRANCH, add_commit, conclude_undo, next_step
from bot.jobs.record import Request
from bot.jobs.repo_settings import find_pull_template
from bot.jobs.setup import RepoSettings
from bot.jobs.stamps import with_unread
from bot.jobs.status import post_parts, status_view
from bot.jobs.steering import LONG_PLAN, job_from_plan, keep_plan
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS
from bot.publishing.checks import Verdict, verdict_of
from bot.publishing.description import Description, parse_description
from bot.publishing.markdown import clean, code, fence
from bot.publishing.outcome import (
    ActionView,
    CommitRef,
    Failed,
    Finished,
    JobOutcome,
    Omission,
    PendingView,
    Published,
    Stopped,
    Waiting,
)
from bot.publishing.plan import (
    CommitTarget,
    Publication,
    add_marks,
    explain_end,
    plan_publication,
    plan_undo,
    requester_of,
    withhold,
)
from bot.publishing.publish import ReviewTarget, publish_review
from bot.publishing.render import COMPLETION_LIMIT, headline
from bot.publishing.review import comment_key, commented_paths, extract_prose, parse_review
from bot.publishing.screening import ChangePreview, Objection, fits_comment, show_files, split_sections


async def deliver(
    context: JobContext,
    assignment: Assignment,
    tree: Tree,
    run: Outcome,
    change: Change,
    *,
    approved_tree: str = "",
    denial: str = "",
) -> JobOutcome:
    """Publish the change and apply the proposals, or request an approval.

    Args:
        approved_tree: the git tree that a person approved.
        denial: why an earlier request for the approval of the change was not granted.
    """
    context.github.raise_priority(Urgency.RESULT)
    # A run takes long enough for people to close the thread, to move the repository or to lose their role.
    access = await check_access(context.github, context.job, bounds=context.services.bounds)
    snapshot = fetch_snapshot(context.job, access)
    current = await refresh_pull(context, snapshot, assignment.snapshot.thread.continues)
    snapshot = snapshot if isinstance(current, Refusal) else current
    decision = await decide(context, current, assignment.settings.config, is_resumed=True)
    actions = await plan_actions(context, assignment, decision, run)
    if actions.waiting:
        actions = await apply_actions(context, actions)  # those that need no approval
    if (request := await request_actions(context, actions, bound_to=assignment.grant.bound_to_sha)) is not None:
        # Those that wait are in the request.
        decided = tuple(view for view in actions.views if view.state != "waiting")
        return await wait_for(context, request, completion=run.summary, actions=decided)
    present = Present(snapshot=snapshot, decision=decision)
    outcome = await _deliver_change(
        context, assignment, present, tree, run, change, approved_tree=approved_tree, denial=denial
    )
    if isinstance(outcome, Waiting):
        return outcome
    withheld = outcome.published.withheld
    if withheld is not None and withheld.cause == "denied":  # they belong to the change, such as to close its issue
        denied = {proposal.number: "The change was denied." for proposal in actions.ready}
        actions = replace(actions, objections={**actions.objections, **denied})
    actions = await apply_actions(context, actions)
    return replace(outcome, actions=actions.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The thread after the run, and what the job may do in it."""

    snapshot: ThreadSnapshot
    decision: Grant | Refusal


async def _deliver_change(  # noqa: PLR0917 - the values of its one caller
    context: JobContext,
    assignment: Assignment,
    present: Present,
    tree: Tree,
    run: Outcome,
    change: Change,
    *,
    approved_tree: str,
    denial: str,
) -> JobOutcome:
    grant, snapshot = assignment.grant, present.snapshot
    plan = partial(_plan, context, assignment, present, run)
    publication = await plan(change, approved_tree=approved_tree, denial=denial)
    is_new = run.status is Status.FINISHED and not approved_tree and not denial
    if publication.blocked and is_new and context.can_ask and not grant.dry_run:
        paths = [path for objection in publication.blocked for path in objection.files]
        preview = await asyncio.to_thread(show_files, change, paths, context.github.redact_text)
        if not preview.obstacle:
            request = await publication_request(context, publication, change, preview, bound_to=grant.bound_to_sha)
            await waiting.store_request(context.record, request)
            return await wait_for(context, request, completion=run.summary, files=change.files, patch=change.patch)
        publication = withhold(publication, "needs-approval", preview.obstacle)
    part = None
    if publication.blocked and is_new and not context.can_ask:
        part = await remove_blocked(tree, change, publication.blocked, context.github.redact_text)
        if part.rest is not None:
            publication = await plan(part.rest, left_out=publication.blocked)
    published = await context.publish(
        publication,
        snapshot.repo,
        tree,
        # What a person approved, and what was proven, is this very tree, and no other.
        replay=grant.replay and not approved_tree and not denial and context.job.origin.kind != "ci",
        dry_run=grant.dry_run,
    )
    if published.replayed:
        context.state.add_edits(math.inf, math.inf)  # no check ran on the result
    commit = published.commit
    on_head = commit is not None and commit.branch == snapshot.thread.head_ref and not published.note
    if commit is not None and on_head and context.job.thread.kind == "pull":
        await context.ledger.rebind_labels(snapshot.repo.id, context.job.thread.number, grant.bound_to_sha, commit.sha)
    published = await add_pull(context, snapshot, published, change)
    number = snapshot.thread.continues or (context.job.thread.number if context.job.thread.kind == "pull" else 0)
    if commit is not None and on_head and number and publication.verdict and OWN_BRANCH.search(commit.branch):
        words = " ".join(headline(publication.verdict, context.state.progress.judged_checks))
        line = f"{commit.sha[:10]}, for {requester_of(context.job)}: {words}"
        await add_commit(context, snapshot.repo.full_name, number, line)
    if isinstance(assignment.command, Describe) and run.status is Status.FINISHED:
        described = await describe_pull(context, assignment, run, published, approved=approved_tree)
        if isinstance(described, Waiting):
            return described
        run, published = described
    return await _conclude(context, assignment, snapshot, run, change, published, publication.notes, part)


async def wait_for(
    context: JobContext,
    request: Request,
    *,
    run: Outcome | None = None,
    completion: str | None = None,
    files: tuple[FileChange, ...] = (),
    patch: str = "",
    actions: tuple[ActionView, ...] = (),
) -> Waiting:
    """Post the request in full, and return the outcome of a waiting job."""
    pending = pending_view(context, request)
    outcome = Waiting(
        until=request.until,
        pending=pending,
        run=run,
        completion=completion,
        files=files,
        patch=patch,
        actions=actions,
    )
    if request.kind in {"publication", "actions"} and not fits_comment(request.preview):
        parts = await post_parts(context, status_view(context, outcome))
        outcome = replace(outcome, pending=replace(pending, part_urls=parts))
    return outcome


async def find_denial(context: JobContext, request: Request, stop_reason: str) -> str | None:
    """Return why a request is not granted, or an empty text if it is; None while it waits."""
    answer = (await context.record.read()).approvals.answers.get(request.request_id)
    if stop_reason:
        return stop_reason
    if answer is not None:
        suffix = f": {answer.note}" if answer.note else "."
        return "" if answer.approved else f"@{answer.by.login} said no{suffix}"
    return None if request.until > time.time() else waiting.describe_timeout(request)


async def continue_plan(context: JobContext, assignment: Assignment, run: Outcome, request: Request) -> JobOutcome:
    """Start the work on an approved plan."""
    denial = await find_denial(context, request, context.state.inbox.stop_reason)
    if denial is None:
        return await wait_for(context, request, completion=run.summary)
    note = denial
    if not denial and isinstance(assignment.command, Plan):
        await context.queue.accept(job_from_plan(context.job, _plan_text(context, run)))
        note = "The plan was approved; the work on it has started."
    return Finished(completion=run.summary, reason=note)


async def _offer_work(context: JobContext, assignment: Assignment, run: Outcome) -> JobOutcome | tuple[str, ...]:
    """Ask for the approval of a plan, or return notes on how its work can start."""
    plan = _plan_text(context, run)
    work = context.for_job(job_from_plan(context.job, plan))
    decision = await decide(work, assignment.snapshot, assignment.settings.config, is_resumed=True)
    if isinstance(decision, Refusal):  # as in a fork's pull request
        return (decision.reason,)
    if context.can_ask:
        return await _request_plan_approval(context, assignment, run)
    is_posted = context.job.thread.has_comments and context.comment_mode == "always"
    can_continue = context.services.stamps is not None and is_posted
    return (await keep_plan(context, plan),) if can_continue else ()


async def _request_plan_approval(context: JobContext, assignment: Assignment, run: Outcome) -> JobOutcome:
    if len(_plan_text(context, run)) > COMPLETION_LIMIT:
        return Finished(completion=run.summary, reason=LONG_PLAN)
    request = Request(
        kind="plan",
        request_id=secrets.token_hex(4),
        reason="",
        preview="",
        bound_to=assignment.grant.bound_to_sha,
        until=time.time() + context.services.bounds.approval_seconds,
    )
    await waiting.store_request(context.record, request)
    return await wait_for(context, request, run=run, completion=run.summary)


def _plan_text(context: JobContext, run: Outcome) -> str:
    """Return the plan as its comment shows it; only visible text is carried out."""
    return context.github.redact_text(clean(run.summary or ""))


async def _plan(
    context: JobContext,
    assignment: Assignment,
    present: Present,
    run: Outcome,
    change: Change,
    *,
    approved_tree: str = "",
    denial: str = "",
    left_out: tuple[Objection, ...] = (),
) -> Publication:
    if assignment.closing:
        return Publication(commit=None, pull_request=None)
    if isinstance(present.decision, Refusal):
        withheld = Omission(cause="refused", reason=present.decision.reason)
        return Publication(commit=None, pull_request=None, withheld=withheld)
    snapshot = present.snapshot
    is_new = assignment.grant.publish == "new_branch" and run.status is Status.FINISHED
    target = CommitTarget(
        base_branch=assignment.settings.config.base or snapshot.thread.base_ref,
        head_branch=snapshot.thread.head_ref if assignment.grant.publish == "pull_branch" else None,
        server=context.services.server_url,
        prefix=context.branch_prefix,
        run_url=context.state.run_url,
        # A branch with the rest of a merge would be no work to go on with.
        keep_unfinished=assignment.settings.config.wip_branches and assignment.merge is None,
        merge=assignment.merge,
        number=await branch_number(context, snapshot.repo.full_name) if change else 1,
        commit_format=await pin_format(context, assignment.settings),
        template=await find_pull_template(context, assignment.base) if change and is_new else "",
    )
    changed, is_partial = bool(change) or assignment.merge is not None, bool(left_out or change.exclusions.omitted)
    verdict = judge_run(context, assignment.command, changed=changed, partial=is_partial)
    # The words are read by GitHub's parser several times.
    publication = await asyncio.to_thread(
        plan_publication,
        context.job,
        assignment.grant,
        run,
        change,
        target,
        approved=frozenset({approved_tree} - {""}),
        exclusions=left_out,
        progress=context.state.progress,
        verdict=verdict or Verdict.UNCHANGED,
    )
    publication = add_marks(publication, context.marker if context.job.thread.kind == "issue" else "")
    return withhold(publication, "denied", denial) if denial else publication


def judge_run(context: JobContext, command: Command, *, changed: bool, partial: bool = False) -> Verdict | None:
    """Return the verdict of a finished run; None if it needed no change or test and setup succeeded.

    `partial` changes lack files that were checked.
    """
    progress = context.state.progress
    failed = bool(progress.setup_failed)
    if isinstance(command, Edit | Test):
        changed = changed or not isinstance(command, Edit)
        return verdict_of(progress.judged_checks, changed=changed, setup_failed=failed, partial=partial)
    return Verdict.SETUP_FAILED if failed else None


async def _conclude(  # noqa: PLR0917 - the values of its one caller
    context: JobContext,
    assignment: Assignment,
    snapshot: ThreadSnapshot,
    run: Outcome,
    change: Change,
    published: Published,
    notes: tuple[str, ...],
    part: PartialChange | None,
) -> JobOutcome:
    command, is_done = assignment.command, run.status is Status.FINISHED
    if isinstance(command, Plan) and is_done:
        offer = await _offer_work(context, assignment, run)
        if not isinstance(offer, tuple):
            return offer
        notes = (*notes, *offer)
    is_review = isinstance(command, Review) and is_done
    review = await read_review(context, assignment, run) if is_review else None
    if review is not None and not published.withheld:
        published = await send_review(context, assignment, snapshot, review)
    partial = published.commit is not None and (part is not None or bool(change.exclusions.omitted))
    changed = bool(change) or assignment.merge is not None
    verdict = judge_run(context, command, changed=changed, partial=partial) if is_done else None
    if verdict is not None:
        await context.record.update(lambda record: replace(record, verdict=verdict))
    # Read-only commands report no files, and withhold nothing.
    is_fix = isinstance(command, Edit)
    sent, patch = change, change.patch if is_fix else ""
    if published.commit is not None:
        sent, patch = change if part is None or part.rest is None else part.rest, "" if part is None else part.patch
    if not isinstance(command, Edit | Review | Describe):
        published = replace(published, withheld=None)
    run = replace(run, output_json=context.github.redact_text(run.output_json))
    reason, remedy = explain_end(run)
    facts: dict[str, Any] = {
        "reason": reason,
        "remedy": remedy,
        "notes": notes or (change.notes if is_fix else ()),
        "run": run,
        "completion": await asyncio.to_thread(extract_prose, run.summary or "") if review else run.summary,
        "files": sent.files if is_fix else (),
        "published": published,
        "review": review,
        "patch": patch,
        "partial": partial,
        "withheld_diff": part.diff if part is not None else "",
        "leftovers": change.exclusions.patch if is_fix else "",
    }
    if is_done:
        return Finished(verdict=verdict, **facts)
    return Stopped(**facts) if run.status is Status.STOPPED else Failed(**facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChange:
    """The files that were left out of a change.

    Attributes:
        rest: the change without them; None if empty or not applicable.
        diff: for users; empty if it cannot be shown.
    """

    rest: Change | None
    diff: str
    patch: str


async def remove_blocked(
    tree: Tree, change: Change, blocked: tuple[Objection, ...], redact: Callable[[str], str]
) -> PartialChange:
    paths = {path for objection in blocked for path in objection.files}
    preview = await asyncio.to_thread(show_files, change, sorted(paths), redact)
    try:
        rest = await tree.exclude(change, paths)
    except ChangeError:
        return PartialChange(rest=None, diff=preview.diff, patch=change.patch)
    patch = "".join([section for path, section in split_sections(change.patch) if path in paths])
    return PartialChange(rest=rest or None, diff=preview.diff, patch=patch)


async def publication_request(
    context: JobContext, publication: Publication, change: Change, preview: ChangePreview, *, bound_to: str
) -> Request:
    reasons = [objection.sentence for objection in publication.blocked]
    if preview.has_escapes:
        reasons.append("Invisible characters are escaped below, as in `[U+202E]`.")
    if other_files := len(change.files) - len({path for objection in publication.blocked for path in objection.files}):
        reasons.append(f"Other changed files, which require no approval: {other_files}.")
    if change.writes_workflows and await context.github.tokens.can_write_workflows() is False:
        reasons.append(f"Before you approve: {WorkflowsForbiddenError().reason} Without it nothing can be published.")
    return Request(
        kind="publication",
        request_id=secrets.token_hex(4),
        reason=" ".join(reasons),
        preview=preview.diff,
        bound_to=bound_to,
        until=time.time() + context.services.bounds.approval_seconds,
        tree_sha=change.tree_sha,
    )


def pending_view(context: JobContext, request: Request) -> PendingView:
    until = datetime.fromtimestamp(request.until, UTC)
    language: Literal["diff", "bash", ""] = "bash" if request.kind == "permission" else ""
    grant = context.state.grant
    is_change = request.kind == "publication" and (grant is None or grant.publish != "description")
    if is_change or request.preview.startswith(("--- ", "diff ")):
        language = "diff"
    return PendingView(
        kind=request.kind,
        request_id=request.request_id,
        trigger=context.job.trigger,
        # On its own: what looks like the beginning of a secret must not take what follows with it.
        reason=context.github.redact_text(request.reason),
        preview=request.preview,
        language=language,
        like=request.like,
        expires=f"{until.day} {until:%B %Y, %H:%M} UTC",
        takes_replies=request.kind == "question" and context.services.is_long_running,
    )


async def read_review(context: JobContext, assignment: Assignment, outcome: Outcome) -> ReviewDraft:
    completion = outcome.summary or ""
    comparison, paths = await compare_pull(context, assignment), await asyncio.to_thread(commented_paths, completion)
    commented = [file for file in comparison.files if paths.intersection(file.paths)]
    repo, workspaces = assignment.snapshot.repo, context.services.workspaces
    sections = await workspaces.read_sections(repo.id, comparison, commented)
    me = (await context.github.accounts.me()).id
    earlier = await context.github.reviews.list_line_comments(repo.full_name, context.job.thread.number)
    keys = {comment_key(comment.path, comment.body) for comment in earlier if comment.author.id == me}
    lines = await asyncio.to_thread(DiffLines.of, sections)
    return await asyncio.to_thread(
        parse_review,
        completion,
        lines,
        context.services.allowed(context.job),
        commit_sha=assignment.grant.bound_to_sha,
        earlier=keys,
        moved={file.previous: file.path for file in commented if file.previous},
        unread=context.state.progress.unread,
    )


async def send_review(
    context: JobContext, assignment: Assignment, snapshot: ThreadSnapshot, review: ReviewDraft
) -> Published:
    """Publish a review once, across restarts."""
    target = ReviewTarget(repo=snapshot.repo.full_name, number=context.job.thread.number, marker=context.marker)
    return await publish_review(
        context.github, context.record.published, review, target=target, dry_run=assignment.grant.dry_run
    )


async def describe_pull(
    context: JobContext, assignment: Assignment, run: Outcome, published: Published, *, approved: str
) -> Waiting | tuple[Outcome, Published]:
    """Replace the pull request's title and description, or request that, or only show the new ones.

    `approved` is the digest of the text that a person approved.
    """
    thread, grant = context.job.thread, assignment.grant
    old = Description(title=thread.title, body=thread.body)
    draft = await asyncio.to_thread(
        parse_description,
        run.summary or "",
        old,
        commit_format=await read_format(context, assignment.settings),
        template=await find_pull_template(context, assignment.base),
        allowed=context.services.allowed(context.job),
    )
    if draft is None:
        reason = "The agent's answer has no title with a description below it, or is too long."
        return run, replace(published, withheld=published.withheld or Omission(cause="unfinished", reason=reason))
    withheld = published.withheld
    if withheld is None and grant.publish == "nothing":
        withheld = Omission(cause="read-only", reason="At the level `read-only`, the new text is only shown.")
    if withheld is None and grant.asks_first and not grant.dry_run and approved != draft.digest:
        if context.can_ask:
            request = Request(
                kind="publication",
                request_id=secrets.token_hex(4),
                reason="It replaces the title (the first line) and the description of this pull request.",
                preview=f"{draft.title}\n\n{draft.body}",
                bound_to=grant.bound_to_sha,
                until=time.time() + context.services.bounds.approval_seconds,
                tree_sha=draft.digest,
            )
            await waiting.store_request(context.record, request)
            return await wait_for(context, request)
        reason = "Nobody can approve the new text in a workflow run; at the level `auto` it needs no approval."
        withheld = Omission(cause="needs-approval", reason=reason)
    if withheld is None and not grant.dry_run:
        withheld = await _replace_description(context, old, draft)
    if withheld is None and not grant.dry_run:
        text = (
            f"I replaced the title and the description. The title was {code(old.title)}. GitHub keeps the old "
            "description: open *edited* above the new one and choose the version before, to copy it back."
        )
        return replace(run, summary=text), published
    note = "A new title and a new description of the pull request." if grant.dry_run and withheld is None else ""
    text = f"The title would be {code(draft.title)}, and the description:\n\n{fence(draft.body, 'markdown')}"
    return replace(run, summary=text), replace(published, withheld=withheld, dry_run_note=note)


async def _replace_description(context: JobContext, old: Description, new: Description) -> Omission | None:
    """Send the new text, unless somebody has edited the old one since it was read."""
    repo, number = context.job.repo.full_name, context.job.thread.number
    pull = await context.github.pulls.get(repo, number)
    present = Description(title=pull.title, body=pull.body)
    if present.equals(new):  # an earlier attempt sent it
        return None
    if not present.equals(old):
        reason = (
            "Somebody has edited the title or the description since the command, so I left them as they are. Give the "
            "command again for a new proposal."
        )
        return Omission(cause="edited", reason=reason)
    try:
        await context.github.pulls.describe(repo, number, title=new.title, body=new.body)
    except GitHubError as error:
        if error.certainty != "definite":
            raise
        return Omission(cause="refused", reason=str(error))
    return None


async def resolve_undo_target(context: JobContext, snapshot: ThreadSnapshot) -> ThreadSnapshot | Refusal:
    """Return the snapshot of the commit to revert, or a refusal."""
    stored = (await context.record.read()).undoing
    job, commit = (None, stored) if stored else next(iter(await _list_commits(context, snapshot)), (None, None))
    if commit is None:
        reason = with_unread("There is no commit of mine in this thread to revert.", context.services.stamps)
        return Refusal(cause="nothing-to-undo", reason=reason)
    reversal = (await context.record_of(job).read()).reversal if job is not None else None
    if reversal is not None and reversal.closed:
        reason = f"My change is undone already, and I closed its pull request {reversal.closed}."
        remedy = next_step(context.job, commit.branch)
        return Refusal(cause="undone-already", reason=f"{reason} {remedy}")
    sha, branch = commit.sha, commit.branch
    if stored is None:
        head = await context.github.repos.branch_head(snapshot.repo.full_name, branch)
        if head is None:
            return Refusal(cause="undo-gone", reason=f"The branch `{branch}` with my commit has been deleted.")
        if head != sha:
            reason = (
                f"`{branch}` has moved on to {head[:10]} since my commit {sha[:10]}. I only revert the last "
                f"commit of a branch; use `git revert {sha[:10]}`."
            )
            return Refusal(cause="undo-moved", reason=reason)
        await context.record.update(lambda record: replace(record, undoing=commit))
    thread = replace(snapshot.thread, head_sha=sha, head_ref=branch, head_repo_id=snapshot.repo.id)
    return replace(snapshot, thread=thread)


async def revert_commit(
    context: JobContext, snapshot: ThreadSnapshot, grant: Grant, settings: RepoSettings, source: Source
) -> JobOutcome:
    async with context.services.workspaces.open(context.job.id, snapshot.repo.id, source) as tree:
        change = await tree.revert(grant.bound_to_sha)
        publication = plan_undo(
            context.job,
            grant,
            change,
            branch=snapshot.thread.head_ref,
            sha=grant.bound_to_sha,
            title=await tree.commit_title(grant.bound_to_sha),
            run_url=context.state.run_url,
            commit_format=await pin_format(context, settings),
        )
        # Git may have taken minutes, in which people lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        if not access.may_command:
            withheld = Omission(cause="refused", reason=NO_WRITE_ACCESS.reason)
            publication = Publication(commit=None, pull_request=None, withheld=withheld)
        published = await context.publish(publication, access.repo, tree, dry_run=grant.dry_run)
    if published.withheld:
        return Failed(files=change.files, published=published)
    completion = None if published.dry_run_note else f"I reverted commit {code(grant.bound_to_sha[:10])}."
    if published.commit is not None:
        commits = await _list_commits(context, snapshot)
        maker = next((job for job, commit in commits if commit.sha == change.base_sha), None)
        note = await conclude_undo(context, snapshot, change, published.commit, maker)
        completion = f"{completion} {note}".rstrip()
    return Finished(completion=completion, files=change.files, published=published)


async def _list_commits(context: JobContext, snapshot: ThreadSnapshot) -> list[tuple[Job, CommitRef]]:
    """Return the commits of the thread's jobs, newest first.

    For the bot's own pull request, also of jobs on its branch from another thread.
    """
    job, thread = context.job, snapshot.thread
    is_pull = job.thread.kind == "pull" and thread.head_repo_id == snapshot.repo.id
    own_branch = OWN_BRANCH.search(thread.head_ref) if is_pull else None
    keys = [job.thread.key]
    if own_branch is not None:
        keys.append(int(own_branch[2]) if own_branch[2] else Thread.of_branch(thread.base_ref).key)
    if context.services.stamps is not None:
        await context.services.stamps.restore(context.github, job, {key for key in keys if key > 0})
    jobs = [entry for key in keys for entry in await context.queue.jobs_in_thread(job.repo.id, key, limit=100)]
    commits = []
    for entry in sorted(jobs, key=lambda stored: stored.enqueued_at, reverse=True):
        commit = (await context.record_of(entry.job).read()).published.commit
        if commit is not None and entry.job.id != job.id and (own_branch is None or commit.branch == thread.head_ref):
            commits.append((entry.job, commit))
    return commits
