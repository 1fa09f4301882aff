"""No sandbox: programs run as the user who started us, with a cleared environment. For users of the library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_runtime.core.errors import SandboxError
from agent_runtime.processes.user_directories import home
from agent_runtime.sandbox.protocol import Launch, SandboxLimits, SandboxSettings

_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT",
    "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PSMODULEPATH", "SYSTEMDRIVE",
    "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables without which programs of Windows do not run."""
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Local:
    """Protects nothing: the program can do whatever its user can. The bot refuses it; see `level`."""

    level = "none"
    apart = False

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    @property
    def limits(self) -> SandboxLimits:
        """Those of the settings; nothing keeps them here."""
        return self._settings.limits

    def launch(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        readable: Mapping[str, Path] | None = None,  # noqa: ARG002 - everything can be read here, at its own path
        first: bool = False,  # noqa: ARG002 - there is no first process here
    ) -> Launch:
        """How to start `argv` in `workspace`, on the host itself; of the settings, only path and environment count.

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
        """Its own path."""
        return str(workspace)

    def probe(self) -> None:
        """Nothing to try: what starts programs here is the system itself."""
