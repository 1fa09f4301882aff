"""The worker: DBOS hands jobs to this process, and the handler runs them.

Each worker has a numbered slot: a lock that goes when its process dies or loses the database (`Slots`). The others see
that a slot is vacant, and take over the jobs of the worker that had it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Never, Protocol, assert_never

import psycopg
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from bot.domain.errors import LeaseLostError, QueueError
from bot.domain.job import Job, Lane
from bot.git.filesystem import try_lock
from bot.queue import transitions
from bot.queue.engine import UNDER_WAY, Leg
from bot.queue.protocols import MOST_DEATHS, JobEnded, JobHandler, JobParked, JobReleased
from bot.queue.records import Signal
from bot.queue.store import APPLICATION, IDLE_SECONDS, SILENCE, JobStore, Transaction

log = logging.getLogger(__name__)

_VERSION = "1"
"""Of the workflows, not of Codepilot: DBOS runs a workflow on workers of its version only. All that a workflow needs is
in the tables, so workers of two versions of Codepilot may share a database. Raise it when they may not."""

_POLL_SECONDS: dict[Lane, float] = {"work": 0.15, "steer": 0.25, "event": 0.5}
"""How often each queue is looked at. A look costs half a millisecond of a processor, also when there is nothing."""

_POLL_LATER_SECONDS = 1.0
"""The same for what has waited for longer anyway: the ends of pauses, and endings that GitHub has not taken."""

_MESSAGES_SECONDS = 0.05
"""How often DBOS looks for messages to workflows, which get none here; the end of a worker waits for such a look."""

_LOOK_SECONDS = 0.5
_LOOKERS = 4

_LOOKS_FOR_LEFT = 10
"""In one of so many looks a worker looks for jobs, too, that nobody has given to a queue."""

_HEAR_SECONDS = 0.5

_STEERING_JOBS = 3
"""More than one: where GitHub makes one installation wait, the others want to stop their jobs all the same."""

_EVENT_JOBS = 8
"""As many are taken in one poll: a storm of events must not last for hours."""

_TELLING_JOBS = 2

_OTHERS_SHARE = 4
"""Others have one place for so many of an installation, at least one. DBOS gives a free place to an installation by
chance, so a job that finds all taken may lose to a large one several times; only a free place starts it at once."""

_CLOSING_SECONDS = 15.0


class DurableWorker:
    """Runs jobs of a database until it is cancelled; one in a process, which is DBOS's own limit.

    Args:
        store: the database; the caller closes it.
        handler: does the work.
        jobs_at_once: how many pieces of work of one installation are handled side by side; `_OTHERS_SHARE` of that are
            reserved for others.
        slots: the places of the workers of this database.
        drain_seconds: how long jobs under way may take to end when the worker is to stop.

    Attributes:
        draining: whether the worker is about to stop.
    """

    def __init__(
        self, store: JobStore, handler: JobHandler, *, jobs_at_once: int, slots: Slots, drain_seconds: float = 0.0
    ) -> None:
        self._store, self._handler, self._slots = store, handler, slots
        self._jobs_at_once, self._drain_seconds = jobs_at_once, drain_seconds
        self._name = ""
        self._legs: set[asyncio.Task[object]] = set()
        self._closing = False
        self.draining = False
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> Never:
        """Work until cancelled; then no job is begun, and those that do not end in `drain_seconds` are given back.

        Raises:
            QueueError: the database cannot be used any more, or has given this worker's place to another one.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._slots.close)
            slot = await self._slots.take()
            # Two processes that have had a place one after another must not be taken for each other.
            self._name = f"{_executor(slot)}-{secrets.token_hex(4)}"
            await stack.enter_async_context(self._launched(slot))
            log.info("working as %s on the jobs in %s", self._name, self._store.name)
            look_at, looks = 0.0, 0
            while True:
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + look_pause(await self._recover(slot), random.random())  # noqa: S311 - no secret
                    if looks % _LOOKS_FOR_LEFT == 0:
                        await self._release_left_out()
                    looks += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._failed.wait()
                if self._failure is not None:
                    raise self._failure
                if not await self._slots.still_taken():
                    raise QueueError(
                        f"the connection to the job database {self._store.name} was lost, so other workers take over"
                    )

    @asynccontextmanager
    async def _launched(self, slot: int) -> AsyncIterator[None]:
        global _worker  # noqa: PLW0603 - DBOS calls plain functions, and is one in a process
        if _worker is not None:
            raise QueueError("there is a worker in this process already")
        _worker = self
        config = DBOSConfig(
            name=APPLICATION,
            system_database_url=self._store.url,
            executor_id=_executor(slot),
            application_version=_VERSION,
            serializer=DBOSPortableJSONSerializer(),
            run_migrations=False,
            sys_db_idle_transaction_timeout_sec=IDLE_SECONDS,
            use_listen_notify=False,
            notification_listener_polling_interval_sec=_MESSAGES_SECONDS,
            # It tries again when a connection was lost, so none needs to be checked before each use.
            db_engine_kwargs={"pool_pre_ping": False},
            log_level="WARNING",
        )
        try:
            with self._store.checked():
                DBOS(config=config)
                await self._register_queues()
                # Not in a thread, though it takes 0.1 to 0.4 s: DBOS would run the workflows in a loop of its own.
                DBOS.launch()
            yield
        finally:
            await self._close()
            _worker = None

    async def _close(self) -> None:
        """Take nothing more from the queues, let the jobs under way end, and give back those that do not in time."""
        self.draining = True
        drain = math.ceil(self._drain_seconds) if self._legs and self._failure is None else 0
        destroying = None
        if drain:
            log.info("waiting up to %d s for %d jobs to end; the others are resumed later", drain, len(self._legs))
            destroy = partial(DBOS.destroy, workflow_completion_timeout_sec=drain)
            destroying = asyncio.create_task(asyncio.to_thread(destroy))
            await asyncio.wait([destroying], timeout=drain)
        self._closing = True
        for leg in self._legs:
            leg.cancel()
        await asyncio.gather(*self._legs, return_exceptions=True)
        await asyncio.wait_for(destroying or asyncio.to_thread(DBOS.destroy), _CLOSING_SECONDS)

    async def _register_queues(self) -> None:
        register, several = self._store.client.register_queue_async, self._jobs_at_once
        shares: dict[Lane, tuple[int, int]] = {
            # More places than an installation, or a steering person, can fill: nobody waits for all of another's jobs.
            "work": (several + max(1, several // _OTHERS_SHARE), several),
            "steer": (_STEERING_JOBS, _STEERING_JOBS - 1),
            "event": (_EVENT_JOBS, _EVENT_JOBS),
        }
        for lane, (at_once, of_one) in shares.items():
            await register(
                transitions.queue_name(lane),
                worker_concurrency=at_once,
                partition_worker_concurrency=of_one,
                polling_interval_sec=_POLL_SECONDS[lane],
                on_conflict="always_update",
            )
        for name, at_once in ((transitions.TIMERS, 10), (transitions.ENDINGS, _TELLING_JOBS)):
            await register(
                name, worker_concurrency=at_once, polling_interval_sec=_POLL_LATER_SECONDS, on_conflict="always_update"
            )

    async def _recover(self, slot: int) -> int:
        """Take over the jobs of workers whose slot is vacant; return the number of other workers with jobs."""
        others = await self._store.run(transitions.executors) - {_executor(slot)}
        for executor in others:
            async with self._slots.vacant(int(executor.removeprefix(_executor("")))) as is_dead:
                if is_dead:
                    log.warning("the worker %s is dead; its jobs are taken over", executor)
                    await asyncio.to_thread(DBOS._recover_pending_workflows, [executor])  # noqa: SLF001 - no other way in 3.4
        return len(others)

    async def _release_left_out(self) -> None:
        """Give jobs to the queue that wait for nothing; see `transitions.find_repositories_to_fill`."""
        for repo_id in await self._store.read(transitions.find_repositories_to_fill):
            await self._store.run(partial(transitions.fill_repository, repo_id=repo_id))

    async def run_leg(self, job_id: str, number: int) -> None:
        """Run one leg of a job; for the workflow."""
        await self._do(self._run_leg(Leg(job_id=job_id, number=number, worker=self._name)))

    async def _do(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in a task of its own, which is cancelled when the worker ends.

        What fails ends the worker. The workflow of what failed, or was cancelled, stays as it is, and is run again by
        the next worker in this place.
        """
        if self._closing:
            work.close()
            raise asyncio.CancelledError
        task = asyncio.create_task(work)
        self._legs.add(task)
        task.add_done_callback(self._legs.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise asyncio.CancelledError
        if (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._failed.set()
            raise asyncio.CancelledError

    async def _run_leg(self, leg: Leg) -> None:
        begin = self._store.run(lambda tx: transitions.begin(tx, leg.job_id, leg.number, leg.worker))
        beginning = asyncio.create_task(begin)
        try:
            begun = await asyncio.shield(beginning)
            if begun is None:
                return
            job, attempt_number, deaths = begun
            UNDER_WAY.set(leg)
            await self._handle(_Attempt(self._store, leg, job, number=attempt_number, deaths=deaths))
        except LeaseLostError:
            log.warning("job %s: taken over by another worker; this one stops", leg.job_id)
        except asyncio.CancelledError:
            # Nothing is left to do for this workflow then: the job has another one.
            await asyncio.shield(self._give_back(leg, beginning))

    async def _give_back(self, leg: Leg, beginning: asyncio.Task[object]) -> None:
        if await beginning is None:  # it may begin after its task was cancelled, and would be nobody's
            return
        with suppress(LeaseLostError):  # it had come to its end already, or another worker has it
            await self._store.run(
                lambda tx: transitions.release(tx, transitions.check_ours(tx, leg.job_id, leg.number, leg.worker), 0.0)
            )

    async def _handle(self, attempt: _Attempt) -> None:
        disposition = await self._handler.handle(attempt)
        leg = attempt.leg

        def apply(tx: Transaction) -> None:
            row = transitions.check_ours(tx, leg.job_id, leg.number, leg.worker)
            match disposition:
                case JobEnded(state=state, reason=reason, owed=owed):
                    transitions.finish(tx, row, state, reason, owed)
                case JobReleased(held_seconds=seconds):
                    transitions.release(tx, row, seconds)
                case JobParked(until=until, request_id=request_id):
                    if not transitions.park(tx, row, until, attempt.heard, request_id):
                        transitions.release(tx, row, 0.0)
                case other:
                    assert_never(other)

        await self._store.run(apply)

    async def tell(self, job_id: str) -> None:
        """Tell one ending that is still to be told; for the workflow."""
        await self._do(self._tell(job_id))

    async def _tell(self, job_id: str) -> None:
        owed = await self._store.run(lambda tx: transitions.take_owed(tx, job_id))
        if owed is None:
            return
        UNDER_WAY.set(owed)
        try:
            then = transitions.settle if await self._handler.tell(owed) else transitions.postpone
            await self._store.run(lambda tx: then(tx, owed))
        except LeaseLostError:
            log.warning("job %s: another worker tells its ending; this one stops", job_id)

    async def wake(self, job_id: str, leg: int) -> None:
        """Queue a job whose wait is over; for the workflow."""
        await self._do(self._store.run(lambda tx: transitions.wake(tx, job_id, leg)))


class _Attempt:
    """One attempt at a job, whose signals are polled for; its work ends when another worker has the job."""

    def __init__(self, store: JobStore, leg: Leg, job: Job, *, number: int, deaths: int) -> None:
        self._store, self._steps = store, 0
        self.leg, self.job, self.number, self.deaths = leg, job, number, deaths
        self.exhausted, self.heard = deaths >= MOST_DEATHS, 0

    @asynccontextmanager
    async def listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> AsyncIterator[None]:
        """See `JobAttempt.listening`."""
        await self._listen(hear, steps)
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._keep_listening(hear, steps))
                yield
                listening.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        await self._listen(hear, steps)

    async def _keep_listening(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> Never:
        while True:
            await asyncio.sleep(_HEAR_SECONDS)
            await self._listen(hear, steps)

    async def _listen(self, hear: Callable[[Signal], None], steps: Callable[[], int]) -> None:
        job_id, heard, made = self.job.id, self.heard, steps()

        def exchange(tx: Transaction) -> tuple[tuple[int, Signal], ...]:
            transitions.check_ours(tx, job_id, self.leg.number, self.leg.worker)
            if made > self._steps:
                transitions.record_steps(tx, job_id, made)
            return transitions.signals(tx, job_id, heard)

        for number, signal in await self._store.run(exchange):
            hear(signal)
            self.heard = number
        self._steps = max(self._steps, made)


def look_pause(others: int, chance: float) -> float:
    """Seconds until a worker looks for dead ones again, so that all of them together look a few times a second.

    Args:
        others: how many have jobs; a look costs as much as there are.
        chance: between 0 and 1, so that they do not look at once.
    """
    share = others / _LOOKERS
    return _LOOK_SECONDS if share <= 1 else _LOOK_SECONDS * share * (0.5 + chance)


def _executor(slot: int | str) -> str:
    return f"worker-{slot}"


_worker: DurableWorker | None = None


def _this_worker() -> DurableWorker:
    if _worker is None:
        raise QueueError("there is no worker in this process")
    return _worker


@DBOS.workflow(name=transitions.RUN, max_recovery_attempts=None)
async def _run_job(job_id: str, leg: int) -> None:
    await _this_worker().run_leg(job_id, leg)


@DBOS.workflow(name=transitions.TELL, max_recovery_attempts=None)
async def _tell_ending(job_id: str) -> None:
    await _this_worker().tell(job_id)


@DBOS.workflow(name=transitions.WAKE, max_recovery_attempts=None)
async def _wake_job(job_id: str, leg: int) -> None:
    await _this_worker().wake(job_id, leg)


ADVISORY_CLASS = 0x636F64
"""Tells the locks of workers from all other advisory locks of the database."""

_MOST_WORKERS = 10_000


class Slots(Protocol):
    """The slots of the workers of a database; a number is one worker's for as long as it lives."""

    async def take(self) -> int:
        """Take the lowest free place for this process.

        Raises:
            QueueError: there is none, or the database cannot be reached.
        """
        ...

    async def still_taken(self) -> bool:
        """Return whether this process still has its slot."""
        ...

    def vacant(self, number: int) -> AbstractAsyncContextManager[bool]:
        """Yield whether a slot is vacant, so that its worker is dead. No worker takes it while the body runs."""
        ...

    async def close(self) -> None:
        """Leave the place."""
        ...


def slots_of(store: JobStore) -> Slots:
    """The places of a database's workers: locks in PostgreSQL, or files beside an SQLite file."""
    return PostgresSlots(store.url) if store.path is None else FileSlots(store.path.resolve().parent / "workers")


class FileSlots:
    """Places as locked files, for the processes of one machine.

    Args:
        folder: where the locks are; the same for all workers of a database.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    async def take(self) -> int:
        """See `Slots.take`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(_MOST_WORKERS):
            self._descriptor = try_lock(self._path(number))
            if self._descriptor is not None:
                return number
        raise QueueError(f"{_MOST_WORKERS} workers use the job database already")

    async def still_taken(self) -> bool:
        """See `Slots.still_taken`; the kernel takes no lock from a process that lives."""
        return True

    @asynccontextmanager
    async def vacant(self, number: int) -> AsyncIterator[bool]:
        """See `Slots.vacant`."""
        descriptor = try_lock(self._path(number))
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def close(self) -> None:
        """See `Slots.close`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.lock"


class PostgresSlots:
    """Places as advisory locks of a session, for the workers of any number of machines.

    Args:
        url: the database's address, as `JobStore.url` gives it.
    """

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "", 1)
        self._session: psycopg.AsyncConnection | None = None
        self._use = asyncio.Lock()
        self._taken: int | None = None

    async def take(self) -> int:
        """See `Slots.take`."""
        try:
            self._session = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            for name, value in SILENCE.items():
                await self._session.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
            for number in range(_MOST_WORKERS):
                if await self._locked("pg_try_advisory_lock", number):
                    self._taken = number
                    return number
        except psycopg.Error as error:
            raise QueueError(f"the job database cannot be reached: {error}") from error
        raise QueueError(f"{_MOST_WORKERS} workers use the job database already")

    async def still_taken(self) -> bool:
        """See `Slots.still_taken`."""
        try:
            return self._session is not None and await self._asked("SELECT true")
        except QueueError:
            return False

    @asynccontextmanager
    async def vacant(self, number: int) -> AsyncIterator[bool]:
        """See `Slots.vacant`."""
        free = await self._locked("pg_try_advisory_lock", number)
        try:
            yield free
        finally:
            if free:
                await self._locked("pg_advisory_unlock", number)

    async def close(self) -> None:
        """See `Slots.close`."""
        if self._session is not None:
            # The server notices a closed connection a moment later only. A connection that is lost holds no lock.
            with suppress(QueueError):
                if self._taken is not None:
                    await self._locked("pg_advisory_unlock", self._taken)
            await self._session.close()
            self._session = None

    async def _locked(self, function: str, number: int) -> bool:
        return await self._asked(f"SELECT {function}(%s, %s)", ADVISORY_CLASS, number)

    async def _asked(self, question: str, *values: int) -> bool:
        if self._session is None:
            raise QueueError("this worker has not taken a place yet")
        try:
            async with self._use:
                row = await (await self._session.execute(question.encode(), values)).fetchone()
        except psycopg.Error as error:
            raise QueueError(f"the connection to the job database was lost: {error}") from error
        return bool(row and row[0])
