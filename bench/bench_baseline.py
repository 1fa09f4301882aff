"""Costs and savings of the baseline of failures: runs of a small fix in a project in which one test fails before.

The scripted model edits, runs all tests with `check=True` and finishes in its first reply; if the completion is
withdrawn, it looks at the failure and finishes again.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from agent_runtime import Agent, AsyncRuntime, SandboxSettings, ScriptedProvider, StepStarted, pick_sandbox
from bench.measure import Figure

_ROUNDS = 5
_MODULES = 300
_PYTHON = Path(sys.prefix)
_FIX = """```codepilot
write_file("src/parcel/weight.py", mode="w")
execute("main", "python -m pytest -q", check=True)
```
```python filename=src/parcel/weight.py
WEIGHT = 7
```
```completion
The weight is 7.
```
"""
_LOOK = """```codepilot
execute("main", "git stash list; python -m pytest -q src/parcel/tests/test_weight.py")
read_file("src/parcel/tests/test_weight.py")
```
"""
_AGAIN = "```completion\nThe weight is 7. test_label failed before.\n```\n"
_TESTS = """from parcel import weight


def test_weight():
    assert weight.WEIGHT > 1


def test_label():
    assert weight.LABEL == "red"
"""


@dataclass(slots=True)
class _Runs:
    """Figures of each run."""

    requests: list[int] = field(default_factory=list)
    priced_tokens: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    first_own: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def measure() -> list[Figure]:
    """Compare the medians of five runs with a baseline and five without one."""
    with_baseline, without = (asyncio.run(_run_all(seconds)) for seconds in (Agent.baseline_seconds, 0.0))
    figures = [
        ("requests of a fix beside a test that failed before", "requests", "", 1.5),
        ("its tokens, priced (write 1.25, read 0.1, output 5)", "priced_tokens", "", None),
        ("its first request is sent after", "first", "s", 8.0),
        ("own processor time until then", "first_own", "s", 1.5),
        ("the whole run, without the model's time", "seconds", "s", None),
    ]
    return [
        Figure(
            label=label,
            value=median(getattr(with_baseline, name)),
            unit=unit,
            bound=bound,
            note=f"without a baseline: {median(getattr(without, name)):.4g} {unit}".rstrip(),
        )
        for label, name, unit, bound in figures
    ]


async def _run_all(baseline_seconds: float) -> _Runs:
    runs = _Runs()
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            await _run(Path(directory), baseline_seconds, runs)
    return runs


async def _run(root: Path, baseline_seconds: float, runs: _Runs) -> None:
    files = {f"src/parcel/module_{number}.py": f"VALUE = {number}\n" for number in range(_MODULES)}
    files |= {"src/parcel/__init__.py": "", "src/parcel/weight.py": "WEIGHT = 6\n"}
    files["src/parcel/tests/test_weight.py"] = _TESTS
    files["pyproject.toml"] = "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    settings = SandboxSettings(read_only=(_PYTHON, Path(sys.base_prefix)), path=(_PYTHON / "bin",))
    agent = Agent(
        provider=ScriptedProvider([_FIX, _LOOK, _AGAIN]),
        work_dir=root,
        sandbox=pick_sandbox("auto", settings),
        chat=False,
        baseline_seconds=baseline_seconds,
    )
    started, own = time.perf_counter(), time.process_time()

    def note_first(event: object) -> None:
        if isinstance(event, StepStarted) and event.step == 1:
            runs.first.append(time.perf_counter() - started)
            runs.first_own.append(time.process_time() - own)

    async with AsyncRuntime(agent, listeners=[note_first]) as runtime:
        outcome = await runtime.run("The weight in src/parcel/weight.py must be 7")
    usage = outcome.usage
    cached = 1.25 * usage.cache_write_tokens + 0.1 * usage.cached_tokens
    runs.requests.append(usage.requests)
    runs.priced_tokens.append(usage.input_tokens + cached + 5 * usage.output_tokens)
    runs.seconds.append(time.perf_counter() - started)
