"""Threat 44: a person pushes meanwhile: theirs stays, the change follows twice, then gets a branch of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot.git.change import Change, LargeFile
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.publishing.publish import SendResult, publish
from localhub import LocalHub
from tests.origin import git
from tests.publishing_world import REDACTOR, SECRET, Outlet, an_outlet, cause_of, reason_of

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


def assert_on_its_own_branch(outlet: Outlet, delivered: SendResult, *, theirs: str) -> None:
    branches = outlet.hub.branches(outlet.repo)
    assert branches["topic"] == theirs
    assert delivered.branch == "codepilot/pull-1-j1"
    assert branches["codepilot/pull-1-j1"] == delivered.commit_sha
    assert shown(outlet, "codepilot/pull-1-j1:a.txt") == "the bot's"
    [opened] = outlet.pulls()
    assert opened.pull is not None
    assert (opened.pull.head_ref, opened.pull.base_ref) == ("codepilot/pull-1-j1", "topic")
    assert "For #1" in (opened.body or "")
    assert delivered.pull_number == opened.number
    assert "`topic`" in delivered.note


@MODES
async def test_the_change_is_made_again_on_top_of_theirs(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"b.txt": "theirs\n"})
    delivered = await outlet.send(publication, replay=True)
    assert outlet.hub.branches(outlet.repo)["topic"] == delivered.commit_sha
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


@dataclass(slots=True)
class Outrun:
    """A trusted git directory whose branch moves after each replay."""

    tree: Tree
    outlet: Outlet
    theirs: str = ""
    times: int = 0

    async def replay(self, change: Change, onto: Source) -> Change:
        made = await self.tree.replay(change, onto)
        self.times += 1
        self.theirs = they_push(self.outlet, {"b.txt": f"theirs {self.times}\n"})
        return made

    async def commit(self, change: Change, *, message: str) -> str:
        return await self.tree.commit(change, message=message)

    async def find_large_files(self, files: Sequence[LargeFile], holds: Callable[[str], bool]) -> list[str]:
        return await self.tree.find_large_files(files, holds)

    async def upload(self, files: Sequence[LargeFile], *, branch: str, url: str, token: str) -> None:
        await self.tree.upload(files, branch=branch, url=url, token=token)

    async def push(self, sha: str, *, branch: str, expected: str, url: str, token: str) -> None:
        await self.tree.push(sha, branch=branch, expected=expected, url=url, token=token)


@MODES
async def test_after_two_replays_it_stops_running_after_them(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    they_push(outlet, {"b.txt": "theirs\n"})
    pusher = Outrun(outlet.tree, outlet)
    delivered = await publish(
        outlet.github,
        outlet.record,
        publication,
        job=outlet.job("pull"),
        target=outlet.target,
        pusher=pusher,
        redactor=REDACTOR,
        replay=True,
    )
    assert pusher.times == 2
    assert_on_its_own_branch(outlet, delivered, theirs=pusher.theirs)


@MODES
async def test_a_grant_for_one_commit_follows_nobody(outlet: Outlet, mode: int) -> None:
    change_a_file(outlet, mode)
    publication = await outlet.publication(branch="topic")
    they_push(outlet, {"b.txt": "theirs\n"})
    before = outlet.hub.branches(outlet.repo)
    delivered = await outlet.send(publication)
    assert cause_of(delivered) == "branch-moved"
    assert delivered.commit_sha is None
    assert outlet.hub.branches(outlet.repo) == before
    assert outlet.pulls() == []


async def test_an_identical_push_leaves_nothing_to_publish(outlet: Outlet) -> None:
    change_a_file(outlet)
    publication = await outlet.publication(branch="topic")
    theirs = they_push(outlet, {"a.txt": "the bot's\n"})
    delivered = await outlet.send(publication, replay=True)
    assert cause_of(delivered) == "published-already"
    assert delivered.commit_sha is None
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
        "2" if first.pull_url is None else "1"
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
