"""A sandbox, and a workspace, that runs of many tests share the shape of."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Sandbox, SandboxSettings, pick_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The best one there is here."""
    return pick_sandbox("auto", SandboxSettings())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with one file of two lines."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("one\ntwo\n")
    return root
