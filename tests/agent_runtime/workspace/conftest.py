from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.workspace.files import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path) as opened:
        yield opened
