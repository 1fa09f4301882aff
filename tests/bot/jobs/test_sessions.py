"""The sessions of jobs, in files and in a database."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import DatabaseSession, Observed, SessionInUseError, SessionUnavailableError
from bot.jobs.storage import DatabaseJobSessions, FileJobSessions, JobSessions, opened
from tests.postgres import PASSWORD, postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

SAID = Observed(step=1, text="said", ok=True)


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], JobSessions]:
    """Sessions as each worker of the same jobs makes them."""
    if request.param == "file":
        return lambda: FileJobSessions(tmp_path / "sessions")
    url = f"sqlite:///{tmp_path}/jobs.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return lambda: DatabaseJobSessions(url)


async def _say(sessions: JobSessions, job_id: str) -> None:
    session = sessions.of(job_id)
    async with opened(session):
        session.append(SAID)
        await session.commit()


async def test_each_job_has_a_session_of_its_own_until_it_is_forgotten(make: Callable[[], JobSessions]) -> None:
    await _say(make(), "j1")
    sessions = make()
    assert (sessions.has("j1"), sessions.has("j2")) == (True, False)
    session = sessions.of("j1")
    async with opened(session):
        assert list(session.events) == [SAID]
    for _ in range(2):
        sessions.forget("j1")
        assert not make().has("j1")


async def test_what_ended_jobs_left_is_swept_and_nothing_of_others(make: Callable[[], JobSessions]) -> None:
    sessions = make()
    sessions.sweep(())
    for job_id in ("over", "live"):
        await _say(sessions, job_id)
    _age(sessions)
    sessions.sweep({"live"})
    assert (sessions.has("over"), sessions.has("live")) == (False, True)


async def test_what_was_used_lately_is_not_swept(make: Callable[[], JobSessions]) -> None:
    sessions = make()
    await _say(sessions, "lately")
    sessions.sweep(())
    assert sessions.has("lately")


async def test_a_database_is_not_swept_of_what_is_in_use(postgres_url: str) -> None:
    sessions = DatabaseJobSessions(postgres_url)
    for job_id in ("over", "used"):
        await _say(sessions, job_id)
    session = sessions.of("used")
    async with opened(session):
        _age(sessions)
        sessions.sweep(())
        session.append(SAID)
    assert (sessions.has("over"), sessions.has("used")) == (False, True)


async def test_sessions_of_others_in_the_database_are_left_alone(postgres_url: str) -> None:
    other = DatabaseSession("somebody's job x", db_url=postgres_url)
    async with opened(other):
        other.append(SAID)
    sessions = DatabaseJobSessions(postgres_url)
    _age(sessions)
    sessions.sweep(())
    assert other.exists()


async def test_whoever_has_the_job_has_its_session_whatever_another_process_holds(postgres_url: str) -> None:
    stale, fresh = (DatabaseJobSessions(postgres_url).of("j1") for _ in range(2))
    async with opened(stale):
        stale.append(SAID)
        await stale.commit()
        async with opened(fresh):
            assert list(fresh.events) == [SAID]
            stale.append(SAID)
            with pytest.raises(SessionInUseError):
                await stale.commit()
            with pytest.raises(SessionInUseError):
                stale.close()


async def test_a_database_that_cannot_be_used_is_told_before_the_first_job_without_its_password(
    postgres_url: str,
) -> None:
    DatabaseJobSessions(postgres_url).prepare()
    with pytest.raises(SessionUnavailableError) as error:
        DatabaseJobSessions(postgres_url.replace("/codepilot", "/missing")).prepare()
    assert PASSWORD not in str(error.value)


def test_processes_that_start_at_the_same_moment_prepare_one_database(postgres_url: str) -> None:
    gate = threading.Barrier(6)

    def start(_: int) -> None:
        sessions = DatabaseJobSessions(postgres_url)
        gate.wait()
        for _ in range(5):
            sessions.prepare()

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(start, range(6))) == [None] * 6


async def test_the_files_of_a_session_are_the_same_in_another_directory(tmp_path: Path) -> None:
    here, there = FileJobSessions(tmp_path / "here"), FileJobSessions(tmp_path / "there")
    await _say(here, "j1")
    files = here.files("j1", most=10_000)
    assert files is not None
    assert here.files("j1", most=10) is None
    there.put("j1", {**files, "../../evil": b"x"})
    session = there.of("j1")
    async with opened(session):
        assert list(session.events) == [SAID]
    assert not (tmp_path / "evil").exists()
    assert here.files("none", most=10) == {}


def _age(sessions: JobSessions) -> None:
    """Let two hours pass since the sessions were used."""
    if isinstance(sessions, FileJobSessions):
        for folder in sessions._folder.iterdir():
            os.utime(folder, (time.time() - 7200,) * 2)
        return
    assert isinstance(sessions, DatabaseJobSessions)
    engine = sa.create_engine(sessions._url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE codepilot_sessions SET updated_at = updated_at - 7200"))
