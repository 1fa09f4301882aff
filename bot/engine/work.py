"""The worker's side of an engine: one attempt at a job, and what is to become of the job after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bot.domain.job import Job, JobState
from bot.engine.owed_endings import Owed
from bot.engine.records import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over.

    Attributes:
        state: one of its last states.
        reason: why.
        owed: in how many seconds its ending is to be told; None when that is done.
    """

    state: JobState
    reason: str = ""
    owed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParked:
    """The job waits, without a worker.

    Attributes:
        until: seconds since the epoch; it is run again then.
        request_id: of the request whose answer ends the wait; empty when none does.
    """

    until: float
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The job is to be run again from its start, and this attempt is not counted.

    Attributes:
        held_seconds: for how long it is not run.
    """

    held_seconds: float = 0.0


Disposition = JobEnded | JobParked | JobReleased


class JobAttempt(Protocol):
    """One attempt at a job; it is nobody else's while it lasts."""

    @property
    def job(self) -> Job:
        """The job."""
        ...

    @property
    def number(self) -> int:
        """1 for the first attempt, or the first after the job waited for a person."""
        ...

    @property
    def deaths(self) -> int:
        """How many deaths of workers the job is charged with, since it last got on."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether the job is not to be run again: only report that and end it."""
        ...

    def listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> AbstractAsyncContextManager[None]:
        """Pass the job's signals on, those of before first, until the body ends.

        A job that is parked after that does not wait when a signal came that was not passed on.

        Args:
            hear: called with each signal, once an attempt.
            steps: how many steps the agent has made; a job that gets on is not what kills its workers.
        """
        ...


class JobHandler(Protocol):
    """Does the work."""

    async def handle(self, attempt: JobAttempt) -> Disposition:
        """Run a job. It may be cancelled, and is run again then, here or elsewhere.

        Raises:
            QueueError: the engine failed; all work ends.
        """
        ...

    async def tell(self, owed: Owed) -> bool:
        """Tell an ending that could not be told before; False when it is to be tried again."""
        ...
