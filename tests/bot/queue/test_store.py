"""The database: its versions, its addresses, and what is said when it cannot be used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from typing_extensions import override

from bot.domain.errors import LeaseLostError, QueueError
from bot.domain.job import JobState
from bot.jobs.record import RecordedEnding, StoredRecord, with_ending
from bot.queue import store as durable_store
from bot.queue import transitions
from bot.queue.engine import CURRENT_WORK, DurableEngine, Lease
from bot.queue.protocols import PendingReport
from bot.queue.store import METADATA, NOTICES, BatchRunner, JobStore, Transaction, check_database
from bot.queue.worker import PostgresSlots
from tests.bot.queue.running import Running, Scripted
from tests.builders import a_job
from tests.durable import Legs, is_owed
from tests.postgres import PASSWORD


async def test_the_migrations_make_the_tables_that_the_code_knows(empty_database: str) -> None:
    def differences(tx: Transaction) -> list[object]:
        ours = {"include_name": lambda name, kind, _: kind != "table" or name in METADATA.tables}
        return list(compare_metadata(MigrationContext.configure(tx.rows, opts=ours), METADATA))

    store = JobStore(empty_database)
    assert await store.run(differences) == []
    await store.close()


async def test_a_database_is_opened_again_and_holds_what_it_held(database: str) -> None:
    for expected in (True, False):
        store = JobStore(database)
        assert await DurableEngine(store).accept(a_job()) is expected
        await store.close()


async def test_a_newer_versions_database_is_refused(database: str) -> None:
    store = JobStore(database)
    await store.run(lambda tx: tx.rows.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")))
    await store.close()
    with pytest.raises(QueueError, match="newer version"):
        JobStore(database)


@pytest.mark.parametrize("url", ["", "jobs", "mysql://host/db", "sqlite://", "sqlite:///:memory:"])
def test_what_is_no_address_of_a_database_is_refused(url: str) -> None:
    with pytest.raises(QueueError, match="postgresql://"):
        JobStore(url)


def test_a_server_that_can_only_be_read_is_no_database_for_jobs(postgres_url: str) -> None:
    JobStore(postgres_url).close_sync()
    check_database(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {server.info.dbname} SET default_transaction_read_only = on")
    with pytest.raises(QueueError, match=r"can only be read; .* primary"):
        check_database(postgres_url)


async def test_a_server_that_is_gone_is_named_without_its_password(postgres_url: str) -> None:
    store = JobStore(postgres_url)
    name = store.engine.url.database
    with psycopg.connect(postgres_url.replace(f"/{name}", "/postgres"), autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    with pytest.raises(QueueError) as caught:
        await DurableEngine(store).check()
    await store.close()
    assert f"/{name}" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueueError, match=r"missing/queue\.sqlite"):
        JobStore(f"sqlite:///{tmp_path / 'missing' / 'queue.sqlite'}")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(QueueError, match=str(path)):
        JobStore(f"sqlite:///{path}")


async def test_a_worker_that_was_taken_for_dead_changes_nothing_of_its_job_any_more(running: Running) -> None:
    engine, store = running.engine, running.store
    await engine.accept(a_job())
    assert await store.run(lambda tx: transitions.begin(tx, "j1", 1, "w1")) is not None
    # DBOS runs the workflow again, on another worker.
    assert await store.run(lambda tx: transitions.begin(tx, "j1", 1, "w2")) is not None
    with pytest.raises(LeaseLostError):
        await store.run(lambda tx: transitions.check_lease(tx, "j1", 1, "w1"))
    token = CURRENT_WORK.set(Lease(job_id="j1", number=1, worker="w1"))
    with pytest.raises(LeaseLostError):
        await StoredRecord(engine, "j1").update(lambda record: record)
    CURRENT_WORK.reset(token)
    await StoredRecord(engine, "j1").update(lambda record: record)
    await store.run(
        lambda tx: transitions.finish(tx, transitions.check_lease(tx, "j1", 1, "w2"), JobState.DONE, "", None)
    )
    assert await store.run(lambda tx: transitions.begin(tx, "j1", 1, "w1")) is None


async def test_a_worker_that_was_taken_for_dead_tells_no_ending_any_more(running: Running) -> None:
    engine, store = running.engine, running.store
    tried: list[int] = []

    class Paused(Scripted):
        @override
        async def report(self, report: PendingReport) -> bool:
            await engine.check_work()
            # DBOS runs the workflow again, on another worker.
            again = await store.run(lambda tx: transitions.claim_report(tx, report.job_id))
            tried.extend(each.tries for each in (report, again) if each is not None)
            with pytest.raises(LeaseLostError):
                await engine.check_work()
            with pytest.raises(LeaseLostError):
                await StoredRecord(engine, report.job_id).update(lambda record: record)
            return True

    await engine.accept(a_job())
    await engine.cancel(
        "j1", JobState.STOPPED, "", record_ending=with_ending(RecordedEnding(state=JobState.STOPPED, body="Stopped."))
    )
    await Legs(store).report(Paused(), "j1")
    assert tried == [1, 2]
    assert await is_owed(engine, "j1")  # the other one has not told it yet


async def test_a_worker_whose_connection_is_lost_ends_and_gives_its_jobs_back(
    postgres_url: str,
) -> None:
    store = JobStore(postgres_url)
    running = Running(store, PostgresSlots(store.url))
    running.start()
    await running.engine.accept(a_job())
    await running.until_state("j1", JobState.DONE)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    with pytest.raises(QueueError, match="was lost"):
        await running.ended()
    await store.close()


async def test_a_process_that_stands_still_in_a_transaction_holds_up_nobody(
    jobs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(durable_store, "IDLE_SECONDS", 1.0)
        still = JobStore(jobs_url)
    other = JobStore(jobs_url)
    stopped, goes_on = threading.Event(), threading.Event()

    def stand_still(tx: Transaction) -> bool:
        transitions.lock(tx, "work", a_job().repo.id, a_job().thread.key)
        stopped.set()
        goes_on.wait(20)
        return transitions.accept(tx, a_job(), 0.0)

    standing = asyncio.create_task(still.run(stand_still))
    await asyncio.to_thread(stopped.wait, 20)
    async with asyncio.timeout(10):
        assert await DurableEngine(other).accept(a_job())
    goes_on.set()
    with pytest.raises(QueueError):
        await standing
    for each in (still, other):
        await each.close()


async def test_what_is_rolled_back_with_a_neighbour_that_finds_the_disk_full_is_not_said_to_be_kept(
    tmp_path: Path,
) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    begun, gate = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        begun.set()
        gate.wait(20)

    def inserted(tx: Transaction, thread: int, size: int) -> None:
        tx.rows.execute(NOTICES.insert().values(repo_id=1, thread=thread, cause="x" * size, until=0.0))

    pages = await store.run(lambda tx: tx.rows.exec_driver_sql("PRAGMA page_count").scalar())
    await store.run(lambda tx: tx.rows.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar())
    # Whatever comes while this runs is committed together after it.
    before = asyncio.create_task(store.run(hold))
    await asyncio.to_thread(begun.wait, 20)
    sizes = (1, 60_000, 1)
    together = [
        asyncio.create_task(store.run(partial(inserted, thread=thread, size=size))) for thread, size in enumerate(sizes)
    ]
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*together, return_exceptions=True)
    await before
    kept = await store.run(lambda tx: tx.rows.execute(sa.select(NOTICES.c.thread)).scalars().all())
    assert [thread for thread, result in enumerate(results) if result is None] == list(kept)
    assert isinstance(results[1], QueueError)
    assert "disk has space" in str(results[1])
    await store.close()


async def test_a_job_that_cannot_be_let_go_is_an_error_of_the_database(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    await engine.accept(a_job(), held_seconds=3600)
    await store.run(lambda tx: tx.rows.execute(sa.text("ALTER TABLE workflow_status RENAME TO gone")))
    with pytest.raises(QueueError, match="failed"):
        await engine.release_hold("j1")
    await store.close()


async def test_a_job_that_is_let_go_is_in_its_queue_at_once(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    engine = DurableEngine(store)
    await engine.accept(a_job("held"), held_seconds=3600)
    await engine.accept(a_job("j1", number=2), held_seconds=3600)
    await engine.release_hold("j1")
    query = sa.text("SELECT workflow_uuid, status FROM workflow_status")
    statuses = await store.run(lambda tx: tx.rows.execute(query).all())
    assert {each.workflow_uuid: each.status for each in statuses} == {"held": "DELAYED", "j1": "ENQUEUED"}
    await store.close()


SECONDS = 20.0


class Dealer:
    """Doubles numbers, refuses odd ones, and keeps what it was given at once."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        if 0 in items:
            raise LookupError("nothing to deal with")
        return [ValueError(f"{item} is odd") if item % 2 else 2 * item for item in items]


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextmanager
def busy(thread: ThreadPoolExecutor) -> Iterator[None]:
    gate = threading.Event()
    thread.submit(gate.wait, SECONDS)
    try:
        yield
    finally:
        gate.set()


