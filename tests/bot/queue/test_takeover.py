"""Workers that die, hang and come back: their jobs go on elsewhere, and they do nothing more."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from dbos import DBOS

from bot.domain.job import JobState
from bot.queue.store import JobStore
from bot.queue.worker import look_pause, slots_of
from tests.bot.queue.process import work
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.durable import is_free
from tests.forked import Forked


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

    async def begun(self, job_id: str, times: int = 1) -> bool:
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
    await running.until(lambda: machines.begun("j1"))
    machines.start("second")
    machines.signal("first", signal.SIGKILL)
    await running.until(lambda: machines.begun("j1", 2))
    machines.let_go()
    await running.until_state("j1", JobState.DONE)
    assert machines.log() == ["begin j1 first 1", "begin j1 second 2", "end j1 second"]


async def test_the_job_of_a_killed_worker_is_taken_up_by_the_one_that_is_started_again(
    running: Running, machines: Machines
) -> None:
    machines.start("first")
    await running.engine.accept(a_job())
    await running.until(lambda: machines.begun("j1"))
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
        await running.until(lambda job_id=job_id: machines.begun(job_id))  # type: ignore[misc]
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
    await running.until(lambda: machines.begun("j1"))
    [holder] = {line.split()[2] for line in machines.log()}
    machines.signal(holder, signal.SIGSTOP)
    while is_locked(running.store):  # it was stopped while it wrote, and nobody else can write to an SQLite file then
        machines.signal(holder, signal.SIGCONT)
        machines.signal(holder, signal.SIGSTOP)
    await running.engine.accept(a_job("other", number=8))
    await running.until(lambda: machines.begun("other"))
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
        other = slots_of(running.store)
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
    pauses = [look_pause(workers - 1, number / workers) for number in range(workers)]
    assert max(pauses[:5]) < 1 if workers <= 5 else min(pauses) > 1
    assert 1 <= sum(1 / pause for pause in pauses) <= 12
