"""Watch the bot's event loop; started by `Watchdog`.

A process, since a thread cannot run while C code holds the GIL. Imports only the standard library, so it costs little.
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
"""The loop is running."""
ENDING = b"e"
"""The process is stopping, within a limited time."""

_WRITE_SECONDS = 1.0
_KILL_SECONDS = 5.0


def watch(watched: int, beats: int, *, silent_seconds: float, ending_seconds: float) -> None:
    """Wait for the process's end; end it if it is silent, or stopping, for too long."""
    tick, elapsed, ending = silent_seconds / 10, 0.0, False
    last = time.monotonic()
    while os.getppid() == watched:
        ready, _, _ = select.select([beats], [], [], tick)
        received = os.read(beats, 4096) if ready else b""
        if ready and not received:
            return
        now = time.monotonic()
        # Do not count time in which the machine, and so both processes, were suspended.
        elapsed, last = elapsed + min(now - last, 2 * tick), now
        if ENDING in received and not ending:
            ending, elapsed = True, 0.0
        if _is_stopped(watched) or (received and not ending):
            elapsed = 0.0
        if elapsed >= (ending_seconds if ending else silent_seconds):
            _abort(watched, "has not ended since it was told to" if ending else "has not run its event loop", elapsed)
            return


def _abort(watched: int, reason: str, elapsed: float) -> None:
    text = (
        f"codepilot: process {watched} {reason} for {elapsed:.0f} s. It is ended (SIGABRT) so that its supervisor "
        "restarts it; its running jobs are then resumed. The stacks of its threads:\n"
    )
    # In a thread, because the reader of standard error may block.
    writer = Thread(target=os.write, args=(sys.stderr.fileno(), text.encode()), daemon=True)
    writer.start()
    writer.join(_WRITE_SECONDS)
    os.kill(watched, signal.SIGABRT)
    until = time.monotonic() + _KILL_SECONDS
    while os.getppid() == watched:
        if time.monotonic() > until:
            os.kill(watched, signal.SIGKILL)
            return
        time.sleep(_KILL_SECONDS / 100)


def _is_stopped(watched: int) -> bool:
    """Whether a debugger or signal has stopped the process (`T` or `t` in proc(5))."""
    try:
        text = Path(f"/proc/{watched}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in {"T", "t"}


if __name__ == "__main__":
    # Signals to the process group are for the watched process; this one ends with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, silent, ending = sys.argv[1:]
    watch(int(parent), sys.stdin.fileno(), silent_seconds=float(silent), ending_seconds=float(ending))
