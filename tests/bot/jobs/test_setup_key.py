"""When two jobs may share what a setup made."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import Network
from bot.jobs.setup import setup_key
from bot.permissions.repo_config import RepoConfig

CONFIG = RepoConfig(setup=("npm ci", "sh ./scripts/more.sh --fast"), cache=("node_modules",))
BLOBS = {"web/package-lock.json": "1", "scripts/more.sh": "2", "src/app.js": "3"}


def key(config: RepoConfig = CONFIG, blobs: dict[str, str] | None = None, **facts_changed: Any) -> str:  # noqa: ANN401 - whatever it takes
    facts: dict[str, Any] = {"network": Network.of("a.example"), "toolchain": "x86_64 Python 3.11", **facts_changed}
    return setup_key(config, BLOBS if blobs is None else blobs, **facts)


def test_the_same_facts_give_the_same_key_in_whatever_order() -> None:
    assert key() == key(blobs=dict(reversed(BLOBS.items())))


def test_other_files_do_not_matter() -> None:
    assert key() == key(blobs={**BLOBS, "src/app.js": "4", "docs/new.md": "5"})


@pytest.mark.parametrize(
    "blobs",
    [
        {**BLOBS, "web/package-lock.json": "9"},
        {**BLOBS, "scripts/more.sh": "9"},
        {**BLOBS, "api/requirements-dev.txt": "9"},
        {**BLOBS, "requirements/base.txt": "9"},
        {**BLOBS, "pyproject.toml": "9"},
        {"scripts/more.sh": "2", "package-lock.json": "1"},
    ],
)
def test_a_lock_file_or_a_script_that_setup_names_matters(blobs: dict[str, str]) -> None:
    assert key(blobs=blobs) != key()


@pytest.mark.parametrize(
    "changes",
    [
        {"config": RepoConfig(setup=("npm install",), cache=("node_modules",))},
        {"config": RepoConfig(setup=CONFIG.setup, cache=("node_modules", "dist"))},
        {"network": Network()},
        {"toolchain": "x86_64 Python 3.13"},
        {"toolchain": "aarch64 Python 3.11"},
    ],
)
def test_commands_and_their_surroundings_matter(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()
