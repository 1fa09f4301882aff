"""Threat 44: a person pushes meanwhile: theirs stays, the change follows twice, then gets a branch of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.git.change import Change
from bot.git.mirror import Source
from bot.publishing.outcome import Published
from localhub import LocalHub
from tests.origin import git
from tests.publishing_world import SECRET, Outlet, an_outlet, branch_of, cause_of, pull_of, reason_of, sha_of

MODES = pytest.mark.parametrize("mode", [0o644, 0o755], ids=["api", "push"])


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    async with an_outlet(hub, tmp_path / "state") as opened:
        yield opened


def change_a_file(outlet: Outlet, mode: int = 0o644) -> None:
    (outlet.tree.path / "a.txt").write_text("the bot's\n")
    (outlet.tree.path / "a.txt").chmod(mode)


def they_push(outlet: Outlet, files: dict[str, str | bytes | None]) -> str:
    return outlet.hub.commit(outlet.repo, files, message="Mine", author="mona", branch="topic")


def shown(outlet: Outlet, name: str) -> str:
    return git(outlet.repo.path, "show", name)


def assert_on_its_own_branch(outlet: Outlet, delivered: Published, *, theirs: str) -> None:
    branches = outlet.hub.branches(outlet.repo)
    assert branches["topic"] == theirs
    assert branch_of(delivered) == "codepilot/pull-1-j1"
    assert branches["codepilot/pull-1-j1"] == sha_of(delivered)
    assert shown(outlet, "codepilot/pull-1-j1:a.txt") == "the bot's"
    [opened] = outlet.pulls()
    assert opened.pull is not None
    assert (opened.pull.head_ref, opened.pull.base_ref) == ("codepilot/pull-1-j1", "topic")
    assert "For #1" in (opened.body or "")
    assert pull_of(delivered) == opened.number
    assert "`topic`" in delivered.note


@MODES
async def test_the_change_is_made_again_on_top_of_theirs(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"b.txt": "theirs\n"})
    delivered = await outlet.send(publication, replay=True)
    assert outlet.hub.branches(outlet.repo)["topic"] == sha_of(delivered)
    assert git(outlet.repo.path, "rev-parse", "topic^") == theirs
    assert (shown(outlet, "topic:a.txt"), shown(outlet, "topic:b.txt")) == ("the bot's", "theirs")
    assert git(outlet.repo.path, "ls-tree", "topic", "a.txt").startswith(f"100{mode:o}")
    assert "`topic`" in delivered.note
    assert outlet.pulls() == []


@MODES
async def test_a_conflicting_change_gets_a_branch_and_a_pull_request(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"a.txt": "theirs\n"})
    delivered = await outlet.send(publication, replay=True)
    assert_on_its_own_branch(outlet, delivered, theirs=theirs)


@MODES
async def test_after_two_replays_it_stops_running_after_them(
    outlet: Outlet, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    they_push(outlet, {"b.txt": "theirs\n"})
    pushes, replay = list[str](), outlet.tree.replay

    async def replay_and_push(change: Change, onto: Source) -> Change:
        new_change = await replay(change, onto)
        pushes.append(they_push(outlet, {"b.txt": f"theirs {len(pushes)}\n"}))
        return new_change

    monkeypatch.setattr(outlet.tree, "replay", replay_and_push)
    delivered = await outlet.send(publication, replay=True)
    assert len(pushes) == 2
    assert_on_its_own_branch(outlet, delivered, theirs=pushes[-1])


@MODES
async def test_a_grant_for_one_commit_follows_nobody(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    they_push(outlet, {"b.txt": "theirs\n"})
    before = outlet.hub.branches(outlet.repo)
    delivered = await outlet.send(publication)
    assert cause_of(delivered) == "branch-moved"
    assert not sha_of(delivered)
    assert outlet.hub.branches(outlet.repo) == before
    assert outlet.pulls() == []


async def test_an_identical_push_leaves_nothing_to_publish(outlet: Outlet) -> None:
    change_a_file(outlet)
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"a.txt": "the bot's\n"})
    delivered = await outlet.send(publication, replay=True)
    assert cause_of(delivered) == "published-already"
    assert not sha_of(delivered)
    assert outlet.hub.branches(outlet.repo)["topic"] == theirs


@pytest.mark.parametrize("they", [{"b.txt": "theirs\n"}, {"a.txt": "theirs\n"}], ids=["on top", "own branch"])
async def test_a_worker_killed_before_it_noted_it_sends_nothing_twice(
    outlet: Outlet, they: dict[str, str | bytes | None]
) -> None:
    change_a_file(outlet)
    publication = await outlet.publication(branch="topic")
    they_push(outlet, they)
    first = await outlet.send(publication, replay=True)
    noted = outlet.record.value
    for kept in (replace(noted, commit=None, pull=None), replace(noted, pull=None), noted):
        outlet.record.value = kept
        assert await outlet.send(publication, replay=True) == first
    assert git(outlet.repo.path, "rev-list", "--count", f"{outlet.base}..topic") == (
        "2" if (first.pull and first.pull.html_url) is None else "1"
    )


async def test_a_secret_in_their_lines_is_not_published_by_us(outlet: Outlet) -> None:
    lines = (outlet.tree.path / "long.txt").read_text()
    (outlet.tree.path / "long.txt").write_text(lines.replace("line 1\n", "line one\n"))
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"long.txt": lines.replace("line 40\n", f"{SECRET}\n")})
    delivered = await outlet.send(publication, replay=True)
    assert cause_of(delivered) == "secret"
    assert "`long.txt`" in reason_of(delivered)
    assert outlet.hub.branches(outlet.repo)["topic"] == theirs
