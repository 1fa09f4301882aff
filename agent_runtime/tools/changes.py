"""The changes of a `write_file` call: worked out and checked before anything is written, and shown to people as a diff.

Large files are parsed and compared in a worker process, within bounds of time and memory, because parsers hold the
interpreter and some are slow on hostile files.
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
from agent_runtime.workspace.diffs import LineEdit, Text, counted, decode, diff, unified, version_of
from agent_runtime.workspace.edits import (
    LINE_MODES,
    WHOLE_MODES,
    Changed,
    Seen,
    StaleError,
    WriteCall,
    check_arguments,
    check_placeholders,
    make,
)
from agent_runtime.workspace.files import StagedFile
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import AddFile, DeleteFile, Section, UpdateFile, parse_patch, place_hunks
from agent_runtime.workspace.syntax import SyntaxMemory

T = TypeVar("T")

_SMALL_CHARS = 16_000  # characters of Python; parsing so many takes up to 50 ms
_PARSE_SECONDS = 5.0
_MOST_WHOLE_CHARS = 1_000_000
"""More than a reply holds; contents that are kept can be written again and again."""
_LIGHT_BYTES = 256_000
_LIGHT_WORK = 100_000  # lines, times hunks
_PLAN_SECONDS = 10.0
_MEMORY = 200 * 1024**2
_PLAIN = re.compile(r"[A-Za-z0-9_./+@-]+")
_HEX = 64
_NO_NEWLINE = "\n\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    """What becomes of one file.

    Attributes:
        canonical: the file.
        change: the same for the disk.
        text: the new content; None for a file that goes or only moves.
        version: the new version's tag; empty for a file that goes.
        whole: whether the call brought the whole content, so that the agent knows it without reading.
        origin: the file that it was moved from, if it was.
        told: what the model is told, line by line.
    """

    canonical: str
    change: StagedFile
    text: Text | None
    version: str
    whole: bool = False
    origin: str | None = None
    told: list[str] = field(default_factory=list)


def adopted(change: StagedFile) -> FileWrite:
    """A change that comes from elsewhere, not from a call's contents."""
    text = decode(change.data) if change.data is not None else None
    version = version_of(change.data) if change.data is not None else ""
    return FileWrite(canonical=change.path, change=change, text=text, version=version)


def plan(change: WriteCall, files: Overlay, seen: Seen) -> list[FileWrite]:
    """`Planner.plan` in a worker process.

    Raises:
        ToolError: it cannot be done, or takes too long.
    """
    known = seen.copy(only=files.resolve(change.path)) if change.path else Seen()
    what = "Working out what to write"
    try:
        packed = call_bounded(_packed, change, files, known, seconds=_PLAN_SECONDS, memory=_MEMORY, what=what)
    except BoundExceededError as error:
        raise ToolError(f"{change.path or 'patch'!r} not written: {error}", kind="TimeoutError") from error
    size = int.from_bytes(packed[:8], "big")
    told = json.loads(packed[8 : 8 + size])
    if isinstance(told, str):
        raise StaleError(told, kind="ValueError")
    at = 8 + size
    writes: list[FileWrite] = []
    for each in told:
        data = None if each["size"] is None else packed[at : at + each["size"]]
        at += each["size"] or 0
        writes.append(_unpacked(each, data, files))
    return writes


def is_light(change: WriteCall, files: Overlay) -> bool:
    """Whether a write is quickly worked out, whatever is in the file.

    Raises:
        ToolError: it cannot be made.
    """
    paths = [change.path]
    hunks = 1
    if change.mode == "patch":
        sections = parse_patch(change.contents[0])
        paths = [each.path for each in sections]
        hunks = 1 + change.contents[0].count("\n@@")
    olds = [files.bytes_of(path) for path in paths if files.is_readable(path)]
    size = sum(map(len, olds)) + sum(map(len, change.contents))
    lines = sum(old.count(b"\n") for old in olds) + sum(content.count("\n") for content in change.contents)
    light = size <= _LIGHT_BYTES and lines * hunks <= _LIGHT_WORK
    if not light and (far := next(filter(files.is_temporary, paths), None)):  # no worker process can open it
        told = f"{far!r} not written: outside the workspace only small files are changed here; use a shell command"
        raise ToolError(told, kind="ValueError")
    return light


