"""View of a workspace with pending changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import Text, decode, version_of
from agent_runtime.workspace.files import MAX_BYTES, Workspace, quote_path

_MAX_NAMES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A text file with its version tag."""

    data: bytes
    text: Text
    version: str


class Overlay:
    """A workspace with pending contents on top."""

    def __init__(self, workspace: Workspace, pending: Mapping[str, bytes | None] | None = None) -> None:
        """Overlay contents by canonical path; None for a deleted file."""
        self._workspace = workspace
        self._pending = dict(pending or {})
        self._resolved: dict[str, str] = {}

    def close(self) -> None:
        """Close the workspace, in a worker process."""
        self._workspace.close()

    def is_readable(self, path: str) -> bool:
        """Whether a regular file of acceptable size exists."""
        if self.is_pending(self.resolve(path)):
            return self.exists(path)
        return self._workspace.is_file(path) and self._workspace.size(path) <= MAX_BYTES

    def with_pending(self, pending: Mapping[str, bytes | None]) -> Overlay:
        """Return an overlay with further contents."""
        return Overlay(self._workspace, {**self._pending, **pending})

    def is_pending(self, canonical: str) -> bool:
        """Whether a file has pending content."""
        return canonical in self._pending

    def resolve(self, path: str) -> str:
        """Return the canonical path, cached."""
        if path not in self._resolved:
            self._resolved[path] = self._workspace.resolve(path)
        return self._resolved[path]

    def is_on_disk(self) -> bool:
        """Whether resolved paths still lead to the same places, without pending changes."""
        try:
            is_same = all(self._workspace.resolve(path) == canonical for path, canonical in self._resolved.items())
        except ToolError:  # outside the workspace, or nowhere, by now
            return False
        resolved = self._resolved.values()
        return is_same and not any(f"{path}/".startswith(f"{target}/") for path in self._pending for target in resolved)

    def is_temporary(self, path: str) -> bool:
        """Whether a path is in the sandbox's own `/tmp`."""
        return self._workspace.is_temporary(path)

    def mode(self, path: str) -> int | None:
        """Return a file's permission bits."""
        return self._workspace.mode(path)

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        canonical = self.resolve(path)
        if canonical in self._pending:
            return self._pending[canonical] is not None
        return self._is_new_directory(canonical) or self._workspace.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a path is a directory."""
        canonical = self.resolve(path)
        return self._is_new_directory(canonical) or (
            canonical not in self._pending and self._workspace.is_directory(path)
        )

    def read_bytes(self, path: str) -> bytes:
        """Read a regular file.

        Raises:
            ToolError: missing, irregular or too large.
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
            names = [entry.rstrip("/") for entry in self._workspace.list_directory(parent or ".")]
            near = get_close_matches(name, names, n=3)
            hint = f"; there are {', '.join(repr(f'{parent}/{name}'.lstrip('/')) for name in near)}" if near else ""
            raise ToolError(f"{path!r} does not exist{hint}", kind="FileNotFoundError")
        if self.is_directory(path):
            names = self._workspace.list_directory(path) if self._workspace.is_directory(path) else []
            more = f", … {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            listing = ", ".join(map(quote_path, names[:_MAX_NAMES])) + more or "nothing"
            raise ToolError(f"{path!r} is a directory; in it: {listing}", kind="IsADirectoryError")
        pending = self._pending.get(canonical)
        return self._workspace.read_bytes(path, MAX_BYTES) if pending is None else pending

    def read_text(self, path: str) -> TextFile:
        """Read a text file.

        Raises:
            ToolError: as for `read_bytes`, or binary.
        """
        data = self.read_bytes(path)
        text = decode(data)
        if text is None:
            raise ToolError(
                f"{path!r} is a binary file ({len(data):,} bytes), not text; use a shell command", kind="ValueError"
            )
        return TextFile(data=data, text=text, version=version_of(data))

    def read_text_or_none(self, path: str) -> TextFile | None:
        """Read a text file to replace; None if missing, large or binary."""
        if not self.exists(path) or (
            not self.is_pending(self.resolve(path)) and self._workspace.size(path) > MAX_BYTES
        ):
            return None
        data = self.read_bytes(path)
        text = decode(data)
        return TextFile(data=data, text=text, version=version_of(data)) if text is not None else None

    def _is_new_directory(self, canonical: str) -> bool:
        return any(data is not None and path.startswith(f"{canonical}/") for path, data in self._pending.items())
