"""Overhead of the loop for a step without model time: early and late, in memory and on disk."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from agent_runtime import (
    Agent,
    AsyncRuntime,
    CallChunk,
    Chunk,
    Event,
    FileSession,
    InMemorySession,
    Policy,
    ReplyEnd,
    ReplyStart,
    Request,
    RunLimits,
    SandboxSettings,
    Session,
    StepStarted,
    TextChunk,
    Usage,
    pick_sandbox,
)
from agent_runtime.core.events import Imported
from agent_runtime.providers.protocol import ToolCalling
from bench.measure import Figure, percentile

STEPS = 300
RUNS = 9
"""As `timeit` does it: what a step costs is what it costs at least. Other machines on the same host slow this one down
by up to half, for seconds at a time."""
PAST = 10_000
_NOTHING = "```codepilot\npass  # {step}\n```\n"
_CALL = '{{"path": "a.py", "start_line": 1, "end_line": 20}}'
"""The arguments of the same call made natively."""
_READ = '```codepilot\nread_file("a.py", 1, 20)  # {step}\n```\n'
_IDLE = """
import json, re, sys, tempfile
from pathlib import Path
from agent_runtime import *
agent = Agent(provider=provider_for("anthropic", api_key="sk-none"), work_dir=Path(tempfile.mkdtemp()),
              sandbox=pick_sandbox("auto", SandboxSettings()))
runtime = Runtime(agent, quiet=True)
print(json.dumps(int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024))
"""


class _Model:
    """Does the same over and over, and takes no time for it; no two replies are the same text, as in life."""

    model = "none"
    sees_images = False

    def __init__(self, text: str) -> None:
        self._text = text
        self._step = 0
        self.tool_calling: ToolCalling = "preferred" if text == _CALL else "supported"

    async def reply(self, _request: Request) -> AsyncGenerator[Chunk]:
        self._step += 1
        yield ReplyStart(attempt=1)
        if self._text == _CALL:
            yield TextChunk(text=f"Step {self._step}.")
            yield CallChunk(index=0, id=f"c{self._step}", name="read_file", arguments=self._text.format())
        else:
            yield TextChunk(text=self._text.format(step=self._step))
        yield ReplyEnd(stop="stop", usage=Usage(requests=1))

    async def close(self) -> None:
        pass


def measure() -> list[Figure]:
    """Runs of 300 steps; medians of the steps 10 to 60 and of the last fifty, the least of a few runs'."""
    figures = []
    for what, block, kind, past, bound in (
        ("an empty block, session in memory", _NOTHING, "memory", 0, 1.0),
        (f"an empty block, session in memory, {PAST:,} messages before", _NOTHING, "memory", PAST, 1.0),
        ("an empty block, session in a file", _NOTHING, "file", 0, 3.0),
        (f"an empty block, session in a file, {PAST:,} messages before", _NOTHING, "file", PAST, 3.0),
        ("a block that reads a file, session in memory", _READ, "memory", 0, 3.0),
        ("a native call that reads a file, session in memory", _CALL, "memory", 0, 3.0),
    ):
        early, late = map(min, zip(*(_steps(block, kind, past) for _ in range(RUNS)), strict=True))
        figures.append(Figure(label=f"step with {what}, steps 10 to 60", value=early, unit="ms", bound=bound))
        figures.append(Figure(label=f"the same, last 50 of {STEPS}", value=late, unit="ms", bound=bound))
    figures.append(Figure(label="memory of an idle runtime (whole process)", value=_idle(), unit="MB", bound=45))
    return figures


def _steps(block: str, kind: str, past: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory, "work")
        work.mkdir()
        Path(work, "a.py").write_text("".join(f"x{i} = {i}\n" for i in range(40)))
        session: Session = InMemorySession() if kind == "memory" else FileSession("bench", session_dir=Path(directory))
        for number in range(past):
            session.append(Imported(role="user" if number % 2 == 0 else "assistant", text=f"Message {number}."))
        stamps = asyncio.run(_run(work, block, session))
    steps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    early, late = (percentile(part, 0.5) * 1000 for part in (steps[10:60], steps[-50:]))
    return early, late


async def _run(work_dir: Path, block: str, session: Session) -> list[float]:
    stamps: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepStarted):
            stamps.append(time.perf_counter())

    agent = Agent(
        provider=_Model(block),
        work_dir=work_dir,
        sandbox=pick_sandbox("auto", SandboxSettings()),
        policy=Policy(limits=RunLimits(max_steps=STEPS, max_repeated_calls=STEPS + 1)),
    )
    async with AsyncRuntime(agent, session, listeners=[listen]) as runtime:
        await runtime.run("read")
    return stamps


def _idle() -> float:
    done = subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, check=True, text=True)
    return float(json.loads(done.stdout))
