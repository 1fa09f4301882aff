"""Cost of the sandbox: its start next to a plain process, and a command in it next to one in a plain shell."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from agent_runtime import Sandbox, SandboxSettings, pick_sandbox
from agent_runtime.tools.shell import ShellTools
from bench.measure import Figure

_STARTS, _COMMANDS = 60, 400


def measure() -> list[Figure]:
    """Alternate each case with its reference, because the machine's speed changes from second to second."""
    sandbox, plain = pick_sandbox("auto", SandboxSettings()), pick_sandbox("local", SandboxSettings())
    with tempfile.TemporaryDirectory() as inside, tempfile.TemporaryDirectory() as outside:
        places = (sandbox, Path(inside)), (plain, Path(outside))
        starts = [[_started(*place) for place in places] for _ in range(_STARTS)]
        shells = asyncio.run(_commands(*(ShellTools(*place) for place in places)))
    more = median(ours - bare for ours, bare in starts) * 1000
    ours, bare = (median(column) * 1000 for column in zip(*shells, strict=True))
    return [
        Figure(
            label="sandbox start, over a plain process",
            value=more,
            unit="ms",
            bound=40,
            note=f"`true` as a plain process: {median(bare for _, bare in starts) * 1000:.1f} ms",
        ),
        Figure(
            label="command in a running session, over one in a plain shell",
            value=ours - bare,
            unit="ms",
            bound=0.1,
            note=f'`execute("main", "true")` without a sandbox: {bare:.2f} ms',
        ),
    ]


def _started(sandbox: Sandbox, workspace: Path) -> float:
    launch = sandbox.launch(["true"], workspace=workspace)
    begun = time.perf_counter()
    subprocess.run(launch.argv, env=dict(launch.env), check=True)
    return time.perf_counter() - begun


async def _commands(*shells: ShellTools) -> list[list[float]]:
    for shell in shells:
        await shell.execute("main", "true", 30)
    waits = [[await _waited(shell.execute, "main", "true") for shell in shells] for _ in range(_COMMANDS)]
    for shell in shells:
        await shell.close()
    return waits


async def _waited(ask: Callable[[str, str], Awaitable[object]], terminal: str, command: str) -> float:
    begun = time.perf_counter()
    await ask(terminal, command)
    return time.perf_counter() - begun
