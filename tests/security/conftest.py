"""The repository and the trap of the tests of git."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.origin import Origin
from tests.security.git_traps import Trap


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    (tmp_path / "traps").mkdir()
    return Trap(tmp_path / "traps")


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "origin")
    origin.commit({"a.txt": "1\n", "src/b.py": "x = 1\n"})
    return origin
