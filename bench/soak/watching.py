"""Watch a service from a process of its own: how long it is silent, and how much memory it takes.

It is asked for a page that it does not have, which the event loop answers by itself; `GET /healthz` waits for the disk.
Time for which the service's main thread was ready to run, and waited for a processor, is no silence: the machine was
busy, not the loop. On a quiet machine there is none.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

_EVERY_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The most that was seen: seconds without an answer though there was a processor, bytes outside sandboxes."""

    silent: float
    memory: int


class Watched:
    """A service that is watched."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def since(self) -> Observation:
        """Return the observations since the last call."""
        self._pipe.send("since")
        silent, memory = await asyncio.to_thread(self._pipe.recv)
        return Observation(silent=silent, memory=memory)


@asynccontextmanager
async def watched(pid: int, address: str) -> AsyncIterator[Watched]:
    """Watch a process and its children outside sandboxes while the body runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_watch, args=(theirs, pid, address), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Watched(ours)
    finally:
        process.kill()
        await asyncio.to_thread(process.join)


def _watch(pipe: Connection, pid: int, address: str) -> None:
    silent, memory, weighed = 0.0, 0, 0.0
    while True:
        silent = max(silent, _response_seconds(address, pid))
        if time.monotonic() - weighed > 10 * _EVERY_SECONDS:
            memory, weighed = max(memory, memory_of(pid)), time.monotonic()
        if pipe.poll(_EVERY_SECONDS):
            pipe.recv()
            pipe.send((silent, memory))
            silent, memory = 0.0, 0


def _response_seconds(address: str, pid: int) -> float:
    parts = urlsplit(address)
    begun, ready = time.monotonic(), _ready_seconds(pid)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/none")
        connection.getresponse().read()
    except (OSError, HTTPException):
        return _PATIENCE_SECONDS
    finally:
        connection.close()
    return time.monotonic() - begun - (_ready_seconds(pid) - ready)


def _ready_seconds(pid: int) -> float:
    """For how long a process's main thread, and ours, have waited for a processor since they began."""
    # The second field: https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
    stats = (Path("/proc") / str(each) / "task" / str(each) / "schedstat" for each in (pid, os.getpid()))
    return sum(int(each.read_text().split()[1]) for each in stats) / 1e9


def memory_of(pid: int) -> int:
    """Return the proportional memory of a process and its descendants in bytes, sandboxes excepted."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(each.name))
    pending, total = [pid], 0
    ours = (Path("/proc") / str(pid) / "cmdline").read_bytes()
    while pending:
        one = pending.pop()
        try:
            if (Path("/proc") / str(one) / "comm").read_text().strip() == "bwrap":
                continue
            if one != pid and (Path("/proc") / str(one) / "cmdline").read_bytes() == ours:
                continue  # Between vfork and exec a child has its parent's memory, which would count twice.
            rollup = (Path("/proc") / str(one) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        pending += children.get(one, [])
    return total
