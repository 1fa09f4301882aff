"""Workers that die, hang and come back, their slots, whose jobs come next, and trouble of their machines."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from dbos import DBOS

from bot.domain.commands import Stop
from bot.domain.errors import QueueError
from bot.domain.job import Actor, Job, JobState
from bot.queue.engine import DurableEngine
from bot.queue.protocols import JobAttempt, JobParked
from bot.queue.store import JobStore
from bot.queue.worker import FileSlots, PostgresSlots, Slots, open_slots, recovery_pause
from tests.bot.queue.process import work
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.durable import is_free
from tests.forked import Forked
from tests.source_files import ROOT


class Machines:
    """Worker processes on one database."""

    def __init__(self, stack: ExitStack, database: str, folder: Path) -> None:
        self._stack, self._database, self._folder = stack, database, folder
        self.processes: dict[str, Forked] = {}

    def start(self, name: str) -> None:
        self.processes[name] = self._stack.enter_context(Forked(work, self._database, self._folder, name))

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def let_go(self) -> None:
        (self._folder / "go").touch()

    def log(self) -> list[str]:
        log = self._folder / "log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    async def has_begun(self, job_id: str, times: int = 1) -> bool:
        return sum(line.startswith(f"begin {job_id} ") for line in self.log()) >= times


def is_locked(store: JobStore) -> bool:
    """Whether a process holds the only right to write."""
    if store.path is None:
        return False
    with closing(sqlite3.connect(store.path, timeout=1.0)) as own:
        try:
            own.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


@pytest.fixture
def machines(database: str, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(stack, database, tmp_path)


async def test_the_job_of_a_killed_worker_is_taken_over_by_another_one(running: Running, machines: Machines) -> None:
    machines.start("first")
    await running.engine.accept(a_job())
    await running.until(lambda: machines.has_begun("j1"))
    machines.start("second")
    machines.signal("first", signal.SIGKILL)
    await running.until(lambda: machines.has_begun("j1", 2))
    machines.let_go()
    await running.until_state("j1", JobState.DONE)
    assert machines.log() == ["begin j1 first 1", "begin j1 second 2", "end j1 second"]


async def test_the_job_of_a_killed_worker_is_taken_up_by_the_one_that_is_started_again(
    running: Running, machines: Machines
) -> None:
    machines.start("first")
    await running.engine.accept(a_job())
    await running.until(lambda: machines.has_begun("j1"))
    machines.signal("first", signal.SIGKILL)
    await machines.processes["first"].wait()
    machines.let_go()
    machines.start("again")
    await running.until_state("j1", JobState.DONE)
    assert machines.log() == ["begin j1 first 1", "begin j1 again 2", "end j1 again"]


async def test_of_jobs_that_die_with_their_worker_one_is_tried_at_a_time(running: Running, machines: Machines) -> None:
    machines.start("first")
    for number, job_id in enumerate(("a", "b")):
        await running.engine.accept(a_job(job_id, number=number + 1))
    for job_id in ("a", "b"):
        await running.until(lambda job_id=job_id: machines.has_begun(job_id))  # type: ignore[misc]
    machines.signal("first", signal.SIGKILL)
    await machines.processes["first"].wait()
    machines.start("again")

    async def one_again() -> bool:
        return len(machines.log()) == 3

    await running.until(one_again)
    machines.let_go()
    for job_id in ("a", "b"):
        await running.until_state(job_id, JobState.DONE)
    again = [line.split()[0] for line in machines.log()[2:]]
    assert again == ["begin", "end", "begin", "end"]


async def test_a_worker_that_hangs_keeps_its_job_and_nobody_else_runs_it(running: Running, machines: Machines) -> None:
    machines.start("first")
    machines.start("second")
    await running.engine.accept(a_job())
    await running.until(lambda: machines.has_begun("j1"))
    [holder] = {line.split()[2] for line in machines.log()}
    machines.signal(holder, signal.SIGSTOP)
    while is_locked(running.store):  # it was stopped while it wrote, and nobody else can write to an SQLite file then
        machines.signal(holder, signal.SIGCONT)
        machines.signal(holder, signal.SIGSTOP)
    await running.engine.accept(a_job("other", number=8))
    await running.until(lambda: machines.has_begun("other"))
    machines.signal(holder, signal.SIGCONT)
    machines.let_go()
    for job_id in ("j1", "other"):
        await running.until_state(job_id, JobState.DONE)
    assert sorted(line.split()[0] for line in machines.log()) == ["begin", "begin", "end", "end"]


async def test_nobody_has_the_place_of_a_dead_worker_while_its_jobs_are_given_to_others(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover, free = DBOS._recover_pending_workflows, list[bool]()

    async def looked() -> bool:
        other = open_slots(running.store)
        try:
            await other.take()
            return await is_free(other, 5)
        finally:
            await other.close()

    def recovered(executors: list[str]) -> object:
        free.append(asyncio.run(looked()))
        return recover(executors)

    await running.engine.accept(a_job())
    # As of a worker that was killed after it had taken the job from its queue.
    status = "dbos.workflow_status" if running.store.path is None else "workflow_status"
    taken = f"UPDATE {status} SET status = 'PENDING', executor_id = 'worker-5', application_version = '1'"  # noqa: S608 - ours
    await running.store.run(lambda tx: tx.rows.execute(sa.text(taken)))
    monkeypatch.setattr(DBOS, "_recover_pending_workflows", recovered)
    running.start()
    await running.until_state("j1", JobState.DONE)
    assert free == [False]


@pytest.mark.parametrize("workers", [2, 5, 100, 1000])
def test_many_workers_together_look_no_more_often_for_dead_ones_than_a_few(workers: int) -> None:
    pauses = [recovery_pause(workers - 1, number / workers) for number in range(workers)]
    assert max(pauses[:5]) < 1 if workers <= 5 else min(pauses) > 1
    assert 1 <= sum(1 / pause for pause in pauses) <= 12


_PRESENT = """
import asyncio, sys
from pathlib import Path
from bot.queue.worker import FileSlots, PostgresSlots

