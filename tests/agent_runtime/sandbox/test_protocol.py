from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.sandbox.protocol import PrivateDirectory

_MAKE = """
import os, sys
from agent_runtime.sandbox.protocol import PrivateDirectory
made = PrivateDirectory("codepilot-test-")
(made.path / "file").write_text("x")
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_by_a_killed_process(place: Path) -> Path:
    with subprocess.Popen(
        [sys.executable, "-c", _MAKE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        with PrivateDirectory("codepilot-test-"):
            assert path.exists()
        process.send_signal(signal.SIGKILL)
    return path


def test_directories_of_a_killed_process_are_removed_at_the_next_start(place: Path) -> None:
    left = left_by_a_killed_process(place)
    os.utime(left, (1, 1))
    with PrivateDirectory("codepilot-test-") as made:
        assert list(place.iterdir()) == [made.path]
    assert not any(place.iterdir())


def test_a_locked_directory_is_kept_at_any_age(place: Path) -> None:
    with PrivateDirectory("codepilot-test-") as first:
        os.utime(first.path, (1, 1))
        with PrivateDirectory("codepilot-test-") as second:
            assert {first.path, second.path} == set(place.iterdir())


def test_new_and_foreign_directories_are_kept(place: Path) -> None:
    (place / "codepilot-test-new").mkdir()
    (place / "elsewhere").mkdir()
    (place / "codepilot-test-link").symlink_to(place / "elsewhere")
    os.utime(place / "codepilot-test-link", (1, 1), follow_symlinks=False)
    with PrivateDirectory("codepilot-test-"):
        assert {"codepilot-test-new", "codepilot-test-link", "elsewhere"} < {each.name for each in place.iterdir()}
