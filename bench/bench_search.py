"""`find` on the CPython standard library, beside ripgrep started bare on the same files."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

from agent_runtime import SandboxSettings, pick_sandbox
from agent_runtime.tools.search import SearchTools
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.search import find_ripgrep
from bench.measure import Figure, percentile

_TIMES = 25
_PATTERNS = {
    "class Popen": "a dozen matches",
    "urlopen": "158 matches",
    "lambda": "2,000 matches",
    "import": "17,000 matches",
    "self": "200,000 matches",
}


def measure() -> list[Figure]:
    """Searches that alternate with bare ones, and their ratio; the lowest tenth, because other work only adds."""
    with tempfile.TemporaryDirectory() as directory:
        stdlib = copy_of_stdlib(Path(directory))
        return asyncio.run(_measure(stdlib))


def copy_of_stdlib(directory: Path) -> Path:
    """The standard library's sources alone, in a directory of their own."""
    return shutil.copytree(
        sysconfig.get_path("stdlib"),
        directory / "stdlib",
        ignore=shutil.ignore_patterns("site-packages", "__pycache__", "*.so", "*.a"),
    )


async def _measure(stdlib: Path) -> list[Figure]:
    figures = []
    with Workspace(stdlib) as workspace:
        rg = str(find_ripgrep())
        search = SearchTools(workspace, pick_sandbox("auto", SandboxSettings()))
        await search.find("warm up the page cache")
        for pattern, amount in _PATTERNS.items():
            ours: list[float] = []
            bare: list[float] = []
            for _ in range(_TIMES):
                begun = time.perf_counter()
                subprocess.run([rg, "--no-config", pattern, "."], cwd=stdlib, capture_output=True, check=False)  # noqa: ASYNC221 - nothing else runs
                bare.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                await search.find(pattern)
                ours.append(time.perf_counter() - begun)
            taken, beside = percentile(ours, 0.1) * 1000, percentile(bare, 0.1) * 1000
            what = f"find({pattern!r}) on the standard library, {amount}"
            figures += [
                Figure(label=what, value=taken, unit="ms", note=f"rg alone {beside:.1f} ms"),
                Figure(
                    label=f"the same, as a multiple of rg alone ({amount})",
                    value=taken / beside,
                    unit="x",
                    bound=1.2,
                ),
            ]
        search.close()
    return figures