async def stay(where):
    slots = PostgresSlots(where) if "://" in where else FileSlots(Path(where))
    print(await slots.take(), flush=True)
    await asyncio.Event().wait()

asyncio.run(stay(sys.argv[1]))
"""


@pytest.fixture(params=["files", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, or the address of a database."""
    return str(tmp_path / "workers" if request.param == "files" else request.getfixturevalue("postgres_url"))


@pytest.fixture
async def slots(where: str) -> AsyncIterator[list[Slots]]:
    """Those of three workers."""
    async with AsyncExitStack() as stack:
        made: list[Slots] = [PostgresSlots(where) if "://" in where else FileSlots(Path(where)) for _ in range(3)]
        for each in made:
            stack.push_async_callback(each.close)
        yield made


async def test_each_worker_has_the_lowest_place_that_is_free(slots: list[Slots]) -> None:
    assert [await each.take() for each in slots[:2]] == [0, 1]
    await slots[0].close()
    assert await slots[2].take() == 0


async def test_the_living_are_not_taken_for_dead(slots: list[Slots]) -> None:
    for each in slots[:2]:
        await each.take()
    assert [await is_free(slots[0], number) for number in (1, 2)] == [False, True]
    # To look does not take it.
    assert [await is_free(slots[1], number) for number in (0, 2)] == [False, True]
    assert [await each.has_slot() for each in slots[:2]] == [True, True]


async def test_nobody_takes_the_place_of_a_dead_worker_while_its_jobs_are_given_to_others(slots: list[Slots]) -> None:
    assert await slots[0].take() == 0
    async with slots[0].claim_vacant(1) as free:
        assert free
        assert await slots[1].take() == 2
    assert await slots[2].take() == 1


async def test_the_place_of_a_worker_that_was_killed_is_free(slots: list[Slots], where: str) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PRESENT, where, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"0\n"
    assert await slots[0].take() == 1
    assert not await is_free(slots[0], 0)
    other.kill()
    await other.communicate()
    async with asyncio.timeout(10):
        while not await is_free(slots[0], 0):  # noqa: ASYNC110 - the server has to see it first
            await asyncio.sleep(0.02)
    assert await slots[1].take() == 0


async def test_a_server_that_cannot_be_reached_is_an_error_of_the_database() -> None:
    with pytest.raises(QueueError, match="cannot be reached"):
        await PostgresSlots("postgresql://nobody:x@127.0.0.1:9/none").take()


_WHALE = 1000


def _of(installation: int, name: str, number: int) -> Job:
    return replace(a_job(name, number=number), installation=installation)


async def _accept_whale(running: Running) -> None:
    await asyncio.gather(*(running.engine.accept(_of(1, f"whale{each}", each)) for each in range(_WHALE)))


async def test_an_installation_with_very_many_jobs_leaves_places_for_others(running: Running) -> None:
    at_once, others = 8, 2
    gone = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        await gone.wait()

    running.handler.doing = {f"whale{each}": wait for each in range(_WHALE)}
    await _accept_whale(running)
    running.start(jobs_at_once=at_once)

    async def all_run() -> bool:
        return len(running.handler.handled) == at_once

    await running.until(all_run)
    # All but one of the others' jobs go on for as long as the many.
    for number in range(others):
        name = f"other{number}"
        running.handler.doing |= {name: wait} if number < others - 1 else {}
        await running.engine.accept(_of(2 + number, name, _WHALE + number))
        await running.until_state(name, JobState.RUNNING if number < others - 1 else JobState.DONE)
    assert len(running.handler.handled) == at_once + others
    assert (await running.engine.counts())[JobState.QUEUED] == _WHALE - at_once


