"""Pygent's `Runtime`: a workspace, and commands that run in it in a sandbox."""

from __future__ import annotations

import base64
import logging
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path, PurePath
from types import TracebackType
from typing import Self

from agent_runtime.compat.commands import Commands, lease_of
from agent_runtime.compat.pygent.models import variable
from agent_runtime.core.errors import SandboxError, SettingsError, ToolError, UsageError
from agent_runtime.processes.spawn import LoopThread
from agent_runtime.sandbox.protocol import ContainerSettings, Sandbox, SandboxSettings
from agent_runtime.sandbox.select import SandboxName, pick_sandbox
from agent_runtime.sandbox.toolchains import read_toolchains
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.workspace.files import Workspace

log = logging.getLogger(__name__)
StrPath = str | os.PathLike[str]
_IMAGE = "python:3.12-slim"
_LONGEST_SECONDS = 86_400
_READ_BYTES = 10_000_000
_MOST_FILES, _MOST_BYTES, _FILE_BYTES = 50_000, 1024**3, 256 * 1024**2


class Runtime:
    """A directory to work in. Commands run in a sandbox that sees only that directory and has no network.

    Without a working sandbox commands are refused, unless `sandbox="local"`.

    Attributes:
        image: of containers.
        task_depth: the workspace's depth in delegated tasks.
        is_private: whether no other program knows the directory.
    """

    def __init__(
        self,
        image: str | None = None,
        use_docker: bool | None = None,  # noqa: FBT001 - the documented signature
        initial_files: list[str] | None = None,
        workspace: StrPath | None = None,
        *,
        sandbox: SandboxName | None = None,
        toolchains: str = "auto",
    ) -> None:
        """Make the directory; no program is started yet, but for a container that is tried out.

        Args:
            image: the image for containers; by default `PYGENT_IMAGE`, else `python:3.12-slim`. It is never fetched.
            use_docker: True for a container, False for a sandbox without one; by default what `PYGENT_USE_DOCKER` says,
                else what works.
            initial_files: files and directories of this machine that are copied into the workspace; by default those of
                `PYGENT_INIT_FILES`. One that is missing is left out, with a warning in the log.
            workspace: the directory, which `cleanup` leaves; by default `PYGENT_WORKSPACE`, else a new directory below
                the current one, which `cleanup` removes.
            sandbox: the kind of sandbox, in place of `use_docker`.
            toolchains: see `read_toolchains`.

        Raises:
            SandboxError: a container is wanted, and there is none on this machine.
            SettingsError: there is no such sandbox.
            ToolError: an initial file cannot be copied.
        """
        given = variable("WORKSPACE") if workspace is None else workspace
        self._persistent = given is not None
        self.base_dir = Path(given or f"agent_{secrets.token_hex(4)}").expanduser().absolute()
        self.image = image or variable("IMAGE") or _IMAGE
        self.toolchains = read_toolchains(toolchains)
        self.task_depth = 0
        self.is_private = not self._persistent
        self._in_use = threading.Lock()
        if use_docker is None and (said := variable("USE_DOCKER")) is not None:
            use_docker = said != "0"
        without: SandboxName = "auto" if use_docker is None else "bubblewrap"
        self.sandbox_kind: SandboxName = sandbox or ("docker" if use_docker else without)
        if self.sandbox_kind == "docker":
            self.sandbox  # noqa: B018 - tried here, so that it is refused before anything is made
        self.base_dir.mkdir(parents=True, exist_ok=True)
        self._logs = OutputLogs()
        proxy = weakref.proxy(self)  # so that the loop, which ends the commands, does not hold this object
        self._commands = Commands(lambda: proxy.sandbox, self.base_dir, self._logs)
        self._loop = LoopThread("Runtime", owner=self, finalizer=self._commands.close)
        named = (variable("INIT_FILES") or "").split(os.pathsep) if initial_files is None else initial_files
        for name in filter(None, (each.strip() for each in named)):
            if self.upload_file(name).endswith("not found"):
                log.warning("The initial file %r does not exist, so it was not copied into %s.", name, self.base_dir)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    @property
    def use_docker(self) -> bool:
        return self.sandbox_kind == "docker" or (self.sandbox_kind == "auto" and self._level == "docker")

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox of commands.

        Raises:
            SandboxError: this machine has no such sandbox.
        """
        container = ContainerSettings(image=self.image)
        return pick_sandbox(self.sandbox_kind, SandboxSettings(container=container, toolchains=self.toolchains))

    @cached_property
    def files(self) -> Workspace:
        """The files of the workspace. No path leads out of it."""
        return Workspace(self.base_dir, agent_path=self.sandbox.inner_path(self.base_dir) if self._level else None)

    def bash(self, cmd: str, timeout: float | None = 30) -> str:
        """Run a command, and give it with its output and its exit code.

        Of much output the first and the last 5,000 characters are given. After `timeout` seconds everything that runs
        is ended; None stands for a day.
        """
        timeout = _LONGEST_SECONDS if timeout is None else timeout
        head = f"$ {cmd}\n"
        if timeout <= 0:
            return f"{head}[timeout after {timeout:g}s]"
        try:
            report = self._loop.run(partial(self._commands.run, cmd, seconds=timeout))
        except (SandboxError, SettingsError, ToolError) as error:
            return f"{head}[error] {error}"
        output = report.output if not report.output or report.output.endswith("\n") else f"{report.output}\n"
        notes = [report.note, f"the whole output: {report.log}" if report.log else ""]
        output = head + output + "".join(f"[{note}]\n" for note in notes if note)
        if report.exit_code is not None:
            return f"{output}[exit code: {report.exit_code}]"
        if report.status == "running":
            return f"{output}[timeout after {timeout:g}s]"
        why = "it asked for input, and there is none" if report.status == "waiting for input" else report.status
        return f"{output}[error] the command did not end: {why}"

    def write_file(self, path: StrPath, content: str) -> str:
        """Create or replace a file of the workspace.

        Raises:
            ToolError: it cannot be written there; nothing was.
        """
        name = self.files.resolve(os.fspath(path))
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError(f"{name} was not written: its content cannot be UTF-8 ({error.reason})") from error
        self.files.write_bytes(name, data)
        return f"Wrote {name}"

    def read_file(self, path: StrPath, binary: bool = False) -> str:  # noqa: FBT001, FBT002 - the documented signature
        """The content of a file of the workspace; in base64 where that is asked for, or the file is no UTF-8.

        Raises:
            ToolError: the path leaves the workspace, or the file is none that can be read, or larger than 10 MB.
        """
        name = self.files.resolve(os.fspath(path))
        if not self.files.exists(name):
            return f"file {name} not found"
        data = self.files.read_bytes(name, _READ_BYTES)
        try:
            return base64.b64encode(data).decode() if binary else data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode()

    def upload_file(self, src: StrPath, dest: StrPath | None = None) -> str:
        """Copy a file or directory of this machine into the workspace; see `copy`.

        Raises:
            ToolError: it cannot be copied there.
        """
        source = Path(src).expanduser().resolve()
        if not source.exists():
            return f"file {src} not found"
        name = self.files.resolve(source.name if dest is None else os.fspath(dest))
        with Workspace(source.parent) as place:
            copy(place, source.name, self.files, name)
        return f"Uploaded {name}"

    def export_file(self, path: StrPath, dest: StrPath) -> str:
        """Copy a file or directory of the workspace to a place on this machine; see `copy`.

        Raises:
            ToolError: the path leaves the workspace, or it cannot be copied there.
        """
        name = self.files.resolve(os.fspath(path))
        if not self.files.exists(name):
            return f"file {path} not found"
        target = Path(dest).expanduser().resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with Workspace(target.parent) as place:
            copy(self.files, name, place, target.name or ".")
        return f"Exported {name}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the workspace for one agent's run."""
        with ExitStack() as stack:
            if not self.is_private:  # the lock leaves a file behind for each directory
                stack.enter_context(lease_of(self.base_dir))
            elif self._in_use.acquire(blocking=False):
                stack.callback(self._in_use.release)
            else:
                raise UsageError(f"Another agent works in {self.base_dir}. Give this one a runtime of its own.")
            yield

    def stop_commands(self) -> None:
        if not self._loop.stopped:
            self._loop.run(self._commands.close)

    def cleanup(self) -> None:
        """End all commands and remove an unnamed workspace; idempotent."""
        with ExitStack() as stack:
            if not self._persistent:
                stack.callback(shutil.rmtree, self.base_dir, ignore_errors=True)
            stack.callback(self._logs.close)
            if "files" in self.__dict__:
                stack.callback(self.files.close)
            stack.callback(self._loop.stop)
            self.stop_commands()

    @property
    def _level(self) -> str:
        """Return the protection of this machine; empty without one, when no command runs."""
        try:
            return self.sandbox.level
        except SandboxError:  # files need none
            return ""