def _packed(change: WriteCall, files: Overlay, seen: Seen) -> bytes:
    """In the worker: the writes as JSON, and the new contents behind it; a text for line numbers that are stale."""
    with closing(files):
        try:
            writes = Planner().plan(change, files, seen)
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
            "told": write.told,
        }
        for write in writes
    ]
    head = json.dumps(headers).encode()
    return b"".join([len(head).to_bytes(8, "big"), head, *(each.change.data or b"" for each in writes)])


def _unpacked(header: Mapping[str, object], data: bytes | None, files: Overlay) -> FileWrite:
    """A write as it was before it was packed; the old content is the file's own, read again.

    Raises:
        ToolError: the file has changed meanwhile.
    """
    path, bom, encoding = str(header["path"]), int(str(header["bom"])), header["encoding"]
    old = files.bytes_of(path) if header["old"] is not None else None
    if old is not None and hashlib.sha256(old).hexdigest() != header["old"]:
        raise ToolError(f"{path!r} was changed by someone else in this very moment; nothing was written.")
    text = Text(data[bom:].decode(str(encoding)), str(encoding), data[:bom]) if encoding and data is not None else None
    mode, unread, origin, told = header["mode"], header["unread"] is True, header["origin"], header["told"]
    return FileWrite(
        canonical=str(header["canonical"]),
        change=StagedFile(path=path, data=data, old=old, mode=mode if isinstance(mode, int) else None, unread=unread),
        text=text,
        version=str(header["version"]),
        whole=header["whole"] is True,
        origin=origin if isinstance(origin, str) else None,
        told=[str(line) for line in told] if isinstance(told, list) else [],
    )


