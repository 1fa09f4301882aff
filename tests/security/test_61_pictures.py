"""Threats 32, 48 and 61, for pictures: the host fetches them, from GitHub only, with no token and no byte too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientError, web

from bot.github.downloads import ForeignAddressError, PictureError, TooLargeError, fetch_picture
from bot.prompt.brief import is_fetchable

ASSET = "6f1c0f35-1f0e-4c5e-9c39-0a5d7a0f2b11"
PATH = f"/user-attachments/assets/{ASSET}"
SERVER = "https://github.example"
STORE = "https://github-production-user-asset-6210df.s3.amazonaws.com/7/42.png?X-Amz-Signature=0"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server with one response; returns its address."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fetched(server: str, *, limit: int = 1000, seconds: float = 10.0) -> bytes:
    return await fetch_picture(f"{server}{PATH}", server_url=server, limit=limit, seconds=seconds)


@pytest.mark.parametrize(
    "address",
    [
        f"https://evil.example{PATH}",
        f"http://github.com{PATH}",
        f"https://github.com:8443{PATH}",
        f"https://mona@github.com{PATH}",
        f"https://mona:secret@github.com{PATH}",
        f"https://github.com@evil.example{PATH}",
        f"https://github.com.evil.example{PATH}",
        f"https://evil.example/https://github.com{PATH}",
        f"https://github.com\\@evil.example{PATH}",
        f"https://github.com\t.evil.example{PATH}",
        f"//github.com{PATH}",
        f"ftp://github.com{PATH}",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "https://github.com/login",
        f"https://github.com{PATH}/../../../login",
        f"https://github.com/user-attachments/assets/../{ASSET}",
        f"{SERVER}/api/v3/user",
        f"{SERVER}:444{PATH}",
        f"http://169.254.169.254{PATH}",
        f"http://[::1]{PATH}",
        "http://private-user-images.githubusercontent.com/x.png",
        "https://private-user-images.githubusercontent.com:444/x.png",
        "https://private-user-images.githubusercontent.com.evil.example/x.png",
        "https://camo.githubusercontent.com/0/1",
        "https://raw.githubusercontent.com/octo/calc/main/x.png",
        STORE,
        "",
    ],
)
async def test_nothing_is_fetched_but_github_s_attachments(address: str) -> None:
    assert not is_fetchable(address, SERVER)
    with pytest.raises(ForeignAddressError):
        await fetch_picture(address, server_url=SERVER, limit=1000, seconds=1)


def test_only_a_redirect_leads_to_github_s_store() -> None:
    assert is_fetchable(STORE, SERVER, redirected=True)
    assert not is_fetchable(STORE.replace("6210df", "evil"), SERVER, redirected=True)
    assert not is_fetchable(STORE.replace("https", "http"), SERVER, redirected=True)


async def test_a_redirect_to_another_host_is_not_followed() -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=b"secret")

    async with serving(elsewhere) as other:

        async def leads_there(_request: web.Request) -> web.Response:
            raise web.HTTPFound(f"{other}{PATH}")

        async with serving(leads_there) as server:
            with pytest.raises(ForeignAddressError):
                await fetched(server)
    assert asked == []


async def test_a_redirect_on_the_same_host_is_followed_to_an_attachment_only() -> None:
    async def moves(request: web.Request) -> web.Response:
        if "jwt" in request.query:
            return web.Response(body=b"picture")
        raise web.HTTPFound(f"{PATH}?jwt=x")

    async with serving(moves) as server:
        assert await fetched(server) == b"picture"

    async def inside(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/api/v3/user")

    async with serving(inside) as server:
        with pytest.raises(ForeignAddressError):
            await fetched(server)


async def test_a_circle_of_redirects_ends() -> None:
    async def around(_request: web.Request) -> web.Response:
        raise web.HTTPFound(PATH)

    async with serving(around) as server:
        with pytest.raises(PictureError, match="redirects too often"):
            await fetched(server)


async def test_no_token_and_no_cookie_goes_with_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login mona password a-secret-of-this-machine\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    heads: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        heads.append({name.lower(): value for name, value in request.headers.items()})
        if "jwt" in request.query:
            return web.Response(body=b"picture")
        response = web.Response(status=302, headers={"Location": f"{PATH}?jwt=x"})
        response.set_cookie("session", "x")
        return response

    async with serving(answer) as server:
        await fetched(server)
    assert len(heads) == 2
    for head in heads:
        assert head.keys() <= {"host", "user-agent", "accept", "accept-encoding"}


@pytest.mark.parametrize("promised", [None, "10"])
async def test_a_download_is_limited(promised: str | None) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)
            sent += 65_536

    async def short(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 2_000)

    async with serving(endless if promised is None else short) as server:
        with pytest.raises(TooLargeError, match="more than 1,000 bytes"):
            await fetched(server)
    assert sent < 50_000_000


async def test_compressed_content_is_not_expanded() -> None:
    async def packed(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=b"\x1f\x8b packed", headers={"Content-Encoding": "gzip"})

    async with serving(packed) as server:
        assert await fetched(server) == b"\x1f\x8b packed"


async def test_a_slow_response_is_aborted() -> None:
    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.01)

    async with serving(drips) as server:
        with pytest.raises(PictureError) as caught:
            await fetched(server, limit=10**6, seconds=0.2)
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.parametrize(("status", "said"), [(404, "was deleted"), (403, "was deleted"), (500, "GitHub answered 500")])
async def test_a_missing_picture_is_reported(status: int, said: str) -> None:
    async def no(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=b"x")

    async with serving(no) as server:
        with pytest.raises(PictureError, match=said):
            await fetched(server)


async def test_an_unreachable_server_is_reported() -> None:
    with pytest.raises(PictureError) as caught:
        await fetched("http://127.0.0.1:1")
    assert isinstance(caught.value.__cause__, ClientError)
