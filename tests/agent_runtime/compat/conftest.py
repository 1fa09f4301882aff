"""A project to work on, and a home of its own for `llm` and for locks."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file; what `llm` and agents keep lies beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "hello.txt").write_text("one\ntwo\nthree\n")
    return root
