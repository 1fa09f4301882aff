"""Branches with every name that git allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import BUG, FIX, FIXED_CALC, staged


@pytest.mark.parametrize("name", ["fünf/ü-🚀", "a(x)$b%41&'c\"d", "`code`#1+2=3,<b>|;!{x}"])
async def test_a_pull_request_is_fixed_on_its_branch_whatever_that_is_called(
    name: str, hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.commit(stage.repo, {"calc.py": f"# 1\n{BUG}"}, message="Count", author="mona", branch=name)
        pull = hub.open_pull(stage.repo, author="mona", head=name, title="Count", body="As discussed.")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.file(name, "calc.py") == FIXED_CALC.strip()
