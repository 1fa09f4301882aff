"""The files of a workspace as they would be after changes that are not made yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import Text, decode, version_of
from agent_runtime.workspace.files import MAX_BYTES, Workspace, in_line

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
