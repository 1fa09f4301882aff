"""Plans of `write_file` calls, and their diffs for people.

Large files are compared in a worker process: parsers hold the GIL, and some are slow on hostile files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.tools import tool
from agent_runtime.workspace import diffs as engine
from agent_runtime.workspace import syntax
from agent_runtime.workspace.diffs import LineEdit, Text, decode, diff, summarize_changes, unified_hunks, version_of
from agent_runtime.workspace.edits import (
    LINE_MODES,
    WHOLE_MODES,
    AppliedWrite,
    StaleError,
    Versions,
    WriteCall,
    apply_write,
    check_arguments,
    check_placeholders,
)
from agent_runtime.workspace.files import StagedFile
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import AddFile, DeleteFile, Section, UpdateFile, parse_patch, place_hunks
from agent_runtime.workspace.syntax import SyntaxChecker

T = TypeVar("T")

_SMALL_CHARS = 16_000  # characters of Python; parsing so many takes up to 50 ms
_PARSE_SECONDS = 5.0
_MAX_WHOLE_CHARS = 1_000_000
"""More than a reply contains; stored contents can be written repeatedly."""
_LIGHT_BYTES = 256_000
_LIGHT_WORK = 100_000  # lines, times hunks
_PLAN_SECONDS = 10.0
_MEMORY = 200 * 1024**2
_SAFE_PATH = re.compile(r"[A-Za-z0-9_./+@-]+")
_HEX_WIDTH = 64
_NO_NEWLINE = "\n\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    canonical: str
    """Its path."""
    change: StagedFile
    """The staged content."""
    text: Text | None
    """The new text; None for a deleted or only moved file."""
    version: str
    """The new version; empty for a deleted file."""
    whole: bool = False
    """Whether the call had the whole content, so that the agent knows it without reading."""
    origin: str | None = None
    """The path it is moved from."""
    note: list[str] = field(default_factory=list)
    """Lines for the model."""


def external_write(change: StagedFile) -> FileWrite:
    text = decode(change.data) if change.data is not None else None
    version = version_of(change.data) if change.data is not None else ""
    return FileWrite(canonical=change.path, change=change, text=text, version=version)


def plan(change: WriteCall, files: Overlay, memory: Versions) -> list[FileWrite]:
    """Run `Planner.plan` in a worker process."""
    relevant = memory.copy(only=files.resolve(change.path)) if change.path else Versions()
    purpose = "Working out what to write"
    try:
        packed = call_bounded(_run, change, files, relevant, seconds=_PLAN_SECONDS, memory=_MEMORY, task=purpose)
    except BoundExceededError as error:
        raise ToolError(f"{change.path or 'patch'!r} not written: {error}", kind="TimeoutError") from error
    size = int.from_bytes(packed[:8], "big")
    headers = json.loads(packed[8 : 8 + size])
    if isinstance(headers, str):
        raise StaleError(headers, kind="ValueError")
    at = 8 + size
    writes: list[FileWrite] = []
    for header in headers:
        data = None if header["size"] is None else packed[at : at + header["size"]]
        at += header["size"] or 0
        writes.append(_unpack(header, data, files))
    return writes


def is_light(change: WriteCall, files: Overlay) -> bool:
    """Return whether a write is quick to plan, whatever the file contains."""
    paths = [change.path]
    hunks = 1
    if change.mode == "patch":
        sections = parse_patch(change.contents[0])
        paths = [section.path for section in sections]
        hunks = 1 + change.contents[0].count("\n@@")
    olds = [files.read_bytes(path) for path in paths if files.is_readable(path)]
    size = sum(map(len, olds)) + sum(map(len, change.contents))
    lines = sum(old.count(b"\n") for old in olds) + sum(content.count("\n") for content in change.contents)
    light = size <= _LIGHT_BYTES and lines * hunks <= _LIGHT_WORK
    if not light and (path := next(filter(files.is_temporary, paths), None)):  # no worker process can open it
        problem = f"{path!r} not written: outside the workspace only small files are changed here; use a shell command"
        raise ToolError(problem, kind="ValueError")
    return light


def _run(change: WriteCall, files: Overlay, memory: Versions) -> bytes:
    """Plan in the worker and encode the writes: JSON, followed by the contents."""
    with closing(files):
        try:
            writes = Planner().plan(change, files, memory)
        except StaleError as error:
            head = json.dumps(str(error)).encode()
            return len(head).to_bytes(8, "big") + head
    headers = [
        {
            "canonical": write.canonical,
            "path": write.change.path,
            "old": None if write.change.old is None else hashlib.sha256(write.change.old).hexdigest(),
            "mode": write.change.mode,
            "unread": write.change.unread,
            "size": None if write.change.data is None else len(write.change.data),
            "encoding": write.text.encoding if write.text else None,
            "bom": len(write.text.bom) if write.text else 0,
            "version": write.version,
            "whole": write.whole,
            "origin": write.origin,
            "note": write.note,
        }
        for write in writes
    ]
    head = json.dumps(headers).encode()
    return b"".join([len(head).to_bytes(8, "big"), head, *(write.change.data or b"" for write in writes)])


def _unpack(header: Mapping[str, object], data: bytes | None, files: Overlay) -> FileWrite:
    """Decode a write. The old content is read again."""
    path, bom, encoding = str(header["path"]), int(str(header["bom"])), header["encoding"]
    old = files.read_bytes(path) if header["old"] is not None else None
    if old is not None and hashlib.sha256(old).hexdigest() != header["old"]:
        raise ToolError(f"{path!r} was changed by someone else in this very moment; nothing was written.")
    text = Text(data[bom:].decode(str(encoding)), str(encoding), data[:bom]) if encoding and data is not None else None
    mode, unread, origin, note = header["mode"], header["unread"] is True, header["origin"], header["note"]
    return FileWrite(
        canonical=str(header["canonical"]),
        change=StagedFile(path=path, data=data, old=old, mode=mode if isinstance(mode, int) else None, unread=unread),
        text=text,
        version=str(header["version"]),
        whole=header["whole"] is True,
        origin=origin if isinstance(origin, str) else None,
        note=[str(line) for line in note] if isinstance(note, list) else [],
    )


class Planner:
    """Plan writes. Its only state is the parsers' cache."""

    def __init__(self) -> None:
        self._syntax = SyntaxChecker(parse_python, find_fault)

    def plan(self, change: WriteCall, files: Overlay, memory: Versions) -> list[FileWrite]:
        """Return the writes of a call in order."""
        check_arguments(change.mode, frozenset(change.lines))
        if change.mode != "patch":
            return [self._plan_file(change, files, memory)]
        if change.version is not None:
            raise ToolError(
                "mode='patch' takes no version; its unchanged lines say what it is about", kind="ValueError"
            )
        sections = parse_patch(change.contents[0])
        if change.path and any(files.resolve(part.path) != files.resolve(change.path) for part in sections):
            raise ToolError(
                f"path={change.path!r}: the patch is about {', '.join(repr(part.path) for part in sections)}; "
                "leave path out, a patch names its files itself",
                kind="ValueError",
            )
        writes: list[FileWrite] = []
        faults: list[str] = []
        for section in sections:
            try:
                paths = {write.canonical for write in writes}
                writes += self._plan_section(section, files, planned=paths, force=change.force)
            except ToolError as error:
                faults.append(str(error))
        if faults:
            raise ToolError("\n".join(["patch not applied, no file was changed:", *faults]), kind="ValueError")
        return writes

    def _plan_file(self, change: WriteCall, files: Overlay, memory: Versions) -> FileWrite:
        canonical = files.resolve(change.path)
        if change.mode == "w":  # the old content is irrelevant
            old = files.read_text_or_none(change.path)
        elif change.mode in WHOLE_MODES and not files.exists(change.path):
            old = None
        else:
            try:
                old = files.read_text(change.path)
            except ToolError as error:
                if error.kind != "FileNotFoundError":
                    raise
                raise ToolError(f"{error}; make it with mode='w'", kind=error.kind) from error
        changed = _change_text(change, canonical, old, memory)
        if not change.force:
            additions = change.contents[1:] if change.mode == "replace" else change.contents
            for content in additions:
                check_placeholders(change.path, engine.payload_lines(content), old.text if old else None)
        whole = change.mode == "w"
        new = _with_encoding(old.text, changed.raw) if old and not whole else Text(changed.raw)
        data = new.encode(changed.raw)
        version = version_of(data)
        fault = self._check_syntax(change.path, old, new, force=change.force or whole)
        unread = old is None and files.exists(change.path)
        summary = [] if old is None else [_describe_change(old.text, new, changed.edits, loose=bool(changed.notes))]
        return FileWrite(
            canonical=canonical,
            change=StagedFile(path=canonical, data=data, old=old.data if old else None, unread=unread),
            text=new,
            version=version,
            whole=whole,
            note=[_headline(change.path, "written", data, new, version), *changed.notes, *fault, *summary],
        )

    def _check_syntax(self, path: str, old: TextFile | None, new: Text, *, force: bool) -> list[str]:
        """Return a note about a new syntax error, or raise ToolError if the file parsed before."""
        fault = self._syntax.find_new_error(path, old.text if old else None, new)
        if fault and old is not None and not force:
            raise ToolError(
                f"{path!r} not written: it parses now and would not after this: {fault}. "
                "Fix the content, or repeat with force=True",
                kind="ValueError",
            )
        return [f"Syntax error: {fault}"] if fault else []

    def _plan_section(self, section: Section, files: Overlay, *, planned: set[str], force: bool) -> list[FileWrite]:
        canonical = files.resolve(section.path)
        if canonical in planned:
            raise ToolError(f"{section.path!r}: named twice; put all its hunks into one section")
        match section:
            case AddFile(path=path, content=content):
                _require_free(path, content, files)
                if not force:
                    check_placeholders(path, engine.payload_lines(content), None)
                new = Text(content)
                data = content.encode()
                version = version_of(data)
                note = [_headline(path, "added", data, new, version), *self._check_syntax(path, None, new, force=True)]
                staged = StagedFile(path=canonical, data=data, old=None)
                return [FileWrite(canonical=canonical, change=staged, text=new, version=version, whole=True, note=note)]
            case DeleteFile(path=path):
                return [_deletion(canonical, files.read_bytes(path), [f"[write_file] {path!r} deleted."])]
            case UpdateFile():
                return self._plan_update(section, canonical, files, planned=planned, force=force)

    def _plan_update(
        self, section: UpdateFile, canonical: str, files: Overlay, *, planned: set[str], force: bool
    ) -> list[FileWrite]:
        path = section.move_to or section.path
        target = files.resolve(path)
        moved = target != canonical
        if moved and target in planned:
            raise ToolError(f"{path!r}: named twice; move to a name that is free")
        old = files.read_text(section.path) if section.hunks else None
        before = old.data if old else files.read_bytes(section.path)
        if moved:
            _require_free(path, None, files)
        verb = f"moved to {path!r}" if moved else "updated"
        if old is None:
            staged = StagedFile(path=target, data=before, old=None, mode=files.mode(section.path))
            version = version_of(before)
            note = [f"[write_file] {section.path!r} {verb}. Version {version}."]
            write = FileWrite(canonical=target, change=staged, text=None, version=version, origin=canonical, note=note)
            return [write, _deletion(canonical, before, [])] if moved else []
        placed = place_hunks(section.path, old.text.lines, section.hunks)
        new = _with_encoding(old.text, engine.apply(old.text, placed.edits))
        if not force:
            check_placeholders(section.path, [line for hunk in section.hunks for line in hunk.new], old.text)
        data = new.encode(new.raw)
        version = version_of(data)
        notes = [*placed.notes, *self._check_syntax(section.path, old, new, force=force)]
        summary = _describe_change(old.text, new)
        summary += f"\n{diff(old.text.lines, new.lines, regions=placed.loose)}" if placed.loose else ""
        write = FileWrite(
            canonical=target,
            change=StagedFile(
                path=target, data=data, old=None if moved else before, mode=files.mode(section.path) if moved else None
            ),
            text=new,
            version=version,
            origin=canonical if moved else None,
            note=[_headline(section.path, verb, data, new, version), *notes, summary],
        )
        return [write, _deletion(canonical, before, [])] if moved else [write]


