"""How long the action's own install takes on a runner, from an empty and from a warm tool cache, beside pip alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Figure
from tests.act import copy_of_this
from tests.origin import git

_ROUNDS = 3
_BOUND = 5.0
_WORKFLOW = """\
on: push
jobs:
  install:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd
      - name: Install
        run: scripts/action-install
"""
_TOOK = re.compile(r"Success - Main Install \[([^\]]+)\]")
_PART = re.compile(r"([0-9.]+)(ms|m|s)")
_SECONDS = {"m": 60.0, "s": 1.0, "ms": 0.001}


def measure() -> list[Figure]:
    """Under `act`, with and without `uv` on the runner, on a disk and in memory; warm is the least of three.

    A runner deletes the 8,000 files of an install when its job ends. For some minutes after that, ext4 steps over
    the inodes of deleted files when it makes new ones, so an install right after another one is the slowest there is.
    """
    figures = []
    for place in (Path(tempfile.gettempdir()), Path("/dev/shm")):  # noqa: S108 - a directory of its own is made there
        if os.access(place, os.W_OK):
            figures += _measured_on(place)
    return figures


def _measured_on(place: Path) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(dir=place) as directory:
        root = Path(directory)
        project = root / "project"
        copy_of_this(project)
        workflow = project / ".github" / "workflows" / "install.yml"
        workflow.write_text(_WORKFLOW)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All"]):
            git(project, *command)
        git(project, "remote", "add", "origin", "https://github.com/octo/calc.git")
        pip = f"pip and a virtual environment, as before: {installed_by_pip(root, project):.1f} s"
        for uv in (True, False):
            runner = root / f"runner-{uv}"
            empty = _install(runner, project, uv=uv)
            warm = min(_install(runner, project, uv=uv) for _ in range(_ROUNDS))
            what = f"the action's install in {place}, {'with' if uv else 'without'} `uv` on the runner"
            figures += [
                Figure(label=f"{what}, empty cache", value=empty, unit="s", note=pip),
                Figure(label=f"{what}, warm cache", value=warm, unit="s", bound=_BOUND, note=pip),
            ]
    return figures


def _install(runner: Path, project: Path, *, uv: bool) -> float:
    """Seconds that the step took, as `act` says."""
    programs = runner / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    link = programs / "uv"
    if uv and not link.exists():
        link.symlink_to(Path(sys.executable).parent / "uv")
    ours = str(Path(sys.executable).parent)
    outside = ":".join(part for part in os.environ["PATH"].split(":") if part != ours)
    argv = [
        str(Path(ours, "act")),
        "push",
        "-P",
        "ubuntu-24.04=-self-hosted",
        "--workflows",
        ".github/workflows/install.yml",
    ]
    argv += ["--action-cache-path", str(runner / "cache"), "--action-offline-mode", "--no-cache-server"]
    done = subprocess.run(
        argv,
        cwd=project,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(runner / "home"),
            "PATH": f"{programs}:{Path(sys.base_prefix, 'bin')}:{outside}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took = _TOOK.search(done.stdout)
    assert took, done.stdout[-3000:]
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(took[1]))


def installed_by_pip(root: Path, project: Path) -> float:
    """Seconds of the former installation: a virtual environment with pip, the lock, our package."""
    begun = time.perf_counter()
    subprocess.run([Path(sys.base_prefix, "bin", "python3"), "-I", "-m", "venv", root / "pip"], check=True)
    pip: list[str | Path] = [
        root / "pip" / "bin" / "python",
        "-I",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    lock = ["--no-compile", "--require-hashes", "--requirement", "requirements/action.lock"]
    subprocess.run([*pip, *lock], cwd=project, check=True, stderr=subprocess.DEVNULL)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "."], cwd=project, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun
