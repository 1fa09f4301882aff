"""The worker: runs jobs that DBOS assigns to this process. Start at `DurableWorker`.

Each worker holds a numbered slot, a lock that is lost with its process or database connection (`Slots`); other workers
then take over its jobs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Never, Protocol, assert_never

import psycopg

from bot.domain.errors import LeaseLostError, QueueError
from bot.domain.job import Job
from bot.git.filesystem import try_lock
from bot.queue import transitions, workflows
from bot.queue.engine import CURRENT_WORK, Lease
from bot.queue.protocols import MAX_DEATHS, JobEnded, JobHandler, JobParked, JobReleased
from bot.queue.records import Signal
from bot.queue.store import IDLE_SECONDS, SIGNAL_CHANNEL, TIMEOUTS, JobStore, Transaction

log = logging.getLogger(__name__)

_RECOVERY_SECONDS = 0.5
_PARALLEL_RECOVERIES = 4

_RECOVERIES_PER_FILL = 10
"""One in so many recoveries also enqueues stranded jobs."""

_CLOSING_SECONDS = 15.0


class DurableWorker:
    """Runs jobs of a database until cancelled; one in a process, as DBOS requires.

    Args:
        jobs_at_once: parallel jobs of one installation, without the extra places for others.
        drain_seconds: time for running jobs to end after cancellation.
    """

    def __init__(
        self, store: JobStore, handler: JobHandler, *, jobs_at_once: int, slots: Slots, drain_seconds: float = 0.0
    ) -> None:
        self._store, self._handler, self._slots = store, handler, slots
        self._jobs_at_once, self._drain_seconds = jobs_at_once, drain_seconds
        self._name = ""
        self._tasks: set[asyncio.Task[object]] = set()
        self._attempts: dict[str, _Attempt] = {}
        self._closing = False
        self.draining = False
        self._failure: BaseException | None = None

    async def run(self) -> Never:
        """Work until cancelled; then drain, and requeue the remaining jobs.

        Raises:
            QueueError: the database, or this worker's slot, was lost.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._slots.close)
            slot = await self._slots.take()
            # Distinguish consecutive owners of a slot.
            self._name = f"{_executor(slot)}-{secrets.token_hex(4)}"
            await stack.enter_async_context(self._run_dbos(slot))
            log.info("working as %s on the jobs in %s", self._name, self._store.name)
            recover_at, recoveries = 0.0, 0
            while True:
                if time.monotonic() >= recover_at:
                    recover_at = time.monotonic() + recovery_pause(await self._recover(slot), random.random())  # noqa: S311 - no secret
                    if recoveries % _RECOVERIES_PER_FILL == 0:
                        await self._fill_repositories()
                    recoveries += 1
                await self._pass_signals(await self._slots.wait_for_signals(_RECOVERY_SECONDS))
                if self._failure is not None:
                    raise self._failure
                if not await self._slots.has_slot():
                    raise QueueError(
                        f"the connection to the job database {self._store.name} was lost, so other workers take over"
                    )

    @asynccontextmanager
    async def _run_dbos(self, slot: int) -> AsyncIterator[None]:
        workflows.register_handler(self)
        try:
            with self._store.map_errors():
                await self._store.workflows.register_queues(self._jobs_at_once)
                workflows.launch(self._store.url, _executor(slot), idle_seconds=IDLE_SECONDS)
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        self.draining = True
        drain = math.ceil(self._drain_seconds) if self._tasks and self._failure is None else 0
        destroying = None
        if drain:
            log.info("waiting up to %d s for %d jobs to end; the others are resumed later", drain, len(self._tasks))
            destroying = asyncio.create_task(workflows.destroy(drain))
            await asyncio.wait([destroying], timeout=drain)
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.wait_for(destroying or workflows.destroy(), _CLOSING_SECONDS)

    async def _recover(self, slot: int) -> int:
        executors = await self._store.run(lambda tx: workflows.active_executors(tx.rows)) - {_executor(slot)}
        for executor in executors:
            async with self._slots.claim_vacant(int(executor.removeprefix(_executor("")))) as is_dead:
                if is_dead:
                    log.warning("the worker %s is dead; its jobs are taken over", executor)
                    await workflows.recover(executor)
        return len(executors)

    async def _pass_signals(self, job_ids: Collection[str] | None) -> None:
        """Let running jobs load their new signals.

        Args:
            job_ids: the jobs with new signals; None if the database does not tell.
        """
        running = dict(self._attempts)
        if job_ids is None:
            numbers = await self._store.read(lambda tx: transitions.last_signal_numbers(tx, running)) if running else {}
            job_ids = [job_id for job_id, number in numbers.items() if number > running[job_id].delivered]
        for job_id in running.keys() & job_ids:
            running[job_id].has_signals.set()

    async def _fill_repositories(self) -> None:
        for repo_id in await self._store.read(transitions.find_repositories_to_fill):
            await self._store.run(partial(transitions.fill_repository, repo_id=repo_id))

    async def run_job(self, job_id: str, leg: int) -> None:
        await self._run_task(self._run_job(Lease(job_id=job_id, number=leg, worker=self._name)))

    async def _run_task(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in a task that ends with the worker.

        A failure ends the worker; the workflow stays pending, and the slot's next worker runs it again.
        """
        if self._closing:
            work.close()
            raise asyncio.CancelledError
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise asyncio.CancelledError
        if (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            raise asyncio.CancelledError

    async def _run_job(self, lease: Lease) -> None:
        begin = self._store.run(lambda tx: transitions.begin(tx, lease.job_id, lease.number, lease.worker))
        beginning = asyncio.create_task(begin)
        try:
            assignment = await asyncio.shield(beginning)
            if assignment is None:
                return
            job, attempt_number, deaths = assignment
            CURRENT_WORK.set(lease)
            attempt = _Attempt(self._store, lease, job, number=attempt_number, deaths=deaths)
            self._attempts[job.id] = attempt
            try:
                await self._handle(attempt)
            finally:
                del self._attempts[job.id]
        except LeaseLostError:
            log.warning("job %s: taken over by another worker; this one stops", lease.job_id)
        except asyncio.CancelledError:
            # The requeued job has a new workflow.
            await asyncio.shield(self._release(lease, beginning))

    async def _release(self, lease: Lease, beginning: asyncio.Task[object]) -> None:
        if await beginning is None:  # it may start after the task was cancelled
            return
        with suppress(LeaseLostError):  # it has ended, or another worker has it
            check = partial(transitions.check_lease, job_id=lease.job_id, leg=lease.number, worker=lease.worker)
            await self._store.run(lambda tx: transitions.release(tx, check(tx), 0.0))

    async def _handle(self, attempt: _Attempt) -> None:
        disposition = await self._handler.handle(attempt)
        lease = attempt.lease

        def apply(tx: Transaction) -> None:
            row = transitions.check_lease(tx, lease.job_id, lease.number, lease.worker)
            match disposition:
                case JobEnded(state=state, reason=reason, report_delay=report_delay):
                    transitions.finish(tx, row, state, reason, report_delay)
                case JobReleased(held_seconds=seconds):
                    # The handler chose the delay without this stop.
                    is_late = attempt.earlier is not None and transitions.is_stopping(tx, row.id, since=attempt.earlier)
                    transitions.release(tx, row, 0.0 if is_late else seconds)
                case JobParked(until=until, has_answer=has_answer):
                    if not transitions.park(tx, row, until, attempt.delivered, has_answer):
                        transitions.release(tx, row, 0.0)
                case unknown:
                    assert_never(unknown)

        await self._store.run(apply)

    async def report(self, job_id: str) -> None:
        await self._run_task(self._report(job_id))

    async def _report(self, job_id: str) -> None:
        report = await self._store.run(lambda tx: transitions.claim_report(tx, job_id))
        if report is None:
            return
        CURRENT_WORK.set(report)
        try:
            complete = transitions.finish_report if await self._handler.report(report) else transitions.postpone_report
            await self._store.run(lambda tx: complete(tx, report))
        except LeaseLostError:
            log.warning("job %s: another worker tells its ending; this one stops", job_id)

    async def wake(self, job_id: str, leg: int) -> None:
        await self._run_task(self._store.run(lambda tx: transitions.wake(tx, job_id, leg)))


class _Attempt:
    def __init__(self, store: JobStore, lease: Lease, job: Job, *, number: int, deaths: int) -> None:
        self._store = store
        self.lease, self.job, self.number, self.deaths = lease, job, number, deaths
        self.is_exhausted, self.delivered = deaths >= MAX_DEATHS, 0
        self.has_signals = asyncio.Event()
        self.earlier: int | None = None  # the number of the last signal before `listen`

    @asynccontextmanager
    async def listen(self, deliver: Callable[[Signal], None]) -> AsyncIterator[None]:
        await self._deliver(deliver)
        self.earlier = self.delivered
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._deliver_later(deliver))
                yield
                listening.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        await self._deliver(deliver)

    async def _deliver_later(self, deliver: Callable[[Signal], None]) -> Never:
        while True:
            await self.has_signals.wait()
            self.has_signals.clear()
            await self._deliver(deliver)

    async def _deliver(self, deliver: Callable[[Signal], None]) -> None:
        lease, delivered = self.lease, self.delivered

        def load(tx: Transaction) -> tuple[tuple[int, Signal], ...]:
            transitions.check_lease(tx, lease.job_id, lease.number, lease.worker)
            return transitions.signals(tx, lease.job_id, delivered)

        for number, signal in await self._store.run(load):
            deliver(signal)
            self.delivered = number


def recovery_pause(workers: int, chance: float) -> float:
    """Return the seconds until the next recovery, so that all workers together check a few times a second."""
    share = workers / _PARALLEL_RECOVERIES
    return _RECOVERY_SECONDS if share <= 1 else _RECOVERY_SECONDS * share * (0.5 + chance)


def _executor(slot: int | str) -> str:
    return f"worker-{slot}"


ADVISORY_CLASS = 0x636F64
"""Class of the workers' advisory locks."""

_MOST_WORKERS = 10_000


class Slots(Protocol):
    """Slots of a database's workers; a slot belongs to one worker while it lives."""

    async def take(self) -> int:
        """Take the lowest free slot.

        Raises:
            QueueError: none is free, or the database failed.
        """

    async def has_slot(self) -> bool: ...

    async def wait_for_signals(self, seconds: float) -> Collection[str] | None:
        """Wait for new signals to jobs; return the jobs' ids, or None if the database does not tell."""

    def claim_vacant(self, number: int) -> AbstractAsyncContextManager[bool]:
        """Yield whether a slot is vacant, so that its worker is dead, and keep it so during the body."""

    async def close(self) -> None: ...


def open_slots(store: JobStore) -> Slots:
    return PostgresSlots(store.url) if store.path is None else FileSlots(store.path.resolve().parent / "workers")


class FileSlots:
    """Slots as locked files of one machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    async def take(self) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(_MOST_WORKERS):
            self._descriptor = try_lock(self._path(number))
            if self._descriptor is not None:
                return number
        raise QueueError(f"{_MOST_WORKERS} workers use the job database already")

    async def has_slot(self) -> bool:
        """Return True: the kernel keeps the lock while the process lives."""
        return True

    async def wait_for_signals(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def claim_vacant(self, number: int) -> AsyncIterator[bool]:
        descriptor = try_lock(self._path(number))
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.lock"


class PostgresSlots:
    """Slots as advisory locks of a PostgreSQL session."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "", 1)
        self._session: psycopg.AsyncConnection | None = None
        self._use = asyncio.Lock()
        self._number: int | None = None

    async def take(self) -> int:
        try:
            self._session = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            for name, value in TIMEOUTS.items():
                await self._session.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
            await self._session.execute(f"LISTEN {SIGNAL_CHANNEL}".encode())
            for number in range(_MOST_WORKERS):
                if await self._call_lock("pg_try_advisory_lock", number):
                    self._number = number
                    return number
        except psycopg.Error as error:
            raise QueueError(f"the job database cannot be reached: {error}") from error
        raise QueueError(f"{_MOST_WORKERS} workers use the job database already")

    async def has_slot(self) -> bool:
        try:
            return self._session is not None and await self._query("SELECT true")
        except QueueError:
            return False

    async def wait_for_signals(self, seconds: float) -> Collection[str]:
        if self._session is None:
            return ()
        try:
            async with self._use:
                return {each.payload async for each in self._session.notifies(timeout=seconds, stop_after=1)}
        except psycopg.Error:
            return ()  # `has_slot` reports the loss

    @asynccontextmanager
    async def claim_vacant(self, number: int) -> AsyncIterator[bool]:
        is_vacant = await self._call_lock("pg_try_advisory_lock", number)
        try:
            yield is_vacant
        finally:
            if is_vacant:
                await self._call_lock("pg_advisory_unlock", number)

    async def close(self) -> None:
        if self._session is not None:
            # The server notices a closed connection late. A lost connection holds no lock.
            with suppress(QueueError):
                if self._number is not None:
                    await self._call_lock("pg_advisory_unlock", self._number)
            await self._session.close()
            self._session = None

    async def _call_lock(self, function: str, number: int) -> bool:
        return await self._query(f"SELECT {function}(%s, %s)", ADVISORY_CLASS, number)

    async def _query(self, statement: str, *values: int) -> bool:
        if self._session is None:
            raise QueueError("this worker has not taken a place yet")
        try:
            async with self._use:
                row = await (await self._session.execute(statement.encode(), values)).fetchone()
        except psycopg.Error as error:
            raise QueueError(f"the connection to the job database was lost: {error}") from error
        return bool(row and row[0])
