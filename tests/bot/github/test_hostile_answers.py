"""Malformed and hostile answers to the client of GitHub's API."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.git.process import proxy_options
from bot.github.app import OAuthClient, register_app
from bot.github.auth import AppIdentity, InstallationAuth, TokenStore
from bot.github.connection import AppSession, GitHubConnection, InstallationSession
from bot.github.repos import Repos
from bot.github.types import GitHubError
from tests.github_world import World


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.github.connection._FIRST_PAUSE_SECONDS", 0.0)


@dataclass(slots=True)
class ScriptedServer:
    """A server with a fixed sequence of answers; it repeats the last one.

    Attributes:
        url: its address.
        requests: `METHOD path` of every request.
        headers: of every request.
    """

    url: str
    requests: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    session: InstallationSession = field(default_factory=lambda: AppSession(0.0).for_installation(0))

    def connection(self, token: str = "") -> GitHubConnection:
        return GitHubConnection(token or "a-token", self.url, session=self.session)


@asynccontextmanager
async def scripted_server(*answers: tuple[int, object, dict[str, str]]) -> AsyncIterator[ScriptedServer]:
    script = list(answers)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        scripted.requests.append(f"{request.method} {request.path}")
        scripted.headers.append(request.headers)
        status, data, headers = script.pop(0) if len(script) > 1 else script[0]
        text = data if isinstance(data, str) else json.dumps(data)
        headers = {name: value.replace("URL", scripted.url) for name, value in headers.items()}
        return web.Response(status=status, text=text, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, skip_url_asserts=True) as server:
        scripted = ScriptedServer(str(server.make_url("")).rstrip("/"))
        yield scripted


async def test_errors_contain_no_proxy_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server((407, "no", {"Proxy-Authenticate": "Basic"})) as proxy:
        for address in (proxy.url.replace("//", "//user:pa55word@"), "http://user:pa55word@127.0.0.1:99999"):
            monkeypatch.setenv("https_proxy", address)
            async with GitHubConnection("a-token", "https://api.example") as connection:
                with pytest.raises(GitHubError) as error:
                    await connection.request("read the list", "GET", "/list")
            assert error.value.status == 0
            assert "pa55word" not in "".join(traceback.format_exception(error.value))


async def test_a_proxy_receives_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server((200, {"id": 1}, {})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//us%40er:p%C3%A4ss%3A@"))
        async with GitHubConnection("a-token", "http://api.example") as connection:
            await connection.request("read", "GET", "/list")
    expected = aiohttp.encode_basic_auth("us@er", "päss:")
    assert [headers.get("Proxy-Authorization") for headers in proxy.headers] == [expected]


async def test_a_proxy_receives_its_password_for_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        monkeypatch.setenv("https_proxy", f"http://user:pa55word@{host}:{port}")
        async with GitHubConnection("a-token", "https://api.example") as connection:
            with pytest.raises(GitHubError):
                await connection.request("read", "GET", "/list", repeat=False)
    [head] = heads
    assert head.startswith(b"CONNECT api.example:443 ")
    assert f"Proxy-Authorization: {aiohttp.encode_basic_auth('user', 'pa55word')}".encode() in head
    assert b"a-token" not in head


def test_a_host_with_a_port_can_be_excluded_from_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "github.example:8443,api.example")
    addresses = ("https://github.example:8443/api", "https://api.example/x", "https://github.example/api")
    assert [proxy_options(address)["proxy"] is None for address in addresses] == [True, True, False]


async def test_a_proxy_address_needs_no_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server((200, {"id": 1}, {})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removeprefix("http://"))
        async with GitHubConnection("a-token", "http://api.example") as connection:
            assert (await connection.request("read", "GET", "/list")).data == {"id": 1}
        assert proxy.requests == ["GET /list"]


@pytest.mark.parametrize("status", [201, 403, 500])
async def test_only_redirections_are_followed(status: int) -> None:
    async with scripted_server((status, {"message": "m"}, {"Location": "URL/other"})) as server:
        async with server.connection() as connection:
            await asyncio.gather(connection.request("write", "POST", "/list", {}), return_exceptions=True)
        assert server.requests == ["POST /list"]


async def test_a_queued_write_waits_for_a_short_pause() -> None:
    limited = (429, {"message": "slow down"}, {"Retry-After": "1"})
    async with scripted_server(limited, (201, {"id": 1}, {})) as server:
        async with server.connection() as first, server.connection() as second:
            await asyncio.gather(
                first.request("write", "POST", "/first", {}), second.request("write", "POST", "/second", {})
            )
        assert sorted(server.requests) == ["POST /first", "POST /first", "POST /second"]


@pytest.mark.parametrize(
    "answer", [{"data": [1]}, {"data": "x"}, {"errors": [{"type": ["NOT_FOUND"]}]}, {"errors": [{"type": {}}]}]
)
async def test_malformed_graphql_answers_raise_github_errors(answer: object) -> None:
    async with scripted_server((200, answer, {})) as server, server.connection() as connection:
        with pytest.raises(GitHubError):
            await connection.graphql("read the repository", "query", {}, needs="repository")


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "9" * 400},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 400},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 5_000},
        {"X-RateLimit-Limit": "9" * 5_000, "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "9"},
    ],
)
async def test_oversized_numbers_in_headers_are_ignored(headers: dict[str, str]) -> None:
    async with scripted_server((429, {}, headers)) as server, server.connection() as connection:
        with pytest.raises(GitHubError) as error:
            await connection.request("read the list", "GET", "/list")
        assert error.value.retry_after == 60.0
        assert server.session.limits.pause_seconds <= 60.0


async def test_an_invalid_token_is_reported_without_its_value() -> None:
    async with scripted_server((200, {}, {})) as server, server.connection("a\nsecret") as connection:
        with pytest.raises(GitHubError) as error:
            await connection.request("read the list", "GET", "/list")
        assert "secret" not in str(error.value)
        assert server.requests == []


@pytest.mark.parametrize("text", ['{"token": "ghs_secret", "exp', "access_token=ghs_secret&scope=", '"ghs_secret"'])
async def test_errors_do_not_quote_answers_with_secrets(text: str, world: World) -> None:
    async with scripted_server((200, text, {})) as server:
        auth = InstallationAuth(
            app=AppIdentity(1, world.app.private_key_pem),
            installation_id=1,
            tokens=TokenStore(),
            on_mint=lambda _token: None,
        )
        client = OAuthClient(client_id="c", client_secret="s", server_url=server.url, api_url=server.url)
        async with GitHubConnection(auth, server.url) as connection:
            for call in (connection.token(), client.exchange("code", "verifier"), register_app("code", server.url)):
                with pytest.raises(GitHubError, match=r"not JSON|no object") as error:
                    await call
                assert "ghs_secret" not in str(error.value)


async def test_a_refusal_of_the_app_itself_is_not_repeated(world: World) -> None:
    async with scripted_server((403, {"message": "This installation has been suspended"}, {})) as server:
        auth = InstallationAuth(
            app=AppIdentity(1, world.app.private_key_pem),
            installation_id=1,
            tokens=TokenStore(),
            on_mint=lambda _token: None,
        )
        async with GitHubConnection(auth, server.url) as connection:
            with pytest.raises(GitHubError, match="suspended"):
                await connection.request("read the list", "GET", "/list")
        assert server.requests == ["POST /app/installations/1/access_tokens"]


@pytest.mark.parametrize(
    "rules",
    [
        None,
        {"nodes": None},
        {"nodes": [None]},
        {"nodes": [{"type": "UPDATE", "repositoryRuleset": None}]},
        {"nodes": [{"type": "UPDATE", "repositoryRuleset": {"databaseId": None}, "parameters": None}]},
    ],
)
async def test_rules_that_github_does_not_show_are_none(rules: object) -> None:
    answer = {"data": {"repository": {"a0": {"name": "topic", "rules": rules, "refUpdateRule": None}}}}
    async with scripted_server((200, answer, {})) as server, server.connection() as connection:
        assert await Repos(connection, str).read_rules("mona/calc", "topic", is_new=False) == ()
