"""Which versions of which files the agent knows, so that its line numbers can be brought up to date. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from agent_runtime.errors import ToolError
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.rebase import rebase

_KEPT = 8  # versions of one file

Lines = tuple[str, ...]


class Seen:
    """The versions of files that were shown or written, and which of them line numbers refer to.

    A reply's line numbers come from what its author had read, so writes of the same step do not move the base until
    the step is over; a read does at once, because code may compute line numbers from its value.
    """

    def __init__(self) -> None:
        self._versions: dict[str, OrderedDict[str, Lines]] = {}
        self._base: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._lost: set[str] = set()

    def copy(self) -> Seen:
        """The same knowledge, to try something out on."""
        twin = Seen()
        twin._versions = {path: versions.copy() for path, versions in self._versions.items()}
        twin._base, twin._written, twin._lost = self._base.copy(), self._written.copy(), self._lost.copy()
        return twin

    def begin_step(self) -> None:
        """From here on, line numbers refer to the files as the last step left them."""
        self._base |= self._written
        self._written.clear()

    def read(self, path: str, version: str, lines: Lines) -> None:
        """The agent was shown this version."""
        self._base[path] = version
        self._written.pop(path, None)
        self._lost.discard(path)
        self._keep(path, version, lines)

    def wrote(self, path: str, version: str, lines: Lines) -> None:
        """The agent made this version out of one that it knew in part."""
        self._keep(path, version, lines)
        self._written[path] = version

    def lose(self, path: str) -> None:
        """The version that line numbers refer to is not to be had any more: it changed while nobody looked."""
        self._lost.add(path)

    def bases(self) -> dict[str, tuple[str, Lines]]:
        """Of the files written in this step: the version that line numbers refer to until it is over, and its lines."""
        known = {path: self._base[path] for path in self._written if path in self._base}
        return {path: (version, self._versions[path][version]) for path, version in known.items()}

    def put_back(self, path: str, version: str, lines: Lines) -> None:
        """A file that stands as it was read just now was written in this step; line numbers refer to this version."""
        now = self._base.get(path)
        if now is None:
            return
        self._written[path] = now
        self._base[path] = version
        self._keep(path, version, lines)

    def base(self, path: str, version: str | None) -> Lines | None:
        """The lines that line numbers refer to: of `version` if given, else of what was last known; None if nothing.

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
        return known[base] if base else None

    def _keep(self, path: str, version: str, lines: Lines) -> None:
        known = self._versions.setdefault(path, OrderedDict())
        known[version] = lines
        known.move_to_end(version)
        old = [tag for tag in known if tag not in {version, self._base.get(path)}]
        for tag in old[: max(0, len(known) - _KEPT)]:
            del known[tag]


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
