"""The fixture `hub` for tests with or without an event loop: `pytest_plugins = ["localhub.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localhub import LocalHub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    """A running hub, empty; it listens on a free port and stops when the test ends."""
    with LocalHub(tmp_path / "hub") as running:
        yield running
