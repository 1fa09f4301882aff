"""The process that watches the bot's event loop from outside; started by `Watchdog` in `process.py`.

It is a process because a thread could not run while C code holds the interpreter's lock. It knows no secret and imports
only the standard library, so it costs little.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from threading import Thread

BEAT = b"."
"""The loop has turned."""
ENDING = b"e"
"""The process was told to end, and has a bounded time to do so."""

_TELL_SECONDS = 1.0
_KILL_SECONDS = 5.0


def watch(watched: int, beats: int, *, silent_seconds: float, ending_seconds: float) -> None:
    """Return when the process ends; end it when it has been silent, or ending, for too long.

    Args:
        watched: the process, our parent.
        beats: the descriptor that its loop writes to.
        silent_seconds: the longest time without a beat.
        ending_seconds: the longest time from `ENDING` to its end.
    """
    tick, passed, ending = silent_seconds / 10, 0.0, False
    before = time.monotonic()
    while os.getppid() == watched:
        ready, _, _ = select.select([beats], [], [], tick)
        said = os.read(beats, 4096) if ready else b""
        if ready and not said:
            return
        now = time.monotonic()
        # Whatever suspends us suspends the watched process too, as a rule; that time counts for nothing.
        passed, before = passed + min(now - before, 2 * tick), now
        if ENDING in said and not ending:
            ending, passed = True, 0.0
        if _is_stopped(watched) or (said and not ending):
            passed = 0.0
        if passed >= (ending_seconds if ending else silent_seconds):
            _end(watched, "has not ended since it was told to" if ending else "has not run its event loop", passed)
            return


def _end(watched: int, what: str, passed: float) -> None:
    text = (
        f"codepilot: process {watched} {what} for {passed:.0f} s. It is ended (SIGABRT) so that its supervisor "
        "restarts it; its running jobs are then resumed. The stacks of its threads:\n"
    )
    # In a thread: the reader of standard error may be stuck, too.
    telling = Thread(target=os.write, args=(sys.stderr.fileno(), text.encode()), daemon=True)
    telling.start()
    telling.join(_TELL_SECONDS)
    os.kill(watched, signal.SIGABRT)
    until = time.monotonic() + _KILL_SECONDS
    while os.getppid() == watched:
        if time.monotonic() > until:
            os.kill(watched, signal.SIGKILL)
            return
        time.sleep(_KILL_SECONDS / 100)


def _is_stopped(watched: int) -> bool:
    """Return whether a debugger or a signal holds the process (`T` and `t` in proc(5)); it is not stuck then."""
    try:
        text = Path(f"/proc/{watched}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in {"T", "t"}


if __name__ == "__main__":
    # Signals to the whole group or unit are for the watched process; this one ends with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, silent, ending = sys.argv[1:]
    watch(int(parent), sys.stdin.fileno(), silent_seconds=float(silent), ending_seconds=float(ending))
