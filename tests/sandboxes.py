"""Running a script in the real sandbox, for tests of what it can and cannot do there."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings


def run_inside(
    script: str, workspace: Path, settings: SandboxSettings | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a bash script in a sandbox on `workspace`; its output is text."""
    launch = Bubblewrap(settings or SandboxSettings()).launch(["bash", "-c", script], workspace=workspace)
    return subprocess.run(
        launch.argv,
        env=dict(launch.env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def seconds(number: int) -> str:
    """A time to sleep for, by which a process is found again: no process of another worker's tests has the same."""
    return f"{number}.{os.getpid()}"


def processes_with(argument: str) -> list[int]:
    """Ids of the live processes that have `argument` on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile
            continue
        if argument.encode() in words:
            found.append(int(entry.name))
    return found


def descriptors() -> int:
    """How many files this process has open; threads of earlier tests may be about to close some."""
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    """The children of this process, zombies among them."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread of an earlier test that ends just now
            found.update((task / "children").read_text().split())
    return found


def opened_in(folder: Path) -> list[Path]:
    """What this process has open of a folder, as often as it is open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(entry.readlink())
    return sorted(each for each in found if each.is_relative_to(folder))


def parent_of(pid: int) -> int:
    """The id of a process's parent."""
    # After the name in parentheses, which may hold anything: state, parent (proc(5)).
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
