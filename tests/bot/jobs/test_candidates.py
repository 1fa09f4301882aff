"""Which attempt is the best, and when its checks count."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Outcome, Policy, Status, Task, TaskStatus, Usage
from bot.jobs import candidates
from bot.jobs.candidates import Candidates, _change_times, _Evaluated
from bot.publishing.checks import Verdict
from bot.publishing.status_view import CandidateView, Progress


def test_a_changed_file_that_cannot_be_found_by_its_name_lets_no_check_count(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b\u202e.py").write_text("x")
    at = (tmp_path / "a.py").stat().st_ctime
    assert _change_times(tmp_path, [("changed", "a.py"), ("deleted", "gone.py")]) == [at]
    assert _change_times(tmp_path, [("changed", "a.py"), ("created", "'b\\u202e.py'")]) == [math.inf]
    assert _change_times(tmp_path, [("changed", "a.py"), ("… and 3 more", "")])[-1] == math.inf


def judged(name: str, verdict: Verdict, lines: int | None, ended: Status = Status.FINISHED) -> _Evaluated:
    attempt = CandidateView(
        number=1, ended=ended.value, verdict=verdict, files=1, lines=lines, steps=1, usage=Usage(), summary=""
    )
    return _Evaluated(task=name, attempt=attempt, progress=Progress(), outcome=Outcome(status=ended))


def test_the_best_has_finished_then_passed_its_checks_then_changed_the_least() -> None:
    attempts = [
        judged("stopped", Verdict.VERIFIED, 1, Status.STOPPED),
        judged("red", Verdict.RED, 1),
        judged("unchecked", Verdict.UNVERIFIED, 1),
        judged("with a picture", Verdict.VERIFIED, None),
        judged("large", Verdict.VERIFIED, 1_000_000),
        judged("small", Verdict.VERIFIED, 2),
    ]
    ranked = [attempt.task for attempt in sorted(attempts, key=lambda attempt: attempt.rank)]
    assert ranked == ["small", "large", "with a picture", "unchecked", "red", "stopped"]


class Attempts:
    """A task manager whose tasks cost one dollar each."""

    def __init__(self, *_: object) -> None:
        self._started = 0

    async def start_task(self, *_: object, **__: object) -> str:
        self._started += 1
        return f"t{self._started}"

    async def wait(self, name: str) -> TaskStatus:
        ended = Outcome(status=Status.FINISHED)
        return TaskStatus(id=name, goal="", state="finished", outcome=ended, usage=Usage(requests=1, cost_usd=1.0))

    def copy_path(self, _name: str) -> Path:
        return Path("/nothing")

    async def collect(self, _name: str) -> None: ...

    async def close(self) -> None: ...


async def test_the_cost_of_a_run_that_died_counts_beside_that_of_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "TaskManager", Attempts)
    state = SimpleNamespace(progress=Progress(usage=Usage(requests=1, cost_usd=2.0)))
    agent = SimpleNamespace(work_dir=Path("/nothing/workspace"), policy=Policy())
    runtime = SimpleNamespace(agent=agent, hooks=SimpleNamespace(add=lambda _: None))
    best = await Candidates(cast("Any", runtime), cast("Any", state), 2, ()).run_best(Task(goal="Fix it."), ())
    assert best is not None
    assert (best.usage.cost_usd, state.progress.usage.cost_usd) == (2.0, 4.0)
