"""Select a sandbox, never a weaker one than requested, and open its network."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.core.values import Connection, Network
from agent_runtime.processes.spawn import home_dir
from agent_runtime.sandbox.bubblewrap import Bubblewrap, write_enclosed
from agent_runtime.sandbox.container import Docker
from agent_runtime.sandbox.protocol import FixedPath, Launch, Sandbox, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.sandbox.toolchains import Toolchains, find_toolchains

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress


SandboxName = Literal["auto", "bubblewrap", "docker", "local"]


def pick_sandbox(name: SandboxName, settings: SandboxSettings) -> Sandbox:
    """Return a working sandbox. `auto` is bubblewrap, or `docker` if an image is set, never `local`."""
    match name:
        case "auto":
            return _pick_best(settings)
        case "bubblewrap":
            return _probe(_bubblewrap(settings))
        case "docker":
            return _probe(Docker(settings))
        case "local":
            return _probe(Local(settings))
        case _:
            raise SettingsError(f"sandbox: {name!r} is not known; use `auto`, `bubblewrap`, `docker` or `local`.")


def _pick_best(settings: SandboxSettings) -> Sandbox:
    try:
        return _probe(_bubblewrap(settings))
    except SandboxError as refused:
        if settings.container is None:
            raise
        try:
            return _probe(Docker(settings))
        except SandboxError as also:
            raise SandboxError(f"No sandbox works here. `bubblewrap`: {refused}\n`docker`: {also}") from also


def _bubblewrap(settings: SandboxSettings) -> Sandbox:
    if sys.platform != "linux":
        raise SandboxError(
            "sandbox: bubblewrap is for Linux. Run this in a Linux container or in WSL; name an image for the sandbox "
            "`docker`; or select `local`, which isolates nothing: programs can do what you can."
        )
    return Bubblewrap(settings)


def _probe(sandbox: Sandbox) -> Sandbox:
    sandbox.probe()
    return sandbox


def find_encloser(sandbox: Sandbox) -> Callable[[Path], Path] | None:
    """Return the sandbox's function that encloses a single program, or None."""
    if isinstance(sandbox, Docker):
        return sandbox.write_enclosed if sys.platform == "linux" else None  # containers run programs of Linux
    return write_enclosed if sandbox.level == "bubblewrap" else None


def describe_toolchains(sandbox: Sandbox, workspace: Path) -> str:
    """Return a line about the toolchains for commands in a workspace, or ""."""
    return sandbox.find_toolchains(workspace).line if isinstance(sandbox, Bubblewrap | Local) else ""


def open_egress(
    sandbox: Sandbox, network: Network, *, on_connection: Callable[[Connection], None], on_lost: Callable[[str], None]
) -> Egress | None:
    """Create a sandbox's network, or return None.

    Raises:
        SettingsError: the sandbox cannot enforce a network.
    """
    if not network:
        return None
    if sandbox.level != "bubblewrap":
        raise SettingsError(
            f"network: a sandbox of the level {sandbox.level!r} cannot enforce a list of hosts. "
            "Use the sandbox `bubblewrap`, or remove the network."
        )
    from agent_runtime.sandbox.egress import Egress  # noqa: PLC0415 - few runs have a network

    return Egress(network, on_connection=on_connection, on_lost=on_lost)


def create_guard(
    sandbox: Sandbox, workspace: Path, notify: Callable[[str], None] = lambda _text: None
) -> RepositoryGuard | None:
    """Return the repository guard of a workspace, or None if programs may change repositories."""
    return None if sandbox.git_writable or not sandbox.is_isolated else RepositoryGuard(workspace, notify=notify)


_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT",
    "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PSMODULEPATH", "SYSTEMDRIVE",
    "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables that Windows programs require."""

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Local:
    """No isolation: programs run as the user, with a cleared environment."""

    level = "none"
    is_isolated = False

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> SandboxLimits:
        return self._settings.limits

    @property
    def git_writable(self) -> bool:
        return self._settings.git_writable

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,  # noqa: ARG002 - everything can be read here, at its own path
        fixed: Sequence[FixedPath] = (),  # noqa: ARG002 - nothing is mounted here
        first: bool = False,  # noqa: ARG002 - there is no first process here
    ) -> Launch:
        """Prepare to start `argv` on the host; only path and environment settings apply."""
        if not workspace.is_dir():
            raise SandboxError(
                f"The workspace {workspace} is not a directory; create it before starting programs in it."
            )
        if sys.platform == "win32":
            # By expansion, because it knows Windows' own variables and gives nothing else of the environment.
            expanded = {name: os.path.expandvars(f"%{name}%") for name in (*_WINDOWS, "PATH")}
            variables = {name: value for name, value in expanded.items() if value != f"%{name}%"}
            path = os.pathsep.join([*map(str, self._settings.path), variables.get("PATH", "")])
            return Launch(argv=tuple(argv), env={**variables, **self._settings.environment, "PATH": path})
        toolchains = self.find_toolchains(workspace)
        path = ":".join([*map(str, (*self._settings.path, *toolchains.path)), *_PATH])
        own = str(home_dir("Programs cannot be started", kind=SandboxError))
        basic = {"PATH": path, "HOME": own, "LANG": "C.UTF-8", "TERM": "dumb"}
        env = {**basic, **toolchains.variables(str(workspace)), **self._settings.environment}
        return Launch(argv=("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(workspace), *argv), env=env)

    def find_toolchains(self, workspace: Path) -> Toolchains:
        return find_toolchains(self._settings.toolchains, workspace, isolated=False)

    def inner_path(self, workspace: Path) -> str:
        return str(workspace)

    def showing(self, readable: Mapping[str, Path]) -> Local:  # noqa: ARG002 - programs see everything at its own path
        return self

    def probe(self) -> None: ...
