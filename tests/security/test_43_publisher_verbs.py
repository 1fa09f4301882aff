"""Threat 43: there is no verb for force pushes, the default branch, tags or deletions."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from bot.github import GitHub
from bot.workspace import PushRejectedError, Source, Tree, Workspaces
from tests.origin import Origin

ROOMS = [Path(inspect.getfile(GitHub)).parents[1] / room for room in ("github", "publishing", "workspace")]
FORBIDDEN = re.compile(r"--force(?!\"?, \"--quiet)|--delete|--mirror\b|--tags|\"DELETE\"|\"force\"|\+\{sha|refs/tags/")


def test_the_client_has_no_such_verb() -> None:
    verbs = [name for name, _ in inspect.getmembers(GitHub, inspect.isfunction) if not name.startswith("_")]
    harmful = ("delete", "force", "tag", "merge", "close_", "lock", "update_ref", "approve", "dismiss")
    assert not [verb for verb in verbs if verb.startswith(harmful)]


def test_no_such_word_stands_in_the_source() -> None:
    found = [
        (path.name, line.strip())
        for room in ROOMS
        for path in room.rglob("*.py")
        for line in path.read_text().splitlines()
        if FORBIDDEN.search(line) and "checkout-index" not in line
    ]
    assert found == []


@pytest.mark.parametrize("method", [Tree.push, GitHub.create_branch, GitHub.commit_on_branch])
def test_nothing_can_be_told_to_overwrite(method: object) -> None:
    assert callable(method)
    assert not {"force", "delete", "overwrite"} & set(inspect.signature(method).parameters)


async def test_a_push_never_rewinds_a_branch(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    old = origin.commit({"a": "1\n"})
    new = origin.commit({"a": "2\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=old)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        with pytest.raises(PushRejectedError):
            await tree.push(old, branch="main", url=origin.url, token="")
    assert origin.head("main") == new
