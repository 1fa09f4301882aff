"""Which sandbox to use; never a weaker one than was asked for."""

from __future__ import annotations

from typing import Literal

from agent_runtime.errors import SettingsError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.local import Local
from agent_runtime.sandbox.protocol import Sandbox, SandboxSettings

SandboxName = Literal["auto", "bubblewrap", "local"]


def pick(name: SandboxName, settings: SandboxSettings) -> Sandbox:
    """A sandbox that was tried and works. `auto` is bubblewrap or a refusal, never `local`.

    Raises:
        SettingsError: there is no sandbox of that name.
        SandboxError: it does not work on this machine; the text says what mends it.
    """
    sandbox: Sandbox
    match name:
        case "auto" | "bubblewrap":
            sandbox = Bubblewrap(settings)
        case "local":
            sandbox = Local(settings)
        case _:
            raise SettingsError(f"sandbox: {name!r} is not known; use `auto`, `bubblewrap` or `local`.")
    sandbox.probe()
    return sandbox
