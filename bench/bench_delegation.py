"""Cost of a workspace copy for a delegated task, next to `cp`."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from agent_runtime.delegation.copies import CopyBounds, copy_workspace
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest
from bench.measure import Figure

FILES = 3_000
FILE_BYTES = 10_000
_RUNS = 5


def measure() -> list[Figure]:
    """A workspace of 3,000 files and 30 MB; the median of five."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        source = root / "source"
        for number in range(FILES):
            folder = source / f"d{number % 60}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number}.txt").write_text(f"{number:08} " * (FILE_BYTES // 9))
        copies, states, plain = asyncio.run(_measured(root, source))
    size = FILES * FILE_BYTES // 1_000_000
    return [
        Figure(
            label=f"a delegated task's copy of {FILES:,} files, {size} MB",
            value=median(copies),
            unit="s",
            bound=3 * median(plain),
            note=f"`cp -r --reflink=auto` of the same: {median(plain):.2f} s",
        ),
        Figure(label="and knowing what all of them hold, for the merge", value=median(states), unit="s", bound=3.0),
    ]


async def _measured(root: Path, source: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds of copies, of looking at their files, and of `cp`, by turns."""
    copies, states, plain = list[float](), list[float](), list[float]()
    for run in range(_RUNS):
        target = root / f"copy {run}"
        await asyncio.to_thread(target.mkdir)
        begun = time.perf_counter()
        with Workspace(source) as workspace:
            await copy_workspace(workspace, target, None, CopyBounds(bytes_left=10**9, files_left=10**5))
        copies.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with Workspace(target) as copy:
            await Manifest.scan_bounded(copy)
        states.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        command = ["cp", "-r", "--reflink=auto", "--preserve=timestamps", str(source), str(root / f"plain {run}")]
        await asyncio.to_thread(subprocess.run, command, check=True)
        plain.append(time.perf_counter() - begun)
    return copies, states, plain
