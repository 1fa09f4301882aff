"""The short form of `make chaos`: processes of a real service end at bad moments, and nothing is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos.storm import Plan, Shared, run
from tests.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.mark.slow
@pytest.mark.long
async def test_one_process_on_sqlite_that_ends_again_and_again_does_everything_once(tmp_path: Path) -> None:
    storm = await run(Plan(kills=2, jobs=4, seed=2), tmp_path, None)
    assert sum(storm.ends.values()) >= 1
    assert not storm.faults, storm


@pytest.mark.slow
@pytest.mark.long
async def test_processes_on_postgresql_that_end_again_and_again_do_everything_once(
    tmp_path: Path, postgres_url: str
) -> None:
    shared = Shared(database_url=postgres_url, blobs={"CODEPILOT_STORAGE_URL": (tmp_path / "blobs").as_uri()})
    storm = await run(Plan(kills=2, jobs=4, seed=26, receivers=1, workers=2), tmp_path, shared)
    assert sum(storm.ends.values()) >= 1
    assert not storm.faults, storm
