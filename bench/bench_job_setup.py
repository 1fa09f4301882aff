"""How long a job waits for its files when the mirror is warm, beside copying the same tree."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.measure import Figure
from bot.git.agent_repository import Refs
from bot.git.mirror import Source
from bot.git.workspace import Workspaces

FILES = 4_000
FILE_BYTES = 28_000
_BLOCK = 512


def measure() -> list[Figure]:
    """A repository of 4,000 files and about 110 MB; the median of five."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        source = root / "source"
        sha = repository(source)
        ours, copies = asyncio.run(_set_up(root, source, sha))
        added, size = asyncio.run(_write_repository(root, source, sha, _add_base(source, sha)))
    bound = 1.5 * median(copies)
    return [
        Figure(
            label=f"job set-up, warm mirror, {FILES:,} files",
            value=median(ours),
            unit="s",
            bound=bound,
            note=f"`cp -r` of the same tree: {median(copies):.2f} s",
        ),
        Figure(
            label="its agent's repository, with a base branch and 1,000 tags",
            value=added,
            unit="s",
            bound=0.1,
            note=f"{size / 1e6:.2f} MB; at most 5 MB",
        ),
    ]


def repository(path: Path) -> str:
    """Commit such files to a new repository; give back the commit."""
    tree = path / "tree"
    for number in range(FILES):
        folder = tree / f"d{number % 80}"
        folder.mkdir(parents=True, exist_ok=True)
        block = "".join(f"{hashlib.sha256(f'{number} {i}'.encode()).hexdigest()}\n" for i in range(FILE_BYTES // 65))
        (folder / f"f{number}.txt").write_text(block)
    git = ["git", "-C", str(path), "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "tree"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


async def _set_up(root: Path, source: Path, sha: str) -> tuple[list[float], list[float]]:
    """Seconds for a job's files and for a copy, by turns: both depend on how busy the disk is at the moment."""
    workspaces = Workspaces(root / "bot")
    wanted = Source(url=str(source), token="", ref="refs/heads/main", sha=sha)
    async with workspaces.open("warm", 1, wanted):
        pass
    ours, copies = [], []
    for number in range(5):
        begun = time.perf_counter()
        async with workspaces.open(f"job{number}", 1, wanted):
            ours.append(time.perf_counter() - begun)
        copies.append(_copy(source / "tree", root / "copy"))
    return ours, copies


def _add_base(source: Path, sha: str) -> str:
    """Give the repository 1,000 tags and a branch that went on; give back its commit."""
    git = ["git", "-C", str(source)]
    tags = "".join(f"create refs/tags/v{number} {sha}\n" for number in range(1_000))
    subprocess.run([*git, "update-ref", "--stdin"], input=tags, text=True, check=True)
    author = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    commit = [*git, *author, "commit-tree", "-p", sha, "-m", "Go on", f"{sha}^{{tree}}"]
    base = subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([*git, "update-ref", "refs/heads/base", base], check=True)
    return base


async def _write_repository(root: Path, source: Path, sha: str, base: str) -> tuple[float, int]:
    """Seconds that the `.git` of a pull request's job adds, least of seven by turns, and its bytes on the disk."""
    workspaces = Workspaces(root / "with-repositories")
    wanted = Source(url=str(source), token="", ref="refs/heads/main", sha=sha)
    refs = Refs(branch="main", base=Source(url=str(source), token="", ref="refs/heads/base", sha=base))
    async with workspaces.open("warm", 1, wanted, refs=refs) as tree:
        size = sum(path.lstat().st_blocks * _BLOCK for path in (tree.path / ".git").rglob("*"))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(14):
        begun = time.perf_counter()
        async with workspaces.open(f"job{number}", 1, wanted, refs=refs if number % 2 else None):
            seconds[bool(number % 2)].append(time.perf_counter() - begun)
    return min(seconds[True]) - min(seconds[False]), size


def _copy(source: Path, target: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    seconds = time.perf_counter() - begun
    shutil.rmtree(target)
    return seconds
