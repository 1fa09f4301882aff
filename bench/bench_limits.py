"""Cost of watching a sandbox's limits: the share of a processor that our process uses."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.tools.shell import ShellTools
from bench.measure import Figure

_SECONDS = 4.0
_FILES, _DIRECTORIES = 20_000, 40
_BUSY = "(while :; do echo x >/tmp/x; sleep 0.1; done) >/dev/null 2>&1 &"


def measure() -> list[Figure]:
    """At rest, with 200 processes, and with a large workspace in which something is always written."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        sandbox = pick_sandbox("auto", SandboxSettings())
        _fill(Path(directory))
        shell = ShellTools(sandbox, Path(directory))
        await shell.execute("main", "true", 30)
        at_rest = await _share()
        await shell.execute("main", _BUSY, 30)
        busy = await _share()
        await shell.execute("main", "for i in {1..200}; do sleep 600 & done", 30)
        crowded = await _share()
        await shell.close()
    return [
        Figure(label="watching a sandbox at rest", value=at_rest * 100, unit="% of a processor", bound=2),
        Figure(label="the same, 20,000 files, something always written", value=busy * 100, unit="%", bound=4),
        Figure(label="the same, with 200 processes more", value=crowded * 100, unit="%", bound=6),
    ]


async def _share() -> float:
    await asyncio.sleep(1.5)  # what was begun before is done
    begun, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(_SECONDS)
    return (time.process_time() - used) / (time.perf_counter() - begun)


def _fill(directory: Path) -> None:
    for number in range(_DIRECTORIES):
        below = directory / str(number)
        below.mkdir()
        for name in range(_FILES // _DIRECTORIES):
            (below / str(name)).touch()
