"""Measure this library beside the originals, and print one table. Usage: make peers.

The environments are made with pip below a directory, which is kept when it is given: python -m bench.peers DIRECTORY.

Everything is measured in rounds, one system after the other, and of each figure the least counts: other work on the
machine only adds. Processor time is used where all the work is in the measured process. Commands, outputs and searches
are timed by the clock.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from pathlib import Path

from bench.bench_search import copy_of_stdlib
from bench.measure import installed
from bench.peers.sessions import SESSIONS
from bench.peers.steps import STEPS
from bench.peers.tools import TOOLS

_PACKAGES = {
    "codepilot": "codepilot-ai==0.9.1",
    "pygent": "pygent==0.1.26",
    "llm-coding-agent": "llm-coding-agent==0.1a0",
}
_IMPORTS = {
    # Our names are loaded when they are asked for: these are what runs an agent, as the others' packages load it.
    "ours": "from agent_runtime import Agent, AsyncRuntime",
    # Its table of tokens comes from the network, which is no part of an import.
    "codepilot": "import tiktoken; tiktoken.get_encoding = lambda _: None\nimport codepilot",
    "pygent": "import pygent",
    "llm-coding-agent": "import llm_coding_agent",
}
_BARE = "a bare program on a terminal"
_ROUNDS = 5
_ROWS = {
    "import": ("import, processor time", "ms"),
    "start": ("start of a process to the end of its first step, processor time", "ms"),
    "step 30": ("a step around the 30th, processor time", "ms"),
    "step 300": ("a step around the 300th, processor time", "ms"),
    "growth": ("what 300 steps add to a step", "ms"),
    "command": ("a trivial command", "ms"),
    "10 MB": ("10 MB of output", "ms"),
    "50 MB": ("50 MB of output", "ms"),
    "memory": ("memory that these outputs add", "MiB"),
    "find": ("search of the standard library", "ms"),
    "edit": ("edit of a file of 5,000 lines", "ms"),
    "save at 100": ("saving a step of a session of 100 messages, processor time", "ms"),
    "save at 1,000": ("of 1,000 messages", "ms"),
    "save at 10,000": ("of 10,000 messages", "ms"),
}
_Figures = dict[str, dict[str, float]]


def measure(directory: Path) -> _Figures:
    """Return each system's measurements by its name and the row's."""
    stdlib = directory / "stdlib"
    if not stdlib.exists():
        copy_of_stdlib(directory)
    pythons = dict.fromkeys(["ours", "ours, control blocks", _BARE], Path(sys.executable))
    pythons |= {name: _environment(directory / name, package) for name, package in _PACKAGES.items()}
    found: _Figures = defaultdict(dict)
    for number in range(_ROUNDS):
        for name, python in pythons.items():
            # CodePilot takes a minute for these outputs, so they are made once.
            sizes = "10,50" if number == 0 or name != "codepilot" else ""
            runs = [_run(python, program, str(stdlib), sizes) for kind in (STEPS, TOOLS, SESSIONS)
                    if (program := kind.get(name)) is not None]  # fmt: skip
            if name in _IMPORTS:
                seconds = _processor_seconds(python, _IMPORTS[name]) - _processor_seconds(python, "pass")
                runs.append({"import": seconds * 1000})
            for row, value in (item for run in runs for item in run.items()):
                found[name][row] = min(value, found[name].get(row, value))
    for figures in found.values():
        if "step 300" in figures:
            figures["growth"] = max(0.0, figures["step 300"] - figures["step 30"])
    return found


def table(systems: _Figures) -> str:
    """The figures as Markdown, a column for each system."""
    lines = [
        ["", *({**_PACKAGES}.get(name, name).replace("==", " ") for name in systems)],
        ["---", *("---:" for _ in systems)],
    ]
    for row, (title, unit) in _ROWS.items():
        values = [figures.get(row) for figures in systems.values()]
        lines.append([title, *("" if value is None else f"{_short(value)} {unit}" for value in values)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _environment(at: Path, package: str) -> Path:
    """The interpreter of an environment that has a package; made where it is not there yet."""
    python = at / "bin" / "python"
    if not python.exists():
        venv.create(at, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package], check=True)
    return python


def _run(python: Path, program: str, *arguments: str) -> dict[str, float]:
    """The figures that a program prints as the last line on standard error."""
    done = subprocess.run(
        [python, "-c", program, *arguments], env=installed(), capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    return told


def _processor_seconds(python: Path, program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", program], env=installed(), capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(*sys.argv[1:2]).absolute() if sys.argv[1:] else Path(temporary)
        place.mkdir(exist_ok=True)
        print(table(measure(place)))
