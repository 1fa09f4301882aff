"""Choose the sandbox; never a weaker one than was asked for."""

from __future__ import annotations

import sys
from typing import Literal

from agent_runtime.core.errors import SandboxError, SettingsError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.docker import Docker
from agent_runtime.sandbox.local import Local
from agent_runtime.sandbox.protocol import Sandbox, SandboxSettings

SandboxName = Literal["auto", "bubblewrap", "docker", "local"]


def pick(name: SandboxName, settings: SandboxSettings) -> Sandbox:
    """A sandbox that was tried and works. `auto` is bubblewrap, else `docker` if an image is named, never `local`.

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


pick_sandbox = pick
"""Its name among all that is public."""
