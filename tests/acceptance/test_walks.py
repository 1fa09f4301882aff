"""The ways from nothing to a first pull request that the README offers, gone with real commands in a real browser.

`test_tour.py` starts the third one, the demo.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import walks
from bench.walks import Walk

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


async def test_a_workflow_that_was_copied_ends_in_a_pull_request(tmp_path: Path) -> None:
    walk = Walk(directory=tmp_path)
    await walks.workflow(walk)
    assert walk.pull.endswith("/mona/calc/pull/2")
    assert [each.kind for each in walk.steps].count("command") == 3


async def test_an_app_that_was_registered_by_its_manifest_ends_in_a_pull_request(tmp_path: Path) -> None:
    walk = Walk(directory=tmp_path)
    await walks.app(walk)
    assert walk.pull.endswith("/mona/calc/pull/2")
    assert [each.kind for each in walk.steps].count("command") == 3  # the last one checks it
    assert "all accepted" in walk.printed[-1]
