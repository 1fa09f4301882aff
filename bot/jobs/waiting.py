"""Waiting jobs: for a user's answer or the model service.

Requests and outages are stored in the job's record. The first answer counts. The jobs are parked without a worker.
"""

from __future__ import annotations

import html
import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from agent_runtime import Outcome, PendingCall, alike_patterns
from bot.domain.commands import ReplyEvent
from bot.domain.job import LIVE_STATES, Job, JobState
from bot.github.types import CommentTarget
from bot.jobs.posts import reply_target
from bot.jobs.record import (
    ApprovalAnswer,
    ApprovalsRecord,
    JobRecord,
    Outage,
    Request,
    RequestView,
    ServiceOutage,
    StoredRecord,
)
from bot.permissions.levels import Grant
from bot.publishing.markdown import duration
from bot.publishing.render import PENDING_HEADS
from bot.queue.protocols import JobEngine


def build_request(pending: PendingCall, grant: Grant, *, until: float) -> Request:
    """Build the request for a pending call; `until` is its deadline in seconds since the epoch."""
    return Request(
        kind=pending.kind,
        request_id=pending.request_id,
        reason=pending.reason,
        # Of a question, the question once more.
        preview="" if pending.kind == "question" else pending.preview,
        bound_to=grant.bound_to_sha,
        until=until,
        like=alike_patterns(grant.policy, pending),
    )


async def store_request(record: StoredRecord, waiting: Request) -> None:
    await _update(record, lambda stored: replace(stored, waiting=waiting))


async def record_shown(record: StoredRecord, *, at: str) -> None:
    since = time.time()

    def add(approvals: ApprovalsRecord) -> ApprovalsRecord:
        if (request := approvals.waiting) is None or request.request_id in approvals.request_views:
            return approvals
        entry = RequestView(request_id=request.request_id, kind=request.kind, at=at, since=since)
        return replace(approvals, request_views={**approvals.request_views, entry.request_id: entry})

    await _update(record, add)


async def store_answer(record: StoredRecord, new: ApprovalAnswer) -> bool:
    """Store an answer; return False if there is an earlier one."""
    after = await _update(record, lambda stored: replace(stored, answers={new.request_id: new, **stored.answers}))
    return after.answers[new.request_id] is new


async def revoke_patterns(record: StoredRecord) -> None:
    await _update(record, lambda stored: replace(stored, alike_void=True))


async def _update(record: StoredRecord, change: Callable[[ApprovalsRecord], ApprovalsRecord]) -> ApprovalsRecord:
    return (await record.update(lambda stored: replace(stored, approvals=change(stored.approvals)))).approvals


async def find_question(queue: JobEngine, job: Job, *, arrived: float) -> tuple[Job, Request] | None:
    """Return the job and its question that a comment without a verb answers. Sends no requests to GitHub.

    The question was shown in the same place before. The comment quotes it; or nothing else waits in the thread, and the
    comment addresses the bot or is by the account that gave the command: people also discuss a question.
    """
    command = job.command
    quoted, is_addressed = (command.quoted, False) if isinstance(command, ReplyEvent) else ("", True)
    if not await queue.is_live(job.repo.id, job.thread.key):
        return None
    open_requests, answered = 0, []
    for entry in await queue.jobs_in_thread(job.repo.id, job.thread.key):
        record = await StoredRecord(queue, entry.job.id).read() if entry.state in LIVE_STATES else JobRecord()
        request, target = record.approvals.open_request, entry.job
        if request is None:
            continue
        open_requests += 1
        view = record.approvals.request_views.get(request.request_id)
        is_quoted = quotes_question(quoted, request.reason)
        thread = CommentTarget(kind="thread", number=target.thread.number)
        if (
            request.kind == "question"
            and view is not None
            and view.is_visible_at(written_at=job.origin.at, arrived=arrived)
            and arrived < request.until
            and reply_target(job) == (thread if record.comment.below else reply_target(target))
            and (is_quoted or is_addressed or job.actor.id == target.actor.id)
        ):
            answered.append((target, request, is_quoted))
    if len(answered) != 1:
        return None
    target, request, is_quoted = answered[0]
    return (target, request) if is_quoted or open_requests == 1 else None


_MIN_QUOTED_CHARS = 10
"""More than the words before a question have."""
_MAX_QUESTION_CHARS = 8_000


def quotes_question(quoted: str, question: str) -> bool:
    """Whether a quoted line is of the question, in any markup and wrapping."""
    said = _letters(f"{PENDING_HEADS['question']} {question[:_MAX_QUESTION_CHARS]}")
    return any(len(line) >= _MIN_QUOTED_CHARS and line in said for line in map(_letters, quoted.splitlines()))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", html.unescape(text)).casefold()


def describe_timeout(request: Request) -> str:
    noun = "question" if request.kind == "question" else "request"
    return f"Nobody answered the {noun} `{request.request_id}` in time."


MIN_PAUSE = 120.0
MAX_PAUSE = 1800.0


async def record_outage(
    record: StoredRecord, outcome: Outcome, *, patience: float, chance: Callable[[], float] = random.random
) -> Outage | None:
    """Store the outage with the next attempt; None if it exceeds `patience` seconds."""
    now, last = time.time(), (await record.read()).outage
    is_same = last is not None and last.steps == outcome.steps
    since, tries = (last.since, last.tries) if last is not None and is_same else (now, 0)
    pause = min(MIN_PAUSE * 2.0**tries, MAX_PAUSE) * (0.75 + chance() / 2)
    outage = Outage(
        since=since, tries=tries + 1, steps=outcome.steps, until=now + max(pause, outcome.retry_after or 0.0)
    )
    if outage.until - since > patience:
        return None
    await record.update(lambda stored: replace(stored, outage=outage))
    return outage


def describe_outage(outage: Outage, reason: str, *, patience: float) -> str:
    until, last = _clock(outage.until), _clock(outage.since + patience)
    return (
        f"The model service is unavailable: {reason}\n\nThe work so far is kept. The job continues automatically: it "
        f"retries at {until}, and until {last} at the latest. `stop` ends it."
    )


def describe_service_outage(outage: ServiceOutage) -> str:
    since, until = _clock(outage.since), _clock(outage.until)
    return (
        f"{outage.reason}\n\nThe work so far is kept. The job has been waiting since {since}. It tries again by "
        f"itself, until {until} at the latest. `stop` ends it."
    )


def describe_service_wait(record: JobRecord, state: JobState) -> str:
    """Describe a job's wait for a service in a phrase; empty without one."""
    outage = record.service_outage
    if outage is None or outage.is_over or state not in {JobState.QUEUED, JobState.RUNNING}:
        return ""
    since, until = _clock(outage.since), _clock(outage.until)
    return f"waiting for {outage.service} since {since}, until {until} at the latest"


def end_service_outage(record: JobRecord) -> JobRecord:
    outage = record.service_outage
    return record if outage is None else replace(record, service_outage=replace(outage, is_over=True))


def describe_exhausted_patience(outcome: Outcome, patience: float) -> str:
    most = f"`CODEPILOT_MODEL_PATIENCE` allows ({duration(patience)})"
    return f"{outcome.reason or ''} Waiting for it would take longer than {most}.".strip()


def _clock(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%H:%M} UTC on {when.day} {when:%B}"
