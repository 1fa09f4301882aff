"""Saves a log from the address that GitHub hands out for it: on another host, without a token, a bounded part of it.

https://docs.github.com/rest/actions/workflow-jobs#download-job-logs-for-a-workflow-run
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import aiohttp

from bot.domain.errors import BotError
from bot.github.anonymous import GONE, MOVED, anonymous_session, proxy_for

_REDIRECTS = 3
_PIECE_BYTES = 256 * 1024
LEFT_OUT = b"\n[codepilot: the middle of this log was not read]\n"
"""A line of its own in a saved log that is not whole."""


class LogError(BotError):
    """A log that cannot be had; the text says why, in one sentence, for the agent and for people."""


class LogGoneError(LogError):
    """A log that GitHub no longer has."""


async def save_log(address: str, file: Path, *, most: int, tail: int, seconds: float, plain: bool = False) -> None:
    """Write what is at an address into a file; of what is too long, the beginning and the end.

    Args:
        address: from GitHub's API, where a token was needed to be told it.
        file: where to; it is made.
        most: bytes that are read in all. Where the server gives out parts, the last `tail` of them are the end of a
            longer log; where it does not, they are not read.
        tail: see `most`; 0 refuses what is longer, as half a zip file is of no use.
        seconds: for all of it.
        plain: whether an address without TLS will do, as it does where the API has none either.

    Raises:
        LogError: it could not be had.
        LogGoneError: it is there no longer.
    """
    client = anonymous_session(accept="*/*", seconds=min(seconds, 30.0))
    try:
        async with asyncio.timeout(seconds), client:
            with await asyncio.to_thread(file.open, "wb") as target:
                await _Saving(client, target, plain=plain).save(address, most, tail)
    except TimeoutError as error:
        raise LogError(f"The log did not arrive within {seconds:.0f} seconds.") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise LogError(f"The log could not be fetched ({type(error).__name__}).") from error


class _Saving:
    """One log on its way into a file."""

    def __init__(self, client: aiohttp.ClientSession, target: BinaryIO, *, plain: bool) -> None:
        self._client, self._target = client, target
        self._schemes = {"https", "http"} if plain else {"https"}

    async def save(self, address: str, most: int, tail: int) -> None:
        async with self._answer(address) as response:
            size = response.content_length or 0
            if size > most and not tail:
                raise LogError(f"The log has {size:,} bytes, and {most:,} are read at most.")
            # The end first: the address is good for a minute, and the beginning may take longer.
            end = await self._end_of(str(response.url), size, tail) if size > most else b""
            cut = await self._copy(response, most - len(end))
            if cut and not tail:
                raise LogError(f"The log has more than {most:,} bytes, which are read at most.")
            if cut:
                await asyncio.to_thread(self._target.write, LEFT_OUT + end)

    @asynccontextmanager
    async def _answer(self, address: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """What stands at the end of all redirections."""
        for _ in range(_REDIRECTS + 1):
            parts = urlsplit(address)
            if parts.scheme not in self._schemes or not parts.hostname or parts.username is not None:
                raise LogError("GitHub named an address for the log that cannot be followed.")
            async with self._client.get(address, allow_redirects=False, proxy=proxy_for(address)) as response:
                if response.status not in MOVED:
                    _check(response.status)
                    yield response
                    return
                address = urljoin(address, response.headers.get("Location", ""))
        raise LogError("GitHub leads from one address for the log to the next.")

    async def _end_of(self, address: str, size: int, tail: int) -> bytes:
        """The last bytes, if the server gives out parts."""
        headers = {"Range": f"bytes={size - tail}-"}
        async with self._client.get(
            address, allow_redirects=False, proxy=proxy_for(address), headers=headers
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
        """Write at most so many bytes; whether there are more."""
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            await asyncio.to_thread(self._target.write, piece[:most])
            if len(piece) > most:
                return True
            most -= len(piece)
        return False


def _check(status: int) -> None:
    if status in GONE:
        raise LogGoneError("GitHub no longer has the log.")
    if status != HTTPStatus.OK:
        raise LogError(f"The log's server answered {status}.")
