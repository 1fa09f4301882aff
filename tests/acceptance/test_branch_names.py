"""A branch with an unusual name."""

from __future__ import annotations

from pathlib import Path

from bot.domain.job import JobState
from localhub import LocalHub
from tests.stage import BUG, FIX, FIXED_CALC, staged

NAME = "fünf/ü-🚀(x)$b%41&'c\"d`code`#1+2=3,<b>|;!{x}"


async def test_a_pull_request_is_fixed_on_a_branch_with_all_signs_that_git_allows(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        hub.commit(stage.repo, {"calc.py": f"# 1\n{BUG}"}, message="Count", author="mona", branch=NAME)
        pull = hub.open_pull(stage.repo, author="mona", head=NAME, title="Count", body="As discussed.")
        end = await stage.ask(pull.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert stage.file(NAME, "calc.py") == FIXED_CALC.strip()
