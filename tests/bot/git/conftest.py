"""Repository for the git tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.origin import Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """A local repository without commits."""
    return Origin(tmp_path / "origin")