async def put_together(
    thread: ThreadPoolExecutor, gathering: BatchRunner, items: Sequence[int]
) -> list[asyncio.Task[int]]:
    with busy(thread):
        tasks = [asyncio.create_task(gathering.submit(item)) for item in items]
        await asyncio.sleep(0)  # each has been put
    return tasks


async def test_each_gets_its_own_result_or_error(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    tasks = await put_together(thread, BatchRunner(thread, deal), [2, 3, 4])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [str(result) for result in results] == ["4", "3 is odd", "8"]
    assert deal.batches == [[2, 3, 4]]


async def test_what_fails_for_all_fails_each(thread: ThreadPoolExecutor) -> None:
    gathering = BatchRunner(thread, Dealer())
    tasks = await put_together(thread, gathering, [0, 2])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [type(result) for result in results] == [LookupError, LookupError]
    assert await asyncio.wait_for(gathering.submit(2), SECONDS) == 4


async def test_an_error_that_no_future_takes_keeps_nothing_from_others(thread: ThreadPoolExecutor) -> None:
    def deal(items: Sequence[int]) -> list[int | Exception]:
        return [StopIteration() if item % 2 else 2 * item for item in items]

    tasks = await put_together(thread, BatchRunner(thread, deal), [3, 4])
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)
    assert [type(result) for result in results] == [RuntimeError, int]


