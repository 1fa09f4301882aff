"""Choose what connections trust and how they leave: certificate authorities beside the system's, and git's proxy."""

from __future__ import annotations

import logging
import ssl
from functools import lru_cache
from pathlib import Path
from urllib.request import getproxies_environment

import aiohttp

from bot.domain.errors import BotError

log = logging.getLogger(__name__)

GIT_CA_FILE = "GIT_SSL_CAINFO"
FOREIGN_CERTIFICATE = (
    "If an authority of your own has signed the server's certificate, name its file in CODEPILOT_CA_FILE."
)
NO_AUTHORITIES = "the bot cannot read the file that CODEPILOT_CA_FILE names"
PUT_BACK = "The operator must put the file back; no restart is needed."


class AuthoritiesError(BotError):
    """The operator's file of authorities cannot be read any more; the text has no path, as people are shown it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"{NO_AUTHORITIES} ({error.strerror or type(error).__name__})")


def connector(ca_file: Path | None) -> aiohttp.TCPConnector:
    """Connections that trust the system's authorities, and those that the operator's file has now.

    Raises:
        AuthoritiesError: the file cannot be read.
    """
    if ca_file is None:
        return aiohttp.TCPConnector()
    try:
        now = ca_file.stat()
        context = _context(ca_file, (now.st_ino, now.st_mtime_ns, now.st_size))
    except OSError as error:
        refused = AuthoritiesError(error)
        log.error("%s: %s. %s", ca_file, refused, PUT_BACK)  # noqa: TRY400 - the traceback is that of the error below
        raise refused from error
    return aiohttp.TCPConnector(ssl=context)


def git_variables(ca_file: Path | None) -> dict[str, str]:
    """The environment of git: the proxies that this process's environment names, and whom it trusts.

    Where there is a file of the operator's, it trusts the authorities in that alone. Git runs in another directory than
    the bot, to which the file's name may be relative.
    """
    proxies = getproxies_environment()
    variables = {f"{kind}_proxy": proxies[kind] for kind in ("http", "https", "all", "no") if kind in proxies}
    return variables if ca_file is None else variables | {GIT_CA_FILE: str(ca_file.absolute())}


def is_about_certificates(stderr: str) -> bool:
    """Whether git says that it does not trust the server; the server's own words come after `remote:`."""
    own = (line for line in stderr.lower().splitlines() if not line.startswith("remote:"))
    return any("certificate" in line for line in own)


@lru_cache(maxsize=4)
def _context(ca_file: Path, _state: tuple[int, int, int]) -> ssl.SSLContext:
    """Read once for each state of the file, as reading the system's takes some 30 ms of processor time."""
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context
