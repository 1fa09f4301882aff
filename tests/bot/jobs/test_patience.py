"""How long a job is put off because GitHub does not answer."""

from __future__ import annotations

from dataclasses import replace

from bot.github.types import GitHubError
from bot.jobs.pipeline import ACCESS_PATIENCE_SECONDS, Patience
from bot.queue.memory import InMemoryEngine
from bot.queue.records import GitHubOutage, JobRecord, StoredRecord
from tests.builders import a_job

DOWN = GitHubError("read", 503, "down", "")


async def a_record() -> StoredRecord:
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    return StoredRecord(engine, "j1")


async def since(record: StoredRecord, seconds: float) -> None:
    """Let the trouble have begun so long ago, and GitHub have been asked just now."""

    def earlier(kept: JobRecord) -> JobRecord:
        met = kept.github_outage
        assert met is not None
        return replace(kept, github_outage=GitHubOutage(since=met.last - seconds, last=met.last))

    await record.update(earlier)


async def test_pauses_grow_with_the_trouble_up_to_the_longest() -> None:
    record, patience = await a_record(), Patience(seconds=3600, longest_pause=60)
    first = await patience.pause(record, DOWN)
    await since(record, 1800)
    assert (first, await patience.pause(record, DOWN)) == (2.0, 60)


async def test_patience_ends_and_sooner_where_access_is_refused() -> None:
    record, patience = await a_record(), Patience(seconds=3600)
    assert await patience.pause(record, DOWN) is not None
    await since(record, ACCESS_PATIENCE_SECONDS + 60)
    assert await patience.pause(record, GitHubError("read", 404, "not there", "")) is None
    await since(record, 3700)
    assert await patience.pause(record, DOWN) is None


async def test_a_refusal_for_good_is_not_waited_for() -> None:
    record = await a_record()
    assert await Patience().pause(record, GitHubError("read", 422, "no", "")) is None
    assert (await record.read()).github_outage is None
