"""Requests for approval and their answers, kept with the job so that both outlive the process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from agent_runtime import PendingCall, alike_patterns
from bot.domain.job import Actor
from bot.engine.job_record import JobMemory, decode, encode
from bot.gate.decision import Grant

WaitKind = Literal["permission", "question", "publication", "plan"]

_WAITING = "waiting"
_ANSWER = "answer "
_VOID = "alike void"
"""The fact that something was pushed, so that approvals are for no further calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One request to a person.

    Attributes:
        kind: a tool call that needs permission, a question of the agent, a change to protected files that is to be
            published, or a plan that is to be carried out.
        request_id: names it; hexadecimal digits.
        reason: why it waits; for a question, the question.
        preview: what would happen: a diff, a command.
        bound_to: the commit that it was asked about; another head of the pull request voids it.
        until: seconds since the epoch at which it is too late to answer.
        tree_sha: for a publication: the git tree that may be published.
        like: for a command: the patterns that an approval of others like it would allow for the rest of the run.
    """

    kind: WaitKind
    request_id: str
    reason: str
    preview: str
    bound_to: str
    until: float
    tree_sha: str = ""
    like: tuple[str, ...] = ()

    def is_meant_by(self, request_id: str) -> bool:
        """Whether an answer that names `request_id`, the whole or its beginning, is about this request."""
        return self.request_id.startswith(request_id.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """What a person answered.

    Attributes:
        request_id: of the request, whole.
        approved: whether it may happen; for a question, whether there is an answer.
        note: the answer, or a word about it to the agent.
        by: who answered.
        like: the patterns of commands that are approved for the rest of the run, too.
    """

    request_id: str
    approved: bool
    note: str
    by: Actor
    like: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRequest:
    """That a request can be read in its job's comment.

    Attributes:
        request_id: of the request, whole.
        kind: what was asked.
        at: since when, by GitHub's clock (ISO 8601, UTC, whole seconds).
        since: the same by ours, in seconds since the epoch.
    """

    request_id: str
    kind: WaitKind
    at: str
    since: float

    def may_have_been_read(self, *, written_at: str, arrived: float) -> bool:
        """Whether whoever wrote an answer could see the request before.

        Args:
            written_at: when the answer was written, by GitHub's clock; empty where GitHub does not say.
            arrived: when it came to us, by our clock.
        """
        return written_at >= self.at and arrived >= self.since


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


_WAITINGS, _ANSWERS, _SHOWN = TypeAdapter(Waiting), TypeAdapter(ApprovalAnswer), TypeAdapter(ShownRequest)
_SHOWN_FACT = "shown "


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


async def ask(memory: JobMemory, waiting: Waiting) -> None:
    """Keep what the job waits for, in place of what it waited for before."""
    await memory.remember(_WAITING, encode(_WAITINGS, waiting))


async def asked(memory: JobMemory) -> Waiting | None:
    """What the job waits for, or waited for last."""
    found = await memory.recall(_WAITING)
    return decode(_WAITINGS, found) if found else None


async def awaited(memory: JobMemory) -> Waiting | None:
    """The request that the job waits for somebody to answer; None once it is answered, whatever it waits for then."""
    waits = await asked(memory)
    return waits if waits is not None and await answered(memory, waits) is None else None


async def note_shown(memory: JobMemory, *, at: str) -> None:
    """Keep that what the job waits for can be read since `at`; the first time counts."""
    if (waits := await asked(memory)) is not None:
        shown = ShownRequest(request_id=waits.request_id, kind=waits.kind, at=at, since=time.time())
        await memory.remember_once(f"{_SHOWN_FACT}{waits.request_id}", encode(_SHOWN, shown))


async def shown_by(memory: JobMemory) -> tuple[ShownRequest, ...]:
    """Every request that the job has ever shown."""
    facts = await memory.recall_all()
    return tuple(decode(_SHOWN, fact) for key, fact in facts.items() if key.startswith(_SHOWN_FACT))


async def answer(memory: JobMemory, given: ApprovalAnswer) -> bool:
    """Keep an answer; False when there is one already: the first counts."""
    return await memory.remember_once(fact_of_answer(given.request_id), encode(_ANSWERS, given))


async def answered(memory: JobMemory, asked: Waiting) -> ApprovalAnswer | None:
    """The answer to a request, if there is one."""
    found = await memory.recall(fact_of_answer(asked.request_id))
    return decode(_ANSWERS, found) if found else None


async def approved_alike(memory: JobMemory) -> tuple[str, ...]:
    """The patterns of commands that were approved for the rest of the job's run."""
    facts = await memory.recall_all()
    if _VOID in facts:
        return ()
    answers = [decode(_ANSWERS, fact) for key, fact in facts.items() if key.startswith(_ANSWER)]
    return tuple(dict.fromkeys(pattern for each in answers if each.approved for pattern in each.like))


async def void_alike(memory: JobMemory) -> None:
    """Have no approval count for further calls any more."""
    await memory.remember(_VOID, "yes")


def fact_of_answer(request_id: str) -> str:
    """The key of the fact that the answer to a request is kept as."""
    return f"{_ANSWER}{request_id}"


async def is_answered(memory: JobMemory) -> bool:
    """Whether what the job waits for has been answered."""
    waits = await asked(memory)
    return waits is not None and await answered(memory, waits) is not None


def unanswered(waits: Waiting) -> str:
    """Why a job ends that nobody answered."""
    what = "question" if waits.kind == "question" else "request"
    return f"Nobody answered the {what} `{waits.request_id}` in time."
