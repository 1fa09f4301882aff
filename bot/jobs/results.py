"""Publish a result, request its approval or store it; revert the bot's last commit.

Start with `ResultDelivery.deliver`, which checks access again. Files whose approval nobody can give are left out.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from agent_runtime import Outcome, Status
from bot.domain.commands import Fix, Plan, Review
from bot.domain.job import Job, JobState, Thread
from bot.events.delivery import job_id
from bot.git.change import Change
from bot.git.errors import ChangeError, WorkflowsForbiddenError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.github.rate_limit import Urgency
from bot.github.types import ReviewDraft
from bot.jobs import waiting
from bot.jobs.access import ThreadSnapshot, check_access, fetch_snapshot
from bot.jobs.admission import Assignment, add_pull, branch_number, decide, refresh_pull
from bot.jobs.context import Ending, JobContext
from bot.jobs.material import pull_diff
from bot.jobs.record import Request
from bot.jobs.status import StatusReporter, post_parts
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS
from bot.publishing.markdown import clean, code
from bot.publishing.plan import REMEDIES, CommitTarget, Publication, add_marker, plan_publication, plan_undo, withhold
from bot.publishing.publish import ReviewTarget, SendResult, Target, publish, publish_review
from bot.publishing.render import COMPLETION_LIMIT
from bot.publishing.review import comment_key, extract_prose, parse_review
from bot.publishing.screening import ChangePreview, Objection, fits_comment, show_files, split_sections
from bot.publishing.status_view import CommitRef, Omission, PendingView

_LONG_PLAN = "The plan is too long to be shown in full, so it cannot be approved. Ask for a shorter one."
_STATES = {Status.FINISHED: JobState.DONE, Status.STOPPED: JobState.STOPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalVerdict:
    """The decision about a change that waited for approval."""

    approved: bool
    reason: str = ""
    tree_sha: str = ""


class ResultDelivery:
    def __init__(self, context: JobContext, reporter: StatusReporter, assignment: Assignment) -> None:
        self._context, self._reporter, self._assignment = context, reporter, assignment

    async def deliver(
        self, tree: Tree, outcome: Outcome, change: Change, *, verdict: ApprovalVerdict | None = None
    ) -> Ending:
        """Publish the change, or request its approval; `verdict` is the answer to an earlier request."""
        context, assignment = self._context, self._assignment
        context.github.raise_priority(Urgency.RESULT)
        # A run takes long enough for people to close the thread, to move the repository or to lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        snapshot = fetch_snapshot(context.job, access)
        current = await refresh_pull(context, snapshot, assignment.snapshot.thread.continues)
        snapshot = snapshot if isinstance(current, Refusal) else current
        publication = await self._plan(current, outcome, change, verdict)
        finished = outcome.status is Status.FINISHED
        may_wait = context.can_ask and not assignment.grant.dry_run
        if publication.blocked and finished and verdict is None and may_wait:
            paths = [path for objection in publication.blocked for path in objection.files]
            preview = await asyncio.to_thread(show_files, change, paths, context.github.redact_text)
            if not preview.obstacle:
                request = await publication_request(context, publication, change, preview)
                await waiting.store_request(context.record, request)
                return await self.wait_for(request, patch=change.patch, completion=outcome.summary, files=change.files)
            publication = withhold(publication, "needs-approval", preview.obstacle)
        part = None
        if publication.blocked and finished and verdict is None and not context.can_ask:
            part = await remove_blocked(tree, change, publication.blocked, context.github.redact_text)
            if part.rest is not None:
                publication = await self._plan(current, outcome, part.rest, verdict, left_out=publication.blocked)
        delivered = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target(repo=snapshot.repo, branch_prefix=context.services.conventions.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            # What a person approved, and what was proven, is this very tree, and no other.
            replay=assignment.grant.replay and verdict is None and context.job.origin.kind != "ci",
            dry_run=assignment.grant.dry_run,
        )
        if delivered.replayed:
            self._reporter.invalidate_checks()
        on_head = delivered.branch == snapshot.thread.head_ref and not delivered.note
        if delivered.commit_sha is not None and on_head and context.job.thread.kind == "pull":
            await context.ledger.rebind_labels(
                snapshot.repo.id, context.job.thread.number, assignment.grant.bound_to_sha, delivered.commit_sha
            )
        delivered = await add_pull(context, snapshot, delivered, change)
        return await self._build_ending(snapshot, outcome, change, delivered, notes=publication.notes, part=part)

    async def wait_for(self, request: Request, *, patch: str = "", **changes: Any) -> Ending:  # noqa: ANN401 - whatever a StatusView takes
        """Post the request in full, and return the ending of a waiting job."""
        pending = pending_view(self._context, request)
        view = self._reporter.view(state="waiting", pending=pending, **changes)
        if request.kind == "publication" and not fits_comment(request.preview):
            parts = await post_parts(self._context, view)
            view = replace(view, pending=replace(pending, part_urls=parts))
        return Ending(
            state=JobState.WAITING,
            reason=request.reason,
            view=view,
            until=request.until,
            request_id=request.request_id,
            patch=patch,
        )

    async def find_verdict(self, request: Request, stopped: str) -> ApprovalVerdict | None:
        """Return the decision about a change; None while it waits."""
        answer = await waiting.find_answer(self._context.record, request)
        if stopped:
            return ApprovalVerdict(approved=False, reason=stopped)
        if answer is not None:
            suffix = f": {answer.note}" if answer.note else "."
            reason = "" if answer.approved else f"@{answer.by.login} said no{suffix}"
            return ApprovalVerdict(approved=answer.approved, reason=reason, tree_sha=request.tree_sha)
        if request.until > time.time():
            return None
        return ApprovalVerdict(approved=False, reason=waiting.describe_timeout(request))

    async def continue_plan(self, outcome: Outcome, request: Request, stopped: str) -> Ending:
        """Start the work on an approved plan."""
        context = self._context
        verdict = await self.find_verdict(request, stopped)
        if verdict is None:
            return await self.wait_for(request, completion=outcome.summary)
        note = verdict.reason
        if verdict.approved and isinstance(self._assignment.command, Plan):
            await context.queue.accept(job_from_plan(context.job, self._assignment.command, self._plan_text(outcome)))
            note = "The plan was approved; the work on it has started."
        view = self._reporter.view(state="done", completion=outcome.summary, reason=note)
        return Ending(state=JobState.DONE, view=view, status=outcome.status)

    async def _request_plan_approval(self, outcome: Outcome) -> Ending:
        context = self._context
        if len(self._plan_text(outcome)) > COMPLETION_LIMIT:
            view = self._reporter.view(state="done", completion=outcome.summary, reason=_LONG_PLAN)
            return Ending(state=JobState.DONE, view=view, status=outcome.status)
        request = Request(
            kind="plan",
            request_id=secrets.token_hex(4),
            reason="",
            preview="",
            bound_to=self._assignment.grant.bound_to_sha,
            until=time.time() + context.services.bounds.approval_seconds,
        )
        await waiting.store_request(context.record, request)
        return await self.wait_for(request, completion=outcome.summary, usage=outcome.usage, steps=outcome.steps)

    def _plan_text(self, outcome: Outcome) -> str:
        """Return the plan as its comment shows it; only visible text is carried out."""
        return self._context.github.redact_text(clean(outcome.summary or ""))

    async def _plan(
        self,
        current: ThreadSnapshot | Refusal,
        outcome: Outcome,
        change: Change,
        verdict: ApprovalVerdict | None,
        left_out: tuple[Objection, ...] = (),
    ) -> Publication:
        context, assignment = self._context, self._assignment
        if assignment.closing:
            return Publication(commit=None, pull_request=None)
        decision = await decide(context, current, assignment.settings.config, is_resumed=True)
        if isinstance(decision, Refusal):
            withheld = Omission(cause="refused", reason=decision.reason)
            return Publication(commit=None, pull_request=None, withheld=withheld)
        snapshot = assignment.snapshot if isinstance(current, Refusal) else current
        target = CommitTarget(
            base_branch=assignment.settings.config.base or snapshot.thread.base_ref,
            head_branch=snapshot.thread.head_ref if assignment.grant.publish == "pull_branch" else None,
            server=context.services.server_url,
            prefix=context.services.conventions.branch_prefix,
            run_url=self._reporter.run_url,
            keep_unfinished=assignment.settings.config.wip_branches,
            number=await branch_number(context, snapshot.repo.full_name) if change else 1,
        )
        # The words are read by GitHub's parser several times.
        publication = await asyncio.to_thread(
            plan_publication,
            context.job,
            assignment.grant,
            outcome,
            change,
            target,
            approved=frozenset({verdict.tree_sha}) if verdict is not None and verdict.approved else frozenset(),
            exclusions=left_out,
            report=self._reporter.report(assignment.command, changed=bool(change), partial=bool(left_out)),
        )
        if context.job.thread.kind == "issue":
            publication = add_marker(publication, context.marker)
        if verdict is not None and verdict.reason:
            return withhold(publication, "denied", verdict.reason)
        return publication

    async def _build_ending(
        self,
        snapshot: ThreadSnapshot,
        outcome: Outcome,
        change: Change,
        delivered: SendResult,
        *,
        notes: tuple[str, ...],
        part: PartialChange | None,
    ) -> Ending:
        context, assignment, is_done = self._context, self._assignment, outcome.status is Status.FINISHED
        if isinstance(assignment.command, Plan) and is_done and context.can_ask:
            return await self._request_plan_approval(outcome)
        is_review = isinstance(assignment.command, Review) and is_done
        review = await read_review(context, assignment, outcome) if is_review else None
        if review is not None and not delivered.withheld:
            delivered = await send_review(context, assignment, snapshot, review)
        published = delivered.commit_sha is not None
        partial = published and part is not None
        verdict = self._reporter.verdict(assignment.command, changed=bool(change), partial=partial) if is_done else None
        if verdict is not None:
            await context.record.update(lambda record: replace(record, verdict=verdict))
        is_fix, can_publish = isinstance(assignment.command, Fix), isinstance(assignment.command, Fix | Review)
        patch = change.patch if is_fix and not published else part.patch if part is not None and published else ""
        state = _STATES.get(outcome.status, JobState.FAILED)
        sent = part.rest if published and part is not None and part.rest is not None else change
        view = self._reporter.view(
            state=state.value,
            verdict=verdict,
            completion=await asyncio.to_thread(extract_prose, outcome.summary or "") if review else outcome.summary,
            reason=outcome.reason or "",
            remedy=REMEDIES.get(outcome.status, ""),
            kept_work=context.patch_note if patch else "",
            ci_note=context.services.ci_note if published else "",
            partial=partial,
            steps=outcome.steps,
            usage=outcome.usage,
            withheld_diff=part.diff if part is not None else "",
            withheld=delivered.withheld.reason if delivered.withheld and can_publish else "",
            dry_run_note=delivered.dry_run_note,
            notes=(*assignment.grant.notes, *notes, *filter(None, [delivered.note])),
            # Read-only commands report no files.
            files=sent.files if is_fix else (),
            commit_sha=delivered.commit_sha,
            commit_url=delivered.commit_url,
            pull_number=delivered.pull_number,
            pull_url=delivered.pull_url,
            pull_draft=delivered.pull_draft,
            review_url=delivered.review_url,
            wip_url=delivered.wip_url,
        )
        return Ending(
            state=state,
            reason=view.reason,
            view=view,
            status=outcome.status,
            patch=patch,
            partial=partial,
            review=review,
            output_json=context.github.redact_text(outcome.output_json),
        )


def job_from_plan(plan_job: Job, command: Plan, plan: str) -> Job:
    """Return the job for an approved plan, with the plan's requester."""
    return replace(
        plan_job,
        id=job_id("plan", plan_job.repo.id, plan_job.id),
        delivery_id=f"{plan_job.delivery_id}.plan",
        # A model may write what UTF-8 cannot hold, and so no queue.
        command=Fix(goal=command.goal, options=command.options, plan=plan.encode("utf-8", "replace").decode()),
        head_sha="",
    )


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
    context: JobContext, publication: Publication, change: Change, preview: ChangePreview
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
        bound_to=change.base_sha,
        until=time.time() + context.services.bounds.approval_seconds,
        tree_sha=change.tree_sha,
    )


