"""Publish a run's result, hold it back until a person approves, or keep it; revert the bot's last commit.

`ResultDelivery.deliver` checks access again, plans everything that will be sent, and sends it. A change of which some
files need an approval that nobody can give is published without them. `undo` publishes the reversal of a commit in the
same way.
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
from bot.jobs.status import StatusReporter, show_parts
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS
from bot.publishing.markdown import clean, code
from bot.publishing.plan import REMEDIES, CommitTarget, Publication, add_marker, plan_publication, plan_undo, withhold
from bot.publishing.publish import ReviewTarget, SendResult, Target, publish, publish_review
from bot.publishing.render import COMPLETION_LIMIT
from bot.publishing.review import comment_key, extract_prose, parse_review
from bot.publishing.screening import ChangePreview, Objection, fits_comment, show_files, split_sections
from bot.publishing.status_view import CommitRef, Omission, PendingView
from bot.queue.records import Request

_LONG_PLAN = "The plan is too long to be shown in full, so it cannot be approved. Ask for a shorter one."
_STATES = {Status.FINISHED: JobState.DONE, Status.STOPPED: JobState.STOPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalVerdict:
    """What was said about a change that waited to be published.

    Attributes:
        approved: whether it may be.
        why: else: why not.
        tree_sha: the git tree that was looked at.
    """

    approved: bool
    why: str = ""
    tree_sha: str = ""


class ResultDelivery:
    """Publishes what a piece of work came to, as far as that may be now."""

    def __init__(self, context: JobContext, reporter: StatusReporter, assignment: Assignment) -> None:
        self._context, self._reporter, self._assignment = context, reporter, assignment

    async def deliver(
        self, tree: Tree, outcome: Outcome, change: Change, *, verdict: ApprovalVerdict | None = None
    ) -> Ending:
        """Publish, or say why not.

        Args:
            tree: the workspace.
            outcome: how the run ended.
            change: what it changed.
            verdict: what was said about it, where it waited to be published.
        """
        context, begun = self._context, self._assignment
        context.github.hurry(Urgency.ENDING)
        # A run takes long enough for people to close the thread, to move the repository or to lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        here = fetch_snapshot(context.job, access)
        place = await refresh_pull(context, here, begun.snapshot.thread.continues)
        here = here if isinstance(place, Refusal) else place
        publication = await self._planned(place, outcome, change, verdict)
        finished = outcome.status is Status.FINISHED
        may_wait = context.can_ask and not begun.grant.dry_run
        if publication.blocked and finished and verdict is None and may_wait:
            paths = [path for each in publication.blocked for path in each.files]
            shown = await asyncio.to_thread(show_files, change, paths, context.github.redacted)
            if not shown.obstacle:
                asked = await publication_request(context, publication, change, shown)
                await waiting.ask(context.record, asked)
                return await self.waits(asked, patch=change.patch, completion=outcome.summary, files=change.files)
            publication = withhold(publication, "needs-approval", shown.obstacle)
        part = None
        if publication.blocked and finished and verdict is None and not context.can_ask:
            part = await left_out(tree, change, publication.blocked, context.github.redacted)
            if part.rest is not None:
                publication = await self._planned(place, outcome, part.rest, verdict, left_out=publication.blocked)
        delivered = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target(repo=here.repo, branch_prefix=context.services.conventions.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            # What a person approved, and what was proven, is this very tree, and no other.
            replay=begun.grant.replay and verdict is None and context.job.origin.kind != "ci",
            dry_run=begun.grant.dry_run,
        )
        if delivered.replayed:
            self._reporter.replayed()
        on_head = delivered.branch == here.thread.head_ref and not delivered.note
        if delivered.commit_sha is not None and on_head and context.job.thread.kind == "pull":
            await context.ledger.rebind_labels(
                here.repo.id, context.job.thread.number, begun.grant.bound_to_sha, delivered.commit_sha
            )
        delivered = await add_pull(context, here, delivered, change)
        return await self._told(here, outcome, change, delivered, notes=publication.notes, part=part)

    async def waits(self, asked: Request, *, patch: str = "", **changes: Any) -> Ending:  # noqa: ANN401 - whatever a StatusView takes
        """The ending of a leg after which a person has to answer, who can read all that it is about by then."""
        pending = pending_view(self._context, asked)
        view = self._reporter.now(state="waiting", pending=pending, **changes)
        if asked.kind == "publication" and not fits_comment(asked.preview):
            parts = await show_parts(self._context, view)
            view = replace(view, pending=replace(pending, part_urls=parts))
        return Ending(
            state=JobState.WAITING,
            reason=asked.reason,
            view=view,
            until=asked.until,
            request_id=asked.request_id,
            patch=patch,
        )

    async def verdict(self, asked: Request, stopped: str) -> ApprovalVerdict | None:
        """What was said about a change that waits to be published; None while it still waits."""
        answer = await waiting.answered(self._context.record, asked)
        if stopped:
            return ApprovalVerdict(approved=False, why=stopped)
        if answer is not None:
            said = f": {answer.note}" if answer.note else "."
            why = "" if answer.approved else f"@{answer.by.login} said no{said}"
            return ApprovalVerdict(approved=answer.approved, why=why, tree_sha=asked.tree_sha)
        return ApprovalVerdict(approved=False, why=waiting.unanswered(asked)) if asked.until <= time.time() else None

    async def planned(self, outcome: Outcome, asked: Request, stopped: str) -> Ending:
        """Go on from a plan: carry it out when somebody approved it."""
        context = self._context
        verdict = await self.verdict(asked, stopped)
        if verdict is None:
            return await self.waits(asked, completion=outcome.summary)
        note = verdict.why
        if verdict.approved and isinstance(self._assignment.command, Plan):
            await context.queue.accept(job_from_plan(context.job, self._assignment.command, self._shown_plan(outcome)))
            note = "The plan was approved; the work on it has started."
        view = self._reporter.now(state="done", completion=outcome.summary, reason=note)
        return Ending(state=JobState.DONE, view=view, status=outcome.status)

    async def _propose(self, outcome: Outcome) -> Ending:
        """Wait for a person to approve a plan, which they can read whole."""
        context = self._context
        if len(self._shown_plan(outcome)) > COMPLETION_LIMIT:
            view = self._reporter.now(state="done", completion=outcome.summary, reason=_LONG_PLAN)
            return Ending(state=JobState.DONE, view=view, status=outcome.status)
        asked = Request(
            kind="plan",
            request_id=secrets.token_hex(4),
            reason="",
            preview="",
            bound_to=self._assignment.grant.bound_to_sha,
            until=time.time() + context.services.bounds.approval_seconds,
        )
        await waiting.ask(context.record, asked)
        return await self.waits(asked, completion=outcome.summary, usage=outcome.usage, steps=outcome.steps)

    def _shown_plan(self, outcome: Outcome) -> str:
        """A plan as its comment shows it: what nobody could read there is not carried out either."""
        return self._context.github.redacted(clean(outcome.summary or ""))

    async def _planned(
        self,
        place: ThreadSnapshot | Refusal,
        outcome: Outcome,
        change: Change,
        verdict: ApprovalVerdict | None,
        left_out: tuple[Objection, ...] = (),
    ) -> Publication:
        context, begun = self._context, self._assignment
        if begun.closing:
            return Publication(commit=None, pull_request=None)
        decision = await decide(context, place, begun.settings.config, is_resumed=True)
        if isinstance(decision, Refusal):
            withheld = Omission(cause="refused", reason=decision.reason)
            return Publication(commit=None, pull_request=None, withheld=withheld)
        here = begun.snapshot if isinstance(place, Refusal) else place
        to = CommitTarget(
            base_branch=begun.settings.config.base or here.thread.base_ref,
            head_branch=here.thread.head_ref if begun.grant.publish == "pull_branch" else None,
            server=context.services.server_url,
            prefix=context.services.conventions.branch_prefix,
            run_url=self._reporter.run_url,
            keep_unfinished=begun.settings.config.wip_branches,
            number=await branch_number(context, here.repo.full_name) if change else 1,
        )
        # The words are read by GitHub's parser several times.
        publication = await asyncio.to_thread(
            plan_publication,
            context.job,
            begun.grant,
            outcome,
            change,
            to,
            approved=frozenset({verdict.tree_sha}) if verdict is not None and verdict.approved else frozenset(),
            exclusions=left_out,
            report=self._reporter.report(begun.command, changed=bool(change), partial=bool(left_out)),
        )
        if context.job.thread.kind == "issue":
            publication = add_marker(publication, context.marker)
        if verdict is not None and verdict.why:
            return withhold(publication, "denied", verdict.why)
        return publication

    async def _told(
        self,
        here: ThreadSnapshot,
        outcome: Outcome,
        change: Change,
        delivered: SendResult,
        *,
        notes: tuple[str, ...],
        part: PartialChange | None,
    ) -> Ending:
        """Return the ending for the comment, the check run and the queue.

        Args:
            here: the thread.
            outcome: how the run ended.
            change: what it changed.
            delivered: what was sent.
            notes: for a reviewer.
            part: what was left out.
        """
        context, begun = self._context, self._assignment
        finished = outcome.status is Status.FINISHED
        if isinstance(begun.command, Plan) and finished and context.can_ask:
            return await self._propose(outcome)
        review = await read_review(context, begun, outcome) if isinstance(begun.command, Review) and finished else None
        if review is not None and not delivered.withheld:
            delivered = await send_review(context, begun, here, review)
        published = delivered.commit_sha is not None
        partial = published and part is not None
        came_to = self._reporter.verdict(begun.command, changed=bool(change), partial=partial) if finished else None
        if came_to is not None:
            await context.record.update(lambda record: replace(record, verdict=came_to))
        is_fix, can_publish = isinstance(begun.command, Fix), isinstance(begun.command, Fix | Review)
        lost = change.patch if is_fix and not published else part.patch if part is not None and published else ""
        state = _STATES.get(outcome.status, JobState.FAILED)
        sent = part.rest if published and part is not None and part.rest is not None else change
        view = self._reporter.now(
            state=state.value,
            verdict=came_to,
            completion=await asyncio.to_thread(extract_prose, outcome.summary or "") if review else outcome.summary,
            reason=outcome.reason or "",
            remedy=REMEDIES.get(outcome.status, ""),
            kept_work=context.kept if lost else "",
            ci_note=context.services.ci_note if published else "",
            partial=partial,
            steps=outcome.steps,
            usage=outcome.usage,
            withheld_diff=part.diff if part is not None else "",
            withheld=delivered.withheld.reason if delivered.withheld and can_publish else "",
            dry_run_note=delivered.dry_run_note,
            notes=(*begun.grant.notes, *notes, *filter(None, [delivered.note])),
            # What a run left that was not to change anything concerns nobody.
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
            patch=lost,
            partial=partial,
            review=review,
            output_json=context.github.redacted(outcome.output_json),
        )


def job_from_plan(planned: Job, command: Plan, plan: str) -> Job:
    """The job that carries out an approved plan, for the person who asked for the plan."""
    return replace(
        planned,
        id=job_id("plan", planned.repo.id, planned.id),
        delivery_id=f"{planned.delivery_id}.plan",
        # A model may write what UTF-8 cannot hold, and so no queue.
        command=Fix(goal=command.goal, options=command.options, plan=plan.encode("utf-8", "replace").decode()),
        head_sha="",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialChange:
    """What is left out of a change.

    Attributes:
        rest: the change without it; None where that is nothing, or cannot stand alone.
        diff: what is left out, for people; empty where it cannot be shown.
        patch: the same for `git apply`.
    """

    rest: Change | None
    diff: str
    patch: str


async def left_out(
    tree: Tree, change: Change, blocked: tuple[Objection, ...], redacted: Callable[[str], str]
) -> PartialChange:
    """Take files out of a change.

    Args:
        tree: the workspace.
        change: all of it.
        blocked: what a person would have to approve.
        redacted: what becomes of a text on its way out.
    """
    paths = {path for each in blocked for path in each.files}
    shown = await asyncio.to_thread(show_files, change, sorted(paths), redacted)
    try:
        rest = await tree.exclude(change, paths)
    except ChangeError:
        return PartialChange(rest=None, diff=shown.diff, patch=change.patch)
    patch = "".join([section for path, section in split_sections(change.patch) if path in paths])
    return PartialChange(rest=rest or None, diff=shown.diff, patch=patch)


async def publication_request(
    context: JobContext, publication: Publication, change: Change, shown: ChangePreview
) -> Request:
    """The request to approve what may not be published without a person.

    Args:
        context: the job.
        publication: what is blocked.
        change: all of it.
        shown: the part that the person has to read.
    """
    why = [each.sentence for each in publication.blocked]
    if shown.has_escapes:
        why.append("Invisible characters are escaped below, as in `[U+202E]`.")
    if others := len(change.files) - len({path for each in publication.blocked for path in each.files}):
        why.append(f"Other changed files, which require no approval: {others}.")
    if change.writes_workflows and await context.github.tokens.may_write_workflows() is False:
        why.append(f"Before you approve: {WorkflowsForbiddenError().reason} Without it nothing can be published.")
    return Request(
        kind="publication",
        request_id=secrets.token_hex(4),
        reason=" ".join(why),
        preview=shown.diff,
        bound_to=change.base_sha,
        until=time.time() + context.services.bounds.approval_seconds,
        tree_sha=change.tree_sha,
    )


def pending_view(context: JobContext, asked: Request) -> PendingView:
    """A request as the job's comment shows it."""
    until = datetime.fromtimestamp(asked.until, UTC)
    language: Literal["diff", "bash", ""] = "bash" if asked.kind == "permission" else ""
    if asked.kind == "publication" or asked.preview.startswith(("--- ", "diff ")):
        language = "diff"
    return PendingView(
        kind=asked.kind,
        request_id=asked.request_id,
        trigger=context.job.trigger,
        # On its own: what looks like the beginning of a secret must not take what follows with it.
        reason=context.github.redacted(asked.reason),
        preview=asked.preview,
        language=language,
        like=asked.like,
        expires=f"{until.day} {until:%B %Y, %H:%M} UTC",
    )


