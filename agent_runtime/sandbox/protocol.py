"""The protocol of a sandbox: run a program in isolation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent_runtime.core.errors import SandboxError

WORKSPACE = "/workspace"
HOME = "/home/agent"
TMPFS = ("/dev/shm", "/tmp", HOME)  # noqa: S108 - places inside, not files of the host


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
        free_bytes: what is to stay free on the workspace's disk, no matter what fills it.
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
    """What the sandbox `docker` makes its containers with.

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
    """What a sandbox shows to the programs inside, besides the workspace.

    Attributes:
        read_only: host directories shown read-only at their own paths (a Python prefix, a toolchain).
        path: directories put before the usual ones on `PATH`.
        environment: variables set inside; nothing is inherited.
        limits: bounds.
        container: for the sandbox `docker`, which requires it.
        git_writable: whether programs may change the `.git` that the workspace has when they start. What they write
            there, such as hooks and settings that name programs, the next git outside the sandbox runs.
    """

    read_only: tuple[Path, ...] = ()
    path: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    container: ContainerSettings | None = None
    git_writable: bool = False

    def check(self, workspace: Path) -> None:
        """Make sure that what a sandbox shows is there.

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
        """What of a workspace is shown read-only: paths in it, and where they are on the host."""
        git = workspace / ".git"
        return {} if self.git_writable or git.is_symlink() or not git.exists() else {".git": git}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program made ready: start exactly this argv with exactly this environment, from the main thread."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Sandbox(Protocol):
    """A way to run programs on one workspace that can hurt nobody."""

    @property
    def level(self) -> str:
        """What protects the host, for reports: `bubblewrap`, `docker` or `none`."""
        ...

    @property
    def apart(self) -> bool:
        """Whether each start gets processes, network and temporary files of its own, unseen by every other start."""
        ...

    @property
    def limits(self) -> SandboxLimits:
        """Bounds of each start; where nothing is `apart`, nothing keeps them."""
        ...

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,
        first: bool = False,
    ) -> Launch:
        """How to start `argv` inside, in `workspace`, which is the only thing writable besides tmpfs.

        Args:
            argv: the program and its arguments.
            workspace: the directory of the host to work in.
            readable: more files and directories of the host that may be read, by their absolute path inside.
            first: make it the first process, out of the reach of what it starts; for sandboxes that are `apart`.

        Raises:
            SandboxError: the sandbox cannot work here; the text says how to fix it.
        """
        ...

    def seen_as(self, workspace: Path) -> str:
        """The absolute path at which programs inside see `workspace`."""
        ...

    def probe(self) -> None:
        """Start a trivial program with the full argument list, once; the answer is cached.

        Raises:
            SandboxError: as for `launch`.
        """
        ...


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
        ...

    def detach(self) -> None:
        """Let go of a sandbox that ends."""
        ...