def pending_view(context: JobContext, request: Request) -> PendingView:
    until = datetime.fromtimestamp(request.until, UTC)
    language: Literal["diff", "bash", ""] = "bash" if request.kind == "permission" else ""
    if request.kind == "publication" or request.preview.startswith(("--- ", "diff ")):
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
    )


_MAX_DIFF_CHARS = 2_000_000


async def read_review(context: JobContext, assignment: Assignment, outcome: Outcome) -> ReviewDraft:
    diff = await pull_diff(context, assignment, limit=_MAX_DIFF_CHARS)
    me = (await context.github.accounts.me()).id
    earlier = await context.github.reviews.list_line_comments(
        assignment.snapshot.repo.full_name, context.job.thread.number
    )
    keys = {comment_key(comment.path, comment.body) for comment in earlier if comment.author.id == me}
    return await asyncio.to_thread(
        parse_review,
        outcome.summary or "",
        diff,
        context.services.allowed(context.job),
        commit_sha=assignment.grant.bound_to_sha,
        earlier=keys,
    )


async def send_review(
    context: JobContext, assignment: Assignment, snapshot: ThreadSnapshot, review: ReviewDraft
) -> SendResult:
    """Publish a review once, across restarts."""
    target = ReviewTarget(repo=snapshot.repo.full_name, number=context.job.thread.number, marker=context.marker)
    return await publish_review(
        context.github, context.record.published, review, target=target, dry_run=assignment.grant.dry_run
    )


