"""Report endings in comments and check runs until GitHub accepts them.

An ending is stored before its report, so that another worker can post it without repeating the work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from agent_runtime import AgentError
from bot.domain.errors import BotError, OtherVersionError, QueueError
from bot.domain.job import Job, JobState
from bot.github.rate_limit import Urgency
from bot.github.types import CHECK_TEXT_LIMIT, GitHubError
from bot.jobs.access import check_access
from bot.jobs.context import JobContext, JobContextFactory
from bot.jobs.posts import JobCheckRun
from bot.jobs.record import RecordedEnding, StoredRecord
from bot.jobs.status import close_notices, extra_comment, notice_text, notify, status_view
from bot.publishing.markdown import clip
from bot.publishing.outcome import ENDED, Failed, JobOutcome, Refused
from bot.publishing.render import render_check, render_reply, render_status
from bot.queue.protocols import REPORT_SECONDS, PendingReport

log = logging.getLogger(__name__)
LATE_SECONDS = 120.0
"""Time until the search for duplicate comments that GitHub created late."""


async def render_report(context: JobContext, outcome: JobOutcome) -> RecordedEnding | None:
    """Render the report of an outcome so that any worker can post it; None if nothing is reported."""
    job, services, state = context.job, context.services, context.state
    view = status_view(context, outcome)
    if outcome.is_silent:
        return None
    is_proven = not isinstance(outcome, Failed) or outcome.is_proven
    if outcome.reply:
        text, allowed = services.rename_settings_to_inputs(outcome.reply), services.allowed(job)
        pull = outcome.published.pull
        body = await asyncio.to_thread(render_reply, text, allowed, job_id=job.id, marker=context.marker, pull=pull)
        return RecordedEnding(state=outcome.state, body=body, proven=is_proven)
    # Making a hostile text harmless may take a second.
    body, draft = await asyncio.to_thread(render_status, view), None
    if (head_sha := (await state.record.read()).check.head_sha) is not None and (
        state.check is None or not state.check.is_refused
    ):
        draft = await asyncio.to_thread(render_check, view, job=job, head_sha=head_sha)
    is_quiet = context.comment_mode == "on-change" and not outcome.is_news
    notice = "" if is_quiet else notice_text(view, state.notify)
    return RecordedEnding(
        state=outcome.state,
        body=body,
        check=draft,
        proven=is_proven,
        notice=notice,
        is_quiet=is_quiet,
        cause=services.strip_local_paths(outcome.cause),
    )


async def report_outcome(context: JobContext, outcome: JobOutcome) -> float | None:
    """Store and post the report of an outcome; return the seconds until the next attempt, or None if settled."""
    await store_ending(context.record, await render_report(context, outcome))
    # A job that failed by itself may have work that could not be read.
    keeps_patch = (outcome.patch and not outcome.partial) or (isinstance(outcome, Failed) and outcome.run is None)
    if not keeps_patch and not outcome.is_silent and not isinstance(outcome, Refused):
        await asyncio.to_thread(context.services.work.reduce, context.job.id, outcome.patch)
    if outcome.leftovers and outcome.state is not JobState.WAITING:
        await asyncio.to_thread(context.services.work.append, context.job.id, outcome.leftovers)
    # What GitHub does not take now is told later.
    return await post_ending(context)


async def store_ending(record: StoredRecord, ending: RecordedEnding | None) -> None:
    if ending is not None:
        await record.update(lambda stored: replace(stored, ending=ending))


async def store_fault(contexts: JobContextFactory, job: Job, reason: str) -> None:
    """Store an ending for an unexpected error, unless the job has one."""
    record, services = StoredRecord(contexts.queue, job.id), contexts.services
    stored = await record.read()
    if stored.ending is not None or (job.is_from_event and not stored.is_shown):
        return
    text = f"❌ This job has failed. {reason} See the operator's log under this job id for details."
    body = await asyncio.to_thread(
        render_reply, text, services.allowed(job), job_id=job.id, marker=services.marker(job)
    )
    await store_ending(record, RecordedEnding(state=JobState.FAILED, body=body, proven=stored.is_shown))


async def post_ending(context: JobContext, *, log_level: int = logging.WARNING) -> float | None:
    """Post the stored ending; return the seconds until the next attempt, or None if settled."""
    record, job, comment = context.record, context.job, context.state.comment
    stored = await record.read()
    ending = stored.ending
    if ending is None:
        return None
    is_settled, may_duplicate = True, False
    context.github.raise_priority(Urgency.RESULT)
    try:
        if not ending.proven:
            access = await check_access(context.github, job, bounds=context.services.bounds)
            if not access.may_command:
                return None
        if stored.comment.requests or not (ending.is_quiet or context.comment_mode == "never"):
            await comment.put(ending.body)
            await close_notices(context)
        await notify(context, ending.state.value, ending.notice)
        comments = [extra_comment(context, name) for name in (await record.read()).parts]
        may_duplicate = any([await posted.fold_late() for posted in (comment, *comments)])
    except GitHubError as error:
        is_settled = not _may_succeed_later(error, log_level)
    draft = ending.check
    if draft is None and stored.check.requests and (head_sha := stored.check.head_sha) is not None:
        # The ending has no draft, or one of another version: the check run ends all the same.
        view = status_view(context, ENDED[ending.state]())
        plain = await asyncio.to_thread(render_check, view, job=job, head_sha=head_sha)
        summary = clip(ending.body.replace(context.marker, "").rstrip(), CHECK_TEXT_LIMIT, "")
        draft = replace(plain, summary=summary)
    if draft is not None:
        check = context.state.check or JobCheckRun(context.github, record.check, job, head_sha=draft.head_sha)
        try:
            await check.put(draft)
            may_duplicate = await check.fold_late(draft) or may_duplicate
        except GitHubError as error:
            is_settled = is_settled and not _may_succeed_later(error, log_level)
    if not is_settled:
        return 0.0
    # A second comment or check run of ours may turn up yet.
    return LATE_SECONDS if may_duplicate else None


def _may_succeed_later(error: GitHubError, log_level: int) -> bool:
    log.log(log_level, "the job's result could not be reported: %s", error)
    return error.can_report_later


async def post_pending(contexts: JobContextFactory, pending: PendingReport) -> bool:
    """Post an ending that failed before; return whether it is settled."""
    if pending.job is None:
        log.error("job %s: its result is not reported: this version cannot read the job", pending.job_id)
        return True
    try:
        async with contexts.open(pending.job) as context:
            # What is only looked for is looked for once.
            seconds = await post_ending(context, log_level=logging.DEBUG)  # the log has the first failure
            is_settled = seconds is None or seconds > 0.0
    except OtherVersionError as error:
        log.warning("the job's result is not reported now: %s", error)
        is_settled = False
    except QueueError:
        raise
    except (BotError, AgentError) as error:  # e.g. the name belongs to another repository now
        log.error("the job's result is not reported: %s", error)  # noqa: TRY400 - the text has it all
        return True
    except Exception:  # one ending, e.g. of a job of another version, must not take the worker and all jobs with it
        log.exception("the job's result could not be reported")
        is_settled = False
    if not is_settled and time.time() - pending.since > REPORT_SECONDS:
        log.error("the job's result is not reported: GitHub has not accepted it for days")
        return True
    return is_settled
