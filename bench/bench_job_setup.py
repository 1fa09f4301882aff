"""How long a job waits for its files when the mirror is warm, beside `git checkout-index` of the same tree."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench.measure import Figure
from bot.git.agent_repository import Refs, plan_repository
from bot.git.mirror import Mirror, Source
from bot.git.process import Git
from bot.git.workspace import Workspaces

FILES = 4_000
FILE_BYTES = 28_000
_BLOCK = 512
_MANY_FILES = 50_000
_SHORT_BYTES = 2_000


def measure() -> list[Figure]:
    """Measure a repository of 4,000 files and about 110 MB, and one of 50,000 short files."""
    return [
        *_compare(FILES, FILE_BYTES, rounds=3),
        *_compare(_MANY_FILES, _SHORT_BYTES, rounds=1),  # some file systems take minutes for it
        _measure_repository(),
    ]


def _compare(count: int, size: int, *, rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        sha = repository(root / "source", count=count, size=size)
        seconds = asyncio.run(_set_up(root, sha, rounds))
    prepared, unprepared, git = (median(seconds[kind]) for kind in ("prepared", "unprepared", "git"))
    note = f"`git checkout-index -a`: {git:.2f} s"
    label = f"a job's files, warm mirror, {count:,} files"
    return [
        Figure(label=f"{label}, prepared", value=prepared, unit="s", bound=min(git, unprepared / 2), note=note),
        Figure(label=f"{label}, not prepared", value=unprepared, unit="s", note=note),
    ]


def _measure_repository() -> Figure:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        source = root / "source"
        sha = repository(source)
        seconds, size = asyncio.run(_write_repository(root, source, sha, _add_base(source, sha)))
    return Figure(
        label="its agent's repository, with a base branch and 1,000 tags",
        value=seconds,
        unit="s",
        bound=0.1,
        note=f"{size / 1e6:.2f} MB; at most 5 MB",
    )


def repository(path: Path, *, count: int = FILES, size: int = FILE_BYTES) -> str:
    """Commit such files to a new repository; give back the commit."""
    tree = path / "tree"
    for number in range(count):
        folder = tree / f"d{number % (count // 50)}"
        folder.mkdir(parents=True, exist_ok=True)
        block = "".join(f"{hashlib.sha256(f'{number} {i}'.encode()).hexdigest()}\n" for i in range(size // 65))
        (folder / f"f{number}.txt").write_text(block)
    git = ["git", "-C", str(path), "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "tree"], check=True)
    subprocess.run([*git, "repack", "-adq"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


async def _set_up(root: Path, sha: str, rounds: int) -> dict[str, list[float]]:
    """Measure by turns: all depends on how busy the disk is at the moment."""
    workspaces = Workspaces(root / "bot")
    wanted = Source(url=str(root / "source"), token="", ref="refs/heads/main", sha=sha)
    async with workspaces.open("warm", 1, wanted):
        pass
    seconds = defaultdict[str, list[float]](list)
    for number in range(rounds):
        for kind in ("unprepared", "prepared"):
            if kind == "prepared":
                await workspaces.prepare_checkout()
            begun = time.perf_counter()
            async with workspaces.open(f"{kind}{number}", 1, wanted):
                seconds[kind].append(time.perf_counter() - begun)
        seconds["git"].append(_check_out(root / "bot/mirrors/1.git", root / "git", sha))
        await workspaces.prepare_checkout()  # of the second job, for the first of the next round
        shutil.rmtree(root / "bot/mirrors/1.files")
    return seconds


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
    """Seconds for the `.git` of a pull request's job, the median of nine, and its bytes on the disk."""
    workspaces, url = Workspaces(root / "with-repositories"), str(source)
    wanted = Source(url=url, token="", ref="refs/heads/main", sha=sha)
    refs = Refs(branch="main", base=Source(url=url, token="", ref="refs/heads/base", sha=base))
    seconds = []
    async with workspaces.open("job", 1, wanted, refs=refs) as tree:
        assert refs.base is not None
        assert tree.repository is not None
        index = Path(shutil.copy2(tree.path / ".git" / "index", root / "index"))
        mirrors = root / "with-repositories" / "mirrors"
        mirror = Mirror(path=mirrors / "1.git", lock=mirrors / "1.lock")
        for _ in range(9):
            begun = time.perf_counter()
            await mirror.provide(refs.base, keep="job.base")
            repository = await plan_repository(tree.path, mirror, wanted, refs, objects=tree.repository.objects)
            await repository.write(Git(git_dir=tree.git_dir), sha, index=index)
            seconds.append(time.perf_counter() - begun)
        size = sum(path.lstat().st_blocks * _BLOCK for path in (tree.path / ".git").rglob("*"))
    return median(seconds), size


def _check_out(mirror: Path, target: Path, sha: str) -> float:
    target.mkdir()
    git = ["git", "--git-dir", str(mirror), "--work-tree", str(target / "files")]
    (target / "files").mkdir()
    environment = {"GIT_INDEX_FILE": str(target / "index")}
    subprocess.run([*git, "read-tree", sha], check=True, env=environment)
    begun = time.perf_counter()
    subprocess.run([*git, "checkout-index", "-a", "-u"], check=True, env=environment)
    seconds = time.perf_counter() - begun
    shutil.rmtree(target)
    return seconds
