"""The bounds on the number and the size of modules."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from bot.domain.job import JobState
from localhub import LocalHub
from tests.script_files import load_script
from tests.stage import FIX, staged


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return load_script("figures")


def test_the_code_stays_within_its_bounds(figures: ModuleType) -> None:
    over = [
        f"{each.name}: {each.count:,}, at most {each.bound:,}" for each in figures.count_figures() if not each.is_within
    ]
    assert not over, f"{'; '.join(over)}. Delete unused code, and what the standard library or a dependency does."


def test_a_small_module_has_several_importers_or_a_reason(figures: ModuleType) -> None:
    assert set(figures.small_modules()) == set(figures.SMALL_MODULES), (
        f"merge a module below {figures.SMALL} lines of code into its one importer, or name it with the reason in "
        "SMALL_MODULES of scripts/figures; take out names that no longer apply"
    )


async def test_a_fix_passes_few_modules(figures: ModuleType, hub: LocalHub, tmp_path: Path) -> None:
    with figures.passed_modules("agent_runtime", "bot") as passed:
        async with staged(hub, tmp_path, [FIX]) as stage:
            end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    listed = "\n".join(sorted(passed))
    assert len(passed) <= figures.MAX_PASSED_MODULES, f"a fix passes {len(passed)} modules:\n{listed}"
