"""Check the names that may be used in a workspace, before any file is looked at. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from agent_runtime.core.errors import ToolError

_SHORT_GIT = re.compile(r"git~\d+\Z")


def parts_of(path: str, roots: Iterable[str]) -> tuple[str, ...]:
    """Split a path that control code gave into its components, `.` and empty ones left out.

    Args:
        path: relative to the workspace, or absolute beneath one of `roots`.
        roots: the absolute spellings of the workspace's own path.

    Raises:
        ToolError: the path is empty, not printable text, absolute and elsewhere, or enters a git directory.
    """
    _check_text(path)
    inside = beneath(path, roots)
    if inside is None:
        raise ToolError(
            f"{path!r} is outside the workspace {next(iter(roots), '')!r}; only files in it can be used here",
            kind="PermissionError",
        )
    parts = tuple(part for part in inside.split("/") if part not in {"", "."})
    refuse_git(parts, path)
    return parts


def parts_anywhere(path: str, roots: Iterable[str], home: tuple[str, ...]) -> tuple[str, ...]:
    """The components, from the machine's root, of a path that may lie outside the workspace.

    Args:
        path: relative to the workspace, or absolute.
        roots: the absolute spellings of the workspace's own path.
        home: the components of the workspace's own path.

    Raises:
        ToolError: the path is empty, not printable text, or enters a git directory.
    """
    _check_text(path)
    inside = beneath(path, roots)
    given = tuple(part for part in (path if inside is None else inside).split("/") if part not in {"", "."})
    refuse_git(given, path)
    return given if inside is None else (*home, *given)


def in_line(path: str) -> str:
    """A path as a part of a line: quoted where it has characters that break or hide a line, or cannot be encoded."""
    return path if path.isprintable() else repr(path)


def refuse_git(parts: Iterable[str], path: str) -> None:
    """Keep out of git's own files, in every spelling that some file system takes for `.git`.

    Raises:
        ToolError: a component names a git directory.
    """
    if any(is_git(piece) for part in parts for piece in part.split("\\")):
        raise ToolError(
            f"{path!r} lies in a git directory, which belongs to the host; use git commands to look at history",
            kind="PermissionError",
        )


def is_git(name: str) -> bool:
    """Whether some file system would open `.git` under this name.

    NTFS drops trailing dots and spaces, has short names and streams after a colon; HFS+ ignores case and invisible
    characters. The rules are those of git's own `core.protectNTFS` and `core.protectHFS`.
    """
    if name.isascii() and "git" not in name.lower():  # nearly all; the rest takes ten times as long
        return False
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    plain = visible.partition(":")[0].rstrip(". ").casefold()
    return plain == ".git" or _SHORT_GIT.match(plain) is not None


def _check_text(path: str) -> None:
    if not path:
        raise ToolError("path must name a file or directory in the workspace, got an empty text", kind="ValueError")
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in path):
        raise ToolError(
            f"path {path!r} holds control characters or unpaired surrogates; no such name is opened",
            kind="ValueError",
        )


def beneath(path: str, roots: Iterable[str]) -> str | None:
    """The path from the workspace's root; None for an absolute one elsewhere."""
    if not path.startswith("/"):
        return path
    for root in roots:
        prefix = root.rstrip("/")
        if path == prefix or path.startswith(f"{prefix}/"):
            return path[len(prefix) + 1 :]
    return None
