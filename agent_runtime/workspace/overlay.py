"""The files of a workspace as they would be after changes that are not made yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from agent_runtime.core.errors import ToolError
from agent_runtime.sandbox.protocol import Temporary
from agent_runtime.workspace.diffs import Text, decode, version_of
from agent_runtime.workspace.files import PATH_ONLY, Workspace, held, in_line

MAX_BYTES = 10_000_000
_NAMES_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A text file.

    Attributes:
        data: its bytes.
        text: the same as text.
        version: its tag.
    """

    data: bytes
    text: Text
    version: str


class Overlay:
    """A workspace, and on top of it the contents that are to be written."""

    def __init__(self, workspace: Workspace, pending: Mapping[str, bytes | None] | None = None) -> None:
        """See `workspace`.

        Args:
            workspace: what is on the disk.
            pending: canonical path → content that the file has here; None for one that is gone.
        """
        self._workspace = workspace
        self._pending = dict(pending or {})
        self._resolved: dict[str, str] = {}

    def close(self) -> None:
        """Close the workspace, in a worker process that has opened it for this."""
        self._workspace.close()

    def is_readable(self, path: str) -> bool:
        """Whether a regular file that is not too large stands at this path."""
        if self.is_pending(self.resolve(path)):
            return self.exists(path)
        return self._workspace.is_file(path) and self._workspace.size(path) <= MAX_BYTES

    def with_pending(self, pending: Mapping[str, bytes | None]) -> Overlay:
        """The same files, and on top of them further contents."""
        return Overlay(self._workspace, {**self._pending, **pending})

    def is_pending(self, canonical: str) -> bool:
        """Whether a file is not on the disk as it is seen here."""
        return canonical in self._pending

    def resolve(self, path: str) -> str:
        """The canonical path, looked up once; see `Workspace.resolve`."""
        if path not in self._resolved:
            self._resolved[path] = self._workspace.resolve(path)
        return self._resolved[path]

    def is_on_disk(self) -> bool:
        """Whether every path that was resolved leads where it did, and nothing there or below is pending."""
        try:
            same = all(self._workspace.resolve(path) == canonical for path, canonical in self._resolved.items())
        except ToolError:  # it leads out of the workspace, or nowhere, by now
            return False
        asked = self._resolved.values()
        return same and not any(path == each or path.startswith(f"{each}/") for path in self._pending for each in asked)

    def is_temporary(self, path: str) -> bool:
        """Whether a path lies in the sandbox's own `/tmp`."""
        return self._workspace.is_temporary(path)

    def mode(self, path: str) -> int | None:
        """A file's permission bits; see `Workspace.mode`."""
        return self._workspace.mode(path)

    def exists(self, path: str) -> bool:
        """Whether something stands at this path."""
        canonical = self.resolve(path)
        if canonical in self._pending:
            return self._pending[canonical] is not None
        return self._is_new_directory(canonical) or self._workspace.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at this path."""
        canonical = self.resolve(path)
        return self._is_new_directory(canonical) or (
            canonical not in self._pending and self._workspace.is_directory(path)
        )

    def bytes_of(self, path: str) -> bytes:
        """A regular file's content.

        Raises:
            ToolError: there is no such file, or it is no regular one, or too large.
        """
        canonical = self.resolve(path)
        if canonical not in self._pending and not self._is_new_directory(canonical):
            try:
                return self._workspace.read_bytes(path, MAX_BYTES)
            except ToolError as error:
                if error.kind not in {"FileNotFoundError", "IsADirectoryError"}:
                    raise
        if not self.exists(path):
            parent, _, name = canonical.rpartition("/")
            if not self._workspace.is_directory(parent or "."):
                raise ToolError(f"{path!r} does not exist, nor does its directory", kind="FileNotFoundError")
            near = get_close_matches(name, [each.rstrip("/") for each in self._workspace.names(parent or ".")], n=3)
            hint = f"; there are {', '.join(repr(f'{parent}/{each}'.lstrip('/')) for each in near)}" if near else ""
            raise ToolError(f"{path!r} does not exist{hint}", kind="FileNotFoundError")
        if self.is_directory(path):
            names = self._workspace.names(path) if self._workspace.is_directory(path) else []
            more = f", … {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            listing = ", ".join(map(in_line, names[:_NAMES_SHOWN])) + more or "nothing"
            raise ToolError(f"{path!r} is a directory; in it: {listing}", kind="IsADirectoryError")
        pending = self._pending.get(canonical)
        return self._workspace.read_bytes(path, MAX_BYTES) if pending is None else pending

    def text_file(self, path: str) -> TextFile:
        """A text file.

        Raises:
            ToolError: as for `bytes_of`, or it is binary.
        """
        data = self.bytes_of(path)
        text = decode(data)
        if text is None:
            raise ToolError(
                f"{path!r} is a binary file ({len(data):,} bytes), not text; use a shell command", kind="ValueError"
            )
        return TextFile(data=data, text=text, version=version_of(data))

    def text_file_if_any(self, path: str) -> TextFile | None:
        """The same for a file whose content is going to be replaced: None for one that is missing, large or binary.

        Raises:
            ToolError: what is there is not a regular file.
        """
        if not self.exists(path) or (
            not self.is_pending(self.resolve(path)) and self._workspace.size(path) > MAX_BYTES
        ):
            return None
        data = self.bytes_of(path)
        text = decode(data)
        return TextFile(data=data, text=text, version=version_of(data)) if text is not None else None

    def _is_new_directory(self, canonical: str) -> bool:
        return any(data is not None and path.startswith(f"{canonical}/") for path, data in self._pending.items())


# ---- The sandbox's own `/tmp` for the file tools, which run outside the sandbox.


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
