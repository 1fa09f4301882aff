"""An engine and a ledger in memory, for a workflow's step and for tests: their contents end with their process.

No worker, lease or queue: the caller runs the next job, or the next report of an end, when it wants to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter
from typing import assert_never

from bot.domain.access import LabelGrant, Tally, TrustedBots, is_unattended
from bot.domain.errors import QueueError, TransitionError
from bot.domain.job import TRANSITIONS, Job, JobState, Lane
from bot.permissions.repo_config import RepoConfig
from bot.queue.protocols import MOST_ENDED, JobEnded, JobHandler, JobParked, JobReleased, Owed, report_retry_delay
from bot.queue.records import Backlog, JobRecord, RecordedEnding, Signal, Stored

_HOUR = 3600.0
_DAY_SECONDS = 24 * 3600.0


class InMemoryEngine:
    """Implements `JobEngine`. `run_job`, `run_next`, `tell_ending` and `tell_next` are the worker's side.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._changed = asyncio.Event()

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        """See `Inbox.accept`."""
        return self._put(job, JobState.QUEUED, held_until=self._clock() + held_seconds)

    async def restore(self, job: Job, record: JobRecord, *, until: float) -> None:
        """See `Inbox.restore`."""
        if self._put(job, JobState.WAITING, until=until):
            entry = self._entries[job.id]
            entry.record, entry.begun_at = record, self._clock()

    async def unhold(self, job_id: str) -> None:
        """See `Inbox.unhold`."""
        self._entry(job_id).held_until = 0.0
        self._changed.set()

    async def cancel(self, job_id: str, state: JobState, reason: str, *, ending: RecordedEnding | None = None) -> bool:
        """See `Inbox.cancel`."""
        if TRANSITIONS[state]:
            raise TransitionError(f"job {job_id} cannot end as {state}, which is not a final state")
        entry = self._entry(job_id)
        if entry.stored.state not in {JobState.QUEUED, JobState.WAITING} or entry.record.ending is not None:
            return False
        if ending is not None:
            entry.record = replace(entry.record, ending=ending)
            self._owe(entry, 0.0)
        self._move(entry, state, reason)
        return True

    async def send(self, job_id: str, sent: Signal) -> bool:
        """See `Signals.send`."""
        entry = self._entry(job_id)
        if entry.stored.state not in Backlog.STATES:
            return False
        if all(each.id != sent.id for each in entry.signals):
            entry.signals.append(sent)
            if entry.pass_on is not None:
                entry.pass_on()
        return True

    async def wake(self, job_id: str) -> bool:
        """See `Signals.wake`."""
        entry = self._entry(job_id)
        if entry.stored.state is not JobState.WAITING:
            return False
        self._move(entry, JobState.QUEUED)
        return True

    async def record(self, job_id: str) -> JobRecord:
        """See `JobRecords.record`."""
        entry = self._entries.get(job_id)
        return entry.record if entry is not None else JobRecord()

    async def update(self, job_id: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """See `JobRecords.update`."""
        entry = self._entry(job_id)
        entry.record = change(entry.record)
        return entry.record

    async def get(self, job_id: str) -> Stored | None:
        """See `JobIndex.get`."""
        entry = self._entries.get(job_id)
        return None if entry is None or entry.forgotten else entry.stored

    async def of_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[Stored, ...]:
        """See `JobIndex.of_thread`."""
        found = [each for each in reversed(self._work()) if _is_in(each, repo_id, number)]
        places = {state: [each for each in found if each.state is state][:limit] for state in JobState}
        return tuple(each for each in found if each in places[each.state])

    async def is_live(self, repo_id: int, number: int) -> bool:
        """See `JobIndex.is_live`."""
        return any(each.state in Backlog.STATES and _is_in(each, repo_id, number) for each in self._work())

    async def live_of(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[Stored, ...]:
        """See `JobIndex.live_of`."""
        alive = [
            each for each in self._work() if each.state in Backlog.STATES and each.job.installation == installation
        ]
        return tuple(each for each in alive if not repo_ids or each.job.repo.id in repo_ids)

    async def live_ids(self) -> frozenset[str]:
        """See `JobIndex.live_ids`."""
        return frozenset(each.job.id for each in self._work() if each.state in Backlog.STATES)

    async def backlog(self) -> Backlog:
        """See `JobIndex.backlog`."""
        live = [each for each in self._entries.values() if each.stored.state in Backlog.STATES]
        queued = [each for each in live if each.stored.state is JobState.QUEUED]
        new = [each.stored.enqueued_at for each in queued if each.begun_at is None]
        return Backlog(
            by_state={state: sum(each.stored.state is state for each in live) for state in Backlog.STATES},
            oldest_seconds=max(0.0, self._clock() - min(new)) if new else 0.0,
        )

    async def counts(self) -> dict[JobState, int]:
        """See `JobIndex.counts`."""
        states = [each.stored.state for each in self._entries.values()]
        return {state: states.count(state) for state in JobState}

    async def check(self) -> None:
        """See `EngineUpkeep.check`."""

    async def sweep(self, keep_days: float, *, most: int = MOST_ENDED) -> int:
        """See `EngineUpkeep.sweep`."""
        before = self._clock() - keep_days * _DAY_SECONDS
        ended = [
            (each.stored.finished_at, each)
            for each in self._entries.values()
            if not each.forgotten and each.due_at is None and each.stored.finished_at is not None
        ]
        ended.sort(key=lambda at_and_entry: at_and_entry[0])
        beyond = max(0, len(ended) - most)
        old = [each for place, (at, each) in enumerate(ended) if at < before or place < beyond]
        for each in old:
            each.forgotten, each.record, each.signals = True, JobRecord(), []
        return len(old)

    def begun_jobs(self) -> list[tuple[float, Job, JobState]]:
        """Return the work that was begun, with its time of begin, in the order in which it was stored."""
        entries = [each for each in self._entries.values() if each.stored.job.lane == "work" and not each.forgotten]
        return [(each.begun_at, each.stored.job, each.stored.state) for each in entries if each.begun_at is not None]

    async def run_job(self, handler: JobHandler, job_id: str) -> Stored:
        """Have jobs handled until one has ended, or waits; that one as it stands then.

        Raises:
            QueueError: there is no such job.
        """
        entry = self._entry(job_id)
        while entry.stored.state is not JobState.WAITING and TRANSITIONS[entry.stored.state]:
            if not await self.run_next(handler, entry.stored.job.lane):
                await self._until_more_may_run()
        return entry.stored

    async def run_next(self, handler: JobHandler, lane: Lane = "work") -> bool:
        """Have the oldest job of a lane that may run handled; False when there is none."""
        entry = self._next(lane)
        if entry is None:
            return False
        self._move(entry, JobState.RUNNING)
        entry.stored = replace(entry.stored, attempts=entry.stored.attempts + 1)
        entry.begun_at = self._clock() if entry.begun_at is None else entry.begun_at
        attempt = _Attempt(entry, entry.stored.job, entry.stored.attempts)
        try:
            disposition = await handler.handle(attempt)
        except BaseException:  # whatever it was, the job is to be run again
            self._release(entry, 0.0)
            raise
        match disposition:
            case JobEnded(state=state, reason=reason, owed=owed):
                if owed is not None:
                    self._owe(entry, owed)
                self._move(entry, state, reason)
            case JobReleased(held_seconds=seconds):
                self._release(entry, seconds)
            case JobParked(until=until, request_id=request_id):
                if len(entry.signals) > attempt.heard or request_id in entry.record.approvals.answers:
                    self._release(entry, 0.0)
                else:
                    self._move(entry, JobState.WAITING, until=until)
                    entry.stored = replace(entry.stored, attempts=0)
            case other:
                assert_never(other)
        return True

    async def tell_ending(self, handler: JobHandler, job_id: str, *, until: float) -> None:
        """Have an ending told that could not be told at once, as long as it is due before `until`."""
        entry = self._entry(job_id)
        while entry.due_at is not None and entry.due_at < until:
            if not await self.tell_next(handler):
                await asyncio.sleep(max(0.0, entry.due_at - self._clock()))

    async def tell_next(self, handler: JobHandler) -> bool:
        """Have an ending told that is due; False when there is none."""
        now = self._clock()
        due = [each for each in self._entries.values() if each.due_at is not None and each.due_at <= now]
        for entry in due[:1]:
            job = entry.stored.job
            entry.tries, entry.due_at = entry.tries + 1, None
            owed = Owed(job=job, job_id=job.id, since=entry.owed_since, tries=entry.tries)
            told = await handler.tell(owed)
            entry.due_at = None if told else self._clock() + report_retry_delay(entry.tries)
        return bool(due)

    async def _until_more_may_run(self) -> None:
        """Wait until something has changed, or a job's time has come."""
        now = self._clock()
        times = [max(each.held_until, each.stored.until or 0.0) for each in self._entries.values()]
        seconds = [at - now for at in times if at > now]
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, default=None)):
                await self._changed.wait()

    def _put(self, job: Job, state: JobState, *, held_until: float = 0.0, until: float | None = None) -> bool:
        deliveries = {each.stored.job.delivery_id for each in self._entries.values()}
        if job.id in self._entries or job.delivery_id in deliveries:
            return False
        stored = Stored(job=job, state=state, reason="", attempts=0, enqueued_at=self._clock(), until=until)
        self._entries[job.id] = _Entry(stored=stored, held_until=held_until)
        self._changed.set()
        return True

    def _next(self, lane: Lane) -> _Entry | None:
        now = self._clock()
        for entry in self._entries.values():
            if entry.stored.until is not None and entry.stored.until <= now:
                self._move(entry, JobState.QUEUED)
        passed_over = set()
        for entry in self._entries.values():
            job = entry.stored.job
            if job.lane != lane or entry.stored.state is not JobState.QUEUED:
                continue
            place = (job.repo.id, job.thread.key)
            if place not in passed_over and entry.held_until <= now and not self._is_busy(lane, place):
                return entry
            if lane == "work":
                passed_over.add(place)
        return None

    def _is_busy(self, lane: Lane, place: tuple[int, int]) -> bool:
        running = [each.stored for each in self._entries.values() if each.stored.state is JobState.RUNNING]
        return any(each.job.lane == lane and _is_in(each, *place) for each in running)

    def _work(self) -> list[Stored]:
        return [each.stored for each in self._entries.values() if each.stored.job.lane == "work" and not each.forgotten]

    def _release(self, entry: _Entry, held_seconds: float) -> None:
        self._move(entry, JobState.QUEUED)
        entry.stored = replace(entry.stored, attempts=entry.stored.attempts - 1)
        entry.held_until = self._clock() + held_seconds

    def _owe(self, entry: _Entry, pause: float) -> None:
        entry.owed_since = self._clock()
        entry.due_at = entry.owed_since + pause

    def _move(self, entry: _Entry, to: JobState, reason: str = "", *, until: float | None = None) -> None:
        if to not in TRANSITIONS[entry.stored.state]:
            raise TransitionError(f"job {entry.stored.job.id} cannot go from {entry.stored.state} to {to}")
        finished_at = None if TRANSITIONS[to] else self._clock()
        entry.stored = replace(entry.stored, state=to, reason=reason, until=until, finished_at=finished_at)
        self._changed.set()

    def _entry(self, job_id: str) -> _Entry:
        if job_id not in self._entries:
            raise QueueError(f"there is no job {job_id} in the queue")
        return self._entries[job_id]


