"""Jobs that wait for a person, on a stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_runtime import Network
from bot.domain.job import TRANSITIONS, JobState
from bot.jobs import waiting
from bot.jobs.record import JobRecord, StoredRecord
from localhub import CheckRun, Comment
from tests.stage import Stage
from tests.waiting import eventually

REACHED = Network.of("nowhere.example")
"""What commands can reach, so that at the level `ask` those that are not on the list wait for a person."""

ASKING: dict[str, Any] = {"level": "ask", "network": REACHED}
"""The operator's settings under which such commands wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A job that waits for a person.

    Attributes:
        job_id: the job.
        number: of its thread.
        request_id: names what it waits for, whole.
        status: the status comment's text.
    """

    job_id: str
    number: int
    request_id: str
    status: str

    @property
    def short_id(self) -> str:
        """The beginning of the id, which is enough in an answer."""
        return self.request_id[:4]


async def pause_of(stage: Stage, comment: Comment) -> Pause:
    """Wait until a comment's job waits for a person."""
    return await pause_of_job(stage, await stage.job_of(comment), comment.number)


async def next_pause(stage: Stage, last: Pause) -> Pause:
    """Wait until a job waits for a person about something else than the last time."""
    return await pause_of_job(stage, last.job_id, last.number, after=last.request_id)


async def pause_of_job(stage: Stage, job_id: str, number: int, *, after: str = "") -> Pause:
    """Wait until a job of a thread waits for a person, about another request than the one named `after`."""

    async def paused() -> Pause | None:
        if await stage.state_of(job_id) in {JobState.QUEUED, JobState.RUNNING}:
            return None
        stored = await stage.queue.get(job_id)
        assert stored is not None
        assert TRANSITIONS[stored.state], f"{stored.state}: {stored.reason}"
        asked = await waiting.latest(StoredRecord(stage.queue, job_id))
        if stored.state is not JobState.WAITING or asked is None or asked.request_id == after:
            return None
        told = (await StoredRecord(stage.queue, job_id).read()).comment.posted
        [status] = [each.body for each in stage.hub.comments(stage.repo, number) if told and each.id == told.id]
        return Pause(job_id=job_id, number=number, request_id=asked.request_id, status=status)

    return await eventually(paused, within=30)


async def still_waits(stage: Stage, pause: Pause) -> bool:
    """Whether a job waits, and has no answer."""
    stored = await stage.queue.get(pause.job_id)
    assert stored is not None
    return stored.state is JobState.WAITING and not await waiting.is_answered(StoredRecord(stage.queue, pause.job_id))


async def out_of_time(stage: Stage, pause: Pause) -> None:
    """Let the time for an answer be over; the queue itself does not notice."""
    record = StoredRecord(stage.queue, pause.job_id)
    asked = await waiting.latest(record)
    assert asked is not None
    await waiting.store_request(record, replace(asked, until=1.0))


async def shown_later(stage: Stage, pause: Pause) -> None:
    """Let a request have been shown a while from now, as if what is said in between had been written before."""
    at = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def later(record: JobRecord) -> JobRecord:
        shown = record.approvals.request_views
        request = replace(shown[pause.request_id], at=at)
        return replace(record, approvals=replace(record.approvals, request_views={**shown, pause.request_id: request}))

    await StoredRecord(stage.queue, pause.job_id).update(later)


def check_of(stage: Stage, job_id: str) -> CheckRun:
    """A job's check run as it is now."""
    [found] = [each for each in stage.hub.check_runs(stage.repo) if each.external_id.startswith(f"{job_id}:")]
    return found


def buttons_of(check: CheckRun) -> dict[str, str]:
    """The identifiers of a check run's buttons, by their labels."""
    return {each["label"]: each["identifier"] for each in check.actions}
