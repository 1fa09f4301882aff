"""Patches and sessions that are kept beside the records of jobs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import DatabaseSession, Observed, Outcome, SessionInUseError, SessionUnavailableError, Status
from bot.domain.errors import StorageError
from bot.git.blobs import BlobAccess, BlobStore, open_blobs
from bot.git.errors import WorkspaceError
from bot.git.snapshots import Vault
from bot.jobs.record import RunResult, StoredRecord, decode_record, encode_record
from bot.jobs.storage import (
    DatabaseJobSessions,
    FileJobSessions,
    JobSessions,
    PatchBlobs,
    PatchFiles,
    RunResults,
    open_session,
)
from bot.publishing.status_view import Activity, Progress
from bot.queue.memory import InMemoryEngine
from tests import s3
from tests.builders import a_job
from tests.changes import a_change, a_file
from tests.fakes.stores import FakePatches
from tests.postgres import PASSWORD, postgres_server, postgres_url

CHANGE = a_change(a_file("caf\udce9.py", b"x\n"))
PATCH = CHANGE.patch.encode("utf-8", "surrogateescape")
WORK = RunResult(
    outcome=Outcome(status=Status.FINISHED, summary="Half a smile: \ud83d"),
    progress=Progress(activities=(Activity(label="Writing caf\udce9.py", state="done"),), steps=2),
    base_sha="a" * 40,
    tree_sha="b" * 40,
)
_DAY_SECONDS = 86_400
Make = Callable[[str], RunResults]
"""Makes the results of a machine, by its name."""


@pytest.fixture(scope="module")
def server() -> Iterator[s3.S3]:
    with s3.running() as running:
        yield running


@pytest.fixture(params=["files", "directory", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Machines that share what they keep; with files, directories that are one."""
    if request.param == "files":
        return lambda _machine: RunResults(PatchFiles(tmp_path / "patches"), most_bytes=10**6)
    if request.param == "directory":
        return lambda machine: _shared(open_blobs((tmp_path / "store").as_uri()), tmp_path / machine)
    server: s3.S3 = request.getfixturevalue("server")
    address = f"s3://{s3.BUCKET}/{tmp_path.name}"
    return lambda machine: _shared(open_blobs(address, server.access), tmp_path / machine)


def _shared(blobs: BlobStore, copies: Path, *, most_bytes: int = 10**6) -> RunResults:
    return RunResults(PatchBlobs(Vault(blobs=blobs, folder="patches", key=b"k" * 32), copies), most_bytes=most_bytes)


async def _engine() -> tuple[InMemoryEngine, StoredRecord]:
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    return engine, StoredRecord(engine, "j1")


async def test_work_is_found_on_another_machine_even_with_text_that_utf8_cannot_hold(make: Make) -> None:
    engine, record = await _engine()
    await make("one").save("j1", record, WORK, CHANGE)
    entry = await make("two").find("j1", record)
    assert entry is not None
    assert entry[0] == WORK
    assert entry[1].read_bytes() == PATCH
    kept = await StoredRecord(engine, "j1").read()
    assert decode_record(encode_record(kept)) == kept


async def test_what_is_left_of_a_patch_or_that_nothing_is_counts_on_every_machine(make: Make) -> None:
    _, record = await _engine()
    one, two = make("one"), make("two")
    await one.save("j1", record, WORK, CHANGE)
    assert await two.find("j1", record) is not None
    one.reduce("j1", "part")
    assert (two.excerpt("j1"), two.read("j1")) == ("part", b"part")
    one.reduce("j1", "")
    assert await two.find("j1", record) is None
    assert (two.excerpt("j1"), two.read("j1"), two.file("j1")) == ("", None, None)


def test_of_a_very_long_patch_whole_lines_are_shown_and_the_rest_is_told(tmp_path: Path) -> None:
    results = RunResults(PatchFiles(tmp_path), most_bytes=10**9)
    line = f"+{'x' * 999_999}\n"
    results.put("j1", line.encode() * 5)
    *shown, note = results.excerpt("j1").splitlines(keepends=True)
    assert shown == [line] * 4
    assert "left out" in note
    results.put("j1", line.encode() * 4)
    assert results.excerpt("j1") == line * 4


