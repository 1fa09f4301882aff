"""Which of the files that the agent knows were changed by someone else. Looks at those files only.

A file is read again only when its stamp (times, size, inode) differs, or when it was changed so shortly before it
was looked at that its times could not tell a second change from the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent_runtime.errors import ToolError
from agent_runtime.workspace.diffs import changed_spans
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.text import decode, version_of

_GRAIN = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most
_MOST_RANGES = 30
_MOST_RANGES_IN_ALL = 100
_MOST_FILES = 50
_MAX_BYTES = 10_000_000

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as it was looked at: nothing when it was not there, no lines when it is no text."""

    stamp: _Stamp | None
    looked: int
    version: str
    lines: tuple[str, ...] | None

    def may_have_changed(self, stamp: _Stamp | None) -> bool:
        return stamp != self.stamp or (stamp is not None and max(stamp[:2]) + _GRAIN > self.looked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of the files that another process knew.

    Attributes:
        same: text files that are as they were: version and lines.
        changed: the others, each with a line that tells it.
    """

    same: dict[str, tuple[str, tuple[str, ...]]]
    changed: dict[str, str]


class Watch:
    """Remembers files, and tells how they differ later."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, _Known] = {}

    def note(self, canonical: str) -> None:
        """Remember a file as it is now, or that it is not there.

        Args:
            canonical: a path that `Workspace.resolve` gave.
        """
        looked = time.time_ns()
        self._known[canonical] = self._look(canonical, self._workspace.stamp(canonical), looked)

    def remember(self, canonical: str, version: str, lines: tuple[str, ...] | None) -> None:
        """Remember a file that was just read or written, without reading it again."""
        looked = time.time_ns()
        self._known[canonical] = _Known(self._workspace.stamp(canonical), looked, version, lines)

    def changes(self) -> list[str]:
        """What changed since each file was last looked at, as lines to be read; from then on that is what is known."""
        told: list[str] = []
        room, files = _MOST_RANGES_IN_ALL, 0
        for canonical, old, new in self._changed():
            files += 1
            if files > _MOST_FILES:
                continue
            ranges = _ranges(old, new)
            shown = ranges[: min(_MOST_RANGES, room)]
            room -= len(shown)
            told += _told(canonical, old, new, shown, len(ranges) - len(shown))
        if files > _MOST_FILES:
            told.append(f"… and {files - _MOST_FILES} more files")
        return told

    def tracked(self) -> dict[str, str | None]:
        """Each file that is remembered, and its version as it was last looked at; None for one that was not there."""
        return {path: known.version if known.stamp is not None else None for path, known in self._known.items()}

    def restore(self, tracked: Mapping[str, str | None]) -> Restored:
        """Remember the files that another process did, as they are now.

        Args:
            tracked: what `tracked` gave there.
        """
        same: dict[str, tuple[str, tuple[str, ...]]] = {}
        changed: dict[str, str] = {}
        for canonical, version in tracked.items():
            self.note(canonical)
            now = self._known[canonical]
            if (now.version if now.stamp is not None else None) != version:
                verb = "Deleted" if now.stamp is None else "Created" if version is None else "Modified"
                changed[canonical] = f"{verb}: {canonical} (changed while the run was paused; read it again)"
            elif now.lines is not None:
                same[canonical] = now.version, now.lines
        return Restored(same=same, changed=changed)

    def _changed(self) -> Iterator[tuple[str, _Known, _Known]]:
        looked = time.time_ns()
        stamp_of = self._workspace.stamp
        for canonical, old in list(self._known.items()):
            stamp = stamp_of(canonical)
            if not old.may_have_changed(stamp):
                continue
            new = self._look(canonical, stamp, looked, old)
            self._known[canonical] = new
            if (new.stamp is None) != (old.stamp is None) or new.version != old.version:
                yield canonical, old, new

    def _look(self, canonical: str, stamp: _Stamp | None, looked: int, old: _Known | None = None) -> _Known:
        if stamp is None:
            return _Known(None, looked, "", None)
        try:
            data = self._workspace.read_bytes(canonical, _MAX_BYTES)
        except ToolError:  # grown too large, made unreadable or a link: changed, and nothing can be said of its lines
            return _Known(stamp, looked, f"unread {stamp}", None)
        version = version_of(data)
        if old and old.version == version:
            return _Known(stamp, looked, version, old.lines)
        text = decode(data)
        return _Known(stamp, looked, version, text.lines if text else None)


def _told(canonical: str, old: _Known, new: _Known, ranges: list[str], more: int) -> list[str]:
    if new.stamp is None:
        return [f"Deleted: {canonical}"]
    if old.stamp is None:
        return [f"Created: {canonical} ({'binary' if new.lines is None else f'{len(new.lines)} lines'})"]
    rest = [f"{more} more"] if more else []
    return [f"Modified: {canonical}", *([f"Changed lines: {', '.join([*ranges, *rest])}"] if ranges or rest else [])]


def _ranges(old: _Known, new: _Known) -> list[str]:
    """The changed lines by their new numbers; where lines only went, the line that they stood behind."""
    if old.stamp is None or old.lines is None or new.lines is None:
        return []
    return [
        (f"{c + 1}-{d}" if d > c + 1 else str(d)) if d > c else f"after {c} ({b - a} removed)"
        for a, b, c, d in changed_spans(old.lines, new.lines)
    ]
