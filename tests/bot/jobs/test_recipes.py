"""Reading the recipes of a repository."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from bot.github import GitHub
from bot.jobs.recipes import find_recipes
from tests.job_contexts import answering

DEEP = f"---\non: {'[' * 7000}\n---\nx".encode()
"""Takes half a second to refuse."""


async def test_a_file_that_is_costly_to_read_holds_up_nothing_else() -> None:
    repos = SimpleNamespace(files_in=answering({"deep.md": len(DEEP)}), file_at=answering(DEEP))
    beside = asyncio.create_task(asyncio.sleep(0))
    found = await find_recipes(cast("GitHub", SimpleNamespace(repos=repos)), "octo/calc")
    assert beside.done()
    assert ".github/codepilot/deep.md: is nested too deeply." in found.problems
