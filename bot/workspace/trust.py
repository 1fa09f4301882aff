"""Choose the certificate authorities that are trusted, beside the system's."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

import aiohttp

GIT_CA_FILE = "GIT_SSL_CAINFO"


def connector(ca_file: Path | None) -> aiohttp.TCPConnector:
    """Connections that trust the system's authorities, and those in the operator's file."""
    return aiohttp.TCPConnector(ssl=True if ca_file is None else _context(ca_file))


def git_variables(ca_file: Path | None) -> dict[str, str]:
    """The environment of git: it trusts the authorities in the operator's file alone, where there is one.

    Git runs in another directory than the bot, to which the file's name may be relative.
    """
    return {} if ca_file is None else {GIT_CA_FILE: str(ca_file.absolute())}


@cache
def _context(ca_file: Path) -> ssl.SSLContext:
    """Read once, as reading the system's takes some 30 ms of processor time."""
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context