_OWN_BRANCH = re.compile(r"(?:(?:issue|pull)-([0-9]+)|branch|fix-ci)-[a-z0-9-]+$")


async def resolve_undo_target(context: JobContext, snapshot: ThreadSnapshot) -> ThreadSnapshot | Refusal:
    """Return the snapshot of the commit to revert, or a refusal."""
    stored = (await context.record.read()).undoing
    commit = stored or await _last_commit(context, snapshot)
    if commit is None:
        return Refusal(cause="nothing-to-undo", reason="There is no commit of mine in this thread to revert.")
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
    context: JobContext, reporter: StatusReporter, snapshot: ThreadSnapshot, grant: Grant, source: Source
) -> Ending:
    async with context.services.workspaces.open(context.job.id, snapshot.repo.id, source) as tree:
        change = await tree.revert(grant.bound_to_sha)
        publication = plan_undo(
            context.job,
            grant,
            change,
            branch=snapshot.thread.head_ref,
            sha=grant.bound_to_sha,
            title=await tree.commit_title(grant.bound_to_sha),
            run_url=reporter.run_url,
        )
        # Git may have taken minutes, in which people lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        if not access.may_command:
            withheld = Omission(cause="refused", reason=NO_WRITE_ACCESS.reason)
            publication = Publication(commit=None, pull_request=None, withheld=withheld)
        delivered = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target(repo=access.repo, branch_prefix=context.services.conventions.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            dry_run=grant.dry_run,
        )
    reason = delivered.withheld.reason if delivered.withheld else ""
    view = reporter.view(
        state="failed" if reason else "done",
        completion=None if reason or delivered.dry_run_note else f"I reverted commit {code(grant.bound_to_sha[:10])}.",
        withheld=reason,
        dry_run_note=delivered.dry_run_note,
        files=change.files,
        commit_sha=delivered.commit_sha,
        commit_url=delivered.commit_url,
        ci_note=context.services.ci_note if delivered.commit_sha else "",
    )
    return Ending(state=JobState.FAILED if reason else JobState.DONE, reason=reason, view=view)


async def _last_commit(context: JobContext, snapshot: ThreadSnapshot) -> CommitRef | None:
    """Return the latest commit of the thread's jobs.

    For the bot's own pull request, also of jobs on its branch from another thread.
    """
    job, thread = context.job, snapshot.thread
    jobs = list(await context.queue.jobs_in_thread(job.repo.id, job.thread.key))
    is_own = thread.head_ref.startswith(context.services.conventions.branch_prefix)
    is_pull = job.thread.kind == "pull" and thread.head_repo_id == snapshot.repo.id
    own_branch = _OWN_BRANCH.search(thread.head_ref) if is_own and is_pull else None
    if own_branch is not None:
        thread_key = int(own_branch[1]) if own_branch[1] else Thread.of_branch(thread.base_ref).key
        jobs += await context.queue.jobs_in_thread(job.repo.id, thread_key, limit=100)
    for entry in sorted(jobs, key=lambda stored: stored.enqueued_at, reverse=True):
        commit = (await context.record_of(entry.job).read()).published.commit
        if commit is not None and entry.job.id != job.id and (own_branch is None or commit.branch == thread.head_ref):
            return commit
    return None
