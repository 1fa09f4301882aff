"""An engine and a ledger in memory, for a workflow step and for tests. The caller runs jobs and reports one by one."""

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
from bot.domain.job import LIVE_STATES, TRANSITIONS, Job, JobState, Lane
from bot.queue.protocols import MAX_ENDED, JobEnded, JobHandler, JobParked, JobReleased, PendingReport, report_pause
from bot.queue.records import Backlog, Signal, StoredJob

_HOUR = 3600.0
_DAY_SECONDS = 24 * 3600.0


class InMemoryEngine:
    """Implements `JobEngine`. Workers call `run_job`, `run_next`, `report_ends` and `report_next`."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._changed = asyncio.Event()

    async def accept(self, job: Job, *, held_seconds: float = 0.0) -> bool:
        return self._add(job, JobState.QUEUED, held_until=self._clock() + held_seconds)

    async def restore(
        self,
        job: Job,
        record: str,
        *,
        until: float | None = None,
        state: JobState = JobState.WAITING,
        since: float | None = None,
    ) -> None:
        """Store a job of another engine, unless it is known.

        Args:
            since: seconds since the epoch, when the job was stored there; by default now.
            until: seconds since the epoch, when a waiting job runs anyway.
        """
        if self._add(job, state, until=until):
            entry, now = self._entries[job.id], self._clock()
            entry.record, entry.begun_at = record, now if since is None else since
            entry.stored = replace(entry.stored, enqueued_at=entry.begun_at)

    async def end(self, job_id: str, state: JobState) -> None:
        """End a running job of another engine."""
        self._move(self._entry(job_id), state)

    async def amend(self, job: Job) -> None:
        entry = self._entry(job.id)
        entry.stored = replace(entry.stored, job=job)

    async def release_hold(self, job_id: str) -> None:
        self._entry(job_id).held_until = 0.0
        self._changed.set()

    async def cancel(
        self,
        job_id: str,
        state: JobState,
        reason: str,
        *,
        record_ending: Callable[[str | None], str | None] | None = None,
    ) -> bool:
        if state in LIVE_STATES:
            raise TransitionError(f"job {job_id} cannot end as {state}, which is not a final state")
        entry = self._entry(job_id)
        if entry.stored.state not in {JobState.QUEUED, JobState.WAITING}:
            return False
        if record_ending is not None:
            if (record := record_ending(entry.record)) is None:
                return False
            entry.record = record
            self._schedule_report(entry, 0.0)
        self._move(entry, state, reason)
        return True

    async def send(self, job_id: str, signal: Signal) -> bool:
        entry = self._entry(job_id)
        if entry.stored.state not in LIVE_STATES:
            return False
        if all(earlier.id != signal.id for earlier in entry.signals):
            entry.signals.append(signal)
            if entry.deliver_signals is not None:
                entry.deliver_signals()
        if signal.kind == "stop":
            entry.held_until = 0.0
            self._changed.set()
            if entry.stored.state is JobState.WAITING:
                self._move(entry, JobState.QUEUED)
        return True

    async def wake(self, job_id: str) -> bool:
        entry = self._entry(job_id)
        if entry.stored.state is not JobState.WAITING:
            return False
        self._move(entry, JobState.QUEUED)
        return True

    async def record(self, job_id: str) -> str | None:
        entry = self._entries.get(job_id)
        return None if entry is None else entry.record

    async def update(self, job_id: str, change: Callable[[str | None], str]) -> None:
        entry = self._entry(job_id)
        entry.record = change(entry.record)

    async def get(self, job_id: str) -> StoredJob | None:
        entry = self._entries.get(job_id)
        return None if entry is None or entry.forgotten else entry.stored

    async def jobs_in_thread(self, repo_id: int, number: int, *, limit: int = 20) -> tuple[StoredJob, ...]:
        jobs = [job for job in reversed(self._all_work()) if _is_in_thread(job, repo_id, number)]
        by_state = {state: [job for job in jobs if job.state is state][:limit] for state in JobState}
        return tuple(job for job in jobs if job in by_state[job.state])

    async def is_live(self, repo_id: int, number: int) -> bool:
        return any(job.state in LIVE_STATES and _is_in_thread(job, repo_id, number) for job in self._all_work())

    async def live_jobs(self, installation: int, repo_ids: Collection[int] = ()) -> tuple[StoredJob, ...]:
        live = [job for job in self._all_work() if job.state in LIVE_STATES and job.job.installation == installation]
        return tuple(job for job in live if not repo_ids or job.job.repo.id in repo_ids)

    async def live_ids(self) -> frozenset[str]:
        return frozenset(job.job.id for job in self._all_work() if job.state in LIVE_STATES)

    async def backlog(self) -> Backlog:
        live = [entry for entry in self._entries.values() if entry.stored.state in LIVE_STATES]
        queued = [entry for entry in live if entry.stored.state is JobState.QUEUED]
        new = [entry.stored.enqueued_at for entry in queued if entry.begun_at is None]
        return Backlog(
            by_state={state: sum(entry.stored.state is state for entry in live) for state in LIVE_STATES},
            oldest_seconds=max(0.0, self._clock() - min(new)) if new else 0.0,
        )

    async def counts(self) -> dict[JobState, int]:
        states = [entry.stored.state for entry in self._entries.values()]
        return {state: states.count(state) for state in JobState}

    async def check(self) -> None: ...

    async def sweep(self, keep_days: float, *, most: int = MAX_ENDED) -> int:
        before = self._clock() - keep_days * _DAY_SECONDS
        ended = [
            (entry.stored.finished_at, entry)
            for entry in self._entries.values()
            if not entry.forgotten and entry.due_at is None and entry.stored.finished_at is not None
        ]
        ended.sort(key=lambda at_and_entry: at_and_entry[0])
        excess = max(0, len(ended) - most)
        swept = [entry for place, (at, entry) in enumerate(ended) if at < before or place < excess]
        for entry in swept:
            entry.forgotten, entry.record, entry.signals = True, None, []
        return len(swept)

    def started_jobs(self) -> list[tuple[float, Job, JobState]]:
        entries = [item for item in self._entries.values() if item.stored.job.lane == "work" and not item.forgotten]
        return [(item.begun_at, item.stored.job, item.stored.state) for item in entries if item.begun_at is not None]

    async def run_job(self, handler: JobHandler, job_id: str) -> StoredJob:
        """Run jobs until the given one has ended or waits; return it."""
        entry = self._entry(job_id)
        while entry.stored.state in {JobState.QUEUED, JobState.RUNNING}:
            if not await self.run_next(handler, entry.lane):
                await self._wait_for_runnable_job()
        return entry.stored

    async def run_next(self, handler: JobHandler, lane: Lane = "work") -> bool:
        entry = self._next(lane)
        if entry is None:
            return False
        self._move(entry, JobState.RUNNING)
        entry.stored = replace(entry.stored, attempts=entry.stored.attempts + 1)
        entry.begun_at = self._clock() if entry.begun_at is None else entry.begun_at
        attempt = _Attempt(entry, entry.stored.job, entry.stored.attempts)
        try:
            disposition = await handler.handle(attempt)
        except BaseException:  # the job must run again, regardless of the error
            self._release(entry, 0.0)
            raise
        match disposition:
            case JobEnded(state=state, reason=reason, report_delay=delay):
                if delay is not None:
                    self._schedule_report(entry, delay)
                self._move(entry, state, reason)
            case JobReleased(held_seconds=seconds):
                later = [] if attempt.earlier is None else entry.signals[attempt.earlier :]
                self._release(entry, 0.0 if any(signal.kind == "stop" for signal in later) else seconds)
            case JobParked(until=until, has_answer=has_answer):
                if len(entry.signals) > attempt.delivered or has_answer(entry.record):
                    self._release(entry, 0.0)
                else:
                    self._move(entry, JobState.WAITING, until=until)
                    entry.stored = replace(entry.stored, attempts=0)
            case unknown:
                assert_never(unknown)
        return True

    async def report_ends(self, handler: JobHandler, *, until: float) -> None:
        """Post all reports that are due before a time."""
        while due := [at for entry in self._entries.values() if (at := entry.due_at) is not None and at < until]:
            if not await self.report_next(handler):
                await asyncio.sleep(max(0.0, min(due) - self._clock()))

    async def report_next(self, handler: JobHandler) -> bool:
        now = self._clock()
        due = [entry for entry in self._entries.values() if entry.due_at is not None and entry.due_at <= now]
        for entry in due[:1]:
            job = entry.stored.job
            entry.tries, entry.due_at = entry.tries + 1, None
            report = PendingReport(job=job, job_id=job.id, since=entry.report_since, tries=entry.tries)
            is_posted = await handler.report(report)
            entry.due_at = None if is_posted else self._clock() + report_pause(entry.tries)
        return bool(due)

    async def _wait_for_runnable_job(self) -> None:
        now = self._clock()
        times = [max(entry.held_until, entry.stored.until or 0.0) for entry in self._entries.values()]
        seconds = [at - now for at in times if at > now]
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, default=None)):
                await self._changed.wait()

    def _add(self, job: Job, state: JobState, *, held_until: float = 0.0, until: float | None = None) -> bool:
        deliveries = {entry.stored.job.delivery_id for entry in self._entries.values()}
        if job.id in self._entries or job.delivery_id in deliveries:
            return False
        stored = StoredJob(job=job, state=state, reason="", attempts=0, enqueued_at=self._clock(), until=until)
        self._entries[job.id] = _Entry(stored=stored, held_until=held_until)
        self._changed.set()
        return True

    def _next(self, lane: Lane) -> _Entry | None:
        now = self._clock()
        for entry in self._entries.values():
            if entry.stored.until is not None and entry.stored.until <= now:
                self._move(entry, JobState.QUEUED)
        blocked = set()
        for entry in self._entries.values():
            job = entry.stored.job
            if entry.lane != lane or entry.stored.state is not JobState.QUEUED:
                continue
            thread = (job.repo.id, job.thread.key)
            if thread not in blocked and entry.held_until <= now and not self._is_busy(job.lane, thread):
                return entry
            if lane == "work":
                blocked.add(thread)
        return None

    def _is_busy(self, lane: Lane, thread: tuple[int, int]) -> bool:
        running = [stored.stored for stored in self._entries.values() if stored.stored.state is JobState.RUNNING]
        return any(stored.job.lane == lane and _is_in_thread(stored, *thread) for stored in running)

    def _all_work(self) -> list[StoredJob]:
        return [item.stored for item in self._entries.values() if item.stored.job.lane == "work" and not item.forgotten]

    def _release(self, entry: _Entry, held_seconds: float) -> None:
        self._move(entry, JobState.QUEUED)
        entry.stored = replace(entry.stored, attempts=entry.stored.attempts - 1)
        entry.held_until = self._clock() + held_seconds

    def _schedule_report(self, entry: _Entry, pause: float) -> None:
        entry.report_since = self._clock()
        entry.due_at = entry.report_since + pause

    def _move(self, entry: _Entry, to: JobState, reason: str = "", *, until: float | None = None) -> None:
        if to not in TRANSITIONS[entry.stored.state]:
            raise TransitionError(f"job {entry.stored.job.id} cannot go from {entry.stored.state} to {to}")
        finished_at = None if to in LIVE_STATES else self._clock()
        entry.stored = replace(entry.stored, state=to, reason=reason, until=until, finished_at=finished_at)
        self._changed.set()

    def _entry(self, job_id: str) -> _Entry:
        if job_id not in self._entries:
            raise QueueError(f"there is no job {job_id} in the queue")
        return self._entries[job_id]


@dataclass(slots=True)
class _Entry:
    stored: StoredJob
    held_until: float = 0.0
    begun_at: float | None = None
    record: str | None = None
    signals: list[Signal] = field(default_factory=list)
    report_since: float = 0.0
    due_at: float | None = None
    tries: int = 0
    forgotten: bool = False
    deliver_signals: Callable[[], None] | None = None

    @property
    def lane(self) -> Lane:
        """The lane that runs the job; one to stop waits for no work."""
        return "steer" if any(signal.kind == "stop" for signal in self.signals) else self.stored.job.lane


@dataclass(slots=True)
class _Attempt:
    entry: _Entry
    job: Job
    number: int
    deaths: int = 0
    is_exhausted: bool = False
    delivered: int = 0
    earlier: int | None = None

    @asynccontextmanager
    async def listen(self, deliver: Callable[[Signal], None]) -> AsyncIterator[None]:
        def deliver_signals() -> None:
            for signal in self.entry.signals[self.delivered :]:
                self.delivered += 1
                deliver(signal)

        deliver_signals()
        self.earlier = self.delivered
        self.entry.deliver_signals = deliver_signals
        try:
            yield
        finally:
            self.entry.deliver_signals = None


def _is_in_thread(stored: StoredJob, repo_id: int, number: int) -> bool:
    return (stored.job.repo.id, stored.job.thread.key) == (repo_id, number)


class InMemoryLedger:
    def __init__(
        self, engine: InMemoryEngine, *, trusted_bots: TrustedBots | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._trusted_bots = trusted_bots or TrustedBots()
        self._clock = clock
        self._labels: dict[tuple[int, int, str], LabelGrant] = {}
        self._notices: dict[tuple[int, int, str], float] = {}
        self._configs: dict[int, tuple[float, str]] = {}

    async def save_label(self, label: LabelGrant) -> None:
        key = (label.repo_id, label.number, label.name.casefold())
        stored = self._labels.get(key)
        if stored is None or stored.at <= label.at:
            self._labels[key] = label

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        return tuple(label for key, label in sorted(self._labels.items()) if key[:2] == (repo_id, number))

    async def delete_label(self, repo_id: int, number: int, name: str) -> None:
        self._labels.pop((repo_id, number, name.casefold()), None)

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        for label in await self.labels(repo_id, number):
            if label.bound_to == old_sha:
                self._labels[repo_id, number, label.name.casefold()] = replace(label, bound_to=new_sha)

    async def claim_notice(
        self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR, by: str = ""
    ) -> bool:
        key, own, now = (repo_id, number, cause), (repo_id, number, f"{cause} by {by}"), self._clock()
        self._notices = {notice: until for notice, until in self._notices.items() if until > now}
        if key in self._notices:
            return bool(by) and own in self._notices
        self._notices[key] = self._notices[own] = now + seconds
        return True

    async def suppress_notice(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        self._notices[repo_id, number, cause] = self._clock() + seconds

    async def save_config(self, repo_id: int, config: str, *, seconds: float) -> None:
        self._configs[repo_id] = (self._clock() + seconds, config)

    async def config(self, repo_id: int) -> str | None:
        until, config = self._configs.get(repo_id, (0.0, None))
        return config if self._clock() < until else None

    async def tally(self, job: Job, *, seconds: float = _HOUR) -> Tally:
        since = self._clock() - seconds
        work = [(at, item) for at, item, state in self._engine.started_jobs() if state is not JobState.REFUSED]
        # Stable: the order of arrival decides between jobs that started at the same time.
        earlier = takewhile(lambda at_and_job: at_and_job[1].id != job.id, sorted(work, key=itemgetter(0)))
        recent = [item for at, item in earlier if at > since]
        in_thread = [item for _, item in work if _have_same_thread(job, item)]
        unattended = takewhile(lambda item: is_unattended(item, self._trusted_bots), reversed(in_thread))
        return Tally(
            thread=sum(_have_same_thread(job, item) for item in recent),
            user=sum(item.actor.id == job.actor.id for item in recent),
            repository=sum(item.repo.id == job.repo.id for item in recent),
            installation=sum(item.installation == job.installation is not None for item in recent),
            unattended=sum(item.id != job.id for item in unattended) if is_unattended(job, self._trusted_bots) else 0,
        )


def _have_same_thread(job: Job, earlier: Job) -> bool:
    return (earlier.repo.id, earlier.thread.key) == (job.repo.id, job.thread.key)
