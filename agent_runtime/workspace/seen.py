"""The lines that an agent knows of files, so that edits by line numbers can be brought up to date. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.text import Text, split

_KEPT = 8  # versions of one file
_KEPT_BYTES = 32_000_000  # of all versions of all files

Lines = tuple[str, ...]


_NEIGHBOURS = [(0, 0), *(pair for n in range(1, 9) for pair in ((n, n), (n, 0), (0, n)))]
"""How many lines before and after a block are taken with it, one try after the other."""


class Seen:
    """The versions of files that were shown or written, and which of them line numbers refer to.

    A reply's line numbers come from what its author had read, so writes of the same step do not move the base until
    the step is over; a read does at once, because code may compute line numbers from its value.

    Versions are kept as texts, not as lines, which would take up to thirty times the room; of very many large files the
    ones that were used last.
    """

    def __init__(self) -> None:
        self._versions: dict[str, OrderedDict[str, str | None]] = {}
        self._sizes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._base: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._lost: set[str] = set()

    def copy(self, only: str | None = None) -> Seen:
        """The same knowledge, to try something out on.

        Args:
            only: the one file of which it is wanted; None for all.
        """
        twin = Seen()
        chosen = {path: versions for path, versions in self._versions.items() if only in {None, path}}
        twin._versions = {path: versions.copy() for path, versions in chosen.items()}
        twin._sizes = self._sizes.copy()
        twin._base, twin._written, twin._lost = self._base.copy(), self._written.copy(), self._lost.copy()
        return twin

    @property
    def kept_bytes(self) -> int:
        """How much room the texts take."""
        return sum(self._sizes.values())

    def begin_step(self) -> None:
        """From here on, line numbers refer to the files as the last step left them."""
        self._base |= self._written
        self._written.clear()

    def read(self, path: str, version: str, text: str) -> None:
        """The agent was shown this version.

        Args:
            path: the file.
            version: its tag.
            text: `Text.plain`.
        """
        self._base[path] = version
        self._written.pop(path, None)
        self._lost.discard(path)
        self._keep(path, version, text)

    def wrote(self, path: str, version: str, text: str) -> None:
        """The agent made this version out of one that it knew in part."""
        self._keep(path, version, text)
        self._written[path] = version

    def lose(self, path: str) -> None:
        """The version that line numbers refer to is no longer available: it changed while nobody looked."""
        self._lost.add(path)

    def bases(self) -> dict[str, tuple[str, Lines]]:
        """Of the files written in this step: the version that line numbers refer to until it is over, and its lines."""
        known = {path: self._base[path] for path in self._written if path in self._base}
        texts = {path: (version, self._versions[path][version]) for path, version in known.items()}
        return {path: (version, tuple(split(text))) for path, (version, text) in texts.items() if text is not None}

    def put_back(self, path: str, version: str, lines: Lines) -> None:
        """A file that stands as it was read just now was written in this step; line numbers refer to this version."""
        now = self._base.get(path)
        if now is None:
            return
        self._written[path] = now
        self._base[path] = version
        self._keep(path, version, "".join(f"{line}\n" for line in lines))

    def base(self, path: str, version: str | None, now: tuple[str, Text] | None = None) -> Lines | None:
        """The lines that line numbers refer to: of `version` if given, else of what was last known; None if nothing.

        Args:
            path: the file.
            version: the version that the call names, if it does.
            now: the version and the text of the file as it is.

        Raises:
            ToolError: `version` was never shown, or the file changed while a run was paused.
        """
        if path in self._lost:
            raise ToolError(
                f"{path!r} changed while the run was paused, so its line numbers are not known; read the file again",
                kind="ValueError",
            )
        known = self._versions.get(path, OrderedDict())
        if version is not None and version not in known:
            shown = f"; the versions shown are {', '.join(known)}" if known else ""
            raise ToolError(
                f"version={version!r}: read_file has not shown this version of {path!r}{shown}; read the file again",
                kind="ValueError",
            )
        base = version or self._base.get(path) or self._written.get(path)
        if base is None:
            return None
        if now is not None and base == now[0]:
            return now[1].lines
        text = known[base]
        if text is None:
            raise ToolError(
                f"{path!r} has changed, and how it was at version {base} is forgotten: much was read since. Read the "
                "file again",
                kind="ValueError",
            )
        return tuple(split(text))

    def _keep(self, path: str, version: str, text: str) -> None:
        known = self._versions.setdefault(path, OrderedDict())
        known[version] = text
        known.move_to_end(version)
        self._sizes[path, version] = text.__sizeof__()
        self._sizes.move_to_end((path, version))
        old = [tag for tag in known if tag not in {version, self._base.get(path)}]
        for tag in old[: max(0, len(known) - _KEPT)]:
            del known[tag]
            self._sizes.pop((path, tag), None)
        while self.kept_bytes > _KEPT_BYTES and len(self._sizes) > 1:
            (path, version), _ = self._sizes.popitem(last=False)
            self._versions[path][version] = None


def rebased(edits: Sequence[LineEdit], base: Lines, now: Lines) -> list[LineEdit] | None:
    """The same edits on the lines as they stand now; None when one of them cannot be placed with certainty.

    An insertion is placed by the two lines that it parts.
    """
    if base == now:
        return list(edits)
    placed: list[LineEdit] = []
    for edit in edits:
        first, last = edit.start, edit.end
        if last < first:
            first, last = max(1, last), min(len(base), first)
        moved = rebase(base, now, first, last) if last else (0 if not base else None)
        if moved is None:
            return None
        placed.append(LineEdit(start=edit.start + moved, end=edit.end + moved, text=edit.text))
    return placed


def rebase(seen: Sequence[str], now: Sequence[str], start: int, end: int) -> int | None:
    """By how many lines the block `start`..`end` (from 1, inclusive) moved between two versions of a file.

    None when that is not certain: the block must lie in the part before or behind everything that changed, or it must,
    alone or with some of its neighbours, stand exactly once in either version.
    """
    if end <= _common(seen, now):
        return 0
    moved = len(now) - len(seen)
    if len(seen) - start + 1 <= _common(seen[::-1], now[::-1]):
        return moved
    for before, after in _NEIGHBOURS:
        first = max(0, start - 1 - before)
        block = list(seen[first : min(len(seen), end + after)])
        here = _places(now, block)
        if len(here) == 1 and len(_places(seen, block)) == 1:
            return here[0] - first
    return None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two versions share at the beginning."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _places(lines: Sequence[str], block: Sequence[str]) -> list[int]:
    size = len(block)
    return [i for i in range(len(lines) - size + 1) if lines[i] == block[0] and list(lines[i : i + size]) == block]
