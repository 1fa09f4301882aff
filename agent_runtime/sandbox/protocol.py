"""The protocol of a sandbox: run a program in isolation.

A `Sandbox` makes a `Launch`, the command by which a program runs on one workspace. `SandboxSettings` say what it shows
to the program. Below are helpers that all sandboxes share: the files that a program is loaded from, and temporary
directories that are removed when their process ends, in every case.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from agent_runtime.core.errors import SandboxError

WORKSPACE = "/workspace"

HOME = "/home/agent"

TMPFS = ("/dev/shm", "/tmp", HOME)  # noqa: S108 - places inside, not files of the host


class Sandbox(Protocol):
    """A way to run programs on one workspace in isolation from the host."""

    @property
    def level(self) -> str:
        """The protection of the host, for reports: `bubblewrap`, `docker` or `none`."""

    @property
    def apart(self) -> bool:
        """Whether each start gets processes, network and temporary files of its own, unseen by every other start."""

    @property
    def limits(self) -> SandboxLimits:
        """Bounds of each start; where nothing is `apart`, nothing keeps them."""

    @property
    def git_writable(self) -> bool:
        """Whether programs may make and change git repositories in the workspace."""

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,
    ) -> Launch:
        """Prepare to start `argv` inside, in `workspace`, which is the only thing writable besides tmpfs.

        Args:
            argv: the program and its arguments.
            workspace: the directory of the host to work in.
            readable: more files and directories of the host that may be read, by their absolute path inside.
            fixed: paths in the workspace that stay in their place, a directory before what is in it.
            first: make it the first process, out of the reach of what it starts; for sandboxes that are `apart`.

        Raises:
            SandboxError: the sandbox cannot work here; the text says how to fix it.
        """

    def seen_as(self, workspace: Path) -> str:
        """Return the absolute path at which programs inside see `workspace`."""

    def probe(self) -> None:
        """Start a trivial program with the full argument list, once; the answer is cached.

        Raises:
            SandboxError: as for `launch`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPath:
    """A path in the workspace that programs can neither rename nor replace, because it is mounted over itself.

    Attributes:
        path: from the workspace.
        writable: whether they may write to it, for a directory above one that is read-only.
    """

    path: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program made ready: start exactly this argv with exactly this environment, from the main thread."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Bounds of one sandbox: of everything that runs in it together, and where it says so of one process or file.

    Attributes:
        memory_bytes: memory of all processes and of files in tmpfs together, and what one process may write to. On a
            machine with little memory, three quarters of that.
        processes: processes and threads.
        cpu_seconds: processor time of all processes together, of those that ended too.
        seconds: from the sandbox's start. The greatest time that a run can be given, because a run ends its own.
        disk_bytes: taken by what was made or changed in the workspace.
        files: made or changed in the workspace, and in tmpfs; directories count. Dependencies of a large project in
            JavaScript come to about 100,000.
        free_bytes: bytes that stay free on the workspace's disk, no matter which program fills it.
        file_bytes: size of one file.
        tmp_bytes: size of each writable tmpfs (`/tmp`, `/dev/shm`, home).
        open_files: open files of one process.
    """

    memory_bytes: int = 8 * 1024**3
    processes: int = 512
    cpu_seconds: float = 7200.0
    seconds: float = 86_400.0
    disk_bytes: int = 10 * 1024**3
    files: int = 150_000
    free_bytes: int = 1024**3
    file_bytes: int = 2 * 1024**3
    tmp_bytes: int = 1024**3
    open_files: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """The settings of the sandbox `docker`.

    Attributes:
        image: the image, best named by its digest (`name@sha256:…`). It must have bash and the basic programs of GNU or
            BusyBox, and it is never fetched.
        program: the engine's command line, `docker` or `podman`: a name on the `PATH`, or a path.
        cpus: processors that one container may keep busy.
    """

    image: str
    program: str = "docker"
    cpus: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """The parts of the host that a sandbox shows to the programs inside, besides the workspace, and its bounds.

    Attributes:
        read_only: host directories shown read-only at their own paths (a Python prefix, a toolchain).
        path: directories put before the usual ones on `PATH`.
        environment: variables set inside; nothing is inherited.
        limits: bounds.
        container: for the sandbox `docker`, which requires it.
        git_writable: whether programs may make and change git repositories in the workspace. The next git outside the
            sandbox runs the hooks and programs that they write there.
    """

    read_only: tuple[Path, ...] = ()
    path: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    container: ContainerSettings | None = None
    git_writable: bool = False

    def check(self, workspace: Path) -> None:
        """Check that the parts of the host which a sandbox shows exist.

        Raises:
            SandboxError: the workspace is no directory, or one of `read_only` is none that can be shown.
        """
        if not workspace.is_dir():
            raise SandboxError(f"The workspace {workspace} is not a directory; create it before starting the sandbox.")
        for directory in self.read_only:
            if not directory.is_absolute() or not directory.is_dir() or directory == Path("/"):
                raise SandboxError(
                    f"sandbox setting read_only: {directory} is not an absolute path of a directory below /; "
                    "name an existing one or remove it."
                )

    def kept(self, workspace: Path) -> Mapping[str, Path]:
        """Return the parts of a workspace that are shown read-only: paths in it, and on the host."""
        git = workspace / ".git"
        return {} if self.git_writable or git.is_symlink() or not git.exists() else {".git": git}


class TemporaryFiles(Protocol):
    """Work on the `/tmp` of a sandbox from outside."""

    def attach(self, root: int, alive: Callable[[], bool]) -> None:
        """Take over the `/tmp` of a sandbox that has started.

        Args:
            root: descriptor of its root directory, which stays the caller's.
            alive: whether it still runs.

        Raises:
            OSError: the sandbox has ended, or has no `/tmp` of its own.
        """

    def detach(self) -> None:
        """Let go of a sandbox that ends."""


_LOADED = re.compile(r"^\s*(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)


@functools.cache
def libraries_of(program: Path) -> frozenset[str]:
    """Return the absolute paths of the files that a program is loaded from, as the loader says (ld.so(8)).

    Raises:
        SandboxError: it cannot be started.
    """
    try:
        # A program without libraries gets no loader, and answers for itself.
        traced = subprocess.run(
            [program, "--version"],
            env={"LD_TRACE_LOADED_OBJECTS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{program} cannot be started ({error}); install it again.") from error
    return frozenset(_LOADED.findall(traced.stdout))


_NEWBORN_SECONDS = 60.0
"""A directory younger than this may not be locked yet by the process that makes it."""

_REMOVAL_SECONDS = 60.0


class Temporary:
    """A private directory, removed by `close`, with this object, or at the process's end.

    A process that is killed removes nothing. So each holds a lock on its directories, which the kernel gives back
    whatever happens, and the next one to make a directory of that name removes those that nobody holds. (Not on
    Windows, where directories have no locks.)

    Attributes:
        path: the directory.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        """Make a directory whose name begins with `prefix`.

        Args:
            prefix: the beginning of the names of all directories for the same purpose.
            place: where; None for the system's place for temporary files.

        Raises:
            OSError: the place cannot be written.
        """
        lock = -1
        place = Path(tempfile.gettempdir()) if place is None else place
        if sys.platform != "win32":
            _sweep(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        if sys.platform != "win32":
            lock = _lock(self.path)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it; idempotent."""
        self._remove()


def _sweep(prefix: str, place: Path) -> None:
    for left in place.glob(f"{prefix}*"):
        try:
            status = left.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _NEWBORN_SECONDS:
                continue
            lock = _lock(left)
        except OSError:  # in use, gone meanwhile, or no directory
            continue
        _remove(left, lock, os.getpid())


def _lock(directory: Path) -> int:
    """Lock a directory for as long as the descriptor is open.

    Raises:
        OSError: it is locked already, or no directory; or this is Windows, where directories have no locks.
    """
    if sys.platform == "win32":
        raise OSError(f"{directory} cannot be locked on Windows")
    import fcntl  # noqa: PLC0415 - Windows lacks it

    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(directory: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        with suppress(RecursionError):  # of a tree with very many levels
            shutil.rmtree(directory, ignore_errors=True)
        if sys.platform != "win32" and directory.exists():  # or of one whose directories may not be entered
            script = 'chmod -R u+rwX -- "$0"; rm -rf -- "$0"'
            with suppress(subprocess.TimeoutExpired):  # the next one to sweep goes on with it
                subprocess.run(
                    ["/bin/sh", "-c", script, str(directory)],
                    capture_output=True,
                    check=False,
                    timeout=_REMOVAL_SECONDS,
                )
    if lock >= 0:
        os.close(lock)
