"""The file: an older version's is brought to this one's, whole or not at all."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bot.domain.commands import Fix, Help, Unknown
from bot.domain.errors import QueueError
from bot.domain.job import JobState, Origin
from bot.engine.database import SCHEMA_VERSION, Database, connect
from bot.engine.job_record import CommentRecord, JobRecord, Posted, RecordedEnding
from tests.queues import claimed, opened_queue

_VERSION_1 = Path(__file__).with_name("queue_v1.sql")
"""What version 1 itself wrote, dumped: a job that is done, one that runs, one queued behind it, two answers."""

_OPEN = "import sys; from pathlib import Path; from bot.engine.database import Database; Database(Path(sys.argv[1]))"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queue.sqlite"
    with sqlite3.connect(path) as rows:
        rows.executescript(_VERSION_1.read_text())
    rows.close()
    return path


def _shape(path: Path) -> tuple[int, set[tuple[str, str]]]:
    with sqlite3.connect(path) as rows:
        version = rows.execute("PRAGMA user_version").fetchone()[0]
        shape = set(rows.execute("SELECT name, replace(sql, '\"', '') FROM sqlite_schema WHERE sql IS NOT NULL"))
    rows.close()
    return version, shape


async def test_the_jobs_of_version_1_are_all_there_and_go_on_where_they_were(path: Path) -> None:
    async with opened_queue(path) as queue:
        done, running = await queue.get("done"), await queue.get("running")
        assert done is not None
        assert (done.state, done.reason, done.enqueued_at, done.finished_at) == (JobState.DONE, "told", 1000, 1002)
        assert done.job.origin == Origin(kind="comment", id=901)
        assert (done.job.command, done.job.thread.body) == (Fix(goal="mend it"), "`add(1, 1)` gives 3.\n\x00 ä")
        ending = RecordedEnding(state=JobState.DONE, body="All is well; ' and \"")
        comment = CommentRecord(posted=Posted(id=7, url=""))
        assert await queue.record("done") == JobRecord(comment=comment, ending=ending)
        assert running is not None
        assert (running.state, running.attempts) == (JobState.RUNNING, 1)
        await queue.renew("running", "w1", 60)
        assert await claimed(queue) is None
        await queue.finish("running", JobState.DONE, worker="w1")
        assert await claimed(queue) == "queued"
        for job_id, command in (("help", Help()), ("unknown", Unknown(word="fxi", nearest="fix"))):
            answer = await queue.claim("w1", 60, lane="steer")
            assert answer is not None
            assert (answer.job.id, answer.job.command) == (job_id, command)


async def test_ids_of_version_1_are_still_known_and_numbers_go_on(path: Path) -> None:
    async with opened_queue(path) as queue:
        stored = await queue.get("queued")
        assert stored is not None
        assert not await queue.accept(stored.job)
        assert [each.job.id for each in await queue.of_thread(10, 2)] == ["queued", "running"]
        assert [each.job.id for each in await queue.live_of(30)] == ["running"]


async def test_a_file_that_was_brought_up_has_the_shape_of_a_new_one(path: Path, tmp_path: Path) -> None:
    for each in (path, tmp_path / "new.sqlite"):
        await Database(each).close()
    assert _shape(path) == _shape(tmp_path / "new.sqlite")
    assert _shape(path)[0] == SCHEMA_VERSION


def test_looking_at_an_older_file_leaves_it_as_it_is(path: Path) -> None:
    before = _shape(path)
    connect(path).close()
    assert _shape(path) == before


async def test_one_damaged_job_does_not_keep_the_others_out(path: Path) -> None:
    with sqlite3.connect(path) as rows:
        rows.execute("UPDATE jobs SET body = 'no JSON' WHERE id = 'done'")
    rows.close()
    async with opened_queue(path) as queue:
        assert (await queue.counts())[JobState.DONE] == 1
        assert await queue.get("queued") is not None
        with pytest.raises(QueueError, match="done"):
            await queue.get("done")


async def test_a_file_that_could_not_be_brought_up_is_as_it_was(path: Path) -> None:
    with sqlite3.connect(path) as rows:
        rows.execute("CREATE TABLE labels (in_the_way TEXT)")
    rows.close()
    before = _shape(path)
    with pytest.raises(QueueError, match="labels"):
        Database(path)
    assert _shape(path) == before


@pytest.mark.slow
def test_processes_that_bring_a_file_up_at_once_agree(path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _OPEN, path]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert _shape(path)[0] == SCHEMA_VERSION
