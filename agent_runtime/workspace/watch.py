"""Find the known files that someone else changed. Looks at those files only.

A file is read again only when its stamp (times, size, inode) differs, or when it was changed so shortly before it
was looked at that its times could not tell a second change from the first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import changed_spans, ranges
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.text import decode, split, version_of

_GRAIN = 20_000_000  # nanoseconds; file times advance with the kernel's tick, 10 ms at most
_MOST_RANGES = 30
_MOST_RANGES_IN_ALL = 100
_MOST_FILES = 50
_MAX_BYTES = 10_000_000
_MOST_COMPARED = 1_000_000  # characters of a file of which the changed lines are told
_KEPT_CHARS = 16_000_000  # of all files
_FEW = 16  # files whose stamps take a tenth of a millisecond, which is less than a thread takes to start looking

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as it was looked at: nothing when it was not there, no number of lines when it is no text.

    Attributes:
        text: what to compare a later version with; None when there is no text, or it is too large to be kept.
    """

    stamp: _Stamp | None
    looked: int
    version: str
    count: int | None
    text: str | None

    def may_have_changed(self, stamp: _Stamp | None) -> bool:
        return stamp != self.stamp or (stamp is not None and max(stamp[:2]) + _GRAIN > self.looked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of the files that another process knew.

    Attributes:
        same: text files that are as they were: version and `Text.plain`.
        changed: the others, each with a line that tells it.
    """

    same: dict[str, tuple[str, str]]
    changed: dict[str, str]


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
            if files > _MOST_FILES:
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

    def _look(self, canonical: str, stamp: _Stamp | None, looked: int) -> tuple[_Known, str | None]:
        """A file as it is, and its text."""
        if stamp is None:
            return _known(None, looked, "", None), None
        try:
            data = self._workspace.read_bytes(canonical, _MAX_BYTES)
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


def _known(stamp: _Stamp | None, looked: int, version: str, text: str | None) -> _Known:
    count = None if text is None else text.count("\n") + (not text.endswith("\n") and bool(text))
    return _Known(stamp, looked, version, count, text if text is not None and len(text) <= _MOST_COMPARED else None)
