"""Worst cost of each tool for the host: memory, and the longest turn of the event loop. Each case is a process.

usage of one: python -m bench.bench_host NUMBER
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from agent_runtime import Agent, SandboxSettings, ScriptedProvider, Task, ToolError, pick_sandbox
from agent_runtime.core.errors import BoundExceededError
from agent_runtime.core.events import Observed, Recorded, Replied, Started
from agent_runtime.core.values import Usage
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.transports.blocks import BlockTransport
from bench.host_cases import CASES, Call, Case
from bench.measure import Figure
from tests.block_files import payloads_of

MEMORY = 256
"""Megabytes: the host's process, and each of its workers."""
SILENCE = 100
"""Milliseconds."""
_RUNS = 2
"""The least counts: other work on the machine only adds."""


def measure() -> list[Figure]:
    """Three figures a case."""
    figures: list[Figure] = []
    for number, case in enumerate(CASES):
        runs = [_run(number) for _ in range(_RUNS)]
        host, worker, silence, own, seconds = (min(run[each] for run in runs) for each in range(5))
        what = f"{case.tool}: {case.label}" if case.tool else case.label
        beside = f"{seconds:.2g} s in all"
        figures += [
            Figure(label=f"{what}: memory of the host", value=host, unit="MB", bound=MEMORY, note=beside),
            Figure(label=f"{what}: memory of a worker", value=worker, unit="MB", bound=MEMORY + 20),
            Figure(
                label=f"{what}: silence of the loop",
                value=silence,
                unit="ms",
                bound=SILENCE,
                note=f"{own:.2g} ms of processor time at most between two turns",
            ),
        ]
    return figures


def _run(number: int) -> list[float]:
    done = subprocess.run([sys.executable, "-m", "bench.bench_host", str(number)], stdout=subprocess.PIPE, check=True)
    return [float(each) for each in json.loads(done.stdout)]


async def _measured(case: Case) -> list[float]:
    """Peak memory of this process and of its largest worker, the longest silence, and how long it took."""
    session = InMemorySession()
    for event in (event for number in range(case.tasks) for event in _task(number)):
        session.append(event)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        case.prepare(folder)
        agent = Agent(provider=ScriptedProvider([]), work_dir=folder, sandbox=pick_sandbox("auto", SandboxSettings()))
        hands = Toolbox(agent, RunState(session, HookSystem()), ask=_answer)
        await asyncio.to_thread(call_bounded, os.getpid)  # a worker is warm
        begun, silences = time.perf_counter(), [(0.0, 0.0)]
        ticking = asyncio.create_task(_tick(silences))
        await _work(case, hands, folder)
        seconds = time.perf_counter() - begun
        ticking.cancel()
        wall, own = (max(each) * 1000 for each in zip(*silences, strict=True))
        figures = [_peak("self"), max(map(_peak, _workers()), default=0.0), wall, own, seconds]
        await hands.close()
    return figures


async def _work(case: Case, hands: Toolbox, folder: Path) -> None:
    for call in case.calls:
        await _call(case.tool or "read_file", call, hands) if call.arguments or case.tool else None
    if not case.tool and "pause" in case.label:
        await hands.manifest()
    elif not case.tool:
        for path in list(folder.iterdir()):  # noqa: ASYNC240 - nothing is measured yet
            await asyncio.to_thread(path.write_text, path.read_text() + "x\n")
        await run_in_thread(hands.files.report_external_changes)


async def _call(tool: str, call: Call, hands: Toolbox) -> None:
    name = "execute" if "command" in call.arguments else tool
    found = hands.registry.get(name)
    cast("BlockTransport", hands.transport)._binder.begin_step(payloads_of(call.payloads), "")  # noqa: SLF001 - as a leg does
    hands.files.begin_step()
    try:
        planned = await found.plan(call.arguments)
        await run_in_thread(planned.preview)
        await found.apply(planned)
    except (ToolError, BoundExceededError) as error:
        print(f"{name}: {str(error)[:200]}", file=sys.stderr)


async def _tick(silences: list[tuple[float, float]]) -> None:
    """Record duration and processor time of each turn of the loop."""
    last = time.perf_counter(), time.process_time()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter(), time.process_time()
        silences.append((now[0] - last[0], now[1] - last[1]))
        last = now


async def _answer(question: str) -> str:
    return question


def _task(number: int) -> list[Recorded]:
    text = f"Task {number}. " + "It is about something. " * 100
    return [
        Started(task=Task(goal=text), opening=text, run_id=str(number), facts=()),
        Replied(step=1, text=text, usage=Usage()),
        Observed(step=1, text=text, ok=True),
    ]


def _workers() -> list[str]:
    children = Path("/proc/self/task").glob("*/children")
    found = [pid for each in children for pid in each.read_text().split()]
    return [pid for pid in found if b"bounded_worker" in Path("/proc", pid, "cmdline").read_bytes()]


def _peak(process: str) -> float:
    """The most memory that a process had at once, in megabytes."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc", process, "status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(CASES[int(sys.argv[1])]))))
