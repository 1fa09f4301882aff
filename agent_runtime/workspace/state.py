"""A fingerprint of a workspace at one moment, for comparing later."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import confined, listing
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.paths import in_line

if TYPE_CHECKING:
    from agent_runtime.core.calls import Plain

_MOST_FILES = 50_000
_MOST_BYTES = 1_000_000_000
_CHUNK = 1 << 20
_SECONDS = 120.0
_MEMORY = 200 * 1024**2
_NOW = {
    "file": "now a file",
    "program": "now a program",
    "stamp": "now a file",
    "link": "now a link",
    "special": "now a special file",
    "unreadable": "no longer readable",
}


@dataclass(frozen=True)
class Manifest:
    """The files of a workspace that no `.gitignore` names, git's own left out.

    Attributes:
        entries: canonical path → `file HASH`, `program HASH` (with the executable bit), `link TARGET`, `stamp SIZE
            TIME` for a file beyond the first 1,000,000,000 bytes, `special`, or `unreadable`.
        unread: how many files were compared by size and time of modification only.
        unlisted: whether there are files beyond the first 50,000, which are not compared at all.
    """

    entries: dict[str, str]
    unread: int = 0
    unlisted: bool = False

    @classmethod
    def of(cls, workspace: Workspace) -> Self:
        """Look at every file. No link is followed, and nothing outside is opened."""
        entries: dict[str, str] = {}
        room, unread = _MOST_BYTES, 0
        for directory, prefix, entry in listing.entries(workspace):
            if len(entries) >= _MOST_FILES:
                return cls(entries, unread, unlisted=True)
            if entry is None:
                entries[prefix] = "unreadable"
                continue
            told, size = _entry(directory, entry, room)
            entries[prefix + entry.name] = told
            room -= size
            unread += told.startswith("stamp ")
        return cls(entries, unread)

    @classmethod
    async def bounded(cls, workspace: Workspace) -> Self:
        """`of` in a worker process: a stranger chose the names, their number, and what git ignores.

        Raises:
            BoundExceededError: it takes too long, or is too large.
        """
        what = "Noting what all files of the workspace hold"
        unread, unlisted, *entries = (
            await run_bounded(_packed, workspace, seconds=_SECONDS, memory=_MEMORY, what=what)
        ).split("\0")
        return cls(dict(zip(entries[::2], entries[1::2], strict=True)), int(unread), bool(unlisted))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Plain]) -> Self:
        """What `to_plain` gave.

        Raises:
            ValueError: it is something else.
        """
        match plain:
            case {"entries": dict() as entries, "unread": int() as unread, "unlisted": bool() as unlisted}:
                return cls({path: str(told) for path, told in entries.items()}, unread, unlisted)
            case _:
                raise ValueError(f"not the state of a workspace: it has {', '.join(plain) or 'nothing'}")

    def to_plain(self) -> dict[str, Plain]:
        """The same as plain data."""
        return {"entries": {**self.entries}, "unread": self.unread, "unlisted": self.unlisted}

    @cached_property
    def digest(self) -> str:
        """One hash over everything, 64 hexadecimal digits."""
        digest = hashlib.sha256()
        for path in sorted(self.entries):
            digest.update(f"{path}\0{self.entries[path]}\0".encode("utf-8", "surrogatepass"))
        digest.update(b"unlisted" if self.unlisted else b"")
        return digest.hexdigest()

    @property
    def note(self) -> str:
        """What was not looked at closely, in words; empty when everything was."""
        notes = []
        if self.unread:
            count = "1 file" if self.unread == 1 else f"{self.unread:,} files"
            was = "was" if self.unread == 1 else "were"
            notes.append(f"{count} beyond the first {_MOST_BYTES:,} bytes {was} compared by size and time only")
        if self.unlisted:
            notes.append(f"files beyond the first {_MOST_FILES:,} were not looked at")
        return "; ".join(notes)

    def difference(self, other: Manifest, limit: int = 10) -> list[str]:
        """What is different in a later manifest, one line a file, in the order of their names; empty for nothing.

        Args:
            other: the later one.
            limit: lines; the rest is counted in one more.
        """
        told = []
        for path in sorted(self.entries.keys() | other.entries.keys()):
            before, after = self.entries.get(path), other.entries.get(path)
            if before != after:
                told.append(f"{_verb(before, after)}: {in_line(path)}")
        rest = len(told) - limit
        return [*told[:limit], *([f"… and {rest:,} more"] if rest > 0 else [])]


def _packed(workspace: Workspace) -> str:
    with workspace:
        found = Manifest.of(workspace)
    pairs = (part for entry in found.entries.items() for part in entry)
    return "\0".join([str(found.unread), "unlisted" if found.unlisted else "", *pairs])


def _verb(before: str | None, after: str | None) -> str:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    (old, _, was), (new, _, now) = before.partition(" "), after.partition(" ")
    if old == new:
        return "link changed" if new == "link" else "modified"
    if {old, new} == {"file", "program"} and was == now:
        return "made executable" if new == "program" else "no longer executable"
    if {old, new} <= {"file", "program", "stamp"}:
        return "modified"
    return _NOW[new]


def _entry(directory: int, entry: os.DirEntry[str], room: int) -> tuple[str, int]:
    """What a file is told by, and how many of its bytes were read."""
    try:
        if entry.is_symlink():
            return f"link {os.readlink(entry.name, dir_fd=directory)}", 0
        if not entry.is_file(follow_symlinks=False):
            return "special", 0
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with confined.held(os.open(entry.name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "special", 0
            kind = "program" if status.st_mode & 0o111 else "file"
            if status.st_size > room:
                return f"stamp {kind} {status.st_size} {status.st_mtime_ns}", 0
            digest, size = hashlib.sha256(), 0
            # Of a file that somebody goes on writing, no more than there is room for.
            while size < room and (chunk := os.read(descriptor, _CHUNK)):
                digest.update(chunk)
                size += len(chunk)
            return f"{kind} {digest.hexdigest()}", size
    except OSError:  # removed in this moment, or not ours to read
        return "unreadable", 0
