"""Jobs whose log and result are in stores that the workers of several machines share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from agent_runtime import Recovered, Started, ToolCalled
from bot.domain.job import JobState
from bot.jobs import pipeline
from localhub import LocalHub
from tests.pauses import ASKING, pause_of
from tests.postgres import postgres_server, postgres_url
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, Stage, acting, staged
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

SEE_NOTHING = acting('execute("main", "true")')
RAN = 'execute("main", "echo ran >> ran.txt")'
ASKS = acting(f'write_file("calc.py")\n{RAN}', FIXED_CALC, completion=COMPLETION)

WORKFLOW, WORKFLOW_TEXT = ".github/workflows/ci.yml", "on: push\njobs: {}\n"
ADDS = acting(
    f'write_file("calc.py")\nwrite_file("{WORKFLOW}")', FIXED_CALC, WORKFLOW_TEXT, completion="Fixed, with a workflow."
)


async def test_another_machine_goes_on_at_the_approved_call_and_nothing_stays(
    hub: LocalHub, tmp_path: Path, postgres_url: str
) -> None:
    serving = _shared(postgres_url, tmp_path)
    async with staged(hub, tmp_path, [ASKS], operator=ASKING, serving=serving) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)
        assert _events(postgres_url)
    _move(first)
    async with staged(hub, tmp_path, [], operator=ASKING, serving=serving, after=first) as stage:
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "ran.txt") == "ran"
    assert not _events(postgres_url)
    assert not (tmp_path / "bot" / "sessions").exists()


async def test_another_machine_publishes_the_approved_change_of_a_finished_run(
    hub: LocalHub, tmp_path: Path, postgres_url: str
) -> None:
    serving = _shared(postgres_url, tmp_path)
    async with staged(hub, tmp_path, [ADDS], serving=serving) as first:
        issue = first.issue()
        command = first.say(issue.number, "/codepilot fix")
        pause = await pause_of(first, command)
        assert not _events(postgres_url), "the result is kept, so nobody needs the log any more"
    _move(first)
    async with staged(hub, tmp_path, [], serving=serving, after=first) as stage:
        stage.say(issue.number, f"/codepilot approve {pause.short_id}")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, WORKFLOW) == WORKFLOW_TEXT.strip()
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(stage.pulls()) == 1
    assert not list((tmp_path / "store").glob("patches/*"))


async def test_a_log_that_cannot_be_written_for_a_while_costs_no_job_and_no_step_that_was_kept(
    hub: LocalHub, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline, "_SESSION_SECONDS", 0.1)
    first = [SEE_NOTHING, acting(WAIT_FOR_GO)]
    async with staged(hub, tmp_path, first, *([[FIX]] * 20), serving=_shared(postgres_url, tmp_path)) as stage:
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


def _shared(url: str, place: Path) -> Mapping[str, Any]:
    """The settings with which machines share what jobs have."""
    return {"database_url": SecretStr(url), "storage_url": (place / "store").as_uri()}


def _move(stage: Stage) -> None:
    """Have the next service be on another machine: what is not shared is not there."""
    for name in ("workspaces", "patches", "sessions", "setup-cache"):
        place = stage.data / name
        if place.exists():
            place.rename(stage.directory / f"{name} of the first machine")


def _events(url: str) -> int:
    """How many events are kept, of all jobs."""
    [[count]] = _run(url, "SELECT count(*) FROM codepilot_events")
    return int(count)


def _run(url: str, statement: str) -> list[tuple[int, ...]]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        done = connection.execute(sa.text(statement))
        return [tuple(row) for row in done] if done.returns_rows else []
