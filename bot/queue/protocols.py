"""Interfaces of the job engine, and limits of every implementation.

Clients use `JobEngine`, `RunHistory`, `Schedules` and `Ledger`; the engine calls a `JobHandler` with a `JobAttempt`.
Implementations: `bot.queue.engine`, `bot.queue.ledger`, `bot.queue.memory`. Methods may raise `QueueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from agent_runtime import Usage
from bot.domain.access import LabelGrant, Tally
from bot.domain.job import Job, JobState, Repo
from bot.domain.spend import Cap, CapUse
from bot.queue.records import Backlog, RunQuery, Signal, StoredJob

MAX_ENDED = 100_000
"""Number of ended jobs kept with text and record."""


class JobIndex(Protocol):
    async def get(self, job_id: str) -> StoredJob | None:
        """Return a job; None if unknown or swept."""

    async def jobs_in_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[StoredJob, ...]:
        """Return a thread's work, newest first, at most `limit` in each state, without swept jobs."""

    async def is_live(self, repo_id: int, number: int) -> bool: ...

    async def live_jobs(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[StoredJob, ...]:
        """Return an installation's unfinished work, oldest first.

        Args:
            repo_ids: empty for all repositories.
        """

    async def live_ids(self) -> frozenset[str]: ...

    async def backlog(self) -> Backlog:
        """Count unfinished jobs. Does not scan finished ones."""

    async def counts(self) -> dict[JobState, int]: ...


class JobRecords(Protocol):
    """The progress of each job, as text that the caller encodes."""

    async def record(self, job_id: str) -> str | None: ...

    async def update(self, job_id: str, change: Callable[[str | None], str]) -> None:
        """Replace a job's record by `change(record)` durably, in one transaction.

        `change` is pure and may be called several times; calls for one job never overlap.
        """


class JobEngine(JobIndex, JobRecords, Protocol):
    """The queue of jobs.

    A thread runs one job of the lane `work` at a time; waiting jobs block no others. Other lanes run immediately.
    """

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        """Store a job durably; return False if its id or delivery is known.

        Args:
            held_seconds: delay before it runs, unless `release_hold` ends it.
        """

    async def amend(self, job: Job) -> None:
        """Replace a stored job of the same id, for later attempts."""

    async def release_hold(self, job_id: str) -> None: ...

    async def cancel(
        self,
        job_id: str,
        state: JobState,
        reason: str,
        *,
        record_ending: Callable[[str | None], str | None] | None = None,
    ) -> bool:
        """End a queued or waiting job; return False for other jobs.

        Args:
            record_ending: pure change of the record, which schedules a report; None from it keeps the job.
        """

    async def send(self, job_id: str, signal: Signal) -> bool:
        """Store a signal once; return False if the job has ended."""

    async def wake(self, job_id: str) -> bool:
        """Run a waiting job again, if it waits. Record the answer before, so that the job does not wait again."""

    async def check(self) -> None:
        """Write to the disk as for a job."""

    async def sweep(self, keep_days: float, *, most: int = MAX_ENDED) -> int:
        """Delete texts, records and signals of old ended jobs; return their number.

        Ids stay, so that redeliveries are recognized.

        Args:
            most: number of ended jobs to keep; older ones are deleted regardless of age.
        """


class RunHistory(Protocol):
    async def find_runs(self, query: RunQuery) -> tuple[StoredJob, ...]:
        """Return the selected work, newest first, without swept jobs."""

    async def records(self, job_ids: Collection[str], *, containing: str) -> Mapping[str, str]:
        """Return those of the jobs' records that contain a text."""

    async def pulse(self) -> str:
        """Return a text that changes when any work is stored, changes its state or ends."""

    async def save_log(self, job: Job, body: bytes, usage: Usage) -> None:
        """Store a run's log in place of an earlier one."""

    async def load_log(self, job_id: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """The budget that a run needs.

    Attributes:
        labels: the thread's; those of the first request are kept.
        used: what the job has used so far.
    """

    job: Job
    verb: str
    labels: Collection[str] = ()
    caps: Sequence[Cap] = ()
    budget_usd: float | None
    used: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A budget for a run.

    Attributes:
        budget_usd: None for no limit; 0 if a cap is exhausted, so that nothing is reserved.
        uses: of the caps, without the reservation.
    """

    budget_usd: float | None
    uses: tuple[CapUse, ...] = ()


class Spending(Protocol):
    """The spending of all jobs, in which running jobs reserve their budgets."""

    async def reserve(self, request: BudgetRequest) -> Reservation:
        """Reserve what is left of a run's budget and of its caps, in place of the job's earlier reservation."""

    async def settle(self, job: Job, used: Usage, caps: Sequence[Cap] = ()) -> tuple[CapUse, ...]:
        """Store what a job has used, end its reservation, and return the use of its caps."""

    async def sweep(self) -> None:
        """Delete old spending."""

    async def recent_costs(self, repo_id: int, *, verb: str = "", recipe: str = "") -> tuple[float, ...]:
        """Return the known costs of the last ended runs of a verb without a recipe, or of a recipe."""


class Schedules(Protocol):
    async def save(self, repo: Repo, installation: int, crons: Mapping[str, str]) -> None:
        """Replace a repository's schedules; unchanged ones keep their due time."""

    async def prune(self, installation: int, repo_ids: Collection[int]) -> None: ...

    async def installations(self) -> frozenset[int]: ...

    async def start_due(self) -> int:
        """Store a job for each due recipe, once among all processes; return their number. Skips missed times."""


class Ledger(Protocol):
    """Facts about threads: labels, notices, job counts."""

    async def save_label(self, label: LabelGrant) -> None: ...

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]: ...

    async def delete_label(self, repo_id: int, number: int, name: str) -> None:
        """Delete a label; its name matches without case."""

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """Bind labels of one commit to another, after the bot's own push."""

    async def claim_notice(
        self, repo_id: int, number: int, cause: str, *, seconds: float = 3600.0, by: str = ""
    ) -> bool:
        """Claim the right to post a notice: True once in `seconds` for a thread and kind, across all processes.

        True again for the job named by `by`, since its earlier attempt may have died before posting.
        """

    async def suppress_notice(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        """Make `claim_notice` return False for some seconds, regardless of earlier claims."""

    async def save_config(self, repo_id: int, config: str, *, seconds: float) -> None: ...

    async def config(self, repo_id: int) -> str | None:
        """Return the stored configuration; None if missing or expired."""

    async def tally(self, job: Job, *, seconds: float = 3600.0) -> Tally:
        """Count work started in the last `seconds`, without refused jobs, `job` itself and later ones.

        `unattended` counts back to a person's last request, and is 0 if a person requested `job`.
        """


class JobHandler(Protocol):
    async def handle(self, attempt: JobAttempt) -> Disposition:
        """Run a job; if cancelled, it runs again later.

        Raises:
            QueueError: the engine failed, so that the worker ends.
        """

    async def report(self, report: PendingReport) -> bool:
        """Post a pending report; return False to retry later."""


class JobAttempt(Protocol):
    """An attempt at a job, which has no other attempt meanwhile."""

    @property
    def job(self) -> Job: ...

    @property
    def number(self) -> int:
        """The attempt's number from 1, restarted after each wait."""

    @property
    def deaths(self) -> int:
        """Worker deaths charged to the job since its last progress."""

    @property
    def is_exhausted(self) -> bool:
        """Whether to end the job with a report instead of running it."""

    def listen(self, deliver: Callable[[Signal], None]) -> AbstractAsyncContextManager[None]:
        """Deliver the job's signals, earlier ones first, during the body.

        A signal that was not delivered keeps the job from being parked.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """The job is over.

    Attributes:
        report_delay: seconds until the end is reported; None if that is done.
    """

    state: JobState
    reason: str = ""
    report_delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParked:
    """The job waits without a worker.

    Attributes:
        until: seconds since the epoch, when it runs anyway.
        has_answer: whether the stored record has the answer already, so that the job runs again at once.
    """

    until: float
    has_answer: Callable[[str | None], bool] = lambda _record: False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The job runs again from its start; this attempt does not count. A stop sent since `listen` ends the delay."""

    held_seconds: float = 0.0


Disposition = JobEnded | JobParked | JobReleased


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReport:
    """A report of a job's end, to be posted by one worker.

    Attributes:
        job: None if this version cannot read it.
    """

    job: Job | None
    job_id: str
    since: float
    tries: int


REPORT_SECONDS = 7 * 24 * 3600.0
"""Period of attempts to report an end."""

# By tries. A service that is back after hours reports each end within a minute.
_REPORT_RETRY_DELAYS = (5.0, 15.0, 30.0, *(60.0,) * 360, 600.0, 1800.0, 3600.0)


def report_pause(tries: int) -> float:
    return _REPORT_RETRY_DELAYS[min(tries, len(_REPORT_RETRY_DELAYS) - 1)]


ISOLATION_SECONDS = 60.0
"""Seconds for which a suspect keeps others from its worker; after that it is probably just slow."""

MAX_DEATHS = 3
"""Number of charged deaths after which a job is given up."""

MAX_EXCUSED = 4
"""Number of uncharged deaths, while workers without the job died too: somebody may kill them on purpose."""

EXCUSE_SECONDS = 3600.0
"""Period in which a worker's death excuses those of others."""

MAX_REPORT_DEATHS = MAX_DEATHS + 100
"""Number of deaths after which a job ends without a report."""

# By deaths that a job is charged with. Three restarts of the bot in one bad minute fail no job.
_DEATH_RETRY_DELAYS = (0.0, 0.0, 60.0, 0.0, 60.0, 300.0, 900.0, 3600.0)


def death_pause(deaths: int) -> float:
    return _DEATH_RETRY_DELAYS[min(deaths, len(_DEATH_RETRY_DELAYS) - 1)]
