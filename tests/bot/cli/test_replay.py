"""`codepilot run --record`, then `codepilot replay`, as a person would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.forked import completed

SCRIPT = """\
- reply: |
    I write it and look.
    ```codepilot
    write_file("greeting.txt")
    execute("main", "cat greeting.txt *.md", check=True)
    ```
    ```text filename=greeting.txt
    hello
    ```
- expect: hello
  reply: |
    ```completion
    There is a greeting now.
    ```
"""


def codepilot(*words: str | Path, at: Path) -> subprocess.CompletedProcess[str]:
    return completed([*map(str, words)], env={"PATH": os.environ["PATH"], "HOME": str(at)}, at=at)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording, made in `project`; `start` beside it is as `project` was."""
    for name in ("project", "start"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text("A project.\n")
    (tmp_path / "script.yaml").write_text(SCRIPT)
    path = tmp_path / "run.jsonl"
    done = codepilot(
        "run", "--script", tmp_path / "script.yaml", "--record", path, "Write a greeting", at=tmp_path / "project"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "project" / "greeting.txt").read_text() == "hello\n"
    return path


@pytest.mark.slow
def test_a_recorded_run_is_replayed_and_compared(recording: Path, tmp_path: Path) -> None:
    same = codepilot("replay", recording, "--work-dir", tmp_path / "start", at=tmp_path)
    assert (same.returncode, same.stdout) == (
        0,
        "2 of 2 requests were made as recorded.\nEvery run ended as in the recording.\n",
    ), same.stderr
    assert not (tmp_path / "start" / "greeting.txt").exists()

    compared = codepilot("replay", recording, "--compare", at=tmp_path)
    assert (compared.returncode, compared.stdout) == (0, "2 requests compared. 0 differences.\n"), compared.stderr


@pytest.mark.slow
def test_a_replay_that_goes_another_way_shows_where_and_exits_with_1(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "start" / "README.md").write_text("Another project.\n")
    done = codepilot("replay", recording, "--work-dir", tmp_path / "start", at=tmp_path)
    assert done.returncode == 1
    assert "the directory has changed since" in done.stdout
    assert "Request 2 of 2 differs" in done.stdout
    assert "+Another project." in done.stdout


def test_without_a_directory_the_command_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"recording": 1, "model": "m", "about": {}}\n')
    done = codepilot("replay", tmp_path / "run.jsonl", at=tmp_path)
    assert done.returncode == 2
    assert "--work-dir DIR is required," in done.stderr


def test_a_file_that_is_no_recording_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    done = codepilot("replay", tmp_path / "notes.txt", "--compare", at=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("codepilot: ")
    assert "line 1 is not JSON" in done.stderr