async def test_a_result_is_recorded_only_once_its_patch_is_kept(tmp_path: Path) -> None:
    _, record = await _engine()
    gone = open_blobs(f"s3://{s3.BUCKET}/x", BlobAccess(access_key_id="x", endpoint="http://127.0.0.1:9"))
    with pytest.raises(StorageError):
        await _shared(gone, tmp_path).save("j1", record, WORK, CHANGE)
    assert (await record.read()).result is None


async def test_a_patch_that_somebody_else_put_into_the_store_is_refused(tmp_path: Path) -> None:
    _, record = await _engine()
    blobs = open_blobs((tmp_path / "store").as_uri())
    results = _shared(blobs, tmp_path / "copies")
    await results.save("j1", record, WORK, CHANGE)
    results.put("j2", b"another job's")
    stored = blobs.get("patches/j2.patch", limit=10**6)
    assert stored is not None
    assert b"another" not in stored
    for evil in (PATCH, stored):
        blobs.put("patches/j1.patch", evil)
        with pytest.raises(WorkspaceError):
            await results.find("j1", record)


def test_patches_are_kept_for_some_days_and_no_longer(tmp_path: Path) -> None:
    store = RunResults(PatchFiles(tmp_path / "patches"), most_bytes=10**6)
    assert store.sweep(30) == 0
    (tmp_path / "patches").mkdir()
    for name, days in (("old.patch", 31), ("recent.patch", 29), ("torn.partial", 31), ("waits.patch", 31)):
        _create_old_file(tmp_path / "patches" / name, days)
    assert store.sweep(30, keep={"waits"}) == 2
    assert _names(tmp_path / "patches") == ["recent.patch", "waits.patch"]


def test_the_oldest_patches_go_when_all_are_too_much_but_of_no_live_job_and_none_of_this_hour(tmp_path: Path) -> None:
    for name, days in (("waits", 5), ("oldest", 4), ("older", 3), ("new", 0)):
        _create_old_file(tmp_path / f"{name}.patch", days, size=400)
    assert RunResults(PatchFiles(tmp_path), most_bytes=1000).sweep(30, keep={"waits"}) == 1
    assert _names(tmp_path) == ["new.patch", "older.patch", "waits.patch"]
    assert RunResults(PatchFiles(tmp_path), most_bytes=1).sweep(30, keep={"waits"}) == 1
    assert _names(tmp_path) == ["new.patch", "waits.patch"]


def test_what_is_swept_from_the_store_is_of_jobs_that_are_over_and_the_copies_go_with_it(tmp_path: Path) -> None:
    store, copies = tmp_path / "store", tmp_path / "copies"
    results = _shared(open_blobs(store.as_uri()), copies)
    for name in ("old", "waits", "new"):
        results.put(name, b"x")
        assert results.excerpt(name) == "x"
    for name in ("old", "waits"):
        _create_old_file(store / "patches" / f"{name}.patch", 31)
        _create_old_file(copies / "copies" / f"{name}.patch", 31)
    assert results.sweep(30, keep={"waits"}) == 1
    assert _names(store / "patches") == _names(copies / "copies") == ["new.patch", "waits.patch"]


async def test_work_that_was_kept_here_before_there_was_a_store_is_found_and_kept_as_long(tmp_path: Path) -> None:
    _, record = await _engine()
    await RunResults(PatchFiles(tmp_path / "patches"), most_bytes=10**6).save("j1", record, WORK, CHANGE)
    _create_old_file(tmp_path / "patches" / "old.patch", 31)
    _create_old_file(tmp_path / "patches" / "recent.patch", 29)
    results = _shared(open_blobs((tmp_path / "store").as_uri()), tmp_path / "patches")
    entry = await results.find("j1", record)
    assert entry is not None
    assert entry[1].read_bytes() == PATCH
    assert results.sweep(30) == 1
    assert _names(tmp_path / "patches") == ["j1.patch", "recent.patch"]
    results.reduce("j1", "")
    assert await results.find("j1", record) is None


