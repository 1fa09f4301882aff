"""The tools that read, write and list files of the workspace: `read_file`, `write_file` and `list_files`.

`FileTools` remembers the versions of files that the agent knows. `Writer` plans the writes of a step and makes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import ListedLines, Plain, ToolResult
from agent_runtime.index import parsing
from agent_runtime.policy.policy import CallFacts
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.tools import changes as changes_module
from agent_runtime.tools.changes import FileWrite, Planner, StepLimits, adopted
from agent_runtime.tools.tool import Planned, of_call, refused, text_of
from agent_runtime.workspace import listing
from agent_runtime.workspace.diffs import Text, is_whole
from agent_runtime.workspace.edits import Seen, StaleError, WriteCall, check_mode, contents_taken, pairs, view
from agent_runtime.workspace.files import StagedFile, Workspace, apply_all, in_line, is_unchanged
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import UpdateFile, parse_patch
from agent_runtime.workspace.state import Watch

CHANGED_MEANWHILE = (
    "Nothing was written: the files it is about are no longer as they were when this call was decided on. "
    "Look at them again, and repeat the call"
)

_LINE_ARGUMENTS = ("start_line", "end_line", "after_line", "edits")
_SMALL_CHARS = 256_000  # characters; what is longer is cut into lines in a worker process
_LISTED = 200
_SYMBOL_SECONDS = 5.0
_READ_SECONDS = 10.0
_MEMORY = 200 * 1024**2


class FileTools:
    """`read_file`, `write_file` and `list_files` on one workspace, with what they remember of it."""

    value_types: ClassVar[dict[str, str]] = {"read_file": "str", "write_file": "str", "list_files": "list[str]"}
    labels: ClassVar[dict[str, str]] = {
        "read_file": "Reading {path}",
        "write_file": "Writing {path}",  # a patch names its files itself
        "list_files": "Listing {pattern}",
    }
    stub_types: ClassVar[str] = ""
    judged_by: ClassVar[dict[str, str]] = dict.fromkeys(value_types, "path")

    def __init__(
        self,
        workspace: Workspace,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        withholds: Callable[[str, str], bool] = lambda _tool, _path: False,
    ) -> None:
        """Work on `workspace`.

        Args:
            workspace: where.
            now: says when it was found that somebody changed a file.
            withholds: whether a tool is to tell nothing of a file that its call does not name; see `Policy.withholds`.
        """
        self._workspace = workspace
        self._now = now
        self._withholds = withholds
        self.reset()

    def reset(self) -> None:
        """Forget everything that is known of files."""
        self._watch = Watch(self._workspace)
        self._seen = Seen()
        self._writer = Writer(self._workspace, self._seen, self._watch, partial(self._withholds, "write_file"))
        self._away: list[str] = []

    def may_differ(self) -> bool:
        """Whether a look could find that a file which the agent knows has changed; see `Watch.may_differ`."""
        return bool(self._away) or self._watch.may_differ()

    def changed_by_others(self) -> str:
        """What changed in the files that the agent knows since its last step; empty for nothing. Call before a step."""
        told, self._away = [*self._away, *self._watch.changes()], []
        if not told:
            return ""
        head = f"[ENVIRONMENT CHANGE] {self._now():%Y-%m-%d %H:%M:%S}"
        return "\n".join(
            [head, "", *told, "Someone else did this. Read these files again before you edit them by line."]
        )

    def begin_step(self) -> None:
        """Reset the limits of a step, and let line numbers refer to what the last step left."""
        self._writer.begin_step()
        self._seen.begin_step()

    def end_step(self) -> str:
        """What the model should know after a step beside its results; empty for nothing."""
        changes = self._watch.changes()
        return "\n".join(["[files that your commands changed]", *changes]) if changes else ""

    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
        """Tell which files a call is about, and what becomes of them; see `Tool.plan`.

        Raises:
            ToolError: the path cannot be one of the workspace.
        """
        if tool == "write_file":
            return self._writer.plan(args)
        facts = self.judge(tool, {"path": ".", **args})
        return Planned(facts=facts, preview=partial(of_call, tool, args), apply=call)

    def judge(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Name the file or directory that a call is about; see `Judges.judge`.

        Raises:
            ToolError: the path is no text, or cannot be one of the workspace.
        """
        path = text_of(tool, "path", args["path"])
        path = self._parted(path)[0] if tool == "read_file" else path
        paths = (self._workspace.resolve(path),)
        return CallFacts(tool=tool, args=args, paths=paths, writes=tool == "write_file")

    def adopt(self, changes: Sequence[StagedFile]) -> None:
        """Make changes that a child run's copy brings, all or none, and know the files from now on as they are then.

        Raises:
            ToolError: a file is not as it was when the changes were worked out.
        """
        self._writer.adopt([adopted(change) for change in changes])

    def tracked(self) -> dict[str, str | None]:
        """Each file that the agent knows, by its canonical path, and its version; None for one that was not there."""
        return self._watch.tracked()

    def restore(self, tracked: Mapping[str, str | None]) -> None:
        """Know what another process knew: files of the same version are read again.

        Those that have changed are told with the next `changed_by_others`; until they are read, no line number of them
        is taken.

        Args:
            tracked: what `tracked` gave there.
        """
        restored = self._watch.restore(tracked)
        for canonical, (version, text) in restored.same.items():
            self._seen.read(canonical, version, text)
        for canonical, told in restored.changed.items():
            self._seen.lose(canonical)
            self._away.append(told)

    def step_state(self) -> dict[str, Plain]:
        """Where the present step stands, to be gone on with by `resume_step`; plain data."""
        return self._writer.state()

    def resume_step(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a step, in another process, after `restore`.

        Args:
            state: what `step_state` gave.
        """
        self._writer.resume(state)

    def read_file(self, path: str, start_line: int = 1, end_line: int | None = None) -> ToolResult:
        """Show numbered lines; without end_line about 200 and an outline of the rest; or path 'a.py::Class.f'.
        Returns the text, unnumbered; without end_line all of it.

        Raises:
            ToolError: no such text file in the workspace, no such definition, or a line number out of range.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        path, symbol = self._parted(path)
        if symbol:
            source = Overlay(self._workspace).text_file(path).text.raw
            what = f"Looking for {symbol!r} in {path!r}"
            spans = call_bounded(parsing.find_spans, path, source, symbol, seconds=_SYMBOL_SECONDS, what=what)
            if not spans:
                raise ToolError(f"{path!r} has no definition {symbol!r} that is found; use find()", kind="ValueError")
            start_line, end_line = spans[0]
        files = Overlay(self._workspace)
        canonical = files.resolve(path)
        try:
            file = files.text_file(path)
        except ToolError as error:
            if error.kind == "FileNotFoundError":
                self._watch.note(canonical)
            raise
        result = shown(path, file, start_line, end_line)
        self._seen.read(canonical, file.version, file.text.plain)
        self._watch.remember(canonical, file.version, file.text.plain)
        return result

    def _parted(self, path: str) -> tuple[str, str]:
        """A path and the name of a definition, as `path::name` gives them; a file of that very name is one."""
        before, mark, symbol = path.partition("::")
        return (before, symbol) if mark and before and not self._workspace.exists(path) else (path, "")

    def write_file(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        path: str = "",
        start_line: int | None = None,
        end_line: int | None = None,
        after_line: int | None = None,
        mode: Literal["w", "a", "edit", "insert", "multi_edit", "replace", "patch"] = "w",
        edits: list[tuple[int, int]] | None = None,
        version: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
        *,
        contents: Sequence[str] = (),
    ) -> ToolResult:
        """Write contents, as many as the mode takes: 'w' the whole file, 'a' append, 'edit' in place of
        start_line..end_line, 'insert' below after_line (0: top), 'multi_edit' one per (start, end) of edits, numbers as
        read; 'replace' two: old lines (unique in the file), new lines; 'patch' one, no path: '*** Begin Patch' with
        Add/Update/Delete File sections, all or nothing. Per step one edit/insert/multi_edit per file. force=True
        writes what was refused. Returns the new version.

        Raises:
            ToolError: a wrong argument, a limit, or a refusal; nothing is written then.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        args: dict[str, Any] = {
            "path": path,
            "start_line": start_line,
            "end_line": end_line,
            "after_line": after_line,
            "mode": mode,
            "edits": edits,
            "version": version,
            "force": force,
            "contents": contents,
        }
        result: ToolResult = self._writer.plan(args).apply()
        return result

    async def list_files(self, pattern: str = "**/*", path: str = ".") -> ToolResult:
        """List files beneath path, newest first.

        Raises:
            ToolError: no such directory, or no such glob.
        """
        if self._workspace.is_temporary(path):
            raise ToolError(f"path={path!r}: list_files looks only into the workspace; use ls", kind="ValueError")
        found = await listing.list_bounded(self._workspace, pattern, path)
        files = [in_line(name) for name in found.files if not self._withholds("list_files", name)]
        names = files[:_LISTED]
        total = f"{len(files)}" if found.complete else f"at least {len(files)}"
        shown = f" (showing {_LISTED}; narrow the pattern)" if len(files) > _LISTED else ""
        return ToolResult(
            value=[*names], text="\n".join([f"[list_files] {total} file(s), newest first{shown}:", *names])
        )


def shown(path: str, file: TextFile, start: int, end: int | None) -> ToolResult:
    """Some lines of a file: numbered for the model, as they are for its code.

    Raises:
        ToolError: a line number is out of range.
        BoundExceededError: so many lines take too much room.
    """
    text = file.text
    if len(text.raw) <= _SMALL_CHARS:
        head, last, value = _shown(path, text, file.version, start, end)
    else:
        given = (path, text, file.version, start, end)
        told = call_bounded(_packed, *given, seconds=_READ_SECONDS, memory=_MEMORY, what=f"Reading {path!r}")
        first, _, value = told.partition("\n")
        head, last = json.loads(first)
    lines = ListedLines(path=path, first=start, last=last) if last >= start else None
    return ToolResult(value=value, text=head, lines=lines)


def _packed(path: str, text: Text, version: str, start: int, end: int | None) -> str:
    head, last, value = _shown(path, text, version, start, end)
    return f"{json.dumps([head, last])}\n{value}"


def _shown(path: str, text: Text, version: str, start: int, end: int | None) -> tuple[str, int, str]:
    count = text.count
    if not is_whole(start) or not (end is None or is_whole(end)):
        raise ToolError("start_line and end_line must be whole numbers", kind="TypeError")
    if not 1 <= start <= max(1, count):
        raise ToolError(f"start_line={start}: must be 1 to {max(1, count)}, the file's last line", kind="ValueError")
    if end is not None and end < start:
        raise ToolError(f"end_line={end}: must be at least start_line={start}", kind="ValueError")
    last = count if end is None else min(end, count)
    body = view(path, text, start, last if end is not None else None, changes_module.outline)
    span = f"lines {start}–{body.last} of {count}" if count else "empty"  # noqa: RUF001 - the dash of a range
    about = ", ".join(note for note in (span, f"version {version}", text.peculiarities) if note)
    wanted = text.first(last)[start - 1 : last]
    closed = last < count or text.ends_with_newline
    head = f"[read_file] {path!r} ({about})" + (f"\n{body.body}" if body.body else "")
    # A stated range that is cut here may be cut again by the step's bound, which then names all that is missing.
    return head, body.last if end is None else last, "\n".join(wanted) + ("\n" if wanted and closed else "")


class Writer:
    """Plans writes and makes them, within the limits of a step."""

    def __init__(
        self, workspace: Workspace, seen: Seen, watch: Watch, withholds: Callable[[str], bool] = lambda _path: False
    ) -> None:
        """Write in `workspace`, and keep `seen` and `watch` informed.

        Args:
            workspace: where.
            seen: what the agent knows of the files.
            watch: what they are like.
            withholds: whether nothing is to be told about a file that the call does not name, by its canonical path.
        """
        self._workspace = workspace
        self._withholds = withholds
        self._seen = seen
        self._watch = watch
        self._planner = Planner()
        self._limits = StepLimits()

    def begin_step(self) -> None:
        """Reset the limits of a step."""
        self._limits = StepLimits()

    def state(self) -> dict[str, Plain]:
        """Where the step stands; see `resume`."""
        bases: dict[str, Plain] = {path: [version, *lines] for path, (version, lines) in self._seen.bases().items()}
        return {"whole_chars": self._limits.whole_chars, "edited": [*sorted(self._limits.edited)], "bases": bases}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a step, after the files that it knows were read again.

        Args:
            state: what `state` gave when the step was paused.
        """
        self._limits = StepLimits(state["whole_chars"], set(state["edited"]))
        for path, (version, *lines) in state["bases"].items():
            self._seen.put_back(path, version, tuple(lines))

    def plan(self, args: Mapping[str, Any]) -> Planned:
        """Work out what a write would do.

        Args:
            args: of the call, by name; None is as good as left out.
        """
        return self._plan(_Basis(files=Overlay(self._workspace), seen=self._seen, limits=self._limits), args)

    def _plan(self, basis: _Basis, args: Mapping[str, Any]) -> Planned:
        files = basis.files
        named = {name: value for name, value in args.items() if name != "contents"}
        facts = CallFacts(tool="write_file", args=named, writes=True)
        try:
            change = _change({name: value for name, value in args.items() if value is not None})
            facts = replace(facts, paths=_named(change, files))
            basis.limits.check(change, files.resolve(change.path or "."))
            planner = self._planner if changes_module.is_light(change, files) else changes_module
            writes = planner.plan(change, files, basis.seen)
        except StaleError as error:  # its line numbers refer to lines that have changed; the refusal shows how they are
            path = str(args["path"])
            canonical = files.resolve(path)
            if files.is_pending(canonical):
                told = f"{path!r}: it addresses lines that an earlier write of the block changes; make both one call"
                return refused(facts, ToolError(told, kind="ValueError"))
            shown = partial(self._refuse, error, canonical, files.text_file(canonical))
            return replace(refused(facts, error), apply=shown)
        except ToolError as error:
            return refused(facts, error)
        digest = hashlib.sha256()
        for write in writes:
            each = write.change
            contents = [None if data is None else hashlib.sha256(data).hexdigest() for data in (each.old, each.data)]
            digest.update(json.dumps([each.path, *contents, each.mode]).encode())
        return Planned(
            facts=replace(facts, paths=tuple(dict.fromkeys(each.canonical for each in writes)) or facts.paths),
            preview=partial(self._preview, writes),
            apply=partial(self._apply, change, files, writes),
            digest=digest.hexdigest(),
            is_current=partial(self._is_current, files, writes),
            follow=partial(self._follow, basis, change, writes),
        )

    def _refuse(self, error: StaleError, canonical: str, shown: TextFile) -> NoReturn:
        self._seen.read(canonical, shown.version, shown.text.plain)
        raise error

    def _follow(
        self, basis: _Basis, change: WriteCall, writes: Sequence[FileWrite], args: Mapping[str, Any]
    ) -> Planned | None:
        """The plan of a later write; None for one of a file of which nothing is to be told unasked.

        Nobody has decided on that one yet, and why it fails could tell what is in the file.
        """
        planned = self._plan(basis.after(change, writes), args)
        return None if any(map(self._withholds, planned.facts.paths)) else planned

    def _preview(self, writes: Sequence[FileWrite]) -> str:
        """The diff; of files that are there but whose content was not looked at, their sizes."""
        blind = [each.canonical for each in writes if each.change.unread]
        replaced = {path: self._workspace.size(path) for path in blind if self._workspace.exists(path)}
        return changes_module.preview(writes, replaced)

    def _is_current(self, files: Overlay, writes: Sequence[FileWrite]) -> bool:
        return files.is_on_disk() and all(is_unchanged(self._workspace, each.change) for each in writes)

    def _apply(self, change: WriteCall, files: Overlay, writes: Sequence[FileWrite]) -> ToolResult:
        """Make a write as it was planned.

        Raises:
            ToolError: its files are not as they were when it was planned; nothing is written.
        """
        if not self._is_current(files, writes):
            raise ToolError(CHANGED_MEANWHILE)
        self.adopt(writes)
        self._limits.count(change, files.resolve(change.path or "."))
        versions = "\n".join(each.version for each in writes if each.version)
        return ToolResult(value=versions, text="\n".join(line for each in writes for line in each.told))

    def adopt(self, writes: Sequence[FileWrite]) -> None:
        """Make writes, all or none, and take note of the new versions.

        Raises:
            ToolError: a file is not as it was when the writes were planned.
        """
        apply_all(self._workspace, [each.change for each in writes])
        for each in writes:
            _learn(self._seen, each)
            if each.change.data is None:
                self._watch.note(each.canonical)
            else:
                self._watch.remember(each.canonical, each.version, each.text.plain if each.text else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """All that a plan depends on: the files, what the agent knows of them, and what the step has done so far."""

    files: Overlay
    seen: Seen
    limits: StepLimits

    def after(self, change: WriteCall, writes: Sequence[FileWrite]) -> _Basis:
        """The same as if a write had been made."""
        seen, limits = self.seen.copy(), self.limits.copy()
        limits.count(change, self.files.resolve(change.path or "."))
        for each in writes:
            _learn(seen, each)
        files = self.files.with_pending({each.canonical: each.change.data for each in writes})
        return _Basis(files=files, seen=seen, limits=limits)


def contents_of_call(args: Mapping[str, Any]) -> int:
    """How many contents a call of `write_file` takes.

    Args:
        args: of the call, by name, without those that are None.

    Raises:
        ToolError: it has no such mode, no path, or no proper edits.
    """
    mode = args.get("mode", "w")
    check_mode(mode)
    if mode != "patch" and not args.get("path"):
        raise ToolError("path must name the file; only mode='patch' does without", kind="ValueError")
    return contents_taken(mode, len(pairs(args.get("edits"))) if mode == "multi_edit" else None)


def _change(args: Mapping[str, Any]) -> WriteCall:
    """A write from the arguments of its call.

    Raises:
        ToolError: as for `contents_of_call`, or its contents are too many or too few.
    """
    count, contents = contents_of_call(args), tuple(args.get("contents", ()))
    if len(contents) != count:
        raise ToolError(f"contents: this write takes {count}, and {len(contents)} came with it", kind="ValueError")
    return WriteCall(
        path=args.get("path", ""),
        mode=args.get("mode", "w"),
        lines={name: args[name] for name in _LINE_ARGUMENTS if name in args},
        contents=contents,
        version=args.get("version"),
        force=args.get("force", False),
    )


def _named(change: WriteCall, files: Overlay) -> tuple[str, ...]:
    """The files that a write names, whether or not it can be made."""
    if change.mode != "patch":
        return (files.resolve(change.path),)
    names: list[str] = []
    for section in parse_patch(change.contents[0]):
        names.append(section.path)
        if isinstance(section, UpdateFile) and section.move_to:
            names.append(section.move_to)
    return tuple(dict.fromkeys(files.resolve(name) for name in names))


def _learn(seen: Seen, write: FileWrite) -> None:
    if write.text is None:
        return
    know = seen.read if write.whole else seen.wrote
    know(write.canonical, write.version, write.text.plain)
