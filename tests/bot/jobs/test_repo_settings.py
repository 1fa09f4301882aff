"""The settings of a repository, and the schema for results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.domain.commands import recipe_path
from bot.domain.errors import WrongInputError
from bot.git.mirror import Blob, Source
from bot.github.client import GitHub
from bot.github.types import FileTooLargeError, FolderFile
from bot.jobs.access import PhaseReader
from bot.jobs.repo_settings import decode_config, default_settings, find_recipe, find_recipes, load_output_schema
from bot.permissions.levels import Conventions
from bot.permissions.repo_config import PATH, RecipeError, RepoConfig, fallback_config
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import answering, context_of

DEEP = f"---\non: {'[' * 7000}\n---\nx".encode()
"""Takes half a second to refuse."""


async def test_a_file_that_is_costly_to_read_holds_up_nothing_else() -> None:
    deep = FolderFile(sha="d" * 40, size=len(DEEP))
    repos = SimpleNamespace(list_files=answering({"deep.md": deep}), read_blobs=answering({deep.sha: DEEP}))
    beside = asyncio.create_task(asyncio.sleep(0))
    found = await find_recipes(cast("GitHub", SimpleNamespace(repos=repos)), "octo/calc")
    assert beside.done()
    assert ".github/codepilot/deep.md: is nested too deeply." in found.problems


async def test_files_that_github_gives_out_by_their_blobs_alone_are_too_large() -> None:
    async def file_at(repo: str, path: str) -> None:
        if path in {PATH, recipe_path("large")}:
            raise FileTooLargeError(repo, path, 99_000_000)

    github = cast("GitHub", SimpleNamespace(repos=SimpleNamespace(read_file=file_at)))
    with pytest.raises(RecipeError, match="has 99,000,000 bytes; the limit is 16,000"):
        await find_recipe(github, "octo/calc", "large")
    assert await default_settings(PhaseReader(github), "octo/calc") == fallback_config()


SCHEMA_PATH = ".github/triage.schema.json"
BASE = Source(url="/origin", token="", ref="refs/heads/main", sha="a" * 40)
SCHEMA = {"type": "object", "required": ["kind"]}


async def _schema(setting: Mapping[str, Any] | str | None, content: bytes | None = None) -> dict[str, Any] | None:
    """The schema where the base branch's commit, and no other, has this file."""

    async def read(repo_id: int, source: Source, path: str, *, limit: int) -> Blob | None:
        assert (repo_id, source, path) == (10, BASE, SCHEMA_PATH)
        assert limit <= 1024 * 1024
        return None if content is None else Blob(id="1", content=content)

    services = SimpleNamespace(conventions=Conventions(output_schema=setting), workspaces=SimpleNamespace(read=read))
    return await load_output_schema(context_of(InMemoryEngine(), a_job(), services=services), 10, BASE)


async def test_a_schema_is_the_inputs_own_or_the_base_branchs() -> None:
    assert await _schema(None) is None
    assert await _schema(SCHEMA) == SCHEMA
    assert await _schema(SCHEMA_PATH, b'\xef\xbb\xbf{"type": "object", "required": ["kind"]}') == SCHEMA


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"[1]",
        b"null",
        b'{"type": "obj"}',
        b'{"$ref": "https://example.com/schema"}',
    ],
    ids=["missing", "empty", "half", "no text", "deep", "a list", "null", "no type", "elsewhere"],
)
async def test_what_is_no_schema_is_an_error_that_names_the_file(content: bytes | None) -> None:
    with pytest.raises(WrongInputError, match=SCHEMA_PATH):
        await _schema(SCHEMA_PATH, content)


def test_a_configuration_that_another_version_stored_is_fetched_anew() -> None:
    config = RepoConfig(fix_ci=("pull-requests",))
    assert decode_config(config.model_dump_json(exclude_unset=True)) == config
    assert decode_config('{"labels": 5}') is None
