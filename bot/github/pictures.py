"""Fetches what people attached to a thread: from GitHub's own hosts only, without a token, and not a byte too many."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import urljoin

import aiohttp

from bot.domain.errors import BotError
from bot.gate.pictures import may_be_fetched
from bot.github.anonymous import GONE, MOVED, anonymous_session, proxy_for

_REDIRECTS = 3
_PIECE_BYTES = 64 * 1024
_NOT_OURS = "it is not among GitHub's own attachments"


class PictureError(BotError):
    """A picture that cannot be had; the text says why, for the agent to read."""


class TooLargeError(PictureError):
    """A picture of more bytes than may be read."""


async def fetch(address: str, *, server_url: str, limit: int, seconds: float) -> bytes:
    """The bytes at an address of an attachment, from a session of its own that knows no token, cookie or `.netrc`.

    Args:
        address: where it is; checked here, and each time it leads elsewhere.
        server_url: the configured server's, whose attachments may be fetched, too.
        limit: the most bytes that are read; whatever the server says of the length.
        seconds: the most time that all of it may take.

    Raises:
        PictureError: it may not be fetched, is not there, or did not come in time.
        TooLargeError: it is larger.
    """
    client = anonymous_session(accept="image/*", seconds=seconds)
    try:
        async with asyncio.timeout(seconds), client:
            return await _followed(client, address, server_url, limit)
    except TimeoutError as error:
        raise PictureError(f"it did not come within {seconds:.0f} seconds") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise PictureError("it could not be fetched") from error


async def _followed(client: aiohttp.ClientSession, address: str, server_url: str, limit: int) -> bytes:
    for hop in range(_REDIRECTS + 1):
        if not may_be_fetched(address, server_url, redirected=hop > 0):
            raise PictureError(_NOT_OURS)
        async with client.get(address, allow_redirects=False, proxy=proxy_for(address)) as response:
            if response.status not in MOVED:
                return await _body(response, limit)
            address = urljoin(address, response.headers.get("Location", ""))
    raise PictureError("it leads from one address to the next")


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.status in GONE:
        raise PictureError("it is gone, or not for this repository")
    if response.status != HTTPStatus.OK:
        raise PictureError(f"GitHub answered {response.status}")
    content = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        content += piece
        if len(content) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
    return bytes(content)
