"""Stored values of the queue: jobs, signals and queries.

Two versions of the bot may share a database: jobs that this version cannot read are left to the other one
(`OtherVersionError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

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


Dimension = Literal["repository", "person", "label", "recipe", "verb"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendQuery:
    """A query for spending on the UTC days from `first` until before `end`, numbered since 1970.

    Attributes:
        equal: values of dimensions.
        repo_ids: None for all.
    """

    first: int
    end: int
    equal: Mapping[Dimension, str] = field(default_factory=dict)
    repo_ids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSum:
    """Spending of a repository, person, label, recipe or verb.

    Attributes:
        name: empty for a person if nobody asked, and for a sum.
        unknown: runs without a known cost; `tokens` are theirs.
    """

    name: str
    runs: int
    cost_usd: float
    unknown: int
    tokens: int


SpendSums = tuple[SpendSum, Mapping[Dimension, tuple[SpendSum, ...]]]
"""The sum of the selected spending, and that of the 100 largest of each dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRecipe:
    """A recipe with a schedule, and the costs of its last runs, newest first."""

    repository: str
    name: str
    cron: str
    costs: tuple[float, ...]


_DAYS_TO_MONDAY = 3  # 1970 began on a Thursday


def week_of(at: float) -> int:
    """Return the number of a week since 1970, for processes of an earlier version that read it."""
    return (int(at // 86_400) + _DAYS_TO_MONDAY) // 7


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
