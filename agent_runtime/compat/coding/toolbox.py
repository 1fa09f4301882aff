"""CodingTools: files and commands beneath one directory, as a toolbox of the `llm` package."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import llm

from agent_runtime.compat.coding.actions import CodingActions
from agent_runtime.processes.loop_thread import LoopThread
from agent_runtime.sandbox.select import SandboxName


class CodingTools(llm.Toolbox):  # type: ignore[no-untyped-call]  # llm leaves it untyped
    """File and shell tools for a coding agent, confined to a root directory.

    Each method gives a text; what cannot be done gives one that begins with `Error:`.

    Attributes:
        root: the directory, absolute.
    """

    _blocked = (*llm.Toolbox._blocked, "close")  # type: ignore[assignment]  # noqa: SLF001 - which methods are no tools

    def __init__(self, root: str | os.PathLike[str] = ".", sandbox: SandboxName = "auto") -> None:
        """Get ready; no program is started yet.

        Args:
            root: the directory to work in; every path is beneath it.
            sandbox: where commands run: `auto`, `bubblewrap`, `docker`, or `local`, which isolates nothing. Without one
                that works on this machine, commands are refused.
        """
        self.root = Path(root).resolve()
        self._config = {"root": str(self.root)}  # type: ignore[misc]  # what llm keeps in its database, as JSON
        self._actions = CodingActions(self.root, sandbox)
        self._loop = LoopThread("CodingTools", owner=self, last=self._actions.close)

    def __enter__(self) -> Self:
        """Enter; see `close`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def read_file(self, path: str, offset: int = 0, limit: int = 2000) -> str:
        """Read a text file with numbered lines, like cat -n.

        Paths are relative to the session root. Use offset (lines to skip) and limit to page through a long file.
        """
        return self._perform("read_file", path=path, offset=offset, limit=limit)

    def write_file(self, path: str, content: str) -> str:
        """Create or overwrite a file with the given content.

        Missing directories are made. To change a part of a file use edit_file.
        """
        return self._perform("write_file", path=path, content=content)

    def edit_file(
        self,
        path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - the documented signature
    ) -> str:
        """Replace an exact string in a file.

        old_string must match exactly, white space included, and occur once unless replace_all is true. Returns a diff
        of the change.
        """
        return self._perform(
            "edit_file", path=path, old_string=old_string, new_string=new_string, replace_all=replace_all
        )

    def list_files(self, pattern: str = "**/*", path: str = ".") -> str:
        """List files matching a glob pattern, newest first.

        Hidden, ignored and generated files are left out. At most 200 paths, relative to the searched directory.
        """
        return self._perform("list_files", pattern=pattern, path=path)

    def search_files(self, pattern: str, path: str = ".", glob: str | None = None, max_results: int = 100) -> str:
        """Search file contents for a regular expression.

        Returns matches as path:line_number:line, at most max_results. glob, e.g. "*.py", narrows the files.
        """
        return self._perform("search_files", pattern=pattern, path=path, glob=glob, max_results=max_results)

    def execute_command(self, command: str, timeout: int = 120) -> str:
        """Run a shell command in the session root directory.

        Returns stdout and stderr together, followed by the exit code. timeout is in seconds, 600 at most; after it the
        command and everything it started is killed.
        """
        return self._perform("execute_command", command=command, timeout=timeout)

    def close(self) -> None:
        """End what commands have left running, and give everything back; idempotent."""
        self._loop.stop()

    def _perform(self, name: str, **args: Any) -> str:  # noqa: ANN401 - whatever the tool takes
        return self._loop.see(partial(self._actions.perform, name, args))
