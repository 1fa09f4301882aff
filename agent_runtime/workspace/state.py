"""Detection of changes in a workspace: `Manifest` compares all files, `Watch` those known to the agent."""

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
from agent_runtime.workspace.diffs import changed_ranges, changed_spans, decode, split_lines, version_of
from agent_runtime.workspace.files import MAX_BYTES, Stamp, Workspace, is_recent, quote_path

if TYPE_CHECKING:
    from agent_runtime.core.values import Plain


_MAX_FILES = 50_000
_MAX_BYTES = 1_000_000_000
_CHUNK = 1 << 20
_SECONDS = 120.0
_MEMORY = 200 * 1024**2
_NEW_KINDS = {
    "file": "now a file",
    "program": "now a program",
    "stamp": "now a file",
    "link": "now a link",
    "special": "now a special file",
    "unreadable": "no longer readable",
}


@dataclass(frozen=True)
class Manifest:
    """Fingerprints of files that git does not ignore, by canonical path.

    Attributes:
        entries: `file HASH`, `program HASH` (executable), `link TARGET`, `stamp SIZE TIME` beyond the first 10^9 bytes,
            `special`, or `unreadable`.
        unread: files compared by size and time.
        unlisted: files beyond the first 50,000 were skipped.
    """

    entries: dict[str, str]
    unread: int = 0
    unlisted: bool = False

    @classmethod
    def scan(cls, workspace: Workspace) -> Self:
        """Fingerprint every file, without following links."""
        entries: dict[str, str] = {}
        budget, unread = _MAX_BYTES, 0
        for directory, prefix, entry in listing.entries(workspace):
            if len(entries) >= _MAX_FILES:
                return cls(entries, unread, unlisted=True)
            if entry is None:
                entries[prefix] = "unreadable"
                continue
            fingerprint, size = _fingerprint(directory, entry, budget)
            entries[prefix + entry.name] = fingerprint
            budget -= size
            unread += fingerprint.startswith("stamp ")
        return cls(entries, unread)

    @classmethod
    async def scan_bounded(cls, workspace: Workspace) -> Self:
        """Run `scan` in a worker process: names and patterns are untrusted.

        Raises:
            BoundExceededError: timeout, or too large.
        """
        purpose = "Noting what all files of the workspace hold"
        unread, unlisted, *entries = (
            await run_bounded(_scan_packed, workspace, seconds=_SECONDS, memory=_MEMORY, task=purpose)
        ).split("\0")
        return cls(dict(zip(entries[::2], entries[1::2], strict=True)), int(unread), bool(unlisted))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Plain]) -> Self:
        """Parse the output of `to_plain`.

        Raises:
            ValueError: malformed.
        """
        match plain:
            case {"entries": dict() as entries, "unread": int() as unread, "unlisted": bool() as unlisted}:
                return cls({path: str(fingerprint) for path, fingerprint in entries.items()}, unread, unlisted)
            case _:
                raise ValueError(f"not the state of a workspace: it has {', '.join(plain) or 'nothing'}")

    def to_plain(self) -> dict[str, Plain]:
        """Return plain data."""
        return {"entries": {**self.entries}, "unread": self.unread, "unlisted": self.unlisted}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all entries."""
        digest = hashlib.sha256()
        for path in sorted(self.entries):
            digest.update(f"{path}\0{self.entries[path]}\0".encode("utf-8", "surrogatepass"))
        digest.update(b"unlisted" if self.unlisted else b"")
        return digest.hexdigest()

    @property
    def note(self) -> str:
        """Limits of the comparison, or ""."""
        notes = []
        if self.unread:
            count = "1 file" if self.unread == 1 else f"{self.unread:,} files"
            was = "was" if self.unread == 1 else "were"
            notes.append(f"{count} beyond the first {_MAX_BYTES:,} bytes {was} compared by size and time only")
        if self.unlisted:
            notes.append(f"files beyond the first {_MAX_FILES:,} were not looked at")
        return "; ".join(notes)

    def difference(self, later: Manifest, limit: int = 10) -> list[str]:
        """List up to `limit` changed files by name, and count the rest."""
        lines = []
        for path in sorted(self.entries.keys() | later.entries.keys()):
            before, after = self.entries.get(path), later.entries.get(path)
            if before != after:
                lines.append(f"{_change_verb(before, after)}: {quote_path(path)}")
        rest = len(lines) - limit
        return [*lines[:limit], *([f"… and {rest:,} more"] if rest > 0 else [])]


def _scan_packed(workspace: Workspace) -> str:
    with workspace:
        manifest = Manifest.scan(workspace)
    pairs = (part for entry in manifest.entries.items() for part in entry)
    return "\0".join([str(manifest.unread), "unlisted" if manifest.unlisted else "", *pairs])


def _fingerprint(directory: int, entry: os.DirEntry[str], budget: int) -> tuple[str, int]:
    try:
        if entry.is_symlink():
            return f"link {os.readlink(entry.name, dir_fd=directory)}", 0
        if not entry.is_file(follow_symlinks=False):
            return "special", 0
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with files_module.closing(os.open(entry.name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "special", 0
            kind = "program" if status.st_mode & 0o111 else "file"
            if status.st_size > budget:
                return f"stamp {kind} {status.st_size} {status.st_mtime_ns}", 0
            digest, size = hashlib.sha256(), 0
            # Stop at the limit, as the file may be growing.
            while size < budget and (chunk := os.read(descriptor, _CHUNK)):
                digest.update(chunk)
                size += len(chunk)
            return f"{kind} {digest.hexdigest()}", size
    except OSError:  # removed meanwhile, or unreadable
        return "unreadable", 0


def _change_verb(before: str | None, after: str | None) -> str:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    (old, _, old_value), (new, _, new_value) = before.partition(" "), after.partition(" ")
    if old == new:
        return "link changed" if new == "link" else "modified"
    if {old, new} == {"file", "program"} and old_value == new_value:
        return "made executable" if new == "program" else "no longer executable"
    if {old, new} <= {"file", "program", "stamp"}:
        return "modified"
    return _NEW_KINDS[new]


_MAX_RANGES = 30
_MAX_TOTAL_RANGES = 100
_MAX_CHANGES = 50
_COMPARED_CHARS = 1_000_000
_MAX_STORED_CHARS = 16_000_000  # of all files
_MAX_QUICK_FILES = 16  # stamps of so many files take 0.1 ms, less than starting a thread


class Watch:
    """Remembers files and reports later changes."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._states: dict[str, _FileState] = {}
        self.stored_chars = 0
        """Memory used by texts."""

    def may_have_changes(self) -> bool:
        """Whether `take_changes` may find something; true for many files."""
        if len(self._states) > _MAX_QUICK_FILES:
            return True
        stamp_of = self._workspace.quick_stamp
        try:
            return any(state.may_have_changed(stamp_of(path)) for path, state in self._states.items())
        except OSError:
            return True

    def record(self, canonical: str) -> None:
        """Record a canonical path as it is now, also if missing."""
        checked_at = time.time_ns()
        self._store(canonical, self._read_state(canonical, self._workspace.stamp(canonical), checked_at)[0])

    def record_content(self, canonical: str, version: str, text: str | None) -> None:
        """Record known content; `text` is `Text.normalized`, None if binary."""
        checked_at = time.time_ns()
        self._store(canonical, _make_state(self._workspace.stamp(canonical), checked_at, version, text))

    def take_changes(self) -> list[str]:
        """Describe changes since the last look, and record them."""
        report: list[str] = []
        budget, files = _MAX_TOTAL_RANGES, 0
        checked_at = time.time_ns()
        stamp_of = self._workspace.stamp
        for canonical, old in list(self._states.items()):
            stamp = stamp_of(canonical)
            if not old.may_have_changed(stamp):
                continue
            new, _ = self._read_state(canonical, stamp, checked_at)
            self._store(canonical, new)
            if (new.stamp is None) == (old.stamp is None) and new.version == old.version:
                continue
            files += 1
            if files > _MAX_CHANGES:
                continue
            is_comparable = old.stamp is not None and old.text is not None and new.text is not None
            spans = changed_spans(split_lines(old.text or ""), split_lines(new.text or "")) if is_comparable else []
            places = changed_ranges(spans)
            visible = places[: min(_MAX_RANGES, budget)]
            budget -= len(visible)
            if new.stamp is None:
                report.append(f"Deleted: {canonical}")
            elif old.stamp is None:
                report.append(f"Created: {canonical} ({'binary' if new.count is None else f'{new.count} lines'})")
            else:
                report.append(f"Modified: {canonical}")
                rest = len(places) - len(visible)
                lines = [*visible, *([f"{rest} more"] if rest else [])]
                report += [f"Changed lines: {', '.join(lines)}"] if lines else []
        if files > _MAX_CHANGES:
            report.append(f"… and {files - _MAX_CHANGES} more files")
        return report

    def versions(self) -> dict[str, str | None]:
        """Return the version of each file; None if missing."""
        return {path: state.version if state.stamp is not None else None for path, state in self._states.items()}

    def restore(self, tracked: Mapping[str, str | None]) -> RestoredFiles:
        """Record the files of another process as they are now."""
        unchanged: dict[str, tuple[str, str]] = {}
        changed: dict[str, str] = {}
        for canonical, version in tracked.items():
            checked_at = time.time_ns()
            state, text = self._read_state(canonical, self._workspace.stamp(canonical), checked_at)
            self._store(canonical, state)
            if (state.version if state.stamp is not None else None) != version:
                verb = "Deleted" if state.stamp is None else "Created" if version is None else "Modified"
                changed[canonical] = f"{verb}: {canonical} (changed while the run was paused; read it again)"
            elif text is not None:
                unchanged[canonical] = state.version, text
        return RestoredFiles(unchanged=unchanged, changed=changed)

    def _read_state(self, canonical: str, stamp: Stamp | None, checked_at: int) -> tuple[_FileState, str | None]:
        if stamp is None:
            return _make_state(None, checked_at, "", None), None
        try:
            data = self._workspace.read_bytes(canonical, MAX_BYTES)
        except ToolError:  # too large, unreadable or a link by now, so its lines are unknown
            return _make_state(stamp, checked_at, f"unread {stamp}", None), None
        text = decode(data)
        plain = text.normalized if text else None
        return _make_state(stamp, checked_at, version_of(data), plain), plain

    def _store(self, canonical: str, state: _FileState) -> None:
        old = self._states.get(canonical)
        self.stored_chars += len(state.text or "") - len((old.text if old else None) or "")
        self._states[canonical] = state
        if self.stored_chars <= _MAX_STORED_CHARS:
            return
        for path, stored in sorted(self._states.items(), key=lambda item: item[1].checked_at):
            if self.stored_chars > _MAX_STORED_CHARS and stored.text is not None:
                self.stored_chars -= len(stored.text)
                self._states[path] = replace(stored, text=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFiles:
    """Files known to another process: unchanged texts, and descriptions of changes."""

    unchanged: dict[str, tuple[str, str]]
    changed: dict[str, str]


@dataclass(frozen=True, slots=True)
class _FileState:
    stamp: Stamp | None
    checked_at: int
    version: str
    count: int | None
    text: str | None

    def may_have_changed(self, stamp: Stamp | None) -> bool:
        return stamp != self.stamp or (stamp is not None and is_recent(stamp, self.checked_at))


def _make_state(stamp: Stamp | None, checked_at: int, version: str, text: str | None) -> _FileState:
    count = None if text is None else text.count("\n") + (not text.endswith("\n") and bool(text))
    stored = text if text is not None and len(text) <= _COMPARED_CHARS else None
    return _FileState(stamp, checked_at, version, count, stored)
