"""No sandbox: programs run as the user who started us, with a cleared environment. For users of the library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_runtime.errors import SandboxError
from agent_runtime.sandbox.protocol import Launch, SandboxSettings

_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Local:
    """Protects nothing: the program can do whatever its user can. The bot refuses it; see `level`."""

    level = "none"
    apart = False

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

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
            SandboxError: the workspace does not exist.
        """
        if not workspace.is_dir():
            raise SandboxError(f"The workspace {workspace} is not a directory; make it before starting programs in it.")
        path = ":".join([*map(str, self._settings.path), *_PATH])
        env = {"PATH": path, "HOME": str(Path.home()), "LANG": "C.UTF-8", "TERM": "dumb", **self._settings.environment}
        return Launch(argv=("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', str(workspace), *argv), env=env)

    def seen_as(self, workspace: Path) -> str:
        """Its own path."""
        return str(workspace)

    def probe(self) -> None:
        """Nothing to try: what starts programs here is the system itself."""
