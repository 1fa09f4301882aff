"""What PyGithub does that the client is built around: docs/decisions/0059-what-pygithub-and-gitpython-are-used-for.md.

When one of these tests fails, PyGithub has changed, and code of ours may be replaced by it.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest
from github import BadAttributeException, Github, GithubException, GithubIntegration
from github.IssueComment import IssueComment
from github.PaginatedList import PaginatedList

from localhub import Exchange
from tests.github_world import World


@pytest.fixture
def asked(world: World) -> list[str]:
    calls: list[str] = []
    server = world.hub._server
    judge = server.served

    def served(exchange: Exchange) -> None:
        calls.append(f"{exchange.method} {exchange.path.removeprefix('/api/v3')}")
        if judge is not None:
            judge(exchange)

    server.served = served
    return calls


def pygithub(world: World) -> Github:
    return world.github._connection.github


async def test_reading_a_field_of_a_typed_object_can_be_a_request(world: World, asked: list[str]) -> None:
    made = world.hub.comment(world.repo, world.issue.number, author="mona", body="Words")
    path = f"/repos/{world.name}/issues/comments/{made.id}"
    partial = IssueComment(pygithub(world).requester, {}, {"id": made.id, "url": path})
    asked.clear()
    assert await asyncio.to_thread(lambda: partial.body) == "Words"
    assert f"GET {path}" in asked


def test_a_field_of_another_type_is_an_error_of_its_own_when_it_is_read(world: World) -> None:
    odd = IssueComment(pygithub(world).requester, {}, {"id": "one", "url": "/"})
    with pytest.raises(BadAttributeException):
        _ = odd.id
    assert not issubclass(BadAttributeException, GithubException)


async def test_a_list_that_failed_on_its_second_page_ends_there_without_a_word(world: World) -> None:
    number = world.issue.number
    for each in range(101):
        world.hub.comment(world.repo, number, author="mona", body=f"{each}")
    path = f"/repos/{world.name}/issues/{number}/comments"
    comments = iter(PaginatedList(IssueComment, pygithub(world).requester, path, {"per_page": 100}))

    def taken(most: int) -> int:
        return sum(1 for _ in zip(range(most), comments, strict=False))

    assert await asyncio.to_thread(taken, 100) == 100
    world.hub.faults.add("GET", "*/comments", "502")
    with pytest.raises(GithubException):
        await asyncio.to_thread(next, comments)
    assert await asyncio.to_thread(taken, 100) == 0  # the 101st is there


def test_a_token_cannot_be_narrowed_to_a_repository() -> None:
    assert set(inspect.signature(GithubIntegration.get_access_token).parameters) == {
        "self",
        "installation_id",
        "permissions",
    }
