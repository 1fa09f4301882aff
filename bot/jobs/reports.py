"""Report how jobs ended, in their comments and check runs, until GitHub accepts it.

An ending is kept in the job's record before it is reported, so that another worker can report it without working again.
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
from bot.jobs.context import Ending, JobContext, JobContextFactory
from bot.jobs.status import JobCheckRun, StatusComment, StatusReporter, further_comment, notice_of, notify
from bot.permissions.repo_config import Notify
from bot.publishing.markdown import clip
from bot.publishing.render import render_check, render_reply, render_status
from bot.publishing.status_view import StatusView
from bot.queue.protocols import REPORT_SECONDS, PendingReport
from bot.queue.records import RecordedEnding, StoredRecord

log = logging.getLogger(__name__)
LATE_SECONDS = 120.0
"""How long after the end a comment is looked for that GitHub may have made long after it was asked to."""


async def body_of(context: JobContext, ending: Ending) -> str | None:
    """What the comment says of an ending; None when nobody is told in words."""
    view, job = ending.view, context.job
    if view is None:
        return None
    if isinstance(view, StatusView):
        # Making a hostile text harmless may take a second.
        return await asyncio.to_thread(render_status, view)
    allowed, text = context.services.allowed(job), context.services.rename_settings_to_inputs(view.text)
    return await asyncio.to_thread(
        render_reply, text, allowed, job_id=job.id, marker=context.marker, refused=view.refused
    )


async def recorded(
    context: JobContext, ending: Ending, *, checked: str | None, wanted: tuple[Notify, ...] = ()
) -> RecordedEnding | None:
    """An ending as any worker can tell it; None when nobody is told.

    Args:
        context: the job.
        ending: how it ended.
        checked: the commit that its check run stands on; None when it has none.
        wanted: what the repository wants people to be told in a comment of its own.
    """
    body = await body_of(context, ending)
    if body is None:
        return None
    draft = None
    if checked is not None and isinstance(ending.view, StatusView):
        draft = await asyncio.to_thread(
            render_check,
            ending.view,
            job=context.job,
            head_sha=checked,
            status=ending.status,
            patch=ending.patch,
            review=ending.review,
        )
    notice = notice_of(ending, wanted)
    return RecordedEnding(state=ending.state, body=body, check=draft, proven=ending.proven, notice=notice)


async def keep(record: StoredRecord, ending: RecordedEnding | None) -> None:
    """Record an ending before it is told: should this worker die now, the next one tells it without working again."""
    if ending is not None:
        await record.update(lambda kept: replace(kept, ending=ending))


async def keep_fault(contexts: JobContextFactory, job: Job, reason: str) -> None:
    """Keep an ending for a job that broke off where nothing should break, unless it has one."""
    record, services = StoredRecord(contexts.queue, job.id), contexts.services
    kept = await record.read()
    if kept.ending is not None or (job.is_from_event and not kept.is_shown):
        return
    text = f"❌ This job has failed. {reason} See the operator's log under this job id for details."
    body = await asyncio.to_thread(
        render_reply, text, services.allowed(job), job_id=job.id, marker=services.marker(job)
    )
    await keep(record, RecordedEnding(state=JobState.FAILED, body=body, proven=kept.is_shown))


async def tell(
    context: JobContext, *, comment: StatusComment | None = None, check: JobCheckRun | None = None
) -> float | None:
    """Tell the ending that is kept; in how many seconds it is to be told again, None when it is settled.

    Args:
        context: the job.
        comment: its comment, where somebody has it at hand.
        check: its check run, likewise.
    """
    record, job = context.record, context.job
    known = await record.read()
    kept = known.ending
    if kept is None:
        return None
    settled, doubtful = True, False
    context.github.hurry(Urgency.ENDING)
    try:
        if not kept.proven:
            access = await check_access(context.github, job, bounds=context.services.bounds)
            if not access.may_command:
                return None
        comment = comment or StatusComment(context.github, record.comment, job, marker=context.marker)
        await comment.put(kept.body)
        await notify(context, kept.state.value, kept.notice)
        further = [further_comment(context, name) for name in (await record.read()).parts]
        doubtful = any([await each.fold_late() for each in (comment, *further)])
    except GitHubError as error:
        settled = not _may_come(error)
    shown = kept.check
    if shown is None and known.check.requests and (head_sha := known.check.head_sha) is not None:
        # The ending has no draft, or one of another version: the check run ends all the same.
        view = StatusReporter(context).now(state=kept.state.value)
        plain = await asyncio.to_thread(render_check, view, job=job, head_sha=head_sha)
        said = clip(kept.body.replace(context.marker, "").rstrip(), CHECK_TEXT_LIMIT, "")
        shown = replace(plain, summary=said)
    if shown is not None:
        check = check or JobCheckRun(context.github, record.check, job, head_sha=shown.head_sha)
        try:
            await check.put(shown)
            doubtful = await check.fold_late(shown) or doubtful
        except GitHubError as error:
            settled = settled and not _may_come(error)
    if not settled:
        return 0.0
    # A second comment or check run of ours may turn up yet.
    return LATE_SECONDS if doubtful else None


def _may_come(error: GitHubError) -> bool:
    """Whether GitHub may take an ending later; where it never will (the thread is gone), the log has it."""
    log.warning("the job's result could not be reported: %s", error)
    return error.may_be_told_later and not error.lacks_permission


async def tell_late(contexts: JobContextFactory, owed: PendingReport) -> bool:
    """Tell what could not be told when its job ended; False when it is to be tried again, for days if need be."""
    if owed.job is None:
        log.error("job %s: its result is not reported: this version cannot read the job", owed.job_id)
        return True
    try:
        async with contexts.opened(owed.job) as context:
            # What is only looked for is looked for once.
            later = await tell(context)
            settled = later is None or later > 0.0
    except OtherVersionError as error:
        log.warning("the job's result is not reported now: %s", error)
        settled = False
    except QueueError:
        raise
    except (BotError, AgentError) as error:  # e.g. the name belongs to another repository now
        log.error("the job's result is not reported: %s", error)  # noqa: TRY400 - the text has it all
        return True
    except Exception:  # one ending, e.g. of a job of another version, must not take the worker and all jobs with it
        log.exception("the job's result could not be reported")
        settled = False
    if not settled and time.time() - owed.since > REPORT_SECONDS:
        log.error("the job's result is not reported: GitHub has not accepted it for days")
        return True
    return settled
