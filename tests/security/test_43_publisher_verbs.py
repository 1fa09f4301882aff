"""Threat 43: there is no verb for force pushes, the default branch, tags or deletions."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bot.git.errors import PushRejectedError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.repos import Commits
from bot.publishing.publish import ForbiddenTargetError
from localhub import LocalHub
from tests.origin import Origin
from tests.publishing_world import an_outlet

ROOMS = [Path(inspect.getfile(GitHub)).parents[1] / room for room in ("github", "publishing", "git")]
# A lease that names the old commit only lets git do less.
FORBIDDEN = re.compile(
    r"--force(?!-with-lease=\{target\}:\{expected\}|\"?, \"--quiet)|--delete|--mirror\b|--tags|\"DELETE\"|\"force\""
    r"|\+\{sha|refs/tags/|\"APPROVE\"|\"REQUEST_CHANGES\"|dismissals"
)
LABEL_OFF = 'await self.connection.request(f"remove a label from {repo}#{number}", "DELETE", path)'


def test_the_client_has_no_such_verb() -> None:
    parts = vars(GitHub.for_token("a-token", "https://api.github.com", redact=str)).values()
    kinds = [GitHub, *(type(part) for part in parts if type(part).__module__.startswith("bot.github."))]
    assert Commits in kinds
    verbs = [name for kind in kinds for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"]
    harmful = ("delete", "force", "tag", "merge", "close_", "lock", "update_ref", "approve", "dismiss", "submit")
    assert not [verb for verb in verbs if verb.startswith(harmful)]


def test_no_such_word_stands_in_the_source() -> None:
    found = [
        (path.name, line.strip())
        for room in ROOMS
        for path in room.rglob("*.py")
        for line in path.read_text().splitlines()
        if FORBIDDEN.search(line) and not re.search("checkout-index|show-ref", line)
    ]
    # The one thing that is ever taken away: a permission label that is void.
    assert found == [("issues.py", LABEL_OFF)]


@pytest.mark.parametrize("method", [Tree.push, Commits.create_branch, Commits.create])
def test_no_option_overwrites(method: object) -> None:
    assert callable(method)
    assert not {"force", "delete", "overwrite"} & set(inspect.signature(method).parameters)


@pytest.mark.parametrize("name", ["codepilot/issue-1-j1", "Codepilot/Issue-1-J1"])
async def test_a_default_branch_with_a_name_like_ours_is_not_written_to(
    name: str, hub: LocalHub, tmp_path: Path
) -> None:
    async with an_outlet(hub, tmp_path / "state") as outlet:
        (outlet.tree.path / "a.txt").write_text("2\n")
        publication = await outlet.publication()
        before = hub.branches(outlet.repo)
        repo = outlet.target.repo.model_copy(update={"default_branch": name})
        with pytest.raises(ForbiddenTargetError, match="the default branch"):
            await replace(outlet, target=replace(outlet.target, repo=repo)).send(publication)
        assert hub.branches(outlet.repo) == before


async def test_a_push_never_rewinds_a_branch(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "origin")
    old = origin.commit({"a": "1\n"})
    new = origin.commit({"a": "2\n"})
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=old)
    async with Workspaces(tmp_path / "state").open("job", 1, source) as tree:
        with pytest.raises(PushRejectedError):
            await tree.push(old, branch="main", expected=new, url=origin.url, token="")
        with pytest.raises(PushRejectedError):
            await tree.push(old, branch="main", expected="", url=origin.url, token="")
    assert origin.head("main") == new
