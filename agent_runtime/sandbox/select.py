"""Choose a sandbox, never a weaker one than was asked for, and open its network.

`Local` is here because it is no sandbox: programs run as the user who started us, with a cleared environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.core.values import Connection, Network
from agent_runtime.processes.spawn import home
from agent_runtime.sandbox.bubblewrap import Bubblewrap, enclosed
from agent_runtime.sandbox.container import Docker
from agent_runtime.sandbox.protocol import FixedPath, Launch, Sandbox, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.repositories import RepositoryGuard

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress


SandboxName = Literal["auto", "bubblewrap", "docker", "local"]


def pick_sandbox(name: SandboxName, settings: SandboxSettings) -> Sandbox:
    """Return a sandbox that works here. `auto` is bubblewrap, else `docker` if an image is named, never `local`.

    Raises:
        SettingsError: there is no sandbox of that name.
        SandboxError: it does not work on this machine; the text says how to fix it.
    """
    match name:
        case "auto":
            return _best(settings)
        case "bubblewrap":
            return _tried(_bubblewrap(settings))
        case "docker":
            return _tried(Docker(settings))
        case "local":
            return _tried(Local(settings))
        case _:
            raise SettingsError(f"sandbox: {name!r} is not known; use `auto`, `bubblewrap`, `docker` or `local`.")


def _best(settings: SandboxSettings) -> Sandbox:
    try:
        return _tried(_bubblewrap(settings))
    except SandboxError as refused:
        if settings.container is None:
            raise
        try:
            return _tried(Docker(settings))
        except SandboxError as also:
            raise SandboxError(f"No sandbox works here. `bubblewrap`: {refused}\n`docker`: {also}") from also


def _bubblewrap(settings: SandboxSettings) -> Sandbox:
    if sys.platform != "linux":
        raise SandboxError(
            "sandbox: bubblewrap is for Linux. Run this in a Linux container or in WSL; name an image for the sandbox "
            "`docker`; or select `local`, which isolates nothing: programs can do what you can."
        )
    return Bubblewrap(settings)


def _tried(sandbox: Sandbox) -> Sandbox:
    sandbox.probe()
    return sandbox


def enclosing(sandbox: Sandbox) -> Callable[[Path], Path] | None:
    """Return the function that encloses a single program by the means of `sandbox`; None if that is not possible."""
    if isinstance(sandbox, Docker):
        return sandbox.enclosed if sys.platform == "linux" else None  # containers run programs of Linux
    return enclosed if sandbox.level == "bubblewrap" else None


def open_egress(
    sandbox: Sandbox, network: Network, *, told: Callable[[Connection], None], lost: Callable[[str], None]
) -> Egress | None:
    """Make the network of a sandbox; None if it has none.

    Args:
        sandbox: where programs run.
        network: the hosts that they may reach.
        told: called with each connection once it is over or was refused.
        lost: called with the reason when the network goes away.

    Raises:
        SettingsError: the sandbox keeps nothing from the network.
    """
    if not network:
        return None
    if sandbox.level != "bubblewrap":
        raise SettingsError(
            f"network: a sandbox of the level {sandbox.level!r} cannot enforce a list of hosts. "
            "Use the sandbox `bubblewrap`, or remove the network."
        )
    from agent_runtime.sandbox.egress import Egress  # noqa: PLC0415 - few runs have a network

    return Egress(network, told=told, lost=lost)


def guard_for(
    sandbox: Sandbox, workspace: Path, tell: Callable[[str], None] = lambda _text: None
) -> RepositoryGuard | None:
    """Return the guard of a directory in which a sandbox runs programs, None where they may make repositories.

    Args:
        sandbox: without one, programs can change every repository of the user anyway.
        workspace: the directory.
        tell: called with a text for the user.
    """
    return None if sandbox.git_writable or not sandbox.apart else RepositoryGuard(workspace, tell=tell)


_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT",
    "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PSMODULEPATH", "SYSTEMDRIVE",
    "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables without which programs of Windows do not run."""

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Local:
    """No protection: a program can do anything that its user can. The bot refuses it; see `level`."""

    level = "none"
    apart = False

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> SandboxLimits:
        """The limits of the settings; nothing enforces them here."""
        return self._settings.limits

    @property
    def git_writable(self) -> bool:
        """Whether the settings say so; only file tools keep to it here."""
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
        """Prepare to start `argv` in `workspace`, on the host itself; of the settings, only path and environment count.

        Raises:
            SandboxError: the workspace does not exist, or this user has no home directory.
        """
        if not workspace.is_dir():
            raise SandboxError(
                f"The workspace {workspace} is not a directory; create it before starting programs in it."
            )
        if sys.platform == "win32":
            # By expansion, because it knows Windows' own variables and gives nothing else of the environment.
            known = {name: os.path.expandvars(f"%{name}%") for name in (*_WINDOWS, "PATH")}
            kept = {name: value for name, value in known.items() if value != f"%{name}%"}
            path = os.pathsep.join([*map(str, self._settings.path), kept.get("PATH", "")])
            return Launch(argv=tuple(argv), env={**kept, **self._settings.environment, "PATH": path})
        path = ":".join([*map(str, self._settings.path), *_PATH])
        own = str(home("Programs cannot be started", kind=SandboxError))
        env = {"PATH": path, "HOME": own, "LANG": "C.UTF-8", "TERM": "dumb", **self._settings.environment}
        return Launch(argv=("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(workspace), *argv), env=env)

    def seen_as(self, workspace: Path) -> str:
        """Return its own path."""
        return str(workspace)

    def probe(self) -> None:
        """Try nothing: the system itself starts programs here."""
