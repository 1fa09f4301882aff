"""Ask a git server again when what went wrong may pass: a busy server, a connection that broke or hung."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

from bot.workspace.errors import GitError

log = logging.getLogger(__name__)

PAUSES = (1.0, 4.0, 15.0, 40.0)
"""Seconds before each further try."""

_PASSING = re.compile(
    r"returned error: (?:429|5\d\d)|HTTP (?:429|5\d\d)|RPC failed|early EOF|unexpected disconnect|hung up unexpectedly"
    r"|Could not resolve|Couldn't resolve|Failed to connect|Couldn't connect|Connection (?:refused|reset|timed out)"
    r"|Operation (?:too slow|timed out)|Empty reply|Recv failure|Send failure|transfer closed|SSL_ERROR_SYSCALL"
    r"|GnuTLS recv error|Internal Server Error",
    re.IGNORECASE,
)


def may_pass(error: GitError) -> bool:
    """Whether the same command may succeed in a while."""
    return error.exit_code is not None and _PASSING.search(error.stderr) is not None


async def patiently(ask: Callable[[], Awaitable[bytes]], pauses: Sequence[float]) -> bytes:
    """What `ask` gives, which is asked again after each pause as long as its failure may pass.

    Raises:
        GitError: the last failure.
    """
    for pause in pauses:
        try:
            return await ask()
        except GitError as error:
            if not may_pass(error):
                raise
            log.warning("trying the git server again in %.0f s: %s", pause, error.stderr.strip()[-300:])
        await asyncio.sleep(pause)
    return await ask()
