"""Commands in a live terminal of the sandbox: duration, and the cost of long outputs in time and memory."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools.shell import ShellTools
from bench.measure import Figure, percentile

_COMMANDS = 200
_LINE = "0123456789" * 5


def measure() -> list[Figure]:
    """Start-up, latency of a command, and outputs of 10 and 50 MB."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        sandbox = pick_sandbox("auto", SandboxSettings())
        shell = ShellTools(sandbox, Path(directory), OutputLogs())
        first = await _timed(shell, "true")
        second = await _timed(shell, "true", terminal="second")
        latency = percentile([await _timed(shell, "true") for _ in range(_COMMANDS)], 0.5)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ten = percentile([await _timed(shell, _flood(10)) for _ in range(3)], 0.5)
        fifty = percentile([await _timed(shell, _flood(50)) for _ in range(3)], 0.5)
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        begun = time.perf_counter()
        await shell.close()
        closing = time.perf_counter() - begun
    return [
        Figure(label="first command, sandbox included", value=first * 1000, unit="ms"),
        Figure(label="first command of a further terminal", value=second * 1000, unit="ms"),
        Figure(label='execute("main", "true") (median)', value=latency * 1000, unit="ms", bound=3),
        Figure(label="10 MB of output (median)", value=ten, unit="s", bound=0.3),
        Figure(label="50 MB of output (median)", value=fifty, unit="s", bound=1.5),
        Figure(label="memory that these outputs add", value=memory, unit="MiB", bound=60),
        Figure(label="closing two terminals and their sandbox", value=closing * 1000, unit="ms", bound=1000),
    ]


def _flood(megabytes: int) -> str:
    return f"yes {_LINE} | head -c {megabytes}000000"


async def _timed(shell: ShellTools, command: str, *, terminal: str = "main") -> float:
    begun = time.perf_counter()
    await shell.execute(terminal, command, new_terminal=terminal != "main", check=False)
    return time.perf_counter() - begun
