"""How long it takes to store and restore the files of a waiting job, in a directory and over S3, beside `tar`."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.error import URLError
from urllib.request import Request, urlopen

from pydantic import SecretStr

from bench.bench_job_setup import FILES, repository
from bench.measure import Figure
from bot.git.baseline import load_baseline
from bot.git.blobs import BlobAccess, BlobStore, open_blobs
from bot.git.mirror import Source
from bot.git.snapshots import Snapshots
from bot.git.workspace import INDEX, WorkspaceRef, Workspaces

_NEXT_BOUND = 0.1


def measure() -> list[Figure]:
    """Measure 4,000 files of about 110 MB, outside and inside the commit."""
    with tempfile.TemporaryDirectory() as directory, _s3() as remote:
        root = Path(directory)
        sha = repository(root / "source")
        subprocess.run(["git", "-C", str(root / "source"), "checkout", "-q", "--orphan", "bare"], check=True)
        subprocess.run(["git", "-C", str(root / "source"), "rm", "-rq", "--cached", "."], check=True)
        commit = ["-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "-q", "--allow-empty"]
        subprocess.run(["git", "-C", str(root / "source"), *commit, "-m", "nothing"], check=True)
        shown = ["git", "-C", str(root / "source"), "rev-parse", "HEAD"]
        empty = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip()
        packed = _tar(root / "source" / "tree", root)
        local = open_blobs((root / "store").as_uri())
        nothing, everything = (
            Source(url=str(root / "source"), token="", ref=f"refs/heads/{branch}", sha=commit)
            for branch, commit in (("bare", empty), ("main", sha))
        )
        figures = []
        for name, blobs, source in (
            ("directory, nothing in the commit", local, nothing),
            ("S3 on this machine, nothing in the commit", remote, nothing),
            ("directory, all in the commit", local, everything),
        ):
            stored, seconds, restored = asyncio.run(_measured(root, blobs, source))
            about = f"{FILES:,} files, {name}"
            figures += [
                Figure(
                    label=f"snapshot, {about}: {stored / 1e6:.1f} MB stored",
                    value=seconds[0],
                    unit="s",
                    note=f"`tar` and `gzip -1`: {packed[0]:.2f} s",
                ),
                Figure(
                    label=f"next snapshot, unchanged, {about}",
                    value=median(seconds[1:]),
                    unit="s",
                    bound=_NEXT_BOUND,
                    note=f"of nine: {min(seconds[1:]):.3f} s to {max(seconds[1:]):.3f} s",
                ),
                Figure(label=f"restore, {about}", value=restored, unit="s", note=f"`tar -xz`: {packed[1]:.2f} s"),
            ]
        return figures


async def _measured(root: Path, blobs: BlobStore, source: Source) -> tuple[int, list[float], float]:
    """The bytes that are stored; seconds for the first snapshot and for further ones; and for restoring it."""
    snapshots = Snapshots(blobs=blobs, key=bytes(32))
    here, there = (Workspaces(root / place, snapshots=snapshots) for place in ("here", "there"))
    async with there.open("warm", 1, source):
        pass
    async with Workspaces(root / "here").open("job", 1, source, keep=lambda: True) as tree:
        generation, files = tree.generation, tree.path
        await asyncio.to_thread(_fill, files, root / "source" / "tree")
    trusted = root / "here" / "jobs" / "job" / "trusted"
    given, seconds = load_baseline(trusted), []
    for _ in range(10):
        begun = time.perf_counter()
        snapshots.take("job", files, trusted / INDEX, baseline=given, repo_id=1, generation=generation)
        seconds.append(time.perf_counter() - begun)
    stored = sum(each.size for each in blobs.list("snapshots/job"))
    begun = time.perf_counter()
    async with there.reopen("job", WorkspaceRef(generation=generation, repo_id=1, source=source)) as tree:
        restored = time.perf_counter() - begun
        await asyncio.to_thread(_compare, tree.path, files)
    await here.discard("job")
    return stored, seconds, restored


def _fill(files: Path, tree: Path) -> None:
    if not list(files.iterdir()):
        shutil.copytree(tree, files / "tree")


def _compare(first: Path, second: Path) -> None:
    subprocess.run(["diff", "-r", "--no-dereference", str(first), str(second)], check=True)


def _tar(tree: Path, root: Path) -> tuple[float, float]:
    archive, target = root / "tree.tar.gz", root / "untarred"
    target.mkdir()
    begun = time.perf_counter()
    subprocess.run(["tar", "-I", "gzip -1", "-cf", str(archive), "-C", str(tree), "."], check=True)
    middle = time.perf_counter()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(target)], check=True)
    end = time.perf_counter()
    shutil.rmtree(target)
    return middle - begun, end - middle


@contextmanager
def _s3() -> Iterator[BlobStore]:
    """A bucket on a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = "import sys; from moto.server import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            endpoint, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
            while True:
                try:
                    with urlopen(Request(f"http://127.0.0.1:{port}/bench", method="PUT")):
                        break
                except URLError:
                    assert time.monotonic() < deadline, "the S3 server did not start"
                    time.sleep(0.1)
            access = BlobAccess(
                access_key_id="bench", secret_access_key=SecretStr("bench"), region="us-east-1", endpoint=endpoint
            )
            yield open_blobs("s3://bench", access)
        finally:
            server.terminate()
