"""A file of the engine before this one: everything in it goes on in the new database, once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.domain.access import LabelGrant
from bot.domain.commands import Fix
from bot.domain.errors import QueueError
from bot.domain.job import Actor, JobState
from bot.jobs import approvals
from bot.publishing.view import CommitRef
from bot.queue import jobs
from bot.queue.jobs import import_file
from bot.queue.ledger import DurableLedger
from bot.queue.records import ApprovalAnswer, CommentRecord, Posted, RecordedEnding, Signal, StoredRecord
from bot.queue.store import OWED
from tests.bot.queue.running import Running
from tests.builders import a_job
from tests.durable import is_owed, runnable, signals_of

_FILES = Path(__file__).parent
_JOBS = 14


def _write(path: Path, version: int = 4) -> Path:
    """What a version itself wrote."""
    with sqlite3.connect(path) as rows:
        rows.executescript((_FILES / f"queue_v{version}.sql").read_text(encoding="utf-8"))
    rows.close()
    return path


def _names(path: Path) -> list[str]:
    """The files beside one, without locks and what SQLite makes for as long as a file is open."""
    names = (each.name for each in path.parent.iterdir())
    return sorted(name for name in names if not name.endswith((".lock", "-wal", "-shm")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return _write(tmp_path / "data" / "queue.sqlite")


async def test_every_job_arrives_as_it_stood_and_what_ran_is_queued_again(running: Running, path: Path) -> None:
    assert import_file(running.store, path) == _JOBS
    assert await running.engine.counts() == {
        JobState.QUEUED: 7,
        JobState.RUNNING: 0,
        JobState.WAITING: 2,
        JobState.DONE: 2,
        JobState.REFUSED: 1,
        JobState.FAILED: 1,
        JobState.STOPPED: 1,
    }
    done = await running.engine.get("done")
    assert done is not None
    assert (done.reason, done.enqueued_at, done.finished_at) == ("told", 1795395000, 1795395005)
    assert (done.job.command, done.job.thread.body) == (Fix(goal="mend it"), "`add(1, 1)` gives 3.\n\x00 ä")
    record = await running.engine.record("done")
    assert record.comment == CommentRecord(requests=1, posted=Posted(id=7, url="https://x/7"))
    assert record.ending == RecordedEnding(state=JobState.DONE, body="All is well; ' and \"")
    commit = (await running.engine.record("running")).published.commit
    assert commit == CommitRef(sha="c" * 40, branch="codepilot/issue-7-running")
    assert await signals_of(running.engine, "running") == [
        Signal(kind="message", text="look at b.py ä", by="mona", id="m1"),
        Signal(kind="stop", text="", by="mona", id="s1"),
    ]


async def test_what_was_queued_or_ran_runs_in_the_order_of_its_thread(running: Running, path: Path) -> None:
    import_file(running.store, path)
    assert await runnable(running.engine) == ["suspect", "running", "queued"]
    running.start()
    for job_id in ("behind", "queued", "stop", "closed", "suspect", "timed"):
        await running.until_state(job_id, JobState.DONE)
    handled = running.handler.handled
    assert handled.index("running 1") < handled.index("behind 1")
    assert "suspect 3 +1" in handled
    assert running.handler.heard == ["m1", "s1"]
    assert not {"held 1", "answerable 1"} & set(handled)
    await running.engine.unhold("held")
    await running.until_state("held", JobState.DONE)


async def test_what_waits_is_run_when_it_is_answered(running: Running, path: Path) -> None:
    import_file(running.store, path)
    running.start()
    record = StoredRecord(running.engine, "answerable")
    asked = await approvals.awaited(record)
    assert asked is not None
    assert asked.request_id == "1df8dc30"
    assert [each.at for each in await approvals.shown_by(record)] == ["2026-11-22T22:24:53Z"]
    given = ApprovalAnswer(request_id=asked.request_id, approved=True, note="", by=Actor(id=1, login="mona"))
    assert await approvals.answer(record, given)
    assert await running.engine.wake("answerable")
    await running.until_state("answerable", JobState.DONE)
    assert await approvals.answered(record, asked) == given


async def test_what_has_ended_is_known_by_its_id_and_by_its_delivery(running: Running, path: Path) -> None:
    import_file(running.store, path)
    assert await running.engine.get("forgotten") is None
    for job_id in ("done", "refused", "forgotten", "running"):
        assert not await running.engine.accept(a_job(job_id, number=99))
        assert not await running.engine.accept(a_job("new", number=99, delivery_id=f"delivery-of-{job_id}"))
    assert await running.engine.accept(a_job("new", number=99))


async def test_endings_that_were_still_to_be_told_are_told_with_the_tries_that_they_had(
    running: Running, path: Path
) -> None:
    import_file(running.store, path)
    assert [await is_owed(running.engine, each) for each in ("untold", "stopped", "done")] == [True, True, False]
    since = sa.select(OWED.c.since).where(OWED.c.job_id == "untold")
    assert await running.store.run(lambda tx: tx.rows.execute(since).scalar()) == 1795395005
    running.start()

    async def told() -> bool:
        return set(running.handler.told) == {"untold 3", "stopped 1"}

    await running.until(told)


async def test_labels_and_what_threads_were_told_arrive(running: Running, path: Path) -> None:
    import_file(running.store, path)
    ledger = DurableLedger(running.store)
    auto = LabelGrant(
        repo_id=10,
        number=7,
        name="Codepilot:Auto",
        labeller=Actor(id=20, login="octo"),
        bound_to="a" * 40,
        at=1_795_400_000,
    )
    newer = replace(auto, name="ärger", bound_to="b" * 40, at=1_795_400_001)
    assert await ledger.labels(10, 7) == (auto, newer)
    await ledger.drop_label(10, 7, "codepilot:AUTO")
    assert await ledger.labels(10, 7) == (newer,)
    assert not await ledger.may_tell(10, 7, "locked")
    assert await ledger.may_tell(10, 7, "archived")


async def test_the_file_is_kept_whole_under_another_name(running: Running, path: Path) -> None:
    writer = sqlite3.connect(path)  # as of a process that was killed: its last words are in the journal
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("UPDATE jobs SET reason = 'late' WHERE id = 'done'")
    writer.commit()
    assert import_file(running.store, path) == _JOBS
    writer.close()
    assert _names(path) == ["queue.sqlite.imported"]
    done = await running.engine.get("done")
    assert done is not None
    assert done.reason == "late"
    with sqlite3.connect(path.with_name("queue.sqlite.imported")) as kept:
        assert kept.execute("SELECT count(*) FROM jobs WHERE reason = 'late'").fetchone() == (1,)
    kept.close()


async def test_a_process_that_had_the_file_open_can_store_nothing_in_it_any_more(running: Running, path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        assert import_file(running.store, path) == _JOBS
        late = "(id, delivery_id, repo_id, thread, actor_id, lane, state, enqueued_at)"
        for statement in (
            f"INSERT INTO jobs {late} VALUES ('late', 'd-late', 1, 1, 1, 'work', 'queued', 1)",  # noqa: S608 - ours
            "UPDATE jobs SET state = 'running' WHERE id = 'queued'",
            "INSERT INTO signals VALUES ('queued', 1, 'late', 'stop', '', 'mona')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="taken this file over"):
                writer.execute(statement)


async def test_a_second_start_takes_nothing_over_again(running: Running, path: Path) -> None:
    assert import_file(running.store, path) == _JOBS
    assert import_file(running.store, path) == 0


async def test_a_start_after_one_that_was_killed_before_it_renamed_the_file_takes_nothing_over_twice(
    running: Running, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Path, "rename", _killed)
        with pytest.raises(KeyboardInterrupt):
            import_file(running.store, path)
    running.start()
    await running.until(lambda: _nothing_is_left(running))
    await running.stop()
    ledger = DurableLedger(running.store)
    await ledger.drop_label(10, 7, "codepilot:auto")
    handled, told = list(running.handler.handled), list(running.handler.told)
    assert import_file(running.store, path) == _JOBS
    assert _names(path) == ["queue.sqlite.imported"]
    assert [each.name for each in await ledger.labels(10, 7)] == ["ärger"]
    assert len(await signals_of(running.engine, "running")) == 2
    # Whatever would run a second time would run before this.
    await running.engine.accept(a_job("last", number=9))
    running.start()
    await running.until_state("last", JobState.DONE)
    assert [each for each in running.handler.handled if each not in handled] == ["last 1"]
    assert len(running.handler.handled) == len(handled) + 1
    assert running.handler.told == told


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


async def _nothing_is_left(running: Running) -> bool:
    """Whether all has ended but what is held and what waits for an answer, and every ending is told."""
    live = await running.engine.live_ids() == {"held", "answerable"}
    counts = await running.engine.counts()
    owed = [await is_owed(running.engine, each) for each in ("untold", "stopped")]
    return live and counts[JobState.QUEUED] == 1 and counts[JobState.RUNNING] == 0 and not any(owed)


async def test_an_import_that_was_cut_between_its_parts_is_completed(
    running: Running, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_AT_ONCE", 4)
    with monkeypatch.context() as killed:
        take = jobs._take
        taken: list[int] = []

        def cut(*args: object, **kwargs: object) -> None:
            if len(taken) == 2:
                raise KeyboardInterrupt
            taken.append(1)
            take(*args, **kwargs)  # type: ignore[arg-type]

        killed.setattr(jobs, "_take", cut)
        with pytest.raises(KeyboardInterrupt):
            import_file(running.store, path)
    assert import_file(running.store, path) == _JOBS
    assert await runnable(running.engine) == ["suspect", "running", "queued"]
    assert sum((await running.engine.counts()).values()) == _JOBS
    assert len(await DurableLedger(running.store).labels(10, 7)) == 2


@pytest.mark.parametrize("version", [1, 3])
async def test_a_file_of_an_older_version_is_refused_and_left_as_it_is(
    running: Running, tmp_path: Path, version: int
) -> None:
    path = _write(tmp_path / "old.sqlite", version)
    before = path.read_bytes()
    with pytest.raises(QueueError, match=rf"old\.sqlite has format {version}, and only format 4"):
        import_file(running.store, path)
    assert path.read_bytes() == before
    assert sum((await running.engine.counts()).values()) == 0


@pytest.mark.parametrize("content", [b"no database" * 100, b""])
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    running: Running, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "other.sqlite"
    path.write_bytes(content)
    with pytest.raises(QueueError, match=r"other\.sqlite.* taken over"):
        import_file(running.store, path)
    assert path.read_bytes() == content
