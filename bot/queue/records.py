"""Stored values of the queue: jobs, signals and queries.

Two versions of the bot may share a database: jobs that this version cannot read are left to the other one
(`OtherVersionError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from bot.domain.errors import OtherVersionError
from bot.domain.job import Job, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job in the queue. Times are seconds since the epoch.

    Attributes:
        attempts: since its last wait.
        until: end of the wait; None unless waiting.
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
    """Unfinished jobs."""

    by_state: Mapping[JobState, int]
    oldest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A message to a live job.

    Attributes:
        text: the message for the agent, or the reason to stop.
        id: a repeated id is stored once.
    """

    kind: Literal["stop", "message"]
    text: str
    by: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A query for work; the newest come first.

    Attributes:
        repository: `owner/name` or one of the two; empty for all.
        repo_ids: None for all.
    """

    states: frozenset[JobState] = frozenset()
    repository: str = ""
    person: str = ""
    repo_ids: frozenset[int] | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekCost:
    """Cost of a person's runs in a repository that ended in a week.

    Attributes:
        person: login; empty for events.
        unknown: runs without a known cost; `tokens` are theirs.
        week: number since 1970; weeks begin on Monday.
    """

    repository: str
    person: str
    week: int
    runs: int
    cost_usd: float
    unknown: int
    tokens: int


_DAYS_TO_MONDAY = 3  # 1970 began on a Thursday


def week_of(at: float) -> int:
    return (int(at // 86_400) + _DAYS_TO_MONDAY) // 7


def week_start(week: int) -> float:
    return (week * 7 - _DAYS_TO_MONDAY) * 86_400.0


# pydantic selects the command's class by the literal type of `verb`.
_JOB = TypeAdapter(Job)


def encode_job(job: Job) -> str:
    return _JOB.dump_json(job).decode()


def decode_job(body: str) -> Job:
    """Parse a stored job.

    Raises:
        OtherVersionError: unreadable. The text contains no values, since people wrote them.
    """
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        paths = {".".join(map(str, problem["loc"])) or "(all)" for problem in error.errors(include_input=False)}
        raise OtherVersionError(
            f"this version cannot read the stored job: unknown or invalid fields {', '.join(sorted(paths)[:5])}"
        ) from None