async def test_no_more_than_a_hundred_are_dealt_with_at_once_and_none_is_left(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    tasks = await put_together(thread, BatchRunner(thread, deal), range(2, 502, 2))
    # What is put before the thread was told to end is dealt with.
    thread.shutdown(wait=False)
    assert await asyncio.wait_for(asyncio.gather(*tasks), SECONDS) == [2 * item for item in range(2, 502, 2)]
    assert [len(batch) for batch in deal.batches] == [100, 100, 50]


async def test_what_nobody_waits_for_any_more_is_not_begun(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    gathering = BatchRunner(thread, deal)
    with busy(thread):
        first, second = (asyncio.create_task(gathering.submit(item)) for item in (2, 4))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
    assert await asyncio.wait_for(second, SECONDS) == 8
    assert deal.batches == [[4]]


async def test_a_caller_whose_loop_is_closed_keeps_nothing_from_others(thread: ThreadPoolExecutor) -> None:
    deal = Dealer()
    gathering = BatchRunner(thread, deal)

    async def put_and_leave() -> None:
        putting = gathering.submit(2)
        putting.send(None)
        putting.close()

    other = asyncio.new_event_loop()
    with busy(thread):
        await asyncio.to_thread(other.run_until_complete, put_and_leave())
        task = asyncio.create_task(gathering.submit(4))
        await asyncio.sleep(0)
        other.close()
    assert await asyncio.wait_for(task, SECONDS) == 8
    assert deal.batches == [[2, 4]]
