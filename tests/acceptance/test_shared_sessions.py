"""Runs whose log is in the database that the workers of several machines share."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import Recovered, Started, ToolCalled
from bot.domain.job import JobState
from bot.pipeline import worker
from localhub import LocalHub
from tests.pauses import ASKING, pause_of
from tests.postgres import postgres_server, postgres_url
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, acting, staged
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

SEE_NOTHING = acting('execute("main", "true")')
RAN = 'execute("main", "echo ran >> ran.txt")'
ASKS = acting(f'write_file("calc.py")\n{RAN}', FIXED_CALC, completion=COMPLETION)


async def test_another_process_goes_on_at_the_approved_call_and_nothing_stays(
    hub: LocalHub, tmp_path: Path, postgres_url: str
) -> None:
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, database=postgres_url) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)
        assert _events(postgres_url)
    async with staged(hub, tmp_path, [], operator=ASKING, database=postgres_url, after=first) as stage:
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        [(_, sha)] = stage.bot_branches().items()
        assert stage.file(sha, "ran.txt") == "ran"
    assert not _events(postgres_url)
    assert not (tmp_path / "bot" / "sessions").exists()


async def test_a_log_that_cannot_be_written_for_a_while_costs_no_job_and_no_step_that_was_kept(
    hub: LocalHub, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "_SESSION_SECONDS", 0.1)
    first = [SEE_NOTHING, acting(WAIT_FOR_GO)]
    async with staged(hub, tmp_path, first, *([[FIX]] * 20), database=postgres_url) as stage:
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await eventually(lambda: sum(isinstance(each, ToolCalled) for each in stage.events) == 2)
        _run(postgres_url, "ALTER TABLE codepilot_events RENAME TO elsewhere")
        await stage.let_go(job_id)
        await eventually(lambda: "its log cannot be kept" in caplog.text)
        _run(postgres_url, "ALTER TABLE elsewhere RENAME TO codepilot_events")
        end = await stage.end_of(command)
        assert (end.state, end.job_id) == (JobState.DONE, job_id), end
        assert COMPLETION in end.status
        assert sum(isinstance(each, Started) for each in stage.events) == 1
        assert sum(isinstance(each, Recovered) for each in stage.events) == 1
        assert len(stage.pulls()) == 1


def _events(url: str) -> int:
    """How many events are kept, of all jobs."""
    [[count]] = _run(url, "SELECT count(*) FROM codepilot_events")
    return int(count)


def _run(url: str, statement: str) -> list[tuple[int, ...]]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        done = connection.execute(sa.text(statement))
        return [tuple(row) for row in done] if done.returns_rows else []