@dataclass(slots=True)
class StepLimits:
    """Limits and usage of one step."""

    whole_chars: int = 0
    edited: set[str] = field(default_factory=set)

    def copy(self) -> StepLimits:
        return StepLimits(self.whole_chars, set(self.edited))

    def check(self, change: WriteCall, canonical: str) -> None:
        """Check a write."""
        size = self.whole_chars + len(change.contents[0])
        if change.mode in WHOLE_MODES and size > _MAX_WHOLE_CHARS:
            raise ToolError(
                f"{change.path!r} not written: the whole files (w, a) of this step would come to {size:,} characters, "
                f"and {_MAX_WHOLE_CHARS:,} may be written in one; write the others in the next step"
            )
        if change.mode in LINE_MODES and canonical in self.edited:
            raise ToolError(
                f"{change.path!r} not written: this step has edited it by line numbers already. Use "
                "mode='replace', or go on in the next step; where there is mode='multi_edit', it takes all ranges"
            )

    def count(self, change: WriteCall, canonical: str) -> None:
        if change.mode in WHOLE_MODES:
            self.whole_chars += len(change.contents[0])
        if change.mode in LINE_MODES:
            self.edited.add(canonical)


def _change_text(change: WriteCall, canonical: str, old: TextFile | None, memory: Versions) -> AppliedWrite:
    current, version = old.version if old else None, change.version
    if version is not None and version != current and change.mode not in LINE_MODES:
        state = f"it is at version {current} now" if current else "there is no such text file"
        raise ToolError(f"{change.path!r} not written: version={version!r}, but {state}", kind="ValueError")
    if change.mode == "w" or old is None:
        return AppliedWrite(raw=change.contents[0])
    base = None
    if change.mode in LINE_MODES:
        base = old.text.lines if version == current else memory.base_lines(canonical, version, (old.version, old.text))
    try:
        return apply_write(change, old.text, base)
    except StaleError:
        raise
    except ToolError as error:
        raise ToolError(f"{change.path!r} not written: {error}", kind=error.kind) from error


