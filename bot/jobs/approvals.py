"""Requests for approval and their answers, kept with the job so that both outlive the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent_runtime import PendingCall, alike_patterns
from bot.engine.approvals import ApprovalAnswer, ShownRequest, Waiting
from bot.engine.job_record import ApprovalsRecord, StoredRecord
from bot.gate.decision import Grant


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


def request_for(pending: PendingCall, grant: Grant, *, until: float) -> Waiting:
    """The request for a call that waits.

    Args:
        pending: the call.
        grant: what its run may do, and for which commit.
        until: seconds since the epoch at which it is too late to answer.
    """
    return Waiting(
        kind=pending.kind,
        request_id=pending.request_id,
        reason=pending.reason,
        # Of a question, the question once more.
        preview="" if pending.kind == "question" else pending.preview,
        bound_to=grant.bound_to_sha,
        until=until,
        like=alike_patterns(grant.policy, pending),
    )


async def ask(record: StoredRecord, waiting: Waiting) -> None:
    """Record what the job waits for, in place of what it waited for before."""
    await _update(record, lambda kept: replace(kept, waiting=waiting))


async def asked(record: StoredRecord) -> Waiting | None:
    """What the job waits for, or waited for last."""
    return (await record.read()).approvals.waiting


async def awaited(record: StoredRecord) -> Waiting | None:
    """The request that the job waits for somebody to answer; None once it is answered, whatever it waits for then."""
    kept = (await record.read()).approvals
    return kept.waiting if kept.waiting is not None and kept.waiting.request_id not in kept.answers else None


async def note_shown(record: StoredRecord, *, at: str) -> None:
    """Record that what the job waits for can be read since `at`; the first time counts."""
    since = time.time()

    def shown(kept: ApprovalsRecord) -> ApprovalsRecord:
        if (waits := kept.waiting) is None or waits.request_id in kept.shown:
            return kept
        request = ShownRequest(request_id=waits.request_id, kind=waits.kind, at=at, since=since)
        return replace(kept, shown={**kept.shown, waits.request_id: request})

    await _update(record, shown)


async def shown_by(record: StoredRecord) -> tuple[ShownRequest, ...]:
    """Every request that the job has ever shown."""
    return tuple((await record.read()).approvals.shown.values())


async def answer(record: StoredRecord, given: ApprovalAnswer) -> bool:
    """Record an answer; False when there is one already: the first counts."""
    after = await _update(record, lambda kept: replace(kept, answers={given.request_id: given, **kept.answers}))
    return after.answers[given.request_id] is given


async def answered(record: StoredRecord, asked: Waiting) -> ApprovalAnswer | None:
    """The answer to a request, if there is one."""
    return (await record.read()).approvals.answers.get(asked.request_id)


async def approved_alike(record: StoredRecord) -> tuple[str, ...]:
    """The patterns of commands that were approved for the rest of the job's run."""
    kept = (await record.read()).approvals
    if kept.alike_void:
        return ()
    return tuple(dict.fromkeys(like for each in kept.answers.values() if each.approved for like in each.like))


async def void_alike(record: StoredRecord) -> None:
    """Have no approval count for further calls any more."""
    await _update(record, lambda kept: replace(kept, alike_void=True))


async def is_answered(record: StoredRecord) -> bool:
    """Whether what the job waits for has been answered."""
    kept = (await record.read()).approvals
    return kept.waiting is not None and kept.waiting.request_id in kept.answers


async def _update(record: StoredRecord, change: Callable[[ApprovalsRecord], ApprovalsRecord]) -> ApprovalsRecord:
    return (await record.update(lambda kept: replace(kept, approvals=change(kept.approvals)))).approvals


def unanswered(waits: Waiting) -> str:
    """Why a job ends that nobody answered."""
    what = "question" if waits.kind == "question" else "request"
    return f"Nobody answered the {what} `{waits.request_id}` in time."