class Planner:
    """Works out writes; keeps nothing but what the parsers remember to be quick."""

    def __init__(self) -> None:
        self._syntax = SyntaxMemory(parsed, fault_in)

    def plan(self, change: WriteCall, files: Overlay, seen: Seen) -> list[FileWrite]:
        """Say what a call does, in the order in which it is to be done.

        Raises:
            ToolError: it cannot be done.
        """
        check_arguments(change.mode, frozenset(change.lines))
        if change.mode != "patch":
            return [self._one(change, files, seen)]
        if change.version is not None:
            raise ToolError(
                "mode='patch' takes no version; its unchanged lines say what it is about", kind="ValueError"
            )
        sections = parse_patch(change.contents[0])
        if change.path and any(files.resolve(each.path) != files.resolve(change.path) for each in sections):
            raise ToolError(
                f"path={change.path!r}: the patch is about {', '.join(repr(each.path) for each in sections)}; "
                "leave path out, a patch names its files itself",
                kind="ValueError",
            )
        writes: list[FileWrite] = []
        faults: list[str] = []
        for section in sections:
            try:
                writes += self._section(section, files, taken={each.canonical for each in writes}, force=change.force)
            except ToolError as error:
                faults.append(str(error))
        if faults:
            raise ToolError("\n".join(["patch not applied, no file was changed:", *faults]), kind="ValueError")
        return writes

    def _one(self, change: WriteCall, files: Overlay, seen: Seen) -> FileWrite:
        canonical = files.resolve(change.path)
        if change.mode == "w":  # whatever is there does not matter
            old = files.text_file_if_any(change.path)
        elif change.mode in WHOLE_MODES and not files.exists(change.path):
            old = None
        else:
            try:
                old = files.text_file(change.path)
            except ToolError as error:
                if error.kind != "FileNotFoundError":
                    raise
                raise ToolError(f"{error}; make it with mode='w'", kind=error.kind) from error
        changed = _changed(change, canonical, old, seen)
        if not change.force:
            news = change.contents[1:] if change.mode == "replace" else change.contents
            for content in news:
                check_placeholders(change.path, engine.lines_of(content), old.text if old else None)
        whole = change.mode == "w"
        new = _like(old.text, changed.raw) if old and not whole else Text(changed.raw)
        data = new.encode(changed.raw)
        version = version_of(data)
        fault = self._fault(change.path, old, new, force=change.force or whole)
        unread = old is None and files.exists(change.path)
        shown = [] if old is None else [_shown(old.text, new, changed.edits, loose=bool(changed.notes))]
        return FileWrite(
            canonical=canonical,
            change=StagedFile(path=canonical, data=data, old=old.data if old else None, unread=unread),
            text=new,
            version=version,
            whole=whole,
            told=[_head(change.path, "written", data, new, version), *changed.notes, *fault, *shown],
        )

    def _fault(self, path: str, old: TextFile | None, new: Text, *, force: bool) -> list[str]:
        """A note of a syntax error that comes into a file.

        Raises:
            ToolError: the file parsed before, and it is not said that this is meant.
        """
        fault = self._syntax.introduced(path, old.text if old else None, new)
        if fault and old is not None and not force:
            raise ToolError(
                f"{path!r} not written: it parses now and would not after this: {fault}. "
                "Fix the content, or repeat with force=True",
                kind="ValueError",
            )
        return [f"Syntax error: {fault}"] if fault else []

    def _section(self, section: Section, files: Overlay, *, taken: set[str], force: bool) -> list[FileWrite]:
        canonical = files.resolve(section.path)
        if canonical in taken:
            raise ToolError(f"{section.path!r}: named twice; put all its hunks into one section")
        match section:
            case AddFile(path=path, content=content):
                _require_free(path, content, files)
                if not force:
                    check_placeholders(path, engine.lines_of(content), None)
                new = Text(content)
                data = content.encode()
                version = version_of(data)
                told = [_head(path, "added", data, new, version), *self._fault(path, None, new, force=True)]
                made = StagedFile(path=canonical, data=data, old=None)
                return [FileWrite(canonical=canonical, change=made, text=new, version=version, whole=True, told=told)]
            case DeleteFile(path=path):
                return [_removal(canonical, files.bytes_of(path), [f"[write_file] {path!r} deleted."])]
            case UpdateFile():
                return self._update(section, canonical, files, taken=taken, force=force)

    def _update(
        self, section: UpdateFile, canonical: str, files: Overlay, *, taken: set[str], force: bool
    ) -> list[FileWrite]:
        path = section.move_to or section.path
        target = files.resolve(path)
        moved = target != canonical
        if moved and target in taken:
            raise ToolError(f"{path!r}: named twice; move to a name that is free")
        old = files.text_file(section.path) if section.hunks else None
        before = old.data if old else files.bytes_of(section.path)
        if moved:
            _require_free(path, None, files)
        verb = f"moved to {path!r}" if moved else "updated"
        if old is None:
            made = StagedFile(path=target, data=before, old=None, mode=files.mode(section.path))
            version = version_of(before)
            told = [f"[write_file] {section.path!r} {verb}. Version {version}."]
            write = FileWrite(canonical=target, change=made, text=None, version=version, origin=canonical, told=told)
            return [write, _removal(canonical, before, [])] if moved else []
        placed = place_hunks(section.path, old.text.lines, section.hunks)
        new = _like(old.text, engine.apply(old.text, placed.edits))
        if not force:
            check_placeholders(section.path, [line for hunk in section.hunks for line in hunk.new], old.text)
        data = new.encode(new.raw)
        version = version_of(data)
        notes = [*placed.notes, *self._fault(section.path, old, new, force=force)]
        shown = _shown(old.text, new)
        shown += f"\n{diff(old.text.lines, new.lines, within=placed.loose)}" if placed.loose else ""
        write = FileWrite(
            canonical=target,
            change=StagedFile(
                path=target, data=data, old=None if moved else before, mode=files.mode(section.path) if moved else None
            ),
            text=new,
            version=version,
            origin=canonical if moved else None,
            told=[_head(section.path, verb, data, new, version), *notes, shown],
        )
        return [write, _removal(canonical, before, [])] if moved else [write]


@dataclass(slots=True)
class StepLimits:
    """What may be done a limited number of times in a step, and how often it was."""

    whole_chars: int = 0
    edited: set[str] = field(default_factory=set)

    def copy(self) -> StepLimits:
        """The same counts, to try something out on."""
        return StepLimits(self.whole_chars, set(self.edited))

    def check(self, change: WriteCall, canonical: str) -> None:
        """Refuse what would be too much.

        Raises:
            ToolError: whole files come to more than a step may write, or it is a second edit of a file by line numbers.
        """
        size = self.whole_chars + len(change.contents[0])
        if change.mode in WHOLE_MODES and size > _MOST_WHOLE_CHARS:
            raise ToolError(
                f"{change.path!r} not written: the whole files (w, a) of this step would come to {size:,} characters, "
                f"and {_MOST_WHOLE_CHARS:,} may be written in one; write the others in the next step"
            )
        if change.mode in LINE_MODES and canonical in self.edited:
            raise ToolError(
                f"{change.path!r} not written: this step has edited it by line numbers already. Use "
                "mode='replace', or go on in the next step; where there is mode='multi_edit', it takes all ranges"
            )

    def count(self, change: WriteCall, canonical: str) -> None:
        """Count a write that was made."""
        if change.mode in WHOLE_MODES:
            self.whole_chars += len(change.contents[0])
        if change.mode in LINE_MODES:
            self.edited.add(canonical)