@dataclass(slots=True)
class _Entry:
    stored: Stored
    held_until: float = 0.0
    begun_at: float | None = None
    record: JobRecord = field(default_factory=JobRecord)
    signals: list[Signal] = field(default_factory=list)
    owed_since: float = 0.0
    due_at: float | None = None
    tries: int = 0
    forgotten: bool = False
    pass_on: Callable[[], None] | None = None


@dataclass(slots=True)
class _Attempt:
    """The attempt at a job that is under way; see `JobAttempt`."""

    entry: _Entry
    job: Job
    number: int
    deaths: int = 0
    exhausted: bool = False
    heard: int = 0

    @asynccontextmanager
    async def listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> AsyncIterator[None]:
        def pass_on() -> None:
            for signal in self.entry.signals[self.heard :]:
                self.heard += 1
                hear(signal)

        pass_on()
        self.entry.pass_on = pass_on
        try:
            yield
        finally:
            self.entry.pass_on = None
        self.entry.record = replace(self.entry.record, steps=max(self.entry.record.steps, steps()))


def _is_in(stored: Stored, repo_id: int, number: int) -> bool:
    return (stored.job.repo.id, stored.job.thread.key) == (repo_id, number)


class InMemoryLedger:
    """Implements `Ledger`; what it holds ends with its process.

    Args:
        engine: whose jobs are counted.
        trusted_bots: bots that may command; see `is_unattended`.
        clock: seconds since the epoch; the engine's.
    """

    def __init__(
        self, engine: InMemoryEngine, *, trusted_bots: TrustedBots | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._trusted_bots = trusted_bots or TrustedBots()
        self._clock = clock
        self._labels: dict[tuple[int, int, str], LabelGrant] = {}
        self._told: dict[tuple[int, int, str], float] = {}
        self._configs: dict[int, tuple[float, RepoConfig]] = {}

    async def keep_label(self, label: LabelGrant) -> None:
        """See `Ledger.keep_label`."""
        key = (label.repo_id, label.number, label.name.casefold())
        kept = self._labels.get(key)
        if kept is None or kept.at <= label.at:
            self._labels[key] = label

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        """See `Ledger.labels`."""
        return tuple(label for key, label in sorted(self._labels.items()) if key[:2] == (repo_id, number))

    async def drop_label(self, repo_id: int, number: int, name: str) -> None:
        """See `Ledger.drop_label`."""
        self._labels.pop((repo_id, number, name.casefold()), None)

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """See `Ledger.rebind_labels`."""
        for label in await self.labels(repo_id, number):
            if label.bound_to == old_sha:
                self._labels[repo_id, number, label.name.casefold()] = replace(label, bound_to=new_sha)

    async def may_tell(self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR, by: str = "") -> bool:
        """See `Ledger.may_tell`."""
        key, own, now = (repo_id, number, cause), (repo_id, number, f"{cause} by {by}"), self._clock()
        self._told = {told: until for told, until in self._told.items() if until > now}
        if key in self._told:
            return bool(by) and own in self._told
        self._told[key] = self._told[own] = now + seconds
        return True

    async def hold_back(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        """See `Ledger.hold_back`."""
        self._told[repo_id, number, cause] = self._clock() + seconds

    async def keep_config(self, repo_id: int, config: RepoConfig, *, seconds: float) -> None:
        """See `Ledger.keep_config`."""
        self._configs[repo_id] = (self._clock() + seconds, config)

    async def config(self, repo_id: int) -> RepoConfig | None:
        """See `Ledger.config`."""
        until, config = self._configs.get(repo_id, (0.0, None))
        return config if self._clock() < until else None

    async def tally(self, job: Job, *, seconds: float = _HOUR) -> Tally:
        """See `Ledger.tally`."""
        since = self._clock() - seconds
        work = [(at, each) for at, each, state in self._engine.begun_jobs() if state is not JobState.REFUSED]
        # The order in which jobs were stored decides between those that began at one moment: sorting keeps it.
        earlier = takewhile(lambda at_and_job: at_and_job[1].id != job.id, sorted(work, key=itemgetter(0)))
        recent = [each for at, each in earlier if at > since]
        in_thread = [each for _, each in work if _is_in_thread_of(job, each)]
        unattended = takewhile(lambda each: is_unattended(each, self._trusted_bots), reversed(in_thread))
        return Tally(
            thread=sum(_is_in_thread_of(job, each) for each in recent),
            user=sum(each.actor.id == job.actor.id for each in recent),
            repository=sum(each.repo.id == job.repo.id for each in recent),
            installation=sum(each.installation == job.installation is not None for each in recent),
            unattended=sum(each.id != job.id for each in unattended) if is_unattended(job, self._trusted_bots) else 0,
        )


def _is_in_thread_of(job: Job, other: Job) -> bool:
    return (other.repo.id, other.thread.key) == (job.repo.id, job.thread.key)
