"""`bot/evaluation/results.py`: results survive a kill at any byte."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bot.evaluation import results
from bot.evaluation.results import (
    EvalResult,
    PhaseTokens,
    ResultsError,
    open_results,
    read_patch,
    read_results,
)

FIRST = EvalResult(
    task="pull-7",
    config="cheap",
    attempt=1,
    status="done",
    verdict="verified",
    said_done=True,
    solved=False,
    tests={"tests/test_a.py::test_ü": False},
    cost_usd=0.25,
    seconds=3.5,
    requests=4,
    tokens={"work": PhaseTokens(input=10, cached=20, output=30)},
    patch="pull-7.cheap.1.patch",
    job_id="j1",
)
SECOND = EvalResult(task="pull-7", config="cheap", attempt=2, status="error", error="no\nnetwork", cost_usd=None)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    with open_results(tmp_path) as writer:
        writer.append(FIRST)
    with open_results(tmp_path) as writer:
        writer.append(SECOND)
        assert writer.results == [FIRST, SECOND]
    assert read_results(tmp_path) == (FIRST, SECOND)
    assert read_results(tmp_path / "nothing") == ()


def test_a_line_that_a_kill_cut_is_ignored_and_then_replaced(tmp_path: Path) -> None:
    with open_results(tmp_path) as writer:
        writer.append(FIRST)
        writer.append(SECOND)
    file = tmp_path / "results.jsonl"
    data = file.read_bytes()
    whole = data.index(b"\n") + 1
    for end in range(whole, len(data)):
        file.write_bytes(data[:end])
        assert read_results(tmp_path) == (FIRST,)
    file.write_bytes(data[:-40])
    with open_results(tmp_path) as writer:
        writer.append(SECOND)
    assert file.read_bytes() == data


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
def test_results_are_a_plain_file_of_bounded_size(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = tmp_path / "results", tmp_path / "results" / "results.jsonl"
    with open_results(folder) as writer:
        writer.append(FIRST)
    monkeypatch.setattr(results, "MAX_RESULTS_BYTES", file.stat().st_size - (kind == "large"))
    if kind != "large":
        target = file.rename(tmp_path / "other")
        file.symlink_to(target) if kind == "link" else os.mkfifo(file)
    with pytest.raises(ResultsError, match="no plain file, or has more than"):
        read_results(folder)


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    folder, link = tmp_path / "results", tmp_path / "link"
    with open_results(folder) as writer:
        writer.append(FIRST)
    (folder / "patches" / FIRST.patch).write_bytes(b"diff")
    link.symlink_to(folder)
    assert read_results(link) == (FIRST,)
    assert read_patch(link, FIRST.patch) == b"diff"


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with open_results(tmp_path), pytest.raises(ResultsError, match="Another"), open_results(tmp_path):
        pass


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: "),
        ('{"task": "a", "config": "b", "attempt": 1, "status": "done", "price": 1}', "`price`: "),
        ('{"task": "../a", "config": "b", "attempt": 1, "status": "done"}', "`task`: "),
        ('{"task": "a", "config": "b", "attempt": 1, "status": "done", "patch": "../../x"}', "`patch`: "),
        ('{"task": "a", "config": "b", "attempt": 1, "status": "done", "cost_usd": NaN}', "`cost_usd`: "),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    with open_results(tmp_path) as writer:
        writer.append(FIRST)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ResultsError, match="line 2: ") as caught:
        read_results(tmp_path)
    assert problem in str(caught.value)


def test_a_false_claim_needs_a_judgement() -> None:
    assert FIRST.is_false_claim
    assert not replace(FIRST, solved=None).is_false_claim
    assert not replace(FIRST, said_done=False).is_false_claim