def _changed(change: WriteCall, canonical: str, old: TextFile | None, seen: Seen) -> Changed:
    now, version = old.version if old else None, change.version
    if version is not None and version != now and change.mode not in LINE_MODES:
        state = f"it is at version {now} now" if now else "there is no such text file"
        raise ToolError(f"{change.path!r} not written: version={version!r}, but {state}", kind="ValueError")
    if change.mode == "w" or old is None:
        return Changed(raw=change.contents[0])
    base = None
    if change.mode in LINE_MODES:
        base = old.text.lines if version == now else seen.base(canonical, version, (old.version, old.text))
    try:
        return make(change, old.text, base)
    except StaleError:
        raise
    except ToolError as error:
        raise ToolError(f"{change.path!r} not written: {error}", kind=error.kind) from error


def _shown(old: Text, new: Text, edits: Sequence[LineEdit] = (), *, loose: bool = False) -> str:
    """What the model needs to see of a change of a file, but not what it has just sent.

    Args:
        old: the file before.
        new: the file after.
        edits: the edits by line that made it, if these did.
        loose: whether what became of the call is not quite what it said.
    """
    if new.raw == old.raw:
        return "Nothing changed: the file read so already."
    # An edit by line does not quote the lines that it is about; what it answers shows whether they were the right ones.
    shown = diff(old.lines, new.lines, sent=edits) if edits or loose else counted(old.lines, new.lines)
    return shown or "Only line endings or the last newline changed."


def _require_free(path: str, content: str | None, files: Overlay) -> None:
    if not files.exists(path):
        return
    if content is not None and not files.is_directory(path) and files.bytes_of(path) == content.encode():
        raise ToolError(f"{path!r}: already applied: the file exists with this content", kind="ValueError")
    raise ToolError(f"{path!r} exists already; update it, or delete it first", kind="ValueError")


def _removal(canonical: str, data: bytes, told: list[str]) -> FileWrite:
    return FileWrite(
        canonical=canonical, change=StagedFile(path=canonical, data=None, old=data), text=None, version="", told=told
    )


def _like(old: Text, raw: str) -> Text:
    return Text(raw, old.encoding, old.bom)


def _head(path: str, verb: str, data: bytes, new: Text, version: str) -> str:
    return f"[write_file] {path!r} {verb} ({len(data)} bytes, {len(new.lines)} lines). Version {version}."


