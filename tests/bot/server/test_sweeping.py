"""Cleaning up beside the jobs of a service."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.git.workspace import Workspaces
from bot.jobs.context import JobServices
from bot.jobs.storage import FileJobSessions, PatchFiles, RunResults
from bot.queue.memory import InMemoryEngine
from bot.server.periodic import job_sweeps, sweep_all, sweeping
from tests.builders import a_job

DAYS = 30


class _Unreachable(InMemoryEngine):
    @override
    async def live_ids(self) -> frozenset[str]:
        raise QueueError("the job database cannot be reached")


def services(place: Path) -> JobServices:
    shared = SimpleNamespace(
        workspaces=Workspaces(place / "workspaces"),
        work=RunResults(PatchFiles(place / "patches"), most_bytes=10**9),
        sessions=FileJobSessions(place / "sessions"),
        keep_days=DAYS,
    )
    return cast("JobServices", shared)


def left_by(job_id: str, place: Path) -> tuple[Path, ...]:
    """The files of a job, made so long ago that those of an ended one go."""
    patch = place / f"patches/{job_id}.patch"
    session, files = place / f"sessions/{job_id}", place / f"workspaces/jobs/{job_id}"
    for folder in (session, files, patch.parent):
        folder.mkdir(parents=True, exist_ok=True)
    patch.write_text("diff")
    for path in (patch, session):
        os.utime(path, (time.time() - (DAYS + 1) * 86_400,) * 2)
    return session, files, patch


async def test_what_an_ended_job_left_goes_and_what_a_live_one_has_stays(tmp_path: Path) -> None:
    engine, shared = InMemoryEngine(), services(tmp_path)
    live = a_job()
    await engine.accept(live)
    ended, kept = left_by("ended", tmp_path), left_by(live.id, tmp_path)
    await sweep_all(job_sweeps(shared, engine))
    assert not any(path.exists() for path in ended)
    assert all(path.exists() for path in kept)


async def test_a_sweep_that_fails_keeps_no_other_from_running(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine, shared = InMemoryEngine(), services(tmp_path)
    *_, patch = left_by("ended", tmp_path)
    (tmp_path / "sessions").rename(tmp_path / "elsewhere")
    (tmp_path / "sessions").write_text("no directory")
    await sweep_all(job_sweeps(shared, engine))
    assert not patch.exists()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["sessions"]


async def test_nothing_waits_for_a_sweep(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Slow(InMemoryEngine):
        @override
        async def live_ids(self) -> frozenset[str]:
            asked.set()
            await asyncio.Event().wait()
            return frozenset()

    async with asyncio.timeout(30), sweeping(services(tmp_path), Slow()):
        await asked.wait()


async def test_without_the_database_nothing_is_taken_for_ended(tmp_path: Path) -> None:
    left = left_by("perhaps-live", tmp_path)
    await sweep_all(job_sweeps(services(tmp_path), _Unreachable()))
    assert all(path.exists() for path in left)
