"""Download logs and pictures from other hosts, without credentials, and with limits on bytes, time and redirections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import aiohttp
from opentelemetry.trace import SpanKind

from agent_runtime import traced
from bot.domain.errors import BotError
from bot.git.process import AuthoritiesError, make_connector, proxy_options
from bot.prompt.brief import is_fetchable

_MOVED = frozenset(
    {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER, HTTPStatus.TEMPORARY_REDIRECT}
)
_GONE = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_REDIRECTS = 3
_PIECE_BYTES = 256 * 1024
LOG_GAP = b"\n[codepilot: the middle of this log was not read]\n"
"""Marks the gap in a saved log."""


async def save_log(
    address: str, file: Path, *, most: int, tail: int, seconds: float, plain: bool = False, ca_file: Path | None = None
) -> None:
    """Download a log; of one that is too long, the beginning and end.

    https://docs.github.com/rest/actions/workflow-jobs#download-job-logs-for-a-workflow-run

    Args:
        address: from GitHub's API.
        file: created.
        most: bytes.
        tail: bytes of the end, if the server supports ranges; 0 refuses longer files (zip).
        seconds: for all of it.
        plain: whether HTTP is permitted.
        ca_file: additional authorities.

    Raises:
        LogError: it is not available.
        LogGoneError: it was deleted.
    """
    try:
        client = _anonymous_session(accept="*/*", seconds=min(seconds, 30.0), ca_file=ca_file)
        async with asyncio.timeout(seconds), client:
            with traced("download log", kind=SpanKind.CLIENT), await asyncio.to_thread(file.open, "wb") as target:
                await _LogDownload(client, target, plain=plain).save(address, most, tail)
    except TimeoutError as error:
        raise LogError(f"The log did not arrive within {seconds:.0f} seconds.") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise LogError(f"The log could not be fetched ({type(error).__name__}).") from error
    except AuthoritiesError as error:
        raise LogError(f"The log could not be fetched: {error}.") from error


async def fetch_picture(
    address: str, *, server_url: str, limit: int, seconds: float, ca_file: Path | None = None
) -> bytes:
    """Download an attachment; `address` and each redirection are checked.

    Raises:
        PictureError: it is not permitted, absent or late.
        TooLargeError: it exceeds `limit` bytes.
    """
    try:
        client = _anonymous_session(accept="image/*", seconds=seconds, ca_file=ca_file)
        async with asyncio.timeout(seconds), client:
            with traced("download picture", kind=SpanKind.CLIENT):
                return await _follow_redirects(client, address, server_url, limit)
    except TimeoutError as error:
        raise PictureError(f"it did not arrive within {seconds:.0f} seconds") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise PictureError("it could not be fetched") from error
    except AuthoritiesError as error:
        raise PictureError(str(error)) from error


class LogError(BotError):
    pass


class LogGoneError(LogError):
    pass


class PictureError(BotError):
    pass


class ForeignAddressError(PictureError):
    pass


class TooLargeError(PictureError):
    pass


class _LogDownload:
    def __init__(self, client: aiohttp.ClientSession, target: BinaryIO, *, plain: bool) -> None:
        self._client, self._target = client, target
        self._schemes = {"https", "http"} if plain else {"https"}

    async def save(self, address: str, most: int, tail: int) -> None:
        async with self._answer(address) as response:
            size = response.content_length or 0
            if size > most and not tail:
                raise LogError(f"The log has {size:,} bytes; the limit is {most:,}.")
            # The end first: the address is good for a minute, and the beginning may take longer.
            end = await self._end_of(str(response.url), size, tail) if size > most else b""
            cut = await self._copy(response, most - len(end))
            if cut and not tail:
                raise LogError(f"The log has more than the limit of {most:,} bytes.")
            if cut:
                await asyncio.to_thread(self._target.write, LOG_GAP + end)

    @asynccontextmanager
    async def _answer(self, address: str) -> AsyncIterator[aiohttp.ClientResponse]:
        for _ in range(_REDIRECTS + 1):
            parts = urlsplit(address)
            if parts.scheme not in self._schemes or not parts.hostname or parts.username is not None:
                raise LogError("GitHub gave an invalid address for the log.")
            async with self._client.get(address, allow_redirects=False, **proxy_options(address)) as response:
                if response.status == HTTPStatus.OK:
                    yield response
                    return
                if response.status in _GONE:
                    raise LogGoneError("GitHub no longer has the log.")
                if response.status not in _MOVED:
                    raise LogError(f"The log server answered {response.status}.")
                address = urljoin(address, response.headers.get("Location", ""))
        raise LogError("GitHub redirects the log too often.")

    async def _end_of(self, address: str, size: int, tail: int) -> bytes:
        headers = {"Range": f"bytes={size - tail}-"}
        async with self._client.get(
            address, allow_redirects=False, **proxy_options(address), headers=headers
        ) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                return b""
            end = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                end += piece[: tail - len(end)]
                if len(end) == tail:
                    break
            return bytes(end)

    async def _copy(self, response: aiohttp.ClientResponse, most: int) -> bool:
        """Write at most so many bytes; return whether there are more."""
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            await asyncio.to_thread(self._target.write, piece[:most])
            if len(piece) > most:
                return True
            most -= len(piece)
        return False


async def _follow_redirects(client: aiohttp.ClientSession, address: str, server_url: str, limit: int) -> bytes:
    for hop in range(_REDIRECTS + 1):
        if not is_fetchable(address, server_url, redirected=hop > 0):
            raise ForeignAddressError("it is not an attachment on GitHub")
        async with client.get(address, allow_redirects=False, **proxy_options(address)) as response:
            if response.status not in _MOVED:
                return await _read_body(response, limit)
            address = urljoin(address, response.headers.get("Location", ""))
    raise PictureError("it redirects too often")


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.status in _GONE:
        raise PictureError("it was deleted, or is not for this repository")
    if response.status != HTTPStatus.OK:
        raise PictureError(f"GitHub answered {response.status}")
    content = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        content += piece
        if len(content) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
    return bytes(content)


def _anonymous_session(*, accept: str, seconds: float, ca_file: Path | None) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=make_connector(ca_file),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # What is compressed could be far larger than what is read of it.
        headers={"User-Agent": "codepilot-bot", "Accept": accept, "Accept-Encoding": "identity"},
        trust_env=False,
    )
