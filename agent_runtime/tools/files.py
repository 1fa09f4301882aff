"""The tools that read and write files of the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar, Literal

from agent_runtime.errors import ToolError
from agent_runtime.payload_plan import payloads_taken
from agent_runtime.tools.payloads import Payloads
from agent_runtime.tools.protocol import ToolResult
from agent_runtime.workspace.changes import (
    LINE_MODES,
    WHOLE_MODES,
    Change,
    Changed,
    StaleError,
    check_arguments,
    check_mode,
    check_placeholders,
    make,
    pairs,
)
from agent_runtime.workspace.diffs import diff
from agent_runtime.workspace.edits import is_whole
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.syntax import error_in
from agent_runtime.workspace.text import Text, decode, version_of
from agent_runtime.workspace.views import view

_MAX_BYTES = 10_000_000
_MAX_WHOLE_WRITES = 5
_NAMES_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A text file as it is on the disk."""

    data: bytes
    text: Text

    @property
    def version(self) -> str:
        return version_of(self.data)


class FileTools:
    """`read_file` and `write_file` on one workspace, with what they remember of it."""

    value_types: ClassVar[dict[str, str]] = {"read_file": "str", "write_file": "str"}
    labels: ClassVar[dict[str, str]] = {"read_file": "Reading {path}", "write_file": "Writing {path}"}
    stub_types: ClassVar[str] = ""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen = Seen()
        self._payloads = Payloads()
        self._whole_writes = 0
        self._edited: set[str] = set()

    def begin_step(self, payloads: Payloads) -> None:
        """Take over a reply's payloads; the limits of a step count anew."""
        self._payloads = payloads
        self._whole_writes = 0
        self._edited.clear()
        self._seen.begin_step()

    def read_file(self, path: str, start_line: int = 1, end_line: int | None = None) -> ToolResult:
        """Show numbered lines; without end_line about 200 and an outline of the rest.
        Returns the text, unnumbered; without end_line all of it.

        Raises:
            ToolError: no such text file in the workspace, or a line number out of range.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        canonical = self._workspace.resolve(path)
        file = self._existing(path)
        lines = file.text.lines
        last = _check_range(start_line, end_line, len(lines))
        self._seen.read(canonical, file.version, lines)
        shown = view(path, file.text, start_line, last if end_line is not None else None)
        span = f"lines {start_line}–{shown.last} of {len(lines)}" if lines else "empty"  # noqa: RUF001 - the dash of a range
        about = ", ".join(note for note in (span, f"version {file.version}", file.text.peculiarities) if note)
        wanted = lines[start_line - 1 : last]
        closed = last < len(lines) or file.text.ends_with_newline
        return ToolResult(
            value="\n".join(wanted) + ("\n" if wanted and closed else ""),
            text=f"[read_file] {path!r} ({about})" + (f"\n{shown.body}" if shown.body else ""),
        )

    def write_file(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        after_line: int | None = None,
        mode: Literal["w", "a", "edit", "insert", "multi_edit", "replace"] = "w",
        edits: list[tuple[int, int]] | None = None,
        version: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
    ) -> ToolResult:
        """Write the next payload(s): 'w' the whole file, 'a' append, 'edit' in place of start_line..end_line,
        'insert' below after_line (0: top), 'multi_edit' one payload per (start, end) of edits, numbers as read;
        'replace' two payloads: old lines (unique in the file), new lines. Per step at most 5 w/a, and one
        edit/insert/multi_edit per file. force=True writes what was refused. Returns the new version.

        Raises:
            ToolError: a wrong argument, a missing payload, a limit, or a refusal; nothing is written then.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        lines = {"start_line": start_line, "end_line": end_line, "after_line": after_line, "edits": edits}
        given: dict[str, object] = {name: value for name, value in lines.items() if value is not None}
        check_mode(mode)
        count = payloads_taken(mode, len(pairs(edits)) if mode == "multi_edit" else None, retried=False)
        contents = tuple(self._payloads.take(path) for _ in range(count))
        check_arguments(mode, frozenset(given))
        change = Change(path=path, mode=mode, lines=given, contents=contents)
        canonical = self._workspace.resolve(path)
        self._check_limits(change, canonical)
        old = self._present(change)
        changed = self._changed(change, canonical, old, version)
        if not force:
            check_placeholders(change, old.text if old else None)
        return self._write(change, canonical, old, changed, force=force)

    def _check_limits(self, change: Change, canonical: str) -> None:
        if change.mode in WHOLE_MODES and self._whole_writes >= _MAX_WHOLE_WRITES:
            raise ToolError(
                f"{change.path!r} not written: {_MAX_WHOLE_WRITES} whole-file writes (w, a) are made in this step "
                "already; write the others in the next step"
            )
        if change.mode in LINE_MODES and canonical in self._edited:
            raise ToolError(
                f"{change.path!r} not written: this step has edited it by line numbers already. Put all ranges into "
                "one call with mode='multi_edit', or use mode='replace', or go on in the next step"
            )

    def _present(self, change: Change) -> _File | None:
        """The file to be changed; None for one that is yet to be made or whose content does not matter."""
        if not self._workspace.exists(change.path):
            if change.mode in WHOLE_MODES:
                return None
            raise ToolError(f"{self._missing(change.path)}; make it with mode='w'", kind="FileNotFoundError")
        if change.mode != "w":
            return self._existing(change.path)
        if self._workspace.size(change.path) > _MAX_BYTES:
            return None
        data = self._workspace.read_bytes(change.path, _MAX_BYTES)
        text = decode(data)
        return _File(data=data, text=text) if text is not None else None

    def _changed(self, change: Change, canonical: str, old: _File | None, version: str | None) -> Changed:
        now = old.version if old else None
        if version is not None and version != now and change.mode not in LINE_MODES:
            state = f"it is at version {now} now" if now else "there is no such text file"
            raise ToolError(f"{change.path!r} not written: version={version!r}, but {state}", kind="ValueError")
        if change.mode == "w" or old is None:
            return Changed(raw=change.contents[0])
        base = old.text.lines if version == now else self._seen.base(canonical, version)
        try:
            return make(change, old.text, base)
        except StaleError:
            self._seen.read(canonical, old.version, old.text.lines)
            raise
        except ToolError as error:
            raise ToolError(f"{change.path!r} not written: {error}", kind=error.kind) from error

    def _write(self, change: Change, canonical: str, old: _File | None, changed: Changed, *, force: bool) -> ToolResult:
        same_format = old is not None and change.mode != "w"
        new = Text(changed.raw, old.text.encoding, old.text.bom) if old and same_format else Text(changed.raw)
        data = new.encode(changed.raw)
        notes = list(changed.notes)
        if fault := self._introduced(change, old, new):
            if old is not None and change.mode != "w" and not force:
                raise ToolError(
                    f"{change.path!r} not written: it parses now and would not after this: {fault}. "
                    "Mend the content, or repeat with force=True",
                    kind="ValueError",
                )
            notes.append(f"Syntax error: {fault}")
        self._workspace.write_bytes(change.path, data)
        self._remember(change, canonical, data, new)
        return ToolResult(
            value=version_of(data),
            text="\n".join([_head(change.path, data, new), *notes, *_shown(change, old, new)]),
        )

    def _introduced(self, change: Change, old: _File | None, new: Text) -> str | None:
        """A syntax error that the file did not have before."""
        fault = error_in(change.path, new.raw)
        before = error_in(change.path, old.text.raw) if fault and old else None
        return fault if before is None else None

    def _remember(self, change: Change, canonical: str, data: bytes, new: Text) -> None:
        if change.mode in WHOLE_MODES:
            self._whole_writes += 1
        if change.mode in LINE_MODES:
            self._edited.add(canonical)
        if change.mode == "w":
            self._seen.read(canonical, version_of(data), new.lines)
        else:
            self._seen.wrote(canonical, version_of(data), new.lines)

    def _existing(self, path: str) -> _File:
        if not self._workspace.exists(path):
            raise ToolError(self._missing(path), kind="FileNotFoundError")
        if self._workspace.is_directory(path):
            names = self._workspace.names(path)
            more = f", … {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            listing = ", ".join(names[:_NAMES_SHOWN]) + more or "nothing"
            raise ToolError(f"{path!r} is a directory; in it: {listing}", kind="IsADirectoryError")
        data = self._workspace.read_bytes(path, _MAX_BYTES)
        text = decode(data)
        if text is None:
            raise ToolError(
                f"{path!r} is a binary file ({len(data):,} bytes), not text; use a shell command", kind="ValueError"
            )
        return _File(data=data, text=text)

    def _missing(self, path: str) -> str:
        parent, _, name = self._workspace.resolve(path).rpartition("/")
        if not self._workspace.is_directory(parent or "."):
            return f"{path!r} does not exist, nor does its directory"
        near = get_close_matches(name, [each.rstrip("/") for each in self._workspace.names(parent or ".")], n=3)
        hint = f"; there are {', '.join(repr(f'{parent}/{each}'.lstrip('/')) for each in near)}" if near else ""
        return f"{path!r} does not exist{hint}"


def _check_range(start: object, end: object, count: int) -> int:
    """The last line of what a read asks for; an end behind the last line means the last line."""
    if not is_whole(start) or not (end is None or is_whole(end)):
        raise ToolError("start_line and end_line must be whole numbers", kind="TypeError")
    if not 1 <= start <= max(1, count):
        raise ToolError(f"start_line={start}: must be 1 to {max(1, count)}, the file's last line", kind="ValueError")
    if end is not None and end < start:
        raise ToolError(f"end_line={end}: must be at least start_line={start}", kind="ValueError")
    return count if end is None else min(end, count)


def _head(path: str, data: bytes, new: Text) -> str:
    return f"[write_file] {path!r} written ({len(data)} bytes, {len(new.lines)} lines). Version {version_of(data)}."


def _shown(change: Change, old: _File | None, new: Text) -> list[str]:
    """What the model needs to see of a change; not what it has just written itself."""
    if old is None:
        return []
    if new.raw == old.text.raw:
        return ["Nothing changed: the file read so already."]
    if change.mode == "a":
        return [f"Added lines {len(old.text.lines) + 1}-{len(new.lines)}."]
    return [diff(old.text.lines, new.lines) or "Only line endings or the last newline changed."]
