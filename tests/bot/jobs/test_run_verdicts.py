"""The verdict on a run whose model says that its change works: the heading, the pull request and the check run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.publishing.checks import Verdict
from tests.fakes.agent import Action, execute, reply, write
from tests.seam import COMPLETION, FIXED_CALC, open_seam
from tests.stage import BUG

PROVE = "python3 -m unittest -q"
FAILS = execute(PROVE, 1, output="FAILED (failures=1)", check=False)
PASSES = execute(PROVE, output="OK", check=False)
FIXES = write("calc.py", FIXED_CALC)
EDITS = execute("echo >> calc.py", appends={"calc.py": "\n"}, check=False)


@pytest.mark.parametrize(
    ("actions", "head", "draft"),
    [
        ((FAILS, FIXES, PASSES), "✅ Done, checks passed", False),
        ((write("calc.py", BUG + "# fixed\n"), FAILS), "❌ Checks fail", True),
        ((FAILS, FIXES), "⚠️ Not verified", True),
        ((FAILS, EDITS), "⚠️ Not verified", True),
        ((FIXES, PASSES, EDITS), "⚠️ Not verified", True),
        ((FAILS,), "⚪ Nothing changed", None),
    ],
    ids=["verified", "red", "unverified", "edited by a command", "edited by a command afterwards", "unchanged"],
)
async def test_a_claim_of_the_model_is_shown_with_the_ends_of_its_checks(
    tmp_path: Path, actions: tuple[Action, ...], head: str, *, draft: bool | None
) -> None:
    async with open_seam(tmp_path, [reply(*actions, completion=COMPLETION)]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.status.startswith(f"### {head} · "), end.status
        pulls = stage.pulls()
        assert [thread.pull.draft for thread in pulls if thread.pull] == ([] if draft is None else [draft])
        assert (await stage.record(end.job_id)).verdict in set(Verdict)
        assert stage.check_of(end.job_id).title == f"{head.partition(' ')[2]}: /codepilot fix"
        for thread in pulls:
            assert (thread.body or "").startswith(f"**{head}.**")
            assert f"| `{PROVE}` |" in (thread.body or "")
