"""The tools `read_file`, `write_file` and `list_files`.

`FileTools` tracks the file versions that the agent knows. `Writer` plans and makes the writes of a step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn

from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import ListedLines, Plain, ToolResult
from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools import changes as changes_module
from agent_runtime.tools import reading
from agent_runtime.tools.changes import FileWrite, Planner, StepLimits, external_write
from agent_runtime.tools.tool import TEXTS, CallPlan, Texts, ToolFamily, preview_call, refusal_plan, require_text
from agent_runtime.workspace import listing
from agent_runtime.workspace.edits import StaleError, Versions, WriteCall, check_mode, pairs, payload_count
from agent_runtime.workspace.files import StagedFile, Workspace, apply_changes, is_unchanged, quote_path
from agent_runtime.workspace.overlay import Overlay, TextFile
from agent_runtime.workspace.patches import UpdateFile, parse_patch
from agent_runtime.workspace.state import Watch

CHANGED_MEANWHILE = (
    "Nothing was written: the files it is about are no longer as they were when this call was decided on. "
    "Look at them again, and repeat the call"
)

_LINE_ARGUMENTS = ("start_line", "end_line", "after_line", "edits")
_MAX_LISTED = 200
_MAX_NAMES = 20


class FileTools(ToolFamily):
    value_types: ClassVar[dict[str, str]] = {"read_file": "str", "write_file": "str", "list_files": "list[str]"}
    labels: ClassVar[dict[str, str]] = {
        "read_file": "Reading {path}",
        "write_file": "Writing {path}",  # a patch names its files itself
        "list_files": "Listing {pattern}",
    }
    stub_types: ClassVar[str] = TEXTS
    policy_parameters: ClassVar[dict[str, str]] = dict.fromkeys(value_types, "path")

    def __init__(
        self,
        workspace: Workspace,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        withholds: Callable[[str, str], bool] = lambda _tool, _path: False,
    ) -> None:
        self._workspace = workspace
        self._now = now
        self._withholds = withholds
        self.reset()

    def reset(self) -> None:
        self._watch = Watch(self._workspace)
        self._memory = Versions()
        self._writer = Writer(self._workspace, self._memory, self._watch, partial(self._withholds, "write_file"))
        self._missed_changes: list[str] = []

    def may_differ(self) -> bool:
        """Return whether a known file may have changed; see `Watch.may_have_changes`."""
        return bool(self._missed_changes) or self._watch.may_have_changes()

    def report_external_changes(self) -> str:
        """Return changes of known files since the last step. Call it before a step."""
        changes, self._missed_changes = [*self._missed_changes, *self._watch.take_changes()], []
        if not changes:
            return ""
        head = f"[ENVIRONMENT CHANGE] {self._now():%Y-%m-%d %H:%M:%S}"
        return "\n".join(
            [head, "", *changes, "Someone else did this. Read these files again before you edit them by line."]
        )

    def begin_step(self) -> None:
        """Reset the limits of a step; line numbers now refer to the last step's result."""
        self._writer.begin_step()
        self._memory.begin_step()

    def end_step(self) -> str:
        """Return a note for the model about files changed by commands."""
        changes = self._watch.take_changes()
        return "\n".join(["[files that your commands changed]", *changes]) if changes else ""

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        """Plan a call; see `Tool.plan`."""
        if tool == "write_file":
            return self._writer.plan(args)
        facts = self.policy_facts(tool, {"path": ".", **args})
        return CallPlan(facts=facts, preview=partial(preview_call, tool, args), apply=call)

    @override
    def policy_facts(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Return the path of a call; see `ToolFamily`."""
        path = args["path"]
        names = [require_text(tool, "path", name) for name in (path if isinstance(path, list | tuple) else [path])]
        names = [self._split_symbol(name)[0] for name in names] if tool == "read_file" else names
        paths = tuple(dict.fromkeys(map(self._workspace.resolve, names)))
        return CallFacts(tool=tool, args=args, paths=paths, writes=tool == "write_file")

    def adopt(self, changes: Sequence[StagedFile]) -> None:
        """Apply changes of a child run, all or none; the agent then knows these files."""
        self._writer.adopt([external_write(change) for change in changes])

    def tracked(self) -> dict[str, str | None]:
        """Return the known version of each file by canonical path; None for a missing file."""
        return self._watch.versions()

    def restore(self, tracked: Mapping[str, str | None]) -> None:
        """Restore the result of `tracked` in another process; changed files are reported later."""
        restored = self._watch.restore(tracked)
        for canonical, (version, text) in restored.unchanged.items():
            self._memory.record_read(canonical, version, text)
        for canonical, report in restored.changed.items():
            self._memory.mark_lost(canonical)
            self._missed_changes.append(report)

    def step_state(self) -> dict[str, Plain]:
        return self._writer.state()

    def resume_step(self, state: Mapping[str, Any]) -> None:
        self._writer.resume(state)

    def read_file(
        self, path: Texts, start_line: int = 1, end_line: int | None = None, max_chars: int | None = None
    ) -> ToolResult:
        """Show numbered lines of a file or 'a.py::Class.f', or a list; an outline of a long file.

        Returns the text without numbers; without end_line all of the file. Of a long class, the outline is shown, too.
        max_chars=40000 shows more than a step does by default.
        """
        names = [*path] if isinstance(path, list | tuple) else [path]
        if not 1 <= len(names) <= _MAX_NAMES or (len(names) > 1 and (start_line != 1 or end_line is not None)):
            raise ToolError("path: name one file for a range of lines, else 1 to 20 in a list", kind="ValueError")
        parts = [part for name in names for part in self._read(name, start_line, end_line, max_chars)]
        value, text = "".join(part.value for part in parts), "\n\n".join(part.text for part in parts)
        return ToolResult(value=value, text=text, lines=tuple(parts), max_chars=max_chars or 0)

    def _read(self, name: str, start: int, end: int | None, max_chars: int | None) -> list[ListedLines]:
        path, symbol = self._split_symbol(name)
        files = Overlay(self._workspace)
        canonical = files.resolve(path)
        try:
            file = files.read_text(path)
        except ToolError as error:
            if error.kind == "FileNotFoundError":
                self._watch.record(canonical)
            raise
        if symbol:
            parts = reading.read_symbol(path, file, symbol, max_chars)
        else:
            parts = [reading.read_lines(path, file, start, end, max_chars)]
        self._memory.record_read(canonical, file.version, file.text.normalized)
        self._watch.record_content(canonical, file.version, file.text.normalized)
        return parts

    def _split_symbol(self, path: str) -> tuple[str, str]:
        """Split `path::name`, unless it is the name of a file."""
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
        """Write contents, as many as the mode takes; the transports declare it for the model."""
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
        """List files, newest first."""
        if self._workspace.is_temporary(path):
            raise ToolError(f"path={path!r}: list_files looks only into the workspace; use ls", kind="ValueError")
        listed = await listing.list_bounded(self._workspace, pattern, path)
        files = [quote_path(name) for name in listed.files if not self._withholds("list_files", name)]
        names = files[:_MAX_LISTED]
        total = f"{len(files)}" if listed.complete else f"at least {len(files)}"
        hint = f" (showing {_MAX_LISTED}; narrow the pattern)" if len(files) > _MAX_LISTED else ""
        return ToolResult(
            value=[*names], text="\n".join([f"[list_files] {total} file(s), newest first{hint}:", *names])
        )


class Writer:
    """Plan and make writes within the limits of a step."""

    def __init__(
        self, workspace: Workspace, memory: Versions, watch: Watch, withholds: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._workspace = workspace
        self._withholds = withholds
        self._memory = memory
        self._watch = watch
        self._planner = Planner()
        self._limits = StepLimits()

    def begin_step(self) -> None:
        self._limits = StepLimits()

    def state(self) -> dict[str, Plain]:
        bases: dict[str, Plain] = {path: [version, *lines] for path, (version, lines) in self._memory.bases().items()}
        return {"whole_chars": self._limits.whole_chars, "edited": [*sorted(self._limits.edited)], "bases": bases}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue a step after its known files were read again."""
        self._limits = StepLimits(state["whole_chars"], set(state["edited"]))
        for path, (version, *lines) in state["bases"].items():
            self._memory.restore_base(path, version, tuple(lines))

    def plan(self, args: Mapping[str, Any]) -> CallPlan:
        """Plan a write; an argument of None counts as omitted."""
        return self._plan(_PlanState(files=Overlay(self._workspace), memory=self._memory, limits=self._limits), args)

    def _plan(self, state: _PlanState, args: Mapping[str, Any]) -> CallPlan:
        files = state.files
        arguments = {name: value for name, value in args.items() if name != "contents"}
        facts = CallFacts(tool="write_file", args=arguments, writes=True)
        try:
            change = _parse_call({name: value for name, value in args.items() if value is not None})
            facts = replace(facts, paths=_named_paths(change, files))
            state.limits.check(change, files.resolve(change.path or "."))
            planner = self._planner if changes_module.is_light(change, files) else changes_module
            writes = planner.plan(change, files, state.memory)
        except StaleError as error:  # its line numbers refer to changed lines; the refusal shows the current ones
            path = str(args["path"])
            canonical = files.resolve(path)
            if files.is_pending(canonical):
                problem = f"{path!r}: it addresses lines that an earlier write of the block changes; make both one call"
                return refusal_plan(facts, ToolError(problem, kind="ValueError"))
            refuse = partial(self._refuse, error, canonical, files.read_text(canonical))
            return replace(refusal_plan(facts, error), apply=refuse)
        except ToolError as error:
            return refusal_plan(facts, error)
        digest = hashlib.sha256()
        for write in writes:
            staged = write.change
            hashes = [None if data is None else hashlib.sha256(data).hexdigest() for data in (staged.old, staged.data)]
            digest.update(json.dumps([staged.path, *hashes, staged.mode]).encode())
        return CallPlan(
            facts=replace(facts, paths=tuple(dict.fromkeys(write.canonical for write in writes)) or facts.paths),
            preview=partial(self._preview, writes),
            apply=partial(self._apply, change, files, writes),
            digest=digest.hexdigest(),
            is_current=partial(self._is_current, files, writes),
            plan_next=partial(self._plan_next, state, change, writes),
        )

    def _refuse(self, error: StaleError, canonical: str, file: TextFile) -> NoReturn:
        self._memory.record_read(canonical, file.version, file.text.normalized)
        raise error

    def _plan_next(
        self, state: _PlanState, change: WriteCall, writes: Sequence[FileWrite], args: Mapping[str, Any]
    ) -> CallPlan | None:
        """Plan a later write; None if its file is withheld: an error could disclose its content."""
        planned = self._plan(state.with_writes(change, writes), args)
        return None if any(map(self._withholds, planned.facts.paths)) else planned

    def _preview(self, writes: Sequence[FileWrite]) -> str:
        unread = [write.canonical for write in writes if write.change.unread]
        replaced = {path: self._workspace.size(path) for path in unread if self._workspace.exists(path)}
        return changes_module.preview(writes, replaced)

    def _is_current(self, files: Overlay, writes: Sequence[FileWrite]) -> bool:
        return files.is_on_disk() and all(is_unchanged(self._workspace, write.change) for write in writes)

    def _apply(self, change: WriteCall, files: Overlay, writes: Sequence[FileWrite]) -> ToolResult:
        if not self._is_current(files, writes):
            raise ToolError(CHANGED_MEANWHILE)
        self.adopt(writes)
        self._limits.count(change, files.resolve(change.path or "."))
        versions = "\n".join(write.version for write in writes if write.version)
        return ToolResult(value=versions, text="\n".join(line for write in writes for line in write.note))

    def adopt(self, writes: Sequence[FileWrite]) -> None:
        """Make writes, all or none, and record the new versions."""
        apply_changes(self._workspace, [write.change for write in writes])
        for write in writes:
            _update_memory(self._memory, write)
            if write.change.data is None:
                self._watch.record(write.canonical)
            else:
                text = write.text.normalized if write.text else None
                self._watch.record_content(write.canonical, write.version, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanState:
    files: Overlay
    memory: Versions
    limits: StepLimits

    def with_writes(self, change: WriteCall, writes: Sequence[FileWrite]) -> _PlanState:
        memory, limits = self.memory.copy(), self.limits.copy()
        limits.count(change, self.files.resolve(change.path or "."))
        for write in writes:
            _update_memory(memory, write)
        files = self.files.with_pending({write.canonical: write.change.data for write in writes})
        return _PlanState(files=files, memory=memory, limits=limits)


def content_count(args: Mapping[str, Any]) -> int:
    """Return the number of contents of a `write_file` call, given its arguments without None."""
    mode = args.get("mode", "w")
    check_mode(mode)
    if mode != "patch" and not args.get("path"):
        raise ToolError("path must name the file; only mode='patch' does without", kind="ValueError")
    return payload_count(mode, len(pairs(args.get("edits"))) if mode == "multi_edit" else None)


def _parse_call(args: Mapping[str, Any]) -> WriteCall:
    count, contents = content_count(args), tuple(args.get("contents", ()))
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


def _named_paths(change: WriteCall, files: Overlay) -> tuple[str, ...]:
    """Return the paths in a write, even if it is invalid."""
    if change.mode != "patch":
        return (files.resolve(change.path),)
    names: list[str] = []
    for section in parse_patch(change.contents[0]):
        names.append(section.path)
        if isinstance(section, UpdateFile) and section.move_to:
            names.append(section.move_to)
    return tuple(dict.fromkeys(files.resolve(name) for name in names))


def _update_memory(memory: Versions, write: FileWrite) -> None:
    if write.text is None:
        return
    update = memory.record_read if write.whole else memory.record_write
    update(write.canonical, write.version, write.text.normalized)
