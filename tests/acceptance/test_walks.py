"""The ways from nothing to a first pull request that the README offers, gone with real commands in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import walks
from bench.walks import Walk

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


async def test_the_demo_ends_in_a_pull_request_that_makes_the_tests_pass(tmp_path: Path) -> None:
    walk = Walk(directory=tmp_path)
    try:
        await walks.demo(walk)
    except RuntimeError as error:
        if "pip could not download" in str(error):
            pytest.skip("the package index cannot be reached")
        raise
    [said] = walk.printed
    assert "The model is scripted:" in said
    assert "2 failed, 11 passed" in said
    assert "13 passed" in said
    assert walk.pull.endswith("/mona/boltons/pull/2")
    assert "/mona/boltons/issues/1" in said


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