async def test_an_installation_whose_jobs_flow_lets_anothers_first_job_in_within_a_poll_or_two(
    running: Running,
) -> None:
    at_once = 4
    await _accept_whale(running)
    running.start(jobs_at_once=at_once)

    async def flows() -> bool:
        return len(running.handler.handled) > 2 * at_once

    await running.until(flows)
    await running.engine.accept(_of(2, "other", _WHALE))
    before = len(running.handler.handled)
    await running.until_state("other", JobState.DONE)
    # Jobs that end at once: each look at the queue takes as many of the whale's as it may have at a time.
    assert running.handler.handled.index("other 1") - before <= 4 * at_once


async def test_whoever_has_many_words_under_way_lets_anothers_through(running: Running) -> None:
    gone = asyncio.Event()

    async def wait(_: JobAttempt) -> None:
        await gone.wait()

    flood, other = Actor(id=1, login="flood"), Actor(id=2, login="other")
    for number in range(20):
        running.handler.doing[f"f{number}"] = wait
        await running.engine.accept(replace(a_job(f"f{number}", number=number, command=Stop()), actor=flood))
    running.start()

    async def several_run() -> bool:
        return len(running.handler.handled) >= 2

    await running.until(several_run)
    await running.engine.accept(replace(a_job("o1", number=99, command=Stop()), actor=other))
    await running.until_state("o1", JobState.DONE)
    assert (await running.engine.counts())[JobState.RUNNING] == 2


@pytest.mark.slow
async def test_of_several_workers_one_has_each_job_and_each_thread(running: Running, machines: Machines) -> None:
    jobs = [f"j{each}" for each in range(12)]
    for number, job_id in enumerate(jobs):
        await running.engine.accept(a_job(job_id, number=number % 4))
    machines.let_go()
    for name in ("first", "second"):
        machines.start(name)
    for job_id in jobs:
        await running.until_state(job_id, JobState.DONE)
    seen = [line.split()[:2] for line in machines.log()]
    for thread in range(4):
        mine = [each for each in seen if int(each[1][1:]) % 4 == thread]
        assert mine == [[what, job_id] for job_id in jobs[thread::4] for what in ("begin", "end")]


async def test_workers_of_one_database_never_have_the_same_place_wherever_their_data_is(database: str) -> None:
    stores = [JobStore(database), JobStore(database)]
    first, second = (open_slots(each) for each in stores)
    taken = [await first.take(), await second.take()]
    assert len(set(taken)) == 2
    assert not await is_free(second, taken[0])
    await first.close()
    assert await is_free(second, taken[0])
    assert await second.has_slot()
    await second.close()
    for each in stores:
        await each.close()


async def test_a_worker_whose_connection_is_lost_is_told_so_whatever_it_asks(postgres_url: str) -> None:
    slots = PostgresSlots(postgres_url)
    await slots.take()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    with pytest.raises(QueueError, match="was lost"):
        await is_free(slots, 7)
    assert not await slots.has_slot()
    await slots.close()


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Let no file grow beyond the size that one has now, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_refuses_jobs_and_loses_none_that_was_accepted(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    accepted = [f"j{number}" for number in range(20)]
    for number, job_id in enumerate(accepted):
        assert await engine.accept(a_job(job_id, number=number))

    async def fill() -> None:
        for number in range(1000):
            await engine.accept(a_job(f"more{number}", number=100 + number))
            accepted.append(f"more{number}")

    with full(tmp_path / "jobs.sqlite-wal"), pytest.raises(QueueError, match="disk has space"):
        await fill()
    assert await engine.accept(a_job("after", number=5000))
    assert await engine.live_ids() == {*accepted, "after"}
    await store.close()


async def test_a_database_that_can_only_be_read_is_told_and_takes_jobs_again_later(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    store = JobStore(postgres_url)
    engine = DurableEngine(store)
    await engine.accept(a_job())
    with psycopg.connect(postgres_url.replace(f"/{name}", "/postgres"), autocommit=True) as server:
        for only_read in ("on", "off"):
            server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {only_read}".encode())
            server.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            if only_read == "on":
                for refused in (engine.check(), engine.accept(a_job("refused", number=8))):
                    with pytest.raises(QueueError, match="read-only"):
                        await refused
    await engine.check()
    assert await engine.accept(a_job("later", number=9))
    assert await engine.live_ids() == {"j1", "later"}
    await store.close()


async def test_a_clock_that_jumps_loses_no_job(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = [7200.0]
    monkeypatch.setattr(running.store, "clock", lambda: time.time() + shift[0])
    running.handler.dispositions = {"waits": [JobParked(until=time.time() + 3600)]}
    await running.engine.accept(a_job("held"), held_seconds=0.2)
    shift[0] = 0.0
    await running.engine.accept(a_job("waits", number=8))
    running.start()
    await running.until_state("held", JobState.DONE)
    await running.until_state("waits", JobState.WAITING)
    shift[0] = -7200.0
    await running.engine.accept(a_job("early", number=9))
    await running.until_state("early", JobState.DONE)
    assert await running.engine.wake("waits")
    await running.until_state("waits", JobState.DONE)
