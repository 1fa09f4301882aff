"""Jobs as they are stored, and signals to them: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import TypeAdapter, ValidationError

from bot.domain.errors import OtherVersionError
from bot.domain.job import Job, JobState

# Each kind of command has its own literal `verb`, by which pydantic tells them apart.
_JOB = TypeAdapter(Job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A job as the queue holds it. Times are seconds since the epoch.

    Attributes:
        job: the job.
        state: where it stands.
        reason: why it ended as it did; empty for one that has not ended or needs no reason.
        attempts: how often it was handed out, since it last waited.
        enqueued_at: when it was stored.
        finished_at: when it ended; None when it has not.
        until: how long a waiting one waits; None for all others.
    """

    job: Job
    state: JobState
    reason: str
    attempts: int
    enqueued_at: float
    finished_at: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The jobs that have not ended.

    Attributes:
        by_state: how many are in each state.
        oldest_seconds: how long the oldest queued job has waited that was never begun; 0 when there is none.
    """

    by_state: Mapping[JobState, int]
    oldest_seconds: float

    STATES: ClassVar = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING)
    """Those of jobs that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Selects pieces of work, the newest first.

    Attributes:
        states: the states that they may be in; empty for any.
        repository: `owner/name`, or one of the two; empty for any.
        person: the login of the person who asked; empty for anybody.
        repo_ids: the repositories that they may be of; None for all.
        limit: how many are found at most.
        offset: how many of the newest are passed over.
    """

    states: frozenset[JobState] = frozenset()
    repository: str = ""
    person: str = ""
    repo_ids: frozenset[int] | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekCost:
    """The cost of the runs of one repository that ended in one week.

    Attributes:
        repository: its name, as the last of the jobs has it.
        week: the number of the week since 1970, which begins on a Monday.
        runs: how many runs there were.
        cost_usd: their cost in US dollars, as far as it is known.
        unknown: how many runs have a cost that is not known.
    """

    repository: str
    week: int
    runs: int
    cost_usd: float
    unknown: int


_DAYS_TO_MONDAY = 3  # 1970 began on a Thursday


def week_of(at: float) -> int:
    """The number of the week, in UTC, in which a time in seconds since the epoch is."""
    return (int(at // 86_400) + _DAYS_TO_MONDAY) // 7


def week_begins(week: int) -> float:
    """When a week begins, in seconds since the epoch."""
    return (week * 7 - _DAYS_TO_MONDAY) * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A word to a job that is under way.

    Attributes:
        kind: `stop` ends it, a `message` is told to its agent.
        text: the message, or why it is to stop.
        by: the login of its sender.
        id: names the signal; the same one is kept once, however often it is sent.
    """

    kind: Literal["stop", "message"]
    text: str
    by: str
    id: str


def dumped(job: Job) -> str:
    """A job as it is stored."""
    return _JOB.dump_json(job).decode()


def loaded(body: str) -> Job:
    """A job as it was stored.

    Raises:
        OtherVersionError: another version stored it, and this one cannot read it. What it holds is not told: people's
            words are among it.
    """
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        places = {".".join(map(str, each["loc"])) or "all of it" for each in error.errors(include_input=False)}
        raise OtherVersionError(
            f"the stored job cannot be read by this version; what it cannot read: {', '.join(sorted(places)[:5])}"
        ) from None