def preview(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    """`of_writes`, of large files in a worker process; empty where that takes too long."""
    size = sum(len(data) for each in writes for data in (each.change.old, each.change.data) if data is not None)
    if size <= _LIGHT_BYTES:
        return of_writes(writes, replaced)
    try:
        return call_bounded(of_writes, writes, replaced, seconds=_PLAN_SECONDS, memory=_MEMORY, what="Showing a change")
    except BoundExceededError:  # nobody can be shown it whole
        return ""


def of_writes(writes: Sequence[FileWrite], replaced: Mapping[str, int]) -> str:
    """All files with what becomes of them, and below that the whole diff in git's style; empty where it is too long.

    Args:
        writes: what the planner made of the call.
        replaced: sizes in bytes of the files that are replaced without having been read: no text, or very large.
    """
    moved = {write.origin for write in writes if write.origin is not None}
    before = {write.canonical: write.change.old for write in writes}
    files = [
        _file(write, before.get(write.origin or write.canonical), replaced.get(write.canonical))
        for write in writes
        if write.change.data is not None or write.canonical not in moved
    ]
    if not files:
        return "Nothing would change."
    # First all names: what a long diff pushes out of sight is at least named.
    names = [f"{each.path}: {each.what}" for each in files]
    return tool.whole([*names, "", *(line for each in files for line in each.lines)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What becomes of one file: what it is called, what happens in a few words, and the lines that say it all."""

    path: str
    what: str
    lines: list[str]


def _file(write: FileWrite, before: bytes | None, replaced: int | None) -> _File:
    path, origin, after = _quoted(write.canonical), _quoted(write.origin or write.canonical), write.change.data
    old = decode(before) if before is not None else None
    new = decode(after) if after is not None else None
    head = [f"diff --git a/{origin} b/{path}"]
    fate = _fate(write, before, replaced)
    if write.origin is not None:
        head += [f"rename from {origin}", f"rename to {path}"]
    elif fate in {"new file", "deleted"}:
        head.append("new file" if fate == "new file" else "deleted file")
    hunks = unified(*_lines(old, new)) if before != after else []
    if hunks:
        told = "\n".join(hunks).split("\n")
    elif before == after:
        told = ["Its content stays as it is."]
    else:
        told = ["It is empty." if not before and not after else "Only how its text is encoded changes."]
    if (before is not None and old is None and before != after) or replaced is not None:
        was = replaced if replaced is not None else len(before or b"")
        head.append(f"Not compared: {was:,} bytes before, {'gone' if after is None else f'{len(after):,} bytes'} after")
        told = told if after else []
    if after is not None and new is None and before != after:
        # Bytes that are no text: as hexadecimal digits, which are at least all of them.
        digits = after.hex()
        told = [f"+{digits[at : at + _HEX]}" for at in range(0, len(digits), _HEX)]
    if hunks:
        sides = ("/dev/null" if before is None and replaced is None else f"a/{origin}", f"b/{path}")
        head += [f"--- {sides[0]}", f"+++ {'/dev/null' if after is None else sides[1]}"]
    added = sum(line.startswith("+") for line in hunks)
    removed = sum(line.startswith("-") for line in hunks)
    return _File(path=path, what=f"{fate}, +{added} -{removed}", lines=[*head, *told])


def _quoted(path: str) -> str:
    """A path, in quotes if anything in it could be taken for the words around it."""
    return path if _PLAIN.fullmatch(path) else repr(path)


def _fate(write: FileWrite, before: bytes | None, replaced: int | None) -> str:
    if write.change.data is None:
        return "deleted"
    if write.origin is not None:
        return f"moved from {_quoted(write.origin)}"
    if replaced is not None:
        return f"replaced whole, {replaced:,} bytes before"
    return "new file" if before is None else "changed"


def _lines(old: Text | None, new: Text | None) -> tuple[list[str], list[str]]:
    """Both texts' lines; with their carriage returns where the two end their lines differently."""
    same = old is None or new is None or old.newline == new.newline
    both: list[list[str]] = []
    for text in (old, new):
        lines: list[str] = []
        if text is not None:
            lines = list(text.lines) if same else text.raw.removesuffix("\n").split("\n") if text.raw else []
            if lines and not text.ends_with_newline:
                lines[-1] += _NO_NEWLINE
        both.append(lines)
    return both[0], both[1]


def outline(path: str, source: str, after_line: int) -> list[str]:
    """Outline a file; see `syntax.outline`. Empty where it takes too long: it is a courtesy."""
    if not syntax.is_python(path) or len(source) > syntax.LONGEST:
        return syntax.outline(path, source, after_line)
    return _parse(syntax.outline, source, path, source, after_line) or []


def parsed(source: str) -> list[int] | str | None:
    """Parse Python; see `syntax.parsed`. None where it takes too long."""
    return _parse(syntax.parsed, source, source)


def fault_in(path: str, source: str) -> str | None:
    """Find a syntax error; see `syntax.fault_in`. None where it takes too long."""
    # Always in a worker process: tree-sitter holds the interpreter's lock, for seconds in 6,000 characters of `*a**`.
    return _parse(syntax.fault_in, source, path, source, small=0) if syntax.has_grammar(path) else None


def _parse(parser: Callable[..., T], source: str, *args: object, small: int = _SMALL_CHARS) -> T | None:
    """Call a parser, for a large source in a worker process; None where that takes too long."""
    if len(source) <= small:
        return parser(*args)
    try:
        return call_bounded(parser, *args, seconds=_PARSE_SECONDS)
    except BoundExceededError:
        return None
