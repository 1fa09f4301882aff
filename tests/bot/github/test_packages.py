"""Facts about gidgethub and PyGithub that decision 59 states."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from gidgethub import HTTPException, QueryError, apps
from gidgethub.abc import GitHubAPI
from gidgethub.sansio import decipher_response
from github import Auth, BadAttributeException, Github, GithubException, GithubIntegration
from github.IssueComment import IssueComment
from github.PaginatedList import PaginatedList
from typing_extensions import override

from localhub import Exchange
from tests.github_world import World

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (200, b'{"id": 1, "na', json.JSONDecodeError),
        (502, b"<html>", json.JSONDecodeError),
        (422, b"{}", KeyError),
        (422, b'{"message": "Invalid", "errors": [5]}', AttributeError),
        (520, b"{}", ValueError),
    ],
)
def test_an_odd_answer_raises_an_error_outside_gidgethubs_hooks(
    status: int, content: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        decipher_response(status, JSON, content)


def test_gidgethub_accepts_a_page_of_html_as_the_answer() -> None:
    assert decipher_response(200, {"content-type": "text/html"}, b"<html>")[0] == "<html>"


def test_an_error_of_gidgethub_lacks_the_details_of_the_refusal() -> None:
    with pytest.raises(HTTPException) as error:
        decipher_response(403, JSON, b'{"message": "Forbidden", "errors": [{"message": "Branch is protected"}]}')
    assert "protected" not in repr(vars(error.value)) + str(error.value)


class CannedGitHub(GitHubAPI):
    """gidgethub's client with canned answers."""

    def __init__(self, *answers: object) -> None:
        super().__init__("tests")
        self.urls: list[str] = []
        self._answers = iter(answers)

    @override
    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.urls.append(url)
        link = {"link": '<https://elsewhere.example/next>; rel="next"'} if len(self.urls) == 1 else {}
        return 200, JSON | link, json.dumps(next(self._answers)).encode()

    @override
    async def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


async def listed(entries: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in entries]


async def test_getiter_yields_the_keys_of_an_answer_without_a_list_and_follows_a_link_to_any_host() -> None:
    github = CannedGitHub({"message": "maintenance"}, [])
    assert await listed(github.getiter("/repos/o/r/comments")) == ["message"]
    assert github.urls[1] == "https://elsewhere.example/next"


async def test_graphql_of_gidgethub_drops_the_parts_that_github_did_and_calls_no_hook() -> None:
    calls: list[str] = []
    github = CannedGitHub({"data": {"createRef": {}}, "errors": [{"message": "No pull request"}]})
    github.manage_rate_limit = lambda **_: calls.append("hook")  # type: ignore[method-assign, assignment]
    with pytest.raises(QueryError):
        await github.graphql("mutation")
    assert calls == []


def test_a_token_of_gidgethub_is_signed_by_the_local_clock_for_all_repositories() -> None:
    assert set(inspect.signature(apps.get_jwt).parameters) == {"app_id", "private_key", "expiration"}
    parameters = inspect.signature(apps.get_installation_access_token).parameters
    assert set(parameters) == {"gh", "installation_id", "app_id", "private_key"}


@pytest.fixture
def pygithub(world: World) -> Github:
    return Github(auth=Auth.Token(world.token), base_url=world.hub.api_url, lazy=True, retry=None, per_page=100)


async def test_reading_a_field_of_a_typed_object_can_be_a_request(world: World, pygithub: Github) -> None:
    comment = world.hub.comment(world.repo, world.issue.number, author="mona", body="Words")
    paths: list[str] = []

    def served(exchange: Exchange) -> None:
        paths.append(exchange.path.removeprefix("/api/v3"))

    world.hub.observe(on_exchange=served)
    path = f"/repos/{world.name}/issues/comments/{comment.id}"
    partial = IssueComment(pygithub.requester, {}, {"id": comment.id, "url": path})
    assert await asyncio.to_thread(lambda: partial.body) == "Words"
    assert paths == [path]


def test_a_field_of_another_type_is_an_error_of_its_own_when_it_is_read(pygithub: Github) -> None:
    comment = IssueComment(pygithub.requester, {}, {"id": "one", "url": "/"})
    with pytest.raises(BadAttributeException):
        _ = comment.id
    assert not issubclass(BadAttributeException, GithubException)


async def test_a_list_that_failed_on_its_second_page_ends_there_without_an_error(
    world: World, pygithub: Github
) -> None:
    number = world.issue.number
    for each in range(101):
        world.hub.comment(world.repo, number, author="mona", body=f"{each}")
    path = f"/repos/{world.name}/issues/{number}/comments"
    comments = iter(PaginatedList(IssueComment, pygithub.requester, path, {"per_page": 100}))

    def count(most: int) -> int:
        return sum(1 for _ in zip(range(most), comments, strict=False))

    assert await asyncio.to_thread(count, 100) == 100
    world.hub.faults.add("GET", "*/comments", "502")
    with pytest.raises(GithubException):
        await asyncio.to_thread(next, comments)
    assert await asyncio.to_thread(count, 100) == 0  # the 101st is there


def test_a_token_of_pygithub_cannot_be_narrowed_to_a_repository() -> None:
    parameters = inspect.signature(GithubIntegration.get_access_token).parameters
    assert set(parameters) == {"self", "installation_id", "permissions"}
