"""The repository that the tests of git work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.origin import Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """A repository on this machine, without a commit yet."""
    return Origin(tmp_path / "origin")
