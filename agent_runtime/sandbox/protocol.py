"""The `Sandbox` protocol: run a program in isolation.

Also the settings, and helpers of all sandboxes: shared libraries and temporary directories.
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
from typing import Literal, Protocol, Self

from agent_runtime.core.errors import SandboxError

WORKSPACE = "/workspace"

HOME = "/home/agent"

TMPFS = ("/dev/shm", "/tmp", HOME)  # noqa: S108 - places inside, not files of the host

ToolchainSetting = Literal["auto", "none"] | tuple[Path, ...]


class Sandbox(Protocol):
    """Runs programs on one workspace in isolation from the host."""

    @property
    def level(self) -> str:
        """Protection for reports: `bubblewrap`, `docker` or `none`."""

    @property
    def is_isolated(self) -> bool:
        """Whether a start has its own processes, network and temporary files."""

    @property
    def limits(self) -> SandboxLimits: ...

    @property
    def git_writable(self) -> bool: ...

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        fixed: Sequence[FixedPath] = (),
        first: bool = False,
    ) -> Launch:
        """Prepare to start `argv` in `workspace`, the only writable directory besides tmpfs.

        Args:
            readable: host paths by absolute path inside.
            fixed: immovable workspace paths, parents first.
            first: start as the first process, protected from its children.

        Raises:
            SandboxError: with a remedy.
        """

    def inner_path(self, workspace: Path) -> str: ...

    def showing(self, readable: Mapping[str, Path]) -> Sandbox:
        """Return a sandbox with the same settings that also shows host directories, by absolute path inside."""

    def probe(self) -> None:
        """Start a trivial program with the full argument list; cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPath:
    """A relative workspace path that is a mount point, hence can be neither renamed nor replaced."""

    path: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A prepared command; start it from the main thread with exactly this environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Bounds of one sandbox, in total unless noted.

    Attributes:
        memory_bytes: processes and tmpfs; also the data of one process. At most three quarters of the machine's.
        processes: with threads.
        cpu_seconds: of ended processes, too.
        seconds: since the start; must exceed a run's.
        files: changed in the workspace, or in tmpfs. A large JavaScript project has 100,000.
        free_bytes: minimum on the workspace's disk.
        tmp_bytes: per tmpfs.
        open_files: per process.
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
    """Settings of the sandbox `docker`.

    Attributes:
        image: preferably by digest (`name@sha256:…`), never pulled; needs bash and GNU or BusyBox tools.
        program: `docker` or `podman`, or a path.
    """

    image: str
    program: str = "docker"
    cpus: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Host files that a sandbox shows besides the workspace, and its limits.

    Attributes:
        read_only: host directories at their own paths, e.g. a toolchain.
        readable: further host directories, by absolute path inside.
        environment: complete; nothing is inherited.
        git_writable: allow changes of git repositories in the workspace, whose hooks git outside then runs.
        toolchains: those found by `find_toolchains`, and these directories; not in containers.
    """

    read_only: tuple[Path, ...] = ()
    path: tuple[Path, ...] = ()
    readable: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    container: ContainerSettings | None = None
    git_writable: bool = False
    toolchains: ToolchainSetting = "auto"

    def check(self, workspace: Path) -> None:
        """Check that the workspace and `read_only` exist."""
        if not workspace.is_dir():
            raise SandboxError(f"The workspace {workspace} is not a directory; create it before starting the sandbox.")
        for directory in self.read_only:
            if not directory.is_absolute() or not directory.is_dir() or directory == Path("/"):
                raise SandboxError(
                    f"sandbox setting read_only: {directory} is not an absolute path of a directory below /; "
                    "name an existing one or remove it."
                )

    def read_only_paths(self, workspace: Path) -> Mapping[str, Path]:
        """Return the read-only parts of a workspace: host paths by relative path."""
        git = workspace / ".git"
        return {} if self.git_writable or git.is_symlink() or not git.exists() else {".git": git}


class TemporaryFiles(Protocol):
    def attach(self, root: int, alive: Callable[[], bool]) -> None:
        """Attach to the `/tmp` of a sandbox while it is `alive`."""

    def detach(self) -> None: ...


_LIBRARY_LINE = re.compile(r"^\s*(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)


@functools.cache
def find_libraries(program: Path) -> frozenset[str]:
    """Return a program's shared libraries as resolved by ld.so(8)."""
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
    return frozenset(_LIBRARY_LINE.findall(traced.stdout))


_MIN_AGE_SECONDS = 60.0
"""Age below which a directory may not be locked yet."""

_REMOVAL_SECONDS = 60.0


class PrivateDirectory:
    """A private directory, removed on `close`, garbage collection or exit.

    Locked, so that the next one with its prefix can remove those of killed processes.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        """Create a directory, by default in the system's temporary directory."""
        lock = -1
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        if sys.platform != "win32":
            _remove_leftovers(prefix, parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        if sys.platform != "win32":
            lock = _lock(self.path)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._remove()


def _remove_leftovers(prefix: str, place: Path) -> None:
    for leftover in place.glob(f"{prefix}*"):
        try:
            status = leftover.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _MIN_AGE_SECONDS:
                continue
            lock = _lock(leftover)
        except OSError:  # in use, gone meanwhile, or no directory
            continue
        _remove(leftover, lock, os.getpid())


def _lock(directory: Path) -> int:
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