def _describe_change(old: Text, new: Text, edits: Sequence[LineEdit] = (), *, loose: bool = False) -> str:
    """Describe a change, without the lines that the model has just sent.

    `loose` is whether the effect differs from the call's text.
    """
    if new.raw == old.raw:
        return "Nothing changed: the file read so already."
    # An edit by line does not quote the replaced lines; the diff shows whether they were the intended ones.
    text = diff(old.lines, new.lines, edits=edits) if edits or loose else summarize_changes(old.lines, new.lines)
    return text or "Only line endings or the last newline changed."


def _require_free(path: str, content: str | None, files: Overlay) -> None:
    if not files.exists(path):
        return
    if content is not None and not files.is_directory(path) and files.read_bytes(path) == content.encode():
        raise ToolError(f"{path!r}: already applied: the file exists with this content", kind="ValueError")
    raise ToolError(f"{path!r} exists already; update it, or delete it first", kind="ValueError")


def _deletion(canonical: str, data: bytes, note: list[str]) -> FileWrite:
    return FileWrite(
        canonical=canonical, change=StagedFile(path=canonical, data=None, old=data), text=None, version="", note=note
    )


def _with_encoding(old: Text, raw: str) -> Text:
    return Text(raw, old.encoding, old.bom)


def _headline(path: str, verb: str, data: bytes, new: Text, version: str) -> str:
    return f"[write_file] {path!r} {verb} ({len(data)} bytes, {len(new.lines)} lines). Version {version}."


