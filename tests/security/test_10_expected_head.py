"""Threat 10: a branch that moved between work and publication is not written to; the push names the old commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bot.git.errors import PushRejectedError
from localhub import LocalHub
from tests.origin import git
from tests.publishing_world import Outlet, an_outlet, cause_of, sha_of


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    async with an_outlet(hub, tmp_path / "state") as opened:
        yield opened


def _forward(outlet: Outlet) -> None:
    outlet.hub.commit(outlet.repo, {"b.txt": "theirs\n"}, message="Mine", author="mona", branch="topic")


def _wound_back(outlet: Outlet) -> None:
    empty = git(outlet.repo.path, "mktree", "--missing")
    git(outlet.repo.path, "update-ref", "refs/heads/topic", git(outlet.repo.path, "commit-tree", "-m", "Other", empty))


def _gone(outlet: Outlet) -> None:
    git(outlet.repo.path, "update-ref", "-d", "refs/heads/topic")


# An ordinary file goes by GitHub's commit API, an executable one by a push.
@pytest.mark.parametrize("mode", [0o644, 0o755], ids=["api", "push"])
@pytest.mark.parametrize("move", [_forward, _wound_back, _gone], ids=lambda move: move.__name__.strip("_"))
async def test_a_head_that_moved_is_left_as_it_is(outlet: Outlet, mode: int, move: Callable[[Outlet], None]) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    (outlet.tree.path / "a.txt").chmod(mode)
    publication = await outlet.publication(branch="topic")
    move(outlet)
    theirs = outlet.hub.branches(outlet.repo)
    delivered = await outlet.send(publication)
    assert not sha_of(delivered)
    assert cause_of(delivered) == "branch-moved"
    assert outlet.hub.branches(outlet.repo) == theirs


@pytest.mark.parametrize("move", [_forward, _wound_back, _gone], ids=lambda move: move.__name__.strip("_"))
async def test_a_push_that_comes_last_names_the_old_commit(outlet: Outlet, move: Callable[[Outlet], None]) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    sha = await outlet.tree.commit(await outlet.tree.change(), message="Fix it")
    token = await outlet.github.tokens.for_push("mona/calc")
    move(outlet)
    theirs = outlet.hub.branches(outlet.repo)
    with pytest.raises(PushRejectedError, match="`topic`"):
        await outlet.tree.push(sha, branch="topic", expected=outlet.base, url=outlet.target.repo.clone_url, token=token)
    assert outlet.hub.branches(outlet.repo) == theirs
