"""Work out and check the changes of a `write_file` call before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_runtime.core.errors import ToolError
from agent_runtime.tools import parsing
from agent_runtime.workspace import edits as engine
from agent_runtime.workspace.changes import (
    LINE_MODES,
    WHOLE_MODES,
    Changed,
    StaleError,
    WriteCall,
    check_arguments,
    check_placeholders,
    make,
)
from agent_runtime.workspace.diffs import counted, diff
from agent_runtime.workspace.edits import LineEdit
from agent_runtime.workspace.hunks import place_hunks
from agent_runtime.workspace.incremental import SyntaxMemory
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import AddFile, DeleteFile, Section, UpdateFile, parse_patch
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import StagedFile
from agent_runtime.workspace.text import Text, decode, version_of

_MOST_WHOLE_CHARS = 1_000_000
"""More than a reply holds; contents that are kept can be written again and again."""


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


class Planner:
    """Works out writes; keeps nothing but what the parsers remember to be quick."""

    def __init__(self) -> None:
        self._syntax = SyntaxMemory(parsing.parsed, parsing.fault_in)

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