def preview(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    size = sum(len(data) for write in writes for data in (write.change.old, write.change.data) if data is not None)
    if size <= _LIGHT_BYTES:
        return render(writes, replaced)
    try:
        return call_bounded(render, writes, replaced, seconds=_PLAN_SECONDS, memory=_MEMORY, task="Showing a change")
    except BoundExceededError:  # no complete preview is possible
        return ""


def render(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    """Render the changed files, then the diff in git's style; empty if it is too long."""
    moved = {write.origin for write in writes if write.origin is not None}
    before = {write.canonical: write.change.old for write in writes}
    files = [
        _diff_file(write, before.get(write.origin or write.canonical), replaced.get(write.canonical))
        for write in writes
        if write.change.data is not None or write.canonical not in moved
    ]
    if not files:
        return "Nothing would change."
    # All names come first: a long diff may push the others out of sight.
    names = [f"{file.path}: {file.summary}" for file in files]
    return tool.render_whole([*names, "", *(line for file in files for line in file.lines)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileDiff:
    path: str
    summary: str
    lines: list[str]


def _diff_file(write: FileWrite, before: bytes | None, replaced: int | None) -> _FileDiff:
    path, origin, after = _quote(write.canonical), _quote(write.origin or write.canonical), write.change.data
    old = decode(before) if before is not None else None
    new = decode(after) if after is not None else None
    head = [f"diff --git a/{origin} b/{path}"]
    kind = _change_kind(write, before, replaced)
    if write.origin is not None:
        head += [f"rename from {origin}", f"rename to {path}"]
    elif kind in {"new file", "deleted"}:
        head.append("new file" if kind == "new file" else "deleted file")
    hunks = unified_hunks(*_diff_lines(old, new)) if before != after else []
    if hunks:
        body = "\n".join(hunks).split("\n")
    elif before == after:
        body = ["Its content stays as it is."]
    else:
        body = ["It is empty." if not before and not after else "Only how its text is encoded changes."]
    if (before is not None and old is None and before != after) or replaced is not None:
        size = replaced if replaced is not None else len(before or b"")
        head.append(
            f"Not compared: {size:,} bytes before, {'gone' if after is None else f'{len(after):,} bytes'} after"
        )
        body = body if after else []
    if after is not None and new is None and before != after:
        # Show binary content as hexadecimal digits: a preview must be complete.
        digits = after.hex()
        body = [f"+{digits[at : at + _HEX_WIDTH]}" for at in range(0, len(digits), _HEX_WIDTH)]
    if hunks:
        sides = ("/dev/null" if before is None and replaced is None else f"a/{origin}", f"b/{path}")
        head += [f"--- {sides[0]}", f"+++ {'/dev/null' if after is None else sides[1]}"]
    added = sum(line.startswith("+") for line in hunks)
    removed = sum(line.startswith("-") for line in hunks)
    return _FileDiff(path=path, summary=f"{kind}, +{added} -{removed}", lines=[*head, *body])


def _quote(path: str) -> str:
    return path if _SAFE_PATH.fullmatch(path) else repr(path)


def _change_kind(write: FileWrite, before: bytes | None, replaced: int | None) -> str:
    if write.change.data is None:
        return "deleted"
    if write.origin is not None:
        return f"moved from {_quote(write.origin)}"
    if replaced is not None:
        return f"replaced whole, {replaced:,} bytes before"
    return "new file" if before is None else "changed"


def _diff_lines(old: Text | None, new: Text | None) -> tuple[list[str], list[str]]:
    """Return both texts' lines, with carriage returns if the line endings differ."""
    is_same_newline = old is None or new is None or old.newline == new.newline
    both: list[list[str]] = []
    for text in (old, new):
        lines: list[str] = []
        if text is not None:
            lines = list(text.lines) if is_same_newline else text.raw.removesuffix("\n").split("\n") if text.raw else []
            if lines and not text.ends_with_newline:
                lines[-1] += _NO_NEWLINE
        both.append(lines)
    return both[0], both[1]


def parse_python(source: str) -> list[int] | str | None:
    return _parse(syntax.statement_lines, source, source)


def find_fault(path: str, source: str) -> str | None:
    # Always in a worker process: tree-sitter holds the interpreter's lock, for seconds in 6,000 characters of `*a**`.
    return _parse(syntax.find_error, source, path, source, small=0) if syntax.has_grammar(path) else None


def _parse(parser: Callable[..., T], source: str, *args: object, small: int = _SMALL_CHARS) -> T | None:
    """Call a parser, in a worker process for large sources; None if it takes too long."""
    if len(source) <= small:
        return parser(*args)
    try:
        return call_bounded(parser, *args, seconds=_PARSE_SECONDS)
    except BoundExceededError:
        return None
