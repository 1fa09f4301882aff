"""What the loop adds to a step when the model takes no time: early and late in a long run."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from pathlib import Path

from agent_runtime import AsyncRuntime, Policy, RunLimits, SandboxSettings, ScriptedProvider, pick_sandbox
from agent_runtime.events import Event, StepStarted
from bench.measure import Figure, percentile

STEPS = 300
_READ = '```codepilot\nread_file("a.py", 1, 20)\n```\n'


def measure() -> list[Figure]:
    """One run of 300 steps that each read a file; medians of the first and the last fifty steps."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "a.py").write_text("".join(f"x{i} = {i}\n" for i in range(40)))
        stamps = asyncio.run(_run(Path(directory)))
    steps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    early, late = (percentile(part, 0.5) * 1000 for part in (steps[10:60], steps[-50:]))
    return [
        Figure(what="loop overhead a step, steps 10 to 60 (median)", value=early, unit="ms", bound=3),
        Figure(what=f"loop overhead a step, last 50 of {STEPS} (median)", value=late, unit="ms", bound=3),
    ]


async def _run(work_dir: Path) -> list[float]:
    stamps: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepStarted):
            stamps.append(time.perf_counter())

    async with AsyncRuntime(
        provider=ScriptedProvider([_READ] * STEPS, chunk_chars=1000),
        work_dir=work_dir,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=STEPS)),
        listeners=[listen],
    ) as runtime:
        await runtime.run("read")
    return stamps
