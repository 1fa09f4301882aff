"""Receivers know what repositories ask for, once a worker has looked."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from bot.domain.commands import Labelled, Review
from bot.jobs.context import KnownConfigs
from bot.jobs.events import Receipt
from bot.permissions.repo_config import LabelNames, RepoConfig
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableLedger
from bot.queue.memory import InMemoryEngine, InMemoryLedger
from bot.queue.protocols import Ledger
from bot.queue.store import CONFIGS, JobStore
from tests.builders import a_job
from tests.clocks import Clock

CONFIG = RepoConfig(labels=LabelNames(start="bot: go"), fix_ci=("pull-requests",))


async def _is_kept_for_its_time(ledger: Ledger, clock: Clock) -> None:
    assert await ledger.config(10) is None
    await ledger.keep_config(10, RepoConfig(), seconds=60)
    await ledger.keep_config(10, CONFIG, seconds=60)
    clock.now += 59
    assert await ledger.config(10) == CONFIG
    assert await ledger.config(11) is None
    clock.now += 1
    assert await ledger.config(10) is None


async def test_what_a_repository_asks_for_is_kept_for_its_time(database: str) -> None:
    clock = Clock()
    store = JobStore(database, clock=clock)
    await _is_kept_for_its_time(DurableLedger(store), clock)
    await store.close()


async def test_in_memory_too() -> None:
    clock = Clock()
    await _is_kept_for_its_time(InMemoryLedger(InMemoryEngine(clock=clock), clock=clock), clock)


async def test_what_another_version_kept_is_asked_for_anew(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    ledger = DurableLedger(store)
    await ledger.keep_config(10, CONFIG, seconds=60)
    await store.run(lambda tx: tx.rows.execute(sa.update(CONFIGS).values(body='{"labels": 5}')))
    assert await ledger.config(10) is None
    await store.close()


async def test_a_receiver_without_a_worker_drops_what_means_nothing(database: str) -> None:
    worker, receiver = JobStore(database), JobStore(database)
    receipt = Receipt(DurableEngine(receiver), DurableLedger(receiver), KnownConfigs())
    noise = a_job(command=Labelled(label="noise", bound_to=""))
    assert await receipt.unneeded(noise) == ""
    await DurableLedger(worker).keep_config(noise.repo.id, CONFIG, seconds=60)
    assert await receipt.unneeded(noise)
    assert await receipt.unneeded(a_job(command=Labelled(label="bot: go", bound_to=""))) == ""
    for store in (worker, receiver):
        await store.close()


async def test_a_receiver_without_a_worker_keeps_the_review_that_the_operator_wants_where_the_file_is_silent(
    database: str,
) -> None:
    worker, receiver = JobStore(database), JobStore(database)
    ledger = DurableLedger(receiver)
    receipt = Receipt(DurableEngine(receiver), ledger, KnownConfigs(), review_on=frozenset({"opened"}))
    opened = a_job(kind="pull", command=Review(on="opened"))
    await DurableLedger(worker).keep_config(opened.repo.id, CONFIG, seconds=60)
    assert await receipt.unneeded(opened) == ""
    await DurableLedger(worker).keep_config(opened.repo.id, RepoConfig(review_on=()), seconds=60)
    assert await receipt.unneeded(opened)
    for store in (worker, receiver):
        await store.close()
