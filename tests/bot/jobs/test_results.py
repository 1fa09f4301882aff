from __future__ import annotations

import os
import time
from pathlib import Path

from agent_runtime import Outcome, Status
from bot.engine.in_memory import InMemoryEngine
from bot.engine.job_record import RunResult, StoredRecord, decode_record, encode_record
from bot.jobs.results import RunResults
from bot.publishing.progress import Progress
from bot.publishing.view import Activity
from tests.builders import a_job
from tests.changes import a_change, a_file


async def test_work_is_found_as_it_was_kept_even_with_text_that_utf8_cannot_hold(tmp_path: Path) -> None:
    work = RunResult(
        outcome=Outcome(status=Status.FINISHED, summary="Half a smile: \ud83d"),
        progress=Progress(activities=(Activity(label="Writing caf\udce9.py", state="done"),), steps=2),
        base_sha="a" * 40,
        tree_sha="b" * 40,
    )
    engine = InMemoryEngine()
    await engine.accept(a_job("j1"))
    record, store = StoredRecord(engine, "j1"), RunResults(tmp_path / "patches")
    change = a_change(a_file("caf\udce9.py", b"x\n"))
    await store.keep("j1", record, work, change)
    found = await store.find("j1", record)
    assert found is not None
    assert found[0] == work
    assert found[1].read_bytes() == change.patch.encode("utf-8", "surrogateescape")
    kept = await engine.record("j1")
    assert decode_record(encode_record(kept)) == kept
    store.forget("j1")
    assert await store.find("j1", record) is None


async def test_patches_are_kept_for_some_days_and_no_longer(tmp_path: Path) -> None:
    store = RunResults(tmp_path / "patches")
    assert store.sweep(30) == 0
    (tmp_path / "patches").mkdir()
    now = time.time()
    for name, days in (("old.patch", 31), ("recent.patch", 29), ("torn.partial", 31), ("waits.patch", 31)):
        path = tmp_path / "patches" / name
        path.write_text("x")
        os.utime(path, (now, now - days * 86400))
    assert store.sweep(30, keep={"waits"}) == 2
    assert sorted(path.name for path in (tmp_path / "patches").iterdir()) == ["recent.patch", "waits.patch"]
