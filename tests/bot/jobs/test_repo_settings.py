"""Reading the recipes and the settings of a repository."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from bot.domain.commands import path_of
from bot.github.client import GitHub
from bot.github.types import FileTooLargeError, FolderFile
from bot.jobs.access import PhaseReader
from bot.jobs.repo_settings import find_recipe, find_recipes, on_default_branch
from bot.permissions.repo_config import PATH, RecipeError, defaults_when_broken
from tests.job_contexts import answering

DEEP = f"---\non: {'[' * 7000}\n---\nx".encode()
"""Takes half a second to refuse."""


async def test_a_file_that_is_costly_to_read_holds_up_nothing_else() -> None:
    deep = FolderFile(sha="d" * 40, size=len(DEEP))
    repos = SimpleNamespace(files_in=answering({"deep.md": deep}), contents_of=answering({deep.sha: DEEP}))
    beside = asyncio.create_task(asyncio.sleep(0))
    found = await find_recipes(cast("GitHub", SimpleNamespace(repos=repos)), "octo/calc")
    assert beside.done()
    assert ".github/codepilot/deep.md: is nested too deeply." in found.problems


async def test_files_that_github_gives_out_by_their_blobs_alone_are_too_large() -> None:
    async def file_at(repo: str, path: str) -> None:
        if path in {PATH, path_of("large")}:
            raise FileTooLargeError(repo, path, 99_000_000)

    github = cast("GitHub", SimpleNamespace(repos=SimpleNamespace(file_at=file_at)))
    with pytest.raises(RecipeError, match="has 99,000,000 bytes; the limit is 16,000"):
        await find_recipe(github, "octo/calc", "large")
    assert await on_default_branch(PhaseReader(github), "octo/calc") == defaults_when_broken()
