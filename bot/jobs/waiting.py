"""The things that a job waits for: a person's answer, the model service's return, GitHub's return.

Requests and outages are kept in the job's record, so that they outlive the process. The first answer to a request
counts. A job that waits for a person or a model is parked without a worker; one that waits for GitHub is queued again
after a pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent_runtime import Outcome, PendingCall, alike_patterns
from bot.github.types import GitHubError
from bot.permissions.levels import Grant
from bot.publishing.markdown import duration
from bot.queue.records import ApprovalAnswer, ApprovalsRecord, GitHubOutage, Outage, Request, RequestView, StoredRecord


def request_for(pending: PendingCall, grant: Grant, *, until: float) -> Request:
    """The request for a call that waits.

    Args:
        pending: the call.
        grant: what its run may do, and for which commit.
        until: seconds since the epoch at which it is too late to answer.
    """
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


async def ask(record: StoredRecord, waiting: Request) -> None:
    """Record what the job waits for, in place of what it waited for before."""
    await _update(record, lambda kept: replace(kept, waiting=waiting))


async def asked(record: StoredRecord) -> Request | None:
    """Return the newest request of the job, answered or not."""
    return (await record.read()).approvals.waiting


async def awaited(record: StoredRecord) -> Request | None:
    """The request that the job waits for somebody to answer; None once it is answered, whatever it waits for then."""
    kept = (await record.read()).approvals
    return kept.waiting if kept.waiting is not None and kept.waiting.request_id not in kept.answers else None


async def note_shown(record: StoredRecord, *, at: str) -> None:
    """Record that what the job waits for can be read since `at`; the first time counts."""
    since = time.time()

    def shown(kept: ApprovalsRecord) -> ApprovalsRecord:
        if (waits := kept.waiting) is None or waits.request_id in kept.shown:
            return kept
        request = RequestView(request_id=waits.request_id, kind=waits.kind, at=at, since=since)
        return replace(kept, shown={**kept.shown, waits.request_id: request})

    await _update(record, shown)


async def shown_by(record: StoredRecord) -> tuple[RequestView, ...]:
    """Every request that the job has ever shown."""
    return tuple((await record.read()).approvals.shown.values())


async def answer(record: StoredRecord, given: ApprovalAnswer) -> bool:
    """Record an answer; False when there is one already: the first counts."""
    after = await _update(record, lambda kept: replace(kept, answers={given.request_id: given, **kept.answers}))
    return after.answers[given.request_id] is given


async def answered(record: StoredRecord, asked: Request) -> ApprovalAnswer | None:
    """The answer to a request, if there is one."""
    return (await record.read()).approvals.answers.get(asked.request_id)


async def is_answered(record: StoredRecord) -> bool:
    """Whether what the job waits for has been answered."""
    kept = (await record.read()).approvals
    return kept.waiting is not None and kept.waiting.request_id in kept.answers


async def approved_alike(record: StoredRecord) -> tuple[str, ...]:
    """The patterns of commands that were approved for the rest of the job's run."""
    kept = (await record.read()).approvals
    if kept.alike_void:
        return ()
    return tuple(dict.fromkeys(like for each in kept.answers.values() if each.approved for like in each.like))


async def void_alike(record: StoredRecord) -> None:
    """Have no approval count for further calls any more."""
    await _update(record, lambda kept: replace(kept, alike_void=True))


async def _update(record: StoredRecord, change: Callable[[ApprovalsRecord], ApprovalsRecord]) -> ApprovalsRecord:
    return (await record.update(lambda kept: replace(kept, approvals=change(kept.approvals)))).approvals


def unanswered(waits: Request) -> str:
    """Return the reason of a job whose request was not answered in time."""
    what = "question" if waits.kind == "question" else "request"
    return f"Nobody answered the {what} `{waits.request_id}` in time."


FIRST_PAUSE = 120.0
LONGEST_PAUSE = 1800.0


async def last_outage(record: StoredRecord) -> Outage | None:
    """The outage that a job has met last, if it ever met one."""
    return (await record.read()).outage


async def is_waiting_for_model(record: StoredRecord, until: float | None) -> bool:
    """Whether a job that waits until `until` waits for the model service, and not for a person."""
    outage = await last_outage(record)
    return outage is not None and outage.until == until


async def record_outage(
    record: StoredRecord, outcome: Outcome, *, patience: float, chance: Callable[[], float] = random.random
) -> Outage | None:
    """Record the outage that a job waits out, with its next attempt; None when it has waited for as long as it may.

    Args:
        record: the job's.
        outcome: of its run, which is `model_unavailable`.
        patience: seconds for which one outage is waited for.
        chance: a number in [0, 1) to spread the tries of many jobs by.
    """
    now, last = time.time(), await last_outage(record)
    same = last is not None and last.steps == outcome.steps
    since, tries = (last.since, last.tries) if last is not None and same else (now, 0)
    pause = min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE) * (0.75 + chance() / 2)
    outage = Outage(
        since=since, tries=tries + 1, steps=outcome.steps, until=now + max(pause, outcome.retry_after or 0.0)
    )
    if outage.until - since > patience:
        return None
    await record.update(lambda kept: replace(kept, outage=outage))
    return outage


def describe_outage(outage: Outage, reason: str, *, patience: float) -> str:
    """Return the status text of a job that waits for the model service."""
    until, last = _clock(outage.until), _clock(outage.since + patience)
    return (
        f"The model service is unavailable: {reason}\n\nThe work so far is kept. The job continues automatically: it "
        f"retries at {until}, and until {last} at the latest. `stop` ends it."
    )


def describe_exhausted_patience(outcome: Outcome, patience: float) -> str:
    """Return the reason of a job that ends because an outage of the model service lasts too long."""
    most = f"`CODEPILOT_MODEL_PATIENCE` allows ({duration(patience)})"
    return f"{outcome.reason or ''} Waiting for it would take longer than {most}.".strip()


def _clock(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%H:%M} UTC on {when.day} {when:%B}"


PATIENCE_SECONDS = 6 * 3600.0
"""Longer than a rate limit of GitHub's lasts, and most of its outages."""
ACCESS_PATIENCE_SECONDS = 600.0
"""For 401, 403 and 404, which GitHub also answers for seconds or minutes when nothing is wrong."""
_FIRST_PAUSE_SECONDS = 2.0
_FORGOTTEN_SECONDS = 1800.0
"""After so much time without trouble, and more than any pause, the next trouble is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When to ask again.

    Attributes:
        seconds: for how long GitHub is asked again in all.
        longest_pause: between two times.
    """

    seconds: float = PATIENCE_SECONDS
    longest_pause: float = 60.0

    async def pause(self, record: StoredRecord, error: GitHubError) -> float | None:
        """Seconds to put the job off, which grow with the time that it lasts; None when it has lasted for too long."""
        if not (error.passing or error.unsettled):
            return None
        now = time.time()
        met = (await record.read()).github_outage
        begun = met.since if met is not None and now - met.last < _FORGOTTEN_SECONDS else now
        await record.update(lambda kept: replace(kept, github_outage=GitHubOutage(since=begun, last=now)))
        lasts = now - begun
        if lasts > (self.seconds if error.passing else min(self.seconds, ACCESS_PATIENCE_SECONDS)):
            return None
        return max(error.retry_after, min(self.longest_pause, max(_FIRST_PAUSE_SECONDS, lasts / 2)))
