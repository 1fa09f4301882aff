"""Protect this process from others on its machine: no root, and memory that nobody can read."""

from __future__ import annotations

import ctypes
import os
import sys

from bot.domain.errors import ConfigError

_PR_SET_DUMPABLE = 4  # prctl(2), linux/prctl.h


def guard(*, allow_root: bool) -> None:
    """Refuse root unless it is allowed, and close this process's memory to other processes of its user.

    Raises:
        ConfigError: this is root, and the operator has not allowed that.
    """
    if sys.platform == "win32":
        return
    if os.geteuid() == 0 and not allow_root:
        raise ConfigError((ROOT,))
    close_memory()


ROOT = (
    "The bot refuses to run as root, because nothing on this machine is safe from root if the sandbox fails. Run it "
    "as a separate user (for example: sudo useradd --system codepilot; sudo -u codepilot codepilot serve). On a "
    "machine that is discarded after the job, set CODEPILOT_ALLOW_ROOT=yes"
)
"""What is wrong with root, and what to do."""


def close_memory() -> None:
    """Keep other processes of the same user from this one's memory, environment and descriptors; no core dumps either.

    Linux only (PR_SET_DUMPABLE in prctl(2), ptrace(2)); programs that are started get their own again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
