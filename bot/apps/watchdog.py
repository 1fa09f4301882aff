"""End this process when its event loop is blocked, so that its supervisor restarts it."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import subprocess
import sys
from pathlib import Path

from bot.apps.watchdog_process import BEAT, ENDING

log = logging.getLogger(__name__)

STUCK_SECONDS = 10.0
ENDING_SECONDS = 30.0

_WATCHER = Path(__file__).with_name("watchdog_process.py")


class Watchdog:
    """A second process that this one's event loop has to write to.

    When it hears nothing for too long it ends this process by SIGABRT: `faulthandler` writes the stacks of all threads
    to standard error, which works while C code holds the interpreter's lock, and the signal ends the process, which
    tells its supervisor (`status=6/ABRT`, exit code 134 in a shell or container) that this was no ordinary end.

    Args:
        stuck_seconds: how long the loop may stand still.
        ending_seconds: how long the process may live after `ending`.
    """

    def __init__(self, *, stuck_seconds: float = STUCK_SECONDS, ending_seconds: float = ENDING_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._ending_seconds = ending_seconds
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to watch the running loop; until then, in a start-up that may block it, nothing is watched."""
        if not faulthandler.is_enabled():
            faulthandler.enable(all_threads=True)
        numbers = (os.getpid(), self._stuck_seconds, self._ending_seconds)
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", _WATCHER, *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={},
        )
        self._beat(asyncio.get_running_loop())

    def ending(self) -> None:
        """Bound the time that the process may still live; for the code that tells it to stop."""
        self._write(ENDING)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._write(BEAT):
            loop.call_later(self._stuck_seconds / 10, self._beat, loop)

    def _write(self, said: bytes) -> bool:
        if self._watcher is None or self._watcher.stdin is None:
            return False
        try:
            # One byte into a pipe that is read all the time never blocks.
            os.write(self._watcher.stdin.fileno(), said)
        except BrokenPipeError:
            log.error("the watchdog has died; a blocked event loop will no longer be detected")  # noqa: TRY400 - no fault to trace
            self._watcher = None
            return False
        return True
