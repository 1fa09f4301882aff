"""Cost of an edit of a large file, with the disk's sync, and of detecting other processes' edits."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Watch
from bench.measure import Figure, percentile
from tests.block_files import BlockFiles

EDITS = 1_000
FUNCTIONS = 833  # of six lines: 5,000 lines of Python
TRACKED = 100
_FUNCTION = """def f{i}(a, b=1):
    x{i} = a + b * {i}
    if x{i} > 3:
        return [y for y in range(x{i})]
    return {{"k": x{i}}}

"""

Edit = Callable[[BlockFiles, int, int], None]
"""Makes one edit: of function `i`, in turn `turn`. Its time is the step's, from the payloads to the last sync."""


def measure() -> list[Figure]:
    """1,000 edits in each mode, mean and 99 in 100; and one look at 100 tracked files."""
    figures = [figure for name, edit in _EDITS.items() for figure in _edits(name, edit)]
    return [*figures, Figure(label=f"change detection, {TRACKED} tracked files", value=_look(), unit="ms", bound=1)]


def _edits(name: str, edit: Edit) -> list[Figure]:
    numbers = random.Random(0)  # noqa: S311 - which line is edited is no secret
    times: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as directory, Workspace(Path(directory)) as workspace:
        path = Path(directory, "a.py")
        path.write_text("".join(_FUNCTION.format(i=i) for i in range(FUNCTIONS)))
        tools = BlockFiles(workspace)
        for turn in range(EDITS):
            begun = time.perf_counter()
            edit(tools, numbers.randrange(FUNCTIONS), turn)
            tools.end()
            times.append((time.perf_counter() - begun) * 1000)
            if turn % 10 == 0:
                bare.append(_bare_write(Path(directory), path.read_bytes()))
    what = f"{name} in a Python file of {6 * FUNCTIONS:,} lines, written and synced"
    beside = f"{sum(bare) / len(bare):.2g} ms for the bare write, sync and rename of the same bytes"
    return [
        Figure(label=f"{what} (mean of {EDITS:,})", value=sum(times) / EDITS, unit="ms", bound=5, note=beside),
        Figure(label=f"{what} (99 in 100)", value=percentile(times, 0.99), unit="ms"),
    ]


def _bare_write(directory: Path, data: bytes) -> float:
    """Milliseconds of the disk write at the end of every edit."""
    begun = time.perf_counter()
    with (directory / "bare.tmp").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    (directory / "bare.tmp").rename(directory / "bare")
    return (time.perf_counter() - begun) * 1000


def _line_edit(tools: BlockFiles, i: int, turn: int) -> None:
    tools.take(f"    x{i} = a + b * {i} + {turn}\n")
    tools.write("a.py", 6 * i + 2, 6 * i + 2, mode="edit")


def _replace(tools: BlockFiles, i: int, turn: int) -> None:
    tools.take(f"def f{i}(a, b=1):\n", f"def f{i}(a, b=1):\n    # {turn}\n")
    tools.write("a.py", mode="replace")


def _patch(tools: BlockFiles, i: int, turn: int) -> None:
    body = f"@@ def f{i}\n     if x{i} > 3:\n+        print({turn})\n"
    tools.take(f"*** Begin Patch\n*** Update File: a.py\n{body}*** End Patch\n")
    tools.write(mode="patch")


_EDITS: dict[str, Edit] = {"edit by line": _line_edit, "replace": _replace, "patch": _patch}


def _look() -> float:
    """Milliseconds to find that none of the tracked files has changed; the median of fifty looks."""
    with tempfile.TemporaryDirectory() as directory, Workspace(Path(directory)) as workspace:
        watch = Watch(workspace)
        for i in range(TRACKED):
            path = Path(directory, "src", f"package{i % 10}", f"module{i}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_FUNCTION.format(i=i) * 100)
            watch.record(str(path.relative_to(directory)))
        deadline = time.monotonic() + 10
        times: list[float] = []
        while len(times) < 50 and time.monotonic() < deadline:
            begun = time.perf_counter()
            watch.take_changes()
            times.append((time.perf_counter() - begun) * 1000)
    return percentile(times, 0.5)