_WHOLE_DIFF = 2_000_000


async def read_review(context: JobContext, begun: Assignment, outcome: Outcome) -> ReviewDraft:
    """The review that the agent wrote, as far as GitHub takes it."""
    diff = await pull_diff(context, begun, limit=_WHOLE_DIFF)
    me = (await context.github.accounts.me()).id
    earlier = await context.github.reviews.line_comments(begun.snapshot.repo.full_name, context.job.thread.number)
    said = {comment_key(each.path, each.comment.body) for each in earlier if each.comment.author_id == me}
    return await asyncio.to_thread(
        parse_review,
        outcome.summary or "",
        diff,
        context.services.allowed(context.job),
        commit_sha=begun.grant.bound_to_sha,
        earlier=said,
    )


async def send_review(context: JobContext, begun: Assignment, here: ThreadSnapshot, review: ReviewDraft) -> SendResult:
    """Send it, once however often this is started again."""
    place = ReviewTarget(repo=here.repo.full_name, number=context.job.thread.number, marker=context.marker)
    return await publish_review(
        context.github, context.record.published, review, target=place, dry_run=begun.grant.dry_run
    )


_OWN_BRANCH = re.compile(r"(?:(?:issue|pull)-([0-9]+)|branch|fix-ci)-[a-z0-9-]+$")


