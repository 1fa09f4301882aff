"""Notice what changed in a workspace.

`Manifest` is a fingerprint of all files at one moment, to be compared with a later one. `Watch` remembers the files
that the agent knows and tells which of them somebody else changed; it looks at those only.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from agent_runtime.core.errors import ToolError
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import files as files_module
from agent_runtime.workspace import listing
from agent_runtime.workspace.diffs import changed_spans, decode, ranges, split, version_of
from agent_runtime.workspace.files import MAX_BYTES, Stamp, Workspace, in_line, is_recent

if TYPE_CHECKING:
    from agent_runtime.core.values import Plain


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
            await run_bounded(_packed, workspace, seconds=_SECONDS, memory=_MEMORY, task=what)
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


def _entry(directory: int, entry: os.DirEntry[str], room: int) -> tuple[str, int]:
    """What a file is told by, and how many of its bytes were read."""
    try:
        if entry.is_symlink():
            return f"link {os.readlink(entry.name, dir_fd=directory)}", 0
        if not entry.is_file(follow_symlinks=False):
            return "special", 0
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with files_module.held(os.open(entry.name, flags, dir_fd=directory)) as descriptor:
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


_MOST_RANGES = 30
_MOST_RANGES_IN_ALL = 100
_MOST_CHANGES = 50
_MOST_COMPARED = 1_000_000  # characters of a file of which the changed lines are told
_KEPT_CHARS = 16_000_000  # of all files
_FEW = 16  # files whose stamps take a tenth of a millisecond, which is less than a thread takes to start looking


class Watch:
    """Remembers files, and tells how they differ later."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, _Known] = {}
        self._chars = 0

    @property
    def kept_chars(self) -> int:
        """How much room the texts take."""
        return self._chars

    def may_differ(self) -> bool:
        """Whether `changes` could find something: quickly answered, since of many files it is not known."""
        if len(self._known) > _FEW:
            return True
        stamp_of = self._workspace.quick_stamp
        try:
            return any(known.may_have_changed(stamp_of(path)) for path, known in self._known.items())
        except OSError:
            return True

    def note(self, canonical: str) -> None:
        """Remember a file as it is now, or that it is not there.

        Args:
            canonical: a path that `Workspace.resolve` gave.
        """
        looked = time.time_ns()
        self._keep(canonical, self._look(canonical, self._workspace.stamp(canonical), looked)[0])

    def remember(self, canonical: str, version: str, text: str | None) -> None:
        """Remember a file that was just read or written, without reading it again.

        Args:
            canonical: a path that `Workspace.resolve` gave.
            version: its tag.
            text: `Text.plain`; None when it is no text.
        """
        looked = time.time_ns()
        self._keep(canonical, _known(self._workspace.stamp(canonical), looked, version, text))

    def changes(self) -> list[str]:
        """What changed since each file was last looked at, as lines to be read; from then on that is what is known."""
        told: list[str] = []
        room, files = _MOST_RANGES_IN_ALL, 0
        looked = time.time_ns()
        stamp_of = self._workspace.stamp
        for canonical, old in list(self._known.items()):
            stamp = stamp_of(canonical)
            if not old.may_have_changed(stamp):
                continue
            new, _ = self._look(canonical, stamp, looked)
            self._keep(canonical, new)
            if (new.stamp is None) == (old.stamp is None) and new.version == old.version:
                continue
            files += 1
            if files > _MOST_CHANGES:
                continue
            known = old.stamp is not None and old.text is not None and new.text is not None
            places = ranges(changed_spans(split(old.text or ""), split(new.text or ""))) if known else []
            shown = places[: min(_MOST_RANGES, room)]
            room -= len(shown)
            if new.stamp is None:
                told.append(f"Deleted: {canonical}")
            elif old.stamp is None:
                told.append(f"Created: {canonical} ({'binary' if new.count is None else f'{new.count} lines'})")
            else:
                told.append(f"Modified: {canonical}")
                rest = len(places) - len(shown)
                lines = [*shown, *([f"{rest} more"] if rest else [])]
                told += [f"Changed lines: {', '.join(lines)}"] if lines else []
        if files > _MOST_CHANGES:
            told.append(f"… and {files - _MOST_CHANGES} more files")
        return told

    def tracked(self) -> dict[str, str | None]:
        """Each file that is remembered, and its version as it was last looked at; None for one that was not there."""
        return {path: known.version if known.stamp is not None else None for path, known in self._known.items()}

    def restore(self, tracked: Mapping[str, str | None]) -> Restored:
        """Remember the files that another process did, as they are now.

        Args:
            tracked: what `tracked` gave there.
        """
        same: dict[str, tuple[str, str]] = {}
        changed: dict[str, str] = {}
        for canonical, version in tracked.items():
            looked = time.time_ns()
            now, text = self._look(canonical, self._workspace.stamp(canonical), looked)
            self._keep(canonical, now)
            if (now.version if now.stamp is not None else None) != version:
                verb = "Deleted" if now.stamp is None else "Created" if version is None else "Modified"
                changed[canonical] = f"{verb}: {canonical} (changed while the run was paused; read it again)"
            elif text is not None:
                same[canonical] = now.version, text
        return Restored(same=same, changed=changed)

    def _look(self, canonical: str, stamp: Stamp | None, looked: int) -> tuple[_Known, str | None]:
        """A file as it is, and its text."""
        if stamp is None:
            return _known(None, looked, "", None), None
        try:
            data = self._workspace.read_bytes(canonical, MAX_BYTES)
        except ToolError:  # grown too large, made unreadable or a link: changed, and nothing can be said of its lines
            return _known(stamp, looked, f"unread {stamp}", None), None
        text = decode(data)
        plain = text.plain if text else None
        return _known(stamp, looked, version_of(data), plain), plain

    def _keep(self, canonical: str, known: _Known) -> None:
        """Remember a file; of very many, the texts of those that were looked at last."""
        old = self._known.get(canonical)
        self._chars += len(known.text or "") - len((old.text if old else None) or "")
        self._known[canonical] = known
        if self._chars <= _KEPT_CHARS:
            return
        for path, each in sorted(self._known.items(), key=lambda item: item[1].looked):
            if self._chars > _KEPT_CHARS and each.text is not None:
                self._chars -= len(each.text)
                self._known[path] = replace(each, text=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of the files that another process knew.

    Attributes:
        same: text files that are as they were: version and `Text.plain`.
        changed: the others, each with a line that tells it.
    """

    same: dict[str, tuple[str, str]]
    changed: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as it was looked at: nothing when it was not there, no number of lines when it is no text.

    Attributes:
        text: what to compare a later version with; None when there is no text, or it is too large to be kept.
    """

    stamp: Stamp | None
    looked: int
    version: str
    count: int | None
    text: str | None

    def may_have_changed(self, stamp: Stamp | None) -> bool:
        return stamp != self.stamp or (stamp is not None and is_recent(stamp, self.looked))


def _known(stamp: Stamp | None, looked: int, version: str, text: str | None) -> _Known:
    count = None if text is None else text.count("\n") + (not text.endswith("\n") and bool(text))
    return _Known(stamp, looked, version, count, text if text is not None and len(text) <= _MOST_COMPARED else None)
