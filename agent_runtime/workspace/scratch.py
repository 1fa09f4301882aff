"""The sandbox's own `/tmp` for the file tools, which run outside the sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.sandbox.temporary import Temporary
from agent_runtime.workspace.confined import PATH_ONLY, held
from agent_runtime.workspace.files import Workspace


class Scratch:
    """The `/tmp` of the sandbox that runs now, or what that of the next one begins with.

    A sandbox starts with its first command and may end at any time, and its `/tmp` with it. What is written while none
    runs is kept in a private directory, and copied when one starts.

    Attributes:
        prefix: how its paths begin.
    """

    prefix = "/tmp"  # noqa: S108 - the sandbox's, never the host's

    def __init__(self) -> None:
        self._live: tuple[Workspace, Callable[[], bool]] | None = None
        self._kept: tuple[Workspace, Temporary] | None = None

    @property
    def files(self) -> Workspace:
        """Its files, by paths with the prefix; each operation asks for them again, since sandboxes come and go.

        Raises:
            ToolError: none runs, and this machine has no room to keep files for the next one.
        """
        live = self._live
        if live is not None and live[1]():
            return live[0]
        self._live = None
        if self._kept is None:
            try:
                directory = Temporary("codepilot-scratch-")
            except OSError as error:
                told = f"{self.prefix} cannot be used before a command has run: {error.strerror or error}"
                raise ToolError(told, kind="OSError") from error
            self._kept = Workspace(directory.path, seen_as=self.prefix), directory
        return self._kept[0]

    def attach(self, root: int, alive: Callable[[], bool]) -> None:
        """Take over the `/tmp` of a sandbox that has started.

        What is kept for it and does not fit there is lost, as the sandbox's own files are when it ends; the model is
        told about a file that it knew and that is gone.

        Args:
            root: descriptor of the sandbox's root directory, which stays the caller's.
            alive: whether the sandbox still runs.

        Raises:
            OSError: the sandbox has ended, or has no `/tmp` of its own.
        """
        # An image may have a link there, which would lead from the root of this process.
        flags = PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with held(os.open(self.prefix.removeprefix("/"), flags, dir_fd=root)) as directory:
            if os.path.samestat(os.fstat(directory), Path(self.prefix).stat()):
                raise OSError(f"{self.prefix} in the sandbox is the machine's own")
            live = Workspace(Path(f"/proc/self/fd/{directory}"), seen_as=self.prefix)
        if self._kept is not None:
            files, kept = self._kept
            for path in kept.path.rglob("*"):  # only we write there, so there are no links
                if path.is_file():
                    name = f"{self.prefix}/{path.relative_to(kept.path)}"
                    with suppress(ToolError):  # the tmpfs is too small, or something of the machine is shown there
                        live.write_bytes(name, path.read_bytes(), mode=files.mode(name))
        self._live = live, alive
        self.clear()

    def detach(self) -> None:
        """Let go of a sandbox that ends."""
        self._live = None

    def clear(self) -> None:
        """Forget what is kept for the next sandbox; idempotent."""
        if self._kept is not None:
            self._kept[1].close()
        self._kept = None
