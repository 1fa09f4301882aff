"""Jobs that wait for a person, on a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_runtime import Network
from bot.domain.job import TRANSITIONS, JobState
from bot.jobs.record import StoredRecord
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
    job_id, number = await stage.job_of(comment), comment.number

    async def paused() -> Pause | None:
        if await stage.state_of(job_id) in {JobState.QUEUED, JobState.RUNNING}:
            return None
        stored = await stage.queue.get(job_id)
        assert stored is not None
        assert TRANSITIONS[stored.state], f"{stored.state}: {stored.reason}"
        request = (await StoredRecord(stage.queue, job_id).read()).approvals.waiting
        if stored.state is not JobState.WAITING or request is None:
            return None
        posted = (await StoredRecord(stage.queue, job_id).read()).comment.posted
        [status] = [each.body for each in stage.hub.comments(stage.repo, number) if posted and each.id == posted.id]
        return Pause(job_id=job_id, number=number, request_id=request.request_id, status=status)

    return await eventually(paused, within=30)


async def paused_fix(stage: Stage, number: int) -> tuple[Comment, Pause]:
    """Ask for a fix, and wait until it waits for a person."""
    command = stage.say(number, "/codepilot fix")
    return command, await pause_of(stage, command)


async def still_waits(stage: Stage, pause: Pause) -> bool:
    """Return whether a job waits and has no answer."""
    stored = await stage.queue.get(pause.job_id)
    assert stored is not None
    record = await StoredRecord(stage.queue, pause.job_id).read()
    return stored.state is JobState.WAITING and not record.approvals.is_answered


def check_of(stage: Stage, job_id: str) -> CheckRun:
    """A job's check run as it is now."""
    [check] = [each for each in stage.hub.check_runs(stage.repo) if each.external_id.startswith(f"{job_id}:")]
    return check


def buttons_of(check: CheckRun) -> dict[str, str]:
    """The identifiers of a check run's buttons, by their labels."""
    return {each["label"]: each["identifier"] for each in check.actions}