def copy(source: Workspace, name: str, target: Workspace, dest: str) -> None:
    """Copy a file, or all files of a directory, over `dest`; a file into an existing directory.

    A link is copied as its target. Links out of the source or to directories, special files and git directories are
    left out.

    Raises:
        ToolError: the source is too large, or cannot be written.
    """
    if target.is_directory(dest) and not source.is_directory(name):
        dest = f"{dest}/{PurePath(name).name}"
    room = _MOST_BYTES
    for number, below in enumerate(_files(source, name), 1):
        path = f"{name}{below}"
        data = source.read_bytes(path, _FILE_BYTES)
        room -= len(data)
        if number > _MOST_FILES or room < 0:
            raise ToolError(
                f"{name!r} holds more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes; copy a part of it",
                kind="ValueError",
            )
        target.write_bytes(f"{dest}{below}", data, mode=source.mode(path))


def _files(source: Workspace, name: str) -> Iterator[str]:
    """Return the rest of each file's path after `name`; empty for a file itself."""
    if not source.is_directory(name):
        yield ""
        return
    pending = [""]
    while pending:
        above = pending.pop()
        for entry in source.list_directory(f"{name}{above}"):
            below = f"{above}/{entry}"
            if entry.endswith("/"):
                pending.append(below.removesuffix("/"))
            elif _is_file(source, f"{name}{below}"):
                yield below


def _is_file(source: Workspace, path: str) -> bool:
    try:
        return source.is_file(path)
    except ToolError:  # a link that leads out
        return False
