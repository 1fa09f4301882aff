"""Which attempt is the best, and when its checks count."""

from __future__ import annotations

import math
from pathlib import Path

from agent_runtime import Outcome, Status, Usage
from bot.jobs.candidates import _change_times, _Evaluated
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
