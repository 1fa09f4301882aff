"""The interfaces of the job engine, and the limits that each implementation has.

The users' side: `Inbox`, `Signals`, `JobIndex` and `EngineUpkeep` (with `JobRecords` a `JobEngine`), `RunHistory`,
`Schedules` and `Ledger`. The workers' side: the engine calls a `JobHandler` with a `JobAttempt`, which returns a
`Disposition`. `bot.queue.engine` and `bot.queue.ledger` implement them on a database, `bot.queue.memory` in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bot.domain.access import LabelGrant, Tally
from bot.domain.job import Job, JobState, Repo
from bot.permissions.repo_config import RepoConfig
from bot.queue.records import Backlog, JobRecord, JobRecords, RecordedEnding, RunQuery, Signal, Stored, WeekCost

MOST_ENDED = 100_000
"""How many ended jobs are kept with their texts and records."""


class Inbox(Protocol):
    """Takes jobs in, and out again; every method may raise `QueueError`.

    There are three lanes (`Job.lane`). Of a thread's work only one job runs at a time, and one that waits for a person
    holds up no other. What steers runs at once, whatever else does.
    """

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        """Store a job for good; False, and nothing stored, when its id or delivery is known already.

        Args:
            job: the job.
            held_seconds: for how long it is not run, unless `unhold` lets it go before.
        """
        ...

    async def unhold(self, job_id: str) -> None:
        """Let a held job run; nothing to do when it is not held."""
        ...

    async def restore(self, job: Job, record: JobRecord, *, until: float) -> None:
        """Store a job that another engine has left waiting, unless it is known already.

        Args:
            job: the job.
            record: what it has done there.
            until: seconds since the epoch; it is run then.
        """
        ...

    async def cancel(self, job_id: str, state: JobState, reason: str, *, ending: RecordedEnding | None = None) -> bool:
        """End a queued or waiting job; False when it is being run, has ended, or has only to report its end.

        Args:
            job_id: the job.
            state: how it ended.
            reason: why.
            ending: what is to be reported; None for nothing.

        Raises:
            TransitionError: such a job may not go to that state.
        """
        ...


class Signals(Protocol):
    """Reaches jobs under way; `JobAttempt.listening` is the other end. Every method may raise `QueueError`."""

    async def send(self, job_id: str, sent: Signal) -> bool:
        """Keep a signal for a job; False when the job has ended. What was sent before is not kept again."""
        ...

    async def wake(self, job_id: str) -> bool:
        """Run a waiting job again; False when it does not wait.

        The one who answers a request records the answer first, so that nobody waits for what has been said.
        """
        ...


class JobIndex(Protocol):
    """Answers questions about jobs; every method may raise `QueueError`."""

    async def get(self, job_id: str) -> Stored | None:
        """The job as it stands, or None when it was never stored, or `sweep` forgot it."""
        ...

    async def of_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[Stored, ...]:
        """A thread's work, newest first: the last `limit` in each state; without what `sweep` forgot."""
        ...

    async def is_live(self, repo_id: int, number: int) -> bool:
        """Return whether any work of a thread has not ended."""
        ...

    async def live_of(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[Stored, ...]:
        """The work of an installation that has not ended, oldest first; of some repositories when any are named."""
        ...

    async def live_ids(self) -> frozenset[str]:
        """The ids of all work that has not ended, for `Workspaces.sweep`."""
        ...

    async def backlog(self) -> Backlog:
        """Count the jobs that have not ended, as quickly with very many ended jobs as with none."""
        ...

    async def counts(self) -> dict[JobState, int]:
        """Count the jobs in each state."""
        ...


class EngineUpkeep(Protocol):
    """Maintenance of the engine by an operator's process; every method may raise `QueueError`."""

    async def check(self) -> None:
        """Write something and have it reach the disk, as a job would have to; raises when that fails."""
        ...

    async def sweep(self, keep_days: float, *, most: int = MOST_ENDED) -> int:
        """Forget the words, records and signals of jobs that ended `keep_days` ago; give back how many they were.

        Their ids stay, so that a delivery that is sent again is known.

        Args:
            keep_days: for how long they are kept, in days.
            most: how many ended jobs are kept, whatever their age; the oldest are forgotten first.
        """
        ...


class JobEngine(Inbox, Signals, JobIndex, JobRecords, EngineUpkeep, Protocol):
    """The engine for its users: every interface but the dashboard's."""


class RunHistory(Protocol):
    """Finds work for the dashboard, and keeps the logs of its runs; every method may raise `QueueError`."""

    async def runs(self, query: RunQuery) -> tuple[Stored, ...]:
        """The work that a query selects, newest first, without what `sweep` forgot."""
        ...

    async def pulse(self) -> str:
        """Return a text that changes when any work is stored, changes its state, or ends."""
        ...

    async def keep_log(self, job: Job, body: bytes, *, cost_usd: float | None) -> None:
        """Keep the log of a job's run, in place of an earlier one, until `sweep` forgets the job.

        Args:
            job: the job.
            body: the log.
            cost_usd: what the run has cost; None when that is not known.
        """
        ...

    async def log_of(self, job_id: str) -> bytes | None:
        """The log that is kept of a job's run; None where there is none."""
        ...

    async def costs(self, since: int, repo_ids: Collection[int] | None = None) -> tuple[WeekCost, ...]:
        """The cost of runs by week and repository, the newest week first, then by name.

        Args:
            since: the number of the first week.
            repo_ids: the repositories that are counted; None for all.
        """
        ...


class Schedules(Protocol):
    """Knows when recipes are due. Every method may raise `QueueError`."""

    async def keep(self, repo: Repo, installation: int, crons: Mapping[str, str]) -> None:
        """Keep the schedules of a repository in place of those before; one that is unchanged keeps its due time.

        Args:
            repo: the repository.
            installation: of the App, there.
            crons: of its recipes, by name.
        """
        ...

    async def keep_only(self, installation: int, repo_ids: Collection[int]) -> None:
        """Forget the schedules of an installation's other repositories."""
        ...

    async def installations(self) -> frozenset[int]:
        """The installations with schedules."""
        ...

    async def start_due(self) -> int:
        """Store one job for each recipe that is due, and give back how many were.

        Of several processes that look at once, one stores it. What was due several times meanwhile is started once.
        """
        ...


class Ledger(Protocol):
    """Keeps facts about threads rather than jobs: permission labels, notices sent, work begun.

    Every method may raise `QueueError`.
    """

    async def keep_label(self, label: LabelGrant) -> None:
        """Store a label and its setter, in place of an older setting of the same label; a newer one stays."""
        ...

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        """The labels that are kept of a thread, by name."""
        ...

    async def drop_label(self, repo_id: int, number: int, name: str) -> None:
        """Forget a label, however its name is capitalised; nothing to do when it is not kept."""
        ...

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """Bind the labels of a thread that hold for one commit to another: the bot's own push moved the head."""
        ...

    async def may_tell(self, repo_id: int, number: int, cause: str, *, seconds: float = 3600.0, by: str = "") -> bool:
        """Return whether a thread may get a notice now: True once in `seconds` for each cause, however many ask.

        Where `by` names a job, True again for that job: an attempt that asked may have died before it told anything.
        """
        ...

    async def hold_back(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        """Have `may_tell` answer False for so long from now, whatever it has answered before."""
        ...

    async def keep_config(self, repo_id: int, config: RepoConfig, *, seconds: float) -> None:
        """Store the configuration of a repository, for some seconds."""
        ...

    async def config(self, repo_id: int) -> RepoConfig | None:
        """Return the stored configuration of a repository; None where none is stored or it is too old."""
        ...

    async def tally(self, job: Job, *, seconds: float = 3600.0) -> Tally:
        """Count the work begun in the last `seconds` in the places of `job` and by its user; see `Tally`.

        Refused jobs count nowhere, nor does `job` itself, nor what began after it. `unattended` counts the thread's
        work before `job` since a person asked for some, as far back as `EngineUpkeep.sweep` has not forgotten; it is
        0 when `job` is a person's.
        """
        ...


class JobHandler(Protocol):
    """Runs jobs for the engine."""

    async def handle(self, attempt: JobAttempt) -> Disposition:
        """Run a job. It may be cancelled, and is run again then, here or elsewhere.

        Raises:
            QueueError: the engine failed; all work ends.
        """
        ...

    async def tell(self, owed: Owed) -> bool:
        """Tell an ending that could not be told before; False when it is to be tried again."""
        ...


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
        """Return the number of deaths of workers that the job is charged with, since its last progress."""
        ...

    @property
    def exhausted(self) -> bool:
        """Return whether the job is not to be run again: only report that and end it."""
        ...

    def listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> AbstractAsyncContextManager[None]:
        """Pass the job's signals on, those of before first, until the body ends.

        A job that is parked after that does not wait when a signal came that was not passed on.

        Args:
            hear: called with each signal, once an attempt.
            steps: how many steps the agent has made; a job that gets on is not what kills its workers.
        """
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """An ending that one worker tells now.

    Attributes:
        job: whose it is; None when this version cannot read it.
        job_id: its id.
        since: when it was first to be told, in seconds since the epoch.
        tries: how often it was tried, this time included.
    """

    job: Job | None
    job_id: str
    since: float
    tries: int


KEEP_SECONDS = 7 * 24 * 3600.0
"""For how long an ending is tried to be told."""

_REPORT_RETRY_DELAYS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def report_retry_delay(tries: int) -> float:
    """Seconds before an ending is tried again that was tried so often."""
    return _REPORT_RETRY_DELAYS[min(tries, len(_REPORT_RETRY_DELAYS) - 1)]


ALONE_SECONDS = 60.0
"""For how long a suspect keeps other suspects from its worker: a run that has not got on by then may just be slow."""

MOST_DEATHS = 3
"""How many deaths a job is charged with before it is not begun again, but given up."""

MOST_EXCUSED = 4
"""How many deaths a job is not charged with since workers died without it, too: somebody may kill them on purpose."""

EXCUSING_SECONDS = 3600.0
"""For how long the death of a worker excuses those of others."""

HOPELESS_DEATHS = MOST_DEATHS + 100
"""After so many, days later, even the attempts to give a job up end."""

# By deaths that a job is charged with. Three restarts of the bot in one bad minute fail no job.
_DEATH_RETRY_DELAYS = (0.0, 0.0, 60.0, 0.0, 60.0, 300.0, 900.0, 3600.0)


def death_retry_delay(deaths: int) -> float:
    """Seconds before a job is tried again that is charged with so many deaths."""
    return _DEATH_RETRY_DELAYS[min(deaths, len(_DEATH_RETRY_DELAYS) - 1)]