async def resolve_undo_target(context: JobContext, here: ThreadSnapshot) -> ThreadSnapshot | Refusal:
    """The place with the branch and the commit that are to be taken back, or why there is nothing to undo."""
    before = (await context.record.read()).undoing
    aim = before or await _last_commit(context, here)
    if aim is None:
        return Refusal(cause="nothing-to-undo", reason="There is no commit of mine in this thread to revert.")
    sha, branch = aim.sha, aim.branch
    if before is None:
        head = await context.github.repos.branch_head(here.repo.full_name, branch)
        if head is None:
            return Refusal(cause="undo-gone", reason=f"The branch `{branch}` with my commit has been deleted.")
        if head != sha:
            reason = (
                f"`{branch}` has moved on to {head[:10]} since my commit {sha[:10]}. I only revert the last "
                f"commit of a branch; use `git revert {sha[:10]}`."
            )
            return Refusal(cause="undo-moved", reason=reason)
        await context.record.update(lambda record: replace(record, undoing=aim))
    thread = replace(here.thread, head_sha=sha, head_ref=branch, head_repo_id=here.repo.id)
    return replace(here, thread=thread)


async def undo(
    context: JobContext, reporter: StatusReporter, here: ThreadSnapshot, grant: Grant, source: Source
) -> Ending:
    """Make the opposite commit."""
    async with context.services.workspaces.open(context.job.id, here.repo.id, source) as tree:
        change = await tree.revert(grant.bound_to_sha)
        publication = plan_undo(
            context.job,
            grant,
            change,
            branch=here.thread.head_ref,
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
    why = delivered.withheld.reason if delivered.withheld else ""
    view = reporter.now(
        state="failed" if why else "done",
        completion=None if why or delivered.dry_run_note else f"I reverted commit {code(grant.bound_to_sha[:10])}.",
        withheld=why,
        dry_run_note=delivered.dry_run_note,
        files=change.files,
        commit_sha=delivered.commit_sha,
        commit_url=delivered.commit_url,
        ci_note=context.services.ci_note if delivered.commit_sha else "",
    )
    return Ending(state=JobState.FAILED if why else JobState.DONE, reason=why, view=view)


async def _last_commit(context: JobContext, here: ThreadSnapshot) -> CommitRef | None:
    """The commit of the newest job of this thread that made one.

    In a pull request of the bot's own also of the jobs on its branch that were asked for in another thread.
    """
    job, thread = context.job, here.thread
    jobs = list(await context.queue.jobs_in_thread(job.repo.id, job.thread.key))
    is_ours = thread.head_ref.startswith(context.services.conventions.branch_prefix)
    is_here = job.thread.kind == "pull" and thread.head_repo_id == here.repo.id
    own = _OWN_BRANCH.search(thread.head_ref) if is_ours and is_here else None
    if own is not None:
        asked_in = int(own[1]) if own[1] else Thread.of_branch(thread.base_ref).key
        jobs += await context.queue.jobs_in_thread(job.repo.id, asked_in, limit=100)
    for each in sorted(jobs, key=lambda stored: stored.enqueued_at, reverse=True):
        noted = (await context.of(each.job).read()).published.commit
        if noted is not None and each.job.id != job.id and (own is None or noted.branch == thread.head_ref):
            return noted
    return None