def test_a_store_that_is_away_changes_no_ending(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    patches = FakePatches(tmp_path / "patches")
    patches.failure = StorageError("s3://work", "timed out", "Check it.")
    RunResults(patches, most_bytes=10**6).reduce("j1", "part")
    assert "more of its patch is kept than is needed" in caplog.text


def _create_old_file(path: Path, days: float, *, size: int = 1) -> None:
    """Have a file with something in it since some days ago."""
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - days * _DAY_SECONDS,) * 2)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


__all__ = ["postgres_server", "postgres_url"]
EVENT = Observed(step=1, text="said", ok=True)


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def make_sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], JobSessions]:
    """Sessions as each worker of the same jobs makes them."""
    if request.param == "file":
        return lambda: FileJobSessions(tmp_path / "sessions")
    url = f"sqlite:///{tmp_path}/jobs.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return lambda: DatabaseJobSessions(url)


async def _say(sessions: JobSessions, job_id: str) -> None:
    session = sessions.get(job_id)
    async with open_session(session):
        session.append(EVENT)
        await session.commit()


async def test_each_job_has_a_session_of_its_own_until_it_is_forgotten(
    make_sessions: Callable[[], JobSessions],
) -> None:
    await _say(make_sessions(), "j1")
    sessions = make_sessions()
    assert (sessions.has("j1"), sessions.has("j2")) == (True, False)
    session = sessions.get("j1")
    async with open_session(session):
        assert list(session.events) == [EVENT]
    for _ in range(2):
        sessions.forget("j1")
        assert not make_sessions().has("j1")


async def test_what_ended_jobs_left_is_swept_and_nothing_of_others(make_sessions: Callable[[], JobSessions]) -> None:
    sessions = make_sessions()
    sessions.sweep(())
    for job_id in ("over", "live"):
        await _say(sessions, job_id)
    _age(sessions)
    sessions.sweep({"live"})
    assert (sessions.has("over"), sessions.has("live")) == (False, True)


async def test_what_was_used_lately_is_not_swept(make_sessions: Callable[[], JobSessions]) -> None:
    sessions = make_sessions()
    await _say(sessions, "lately")
    sessions.sweep(())
    assert sessions.has("lately")


async def test_a_database_is_not_swept_of_what_is_in_use(postgres_url: str) -> None:
    sessions = DatabaseJobSessions(postgres_url)
    for job_id in ("over", "used"):
        await _say(sessions, job_id)
    session = sessions.get("used")
    async with open_session(session):
        _age(sessions)
        sessions.sweep(())
        session.append(EVENT)
    assert (sessions.has("over"), sessions.has("used")) == (False, True)


async def test_sessions_of_others_in_the_database_are_left_alone(postgres_url: str) -> None:
    other = DatabaseSession("somebody's job x", db_url=postgres_url)
    async with open_session(other):
        other.append(EVENT)
    sessions = DatabaseJobSessions(postgres_url)
    _age(sessions)
    sessions.sweep(())
    assert other.exists()


async def test_whoever_has_the_job_has_its_session_whatever_another_process_holds(postgres_url: str) -> None:
    stale, fresh = (DatabaseJobSessions(postgres_url).get("j1") for _ in range(2))
    async with open_session(stale):
        stale.append(EVENT)
        await stale.commit()
        async with open_session(fresh):
            assert list(fresh.events) == [EVENT]
            stale.append(EVENT)
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
    files = here.files("j1", max_bytes=10_000)
    assert files is not None
    assert here.files("j1", max_bytes=10) is None
    there.put("j1", {**files, "../../evil": b"x"})
    session = there.get("j1")
    async with open_session(session):
        assert list(session.events) == [EVENT]
    assert not (tmp_path / "evil").exists()
    assert here.files("none", max_bytes=10) == {}


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


def test_the_patch_of_leftovers_is_appended_once_unless_later_steps_apply_it(tmp_path: Path) -> None:
    for is_lasting, content in ((False, b"change\nleft\n"), (True, b"change\n")):
        work = RunResults(FakePatches(tmp_path / str(is_lasting)), most_bytes=1024, lasting=is_lasting)
        work.put("j1", b"change\n")
        for _ in range(2):
            work.append("j1", "left\n")
        assert work.read("j1") == content
