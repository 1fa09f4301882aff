"""One request tells the same of a thread as the many that it replaces."""

from __future__ import annotations

import pytest

from bot.domain.job import Actor
from bot.github.types import GitHubError, ThreadFacts, parse
from tests.github_world import World


async def test_a_snapshot_of_an_issue_says_what_rest_says(world: World) -> None:
    seen = await world.github.threads.snapshot(world.name, world.issue.number)
    assert seen.repo == await world.github.repos.get(world.name)
    assert seen.default_head == world.sha
    assert seen.thread == await world.github.threads.get(world.name, world.issue.number)
    assert seen.pull is None


async def test_a_snapshot_of_a_pull_request_says_what_rest_says(world: World) -> None:
    number = world.pull().number
    seen = await world.github.threads.snapshot(world.name, number)
    assert seen.thread == await world.github.threads.get(world.name, number)
    assert seen.pull == await world.github.pulls.get(world.name, number)
    assert seen.base_head == await world.github.repos.branch_head(world.name, "main")


async def test_a_snapshot_of_a_fork_and_of_a_closed_archived_place_says_what_rest_says(world: World) -> None:
    hub, repo = world.hub, world.repo
    hub.add_user("hubot")
    fork = hub.add_repo("hubot/calc", owner="hubot", fork_of=repo)
    hub.commit(fork, {"a.txt": "2\n"}, message="Two", author="hubot", branch="topic")
    number = hub.open_pull(repo, author="hubot", head="hubot:topic", title="Two").number
    hub.close(repo, number, by="mona")
    hub.archive(repo)
    seen = await world.github.threads.snapshot(world.name, number)
    assert seen.repo == await world.github.repos.get(world.name)
    assert seen.thread == await world.github.threads.get(world.name, number)
    assert seen.pull == await world.github.pulls.get(world.name, number)
    assert (seen.pull.from_fork, seen.repo.archived) == (True, True)


async def test_a_snapshot_of_a_branch_says_what_rest_says(world: World) -> None:
    seen = await world.github.threads.branch_snapshot(world.name, "main")
    assert seen.repo == await world.github.repos.get(world.name)
    assert seen.branch_head == await world.github.repos.branch_head(world.name, "main")
    assert (seen.thread, seen.pull) == (None, None)
    assert (await world.github.threads.branch_snapshot(world.name, "gone")).branch_head is None


async def test_a_thread_that_is_not_there_is_none_and_a_repository_an_error(world: World) -> None:
    assert (await world.github.threads.snapshot(world.name, 99)).thread is None
    with pytest.raises(GitHubError) as caught:
        await world.github.threads.snapshot("mona/nowhere", 1)
    assert caught.value.status == 404


async def test_a_renamed_repository_is_known_by_its_new_name(world: World) -> None:
    world.hub.rename(world.repo, "sums")
    assert (await world.github.threads.snapshot(world.name, world.issue.number)).repo.full_name == "mona/sums"


async def test_an_empty_repository_has_a_default_branch_and_no_head(world: World) -> None:
    empty = world.hub.add_repo("mona/empty", owner="mona", files={})
    world.hub.install(world.app, empty)
    issue = world.hub.open_issue(empty, author="mona", title="Begin")
    seen = await world.github.threads.snapshot("mona/empty", issue.number)
    assert (seen.repo.default_branch, seen.default_head) == ("main", None)


def test_an_author_without_a_numeric_id_is_accepted() -> None:
    thread = {"number": 1, "state": "OPEN", "title": "t", "html_url": "https://h", "user": {"login": "a", "id": None}}
    assert parse(ThreadFacts, "read o/r#1", thread).author == Actor(id=0, login="a")
