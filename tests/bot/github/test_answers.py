"""Answers that GitHub does not document: each is an error that says so, never a fault of the bot's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from bot.github.client import GitHub
from bot.github.types import GitHubError, remedy_for
from tests.changes import a_change, a_file
from tests.github_world import World

Ask = Callable[[GitHub], object]


@dataclass(slots=True, kw_only=True)
class Odd:
    """A server that gives one answer to everything.

    Attributes:
        url: its REST address.
        asked: `METHOD path` of every request.
    """

    github: GitHub
    url: str
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def odd(text: str, *, status: int = 200) -> AsyncIterator[Odd]:
    """A client of a server that answers `text` to everything."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.Response(status=status, text=text, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v3"
        async with GitHub.for_token("a-token", url, redact=str, seconds_between_writes=0) as github:
            yield Odd(github=github, asked=asked, url=url)
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.github.connection._FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty answer"),
        ("<html><title>Maintenance</title>", "not JSON, but `<html><title>Maintenance</title>`"),
        ('{"id": 1, "na', 'not JSON, but `{"id": 1, "na`'),
        ("{}", "an answer without `id`"),
        ("[" * 100_000, "not JSON, but `[["),
        ("null", "no object and no list, but `null`"),
        ('"OK"', 'no object and no list, but `"OK"`'),
    ],
)
async def test_an_answer_that_nobody_can_read_is_an_error_with_a_text_and_is_asked_for_again(
    text: str, said: str
) -> None:
    async with odd(text) as server:
        with pytest.raises(GitHubError) as error:
            await server.github.repos.get("o/r")
        assert f"GitHub answered 200: {said}" in str(error.value)
        assert "CODEPILOT_API_URL" in error.value.remedy
        assert error.value.passing
        assert server.asked == ["GET /api/v3/repos/o/r"] * (1 if text == "{}" else 4)


async def test_an_answer_that_is_no_list_where_one_was_asked_for_is_an_error() -> None:
    async with odd('{"message": "maintenance"}') as server:
        with pytest.raises(GitHubError, match="GitHub answered 200: no list", check=lambda error: error.passing):
            await server.github.comments.of_thread("o/r", 1)


@pytest.mark.parametrize("text", ["<html>", "{}", '{"token": "t"}'])
async def test_a_token_that_nobody_can_read_is_an_error_of_githubs(text: str, world: World) -> None:
    async with odd(text) as server:
        client = GitHub.for_installation(world.app.id, world.app.private_key_pem, 1, server.url, redact=str)
        async with client as github:
            for ask in (github.repos.get("o/r"), github.tokens.for_clone("o/r")):
                with pytest.raises(GitHubError) as error:
                    await ask
                assert error.value.passing
        assert set(server.asked) == {"POST /api/v3/app/installations/1/access_tokens"}


@pytest.mark.parametrize("answer", [{"errors": None, "data": None}, {"errors": None}, {"data": {}}, {}])
async def test_an_answer_of_graphql_without_what_was_asked_for_is_an_error(answer: object) -> None:
    async with odd(json.dumps(answer)) as server:
        with pytest.raises(GitHubError):
            await server.github.commits.on_branch(
                "o/r", branch="b", expected_head="a" * 40, title="t", body="", change=a_change(a_file("a.txt"))
            )


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (["Head sha is missing", "Base is missing"], "Validation Failed; Head sha is missing; Base is missing"),
        ([{"message": "Too long"}, {"code": "custom"}, "plain", 5, None], "Validation Failed; Too long; custom; plain"),
        (None, "Validation Failed"),
        ("text", "Validation Failed"),
        ({"a": 1}, "Validation Failed"),
    ],
)
async def test_errors_of_any_form_are_told(errors: object, said: str) -> None:
    async with odd(json.dumps({"message": "Validation Failed", "errors": errors}), status=422) as server:
        with pytest.raises(GitHubError) as error:
            await server.github.repos.get("o/r")
    assert error.value.said == said


@pytest.mark.parametrize("text", ["", "<html>", "[1]", "null", '"x"', "{"])
async def test_a_refusal_of_any_form_is_one_of_githubs(text: str) -> None:
    async with odd(text, status=403) as server:
        with pytest.raises(GitHubError, check=lambda error: error.status == 403):
            await server.github.repos.get("o/r")


async def test_what_graphql_gives_for_a_reason_is_the_reason() -> None:
    refused = {"data": None, "errors": [{"message": "Protected branch update failed: 1 approving review is required"}]}
    async with odd(json.dumps(refused)) as server:
        with pytest.raises(GitHubError) as error:
            await server.github._connection.graphql("commit", "mutation", {}, needs="createRef")
    assert error.value.said == "Protected branch update failed: 1 approving review is required"
    assert "protection rules" in error.value.remedy


def test_each_refusal_has_its_own_remedy() -> None:
    assert "support" in remedy_for(451, "Repository access blocked")
    assert "Unlock" in remedy_for(403, "Issue is locked")
    assert "Unlock" not in remedy_for(403, "Repository access blocked")
    assert "Wait" in remedy_for(429, "Too many requests")
    assert "later" in remedy_for(408, "Request timed out")
