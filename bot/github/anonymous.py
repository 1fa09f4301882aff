"""Requests to addresses that GitHub hands out: without a token, a cookie or `.netrc`, and nothing is decompressed."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

MOVED = frozenset({HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER, HTTPStatus.TEMPORARY_REDIRECT})
GONE = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def anonymous_session(*, accept: str, seconds: float) -> aiohttp.ClientSession:
    """A session of its own that knows no secrets.

    Args:
        accept: the media types that are wanted.
        seconds: for a connection, and between two pieces of an answer.
    """
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # What is compressed could be far larger than what is read of it.
        headers={"User-Agent": "codepilot-bot", "Accept": accept, "Accept-Encoding": "identity"},
        trust_env=False,
    )


def proxy_for(address: str) -> str | None:
    """The proxy that the machine's other clients use for such an address."""
    parts = urlsplit(address)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
