"""The tools that read, write and list files of the workspace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from agent_runtime.errors import ToolError
from agent_runtime.payload_plan import payloads_taken
from agent_runtime.tools.changes import FileWrite, Planner, StepLimits
from agent_runtime.tools.payloads import KeptContents, Payloads
from agent_runtime.tools.planned import PlannedWrite, planned_writes
from agent_runtime.tools.protocol import ToolResult
from agent_runtime.workspace import listing
from agent_runtime.workspace.changes import Change, StaleError, check_mode, pairs
from agent_runtime.workspace.edits import is_whole
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.overlay import Overlay
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import apply_all
from agent_runtime.workspace.views import view
from agent_runtime.workspace.watch import Watch

_LISTED = 200
_LINE_ARGUMENTS = ("start_line", "end_line", "after_line", "edits")


class FileTools:
    """`read_file`, `write_file` and `list_files` on one workspace, with what they remember of it."""

    value_types: ClassVar[dict[str, str]] = {"read_file": "str", "write_file": "str", "list_files": "list[str]"}
    labels: ClassVar[dict[str, str]] = {
        "read_file": "Reading {path}",
        "write_file": "Writing {path}",  # a patch names its files itself
        "list_files": "Listing {pattern}",
    }
    stub_types: ClassVar[str] = ""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._watch = Watch(workspace)
        self._seen = Seen()
        self._planner = Planner()
        self._kept = KeptContents()
        self._payloads = Payloads()
        self._planned: tuple[PlannedWrite, ...] = ()
        self._limits = StepLimits()
        self._tried_ahead = False

    def changed_by_others(self) -> str:
        """What changed in the files that the agent knows since its last step; empty for nothing. Call before a step."""
        told = self._watch.changes()
        if not told:
            return ""
        head = f"[ENVIRONMENT CHANGE] {datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        return "\n".join(
            [head, "", *told, "Someone else did this. Read these files again before you edit them by line."]
        )

    def begin_step(self, payloads: Payloads, control: str = "") -> None:
        """Take over a reply's payloads; the limits of a step count anew.

        Args:
            payloads: the contents that the reply brings.
            control: the control block, whose writes are all checked before the first is made where they can be told.
        """
        planned = planned_writes(control)
        self._payloads = payloads
        self._planned = planned if sum(each.payloads for each in planned) == payloads.left() else ()
        self._limits = StepLimits()
        self._tried_ahead = False
        self._seen.begin_step()

    def end_step(self, *, ok: bool) -> str:
        """What the model should know after a step beside its results; empty for nothing.

        Args:
            ok: whether the control block ran to its end.
        """
        told = [] if ok else self._keep_unwritten()
        if changes := self._watch.changes():
            told.append("\n".join(["[files that your commands changed]", *changes]))
        return "\n\n".join(told)

    def read_file(self, path: str, start_line: int = 1, end_line: int | None = None) -> ToolResult:
        """Show numbered lines; without end_line about 200 and an outline of the rest.
        Returns the text, unnumbered; without end_line all of it.

        Raises:
            ToolError: no such text file in the workspace, or a line number out of range.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        canonical = self._workspace.resolve(path)
        try:
            file = Overlay(self._workspace).text_file(path)
        except ToolError as error:
            if error.kind == "FileNotFoundError":
                self._watch.note(canonical)
            raise
        lines = file.text.lines
        last = _check_range(start_line, end_line, len(lines))
        self._seen.read(canonical, file.version, lines)
        self._watch.remember(canonical, file.version, lines)
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
        path: str = "",
        start_line: int | None = None,
        end_line: int | None = None,
        after_line: int | None = None,
        mode: Literal["w", "a", "edit", "insert", "multi_edit", "replace", "patch"] = "w",
        edits: list[tuple[int, int]] | None = None,
        version: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
        payload: int | None = None,
    ) -> ToolResult:
        """Write the next payload(s): 'w' the whole file, 'a' append, 'edit' in place of start_line..end_line,
        'insert' below after_line (0: top), 'multi_edit' one payload per (start, end) of edits, numbers as read;
        'replace' two payloads: old lines (unique in the file), new lines; 'patch' one payload, no path:
        '*** Begin Patch' with Add/Update/Delete File sections, all or nothing. Per step at most 5 w/a, and one
        edit/insert/multi_edit per file. force=True writes what was refused; payload=N reuses a refused write's
        content instead of taking one. Returns the new version.

        Writes of straight-line code with literal arguments are all checked before the first is made.

        Raises:
            ToolError: a wrong argument, a missing payload, a limit, or a refusal; nothing is written then.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        given = {"start_line": start_line, "end_line": end_line, "after_line": after_line, "edits": edits}
        arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        arguments |= {"path": path, "mode": mode, "version": version, "force": force}
        count = _contents_taken(arguments)
        if payload is not None:
            contents = self._kept.get(payload, count)
        else:
            contents = tuple(self._payloads.take("" if mode == "patch" else path) for _ in range(count))
        try:
            self._try_ahead(contents)
            return self._write(_change(arguments, contents))
        except ToolError as error:
            number = self._kept.keep(contents) if payload is None else payload
            told = f"{error}\n(The content is kept: payload={number} stands for it in a repeated call.)"
            raise ToolError(told, kind=error.kind, value=error.value) from error

    async def list_files(self, pattern: str = "**/*", path: str = ".") -> ToolResult:
        """List files beneath path, newest first; ignored files left out.

        Raises:
            ToolError: no such directory, or no such glob.
        """
        found = await asyncio.to_thread(listing.list_files, self._workspace, pattern, path)
        names = found.files[:_LISTED]
        total = f"{len(found.files)}" if found.complete else f"at least {len(found.files)}"
        shown = f" (showing {_LISTED}; narrow the pattern)" if len(found.files) > _LISTED else ""
        return ToolResult(
            value=[*names], text="\n".join([f"[list_files] {total} file(s), newest first{shown}:", *names])
        )

    def _write(self, change: Change) -> ToolResult:
        files = Overlay(self._workspace)
        canonical = files.resolve(change.path or ".")
        self._limits.check(change, canonical)
        writes = self._planner.plan(change, files, self._seen)
        apply_all(self._workspace, [each.change for each in writes])
        self._limits.count(change, canonical)
        for each in writes:
            _learn(self._seen, each)
            if each.change.data is None:
                self._watch.note(each.canonical)
            else:
                self._watch.remember(each.canonical, each.version, each.text.lines if each.text else None)
        versions = "\n".join(each.version for each in writes if each.version)
        return ToolResult(value=versions, text="\n".join(line for each in writes for line in each.told))

    def _try_ahead(self, contents: tuple[str, ...]) -> None:
        """At a step's first write, work out those that are sure to follow, on top of each other.

        Args:
            contents: what the first one writes.

        Raises:
            ToolError: a later one cannot be made; the first is then not made either.
        """
        certain = [each for each in self._planned if each.certain]
        if self._tried_ahead or len(certain) < 2:  # noqa: PLR2004 - a single write is checked when it is made
            return
        self._tried_ahead = True
        files, seen, limits = Overlay(self._workspace), self._seen.copy(), self._limits.copy()
        rest = list(self._payloads.ahead())
        for number, planned in enumerate(certain):
            if number:
                contents, rest = tuple(rest[: planned.payloads]), rest[planned.payloads :]
            try:
                if "payload" in planned.arguments:
                    contents = self._kept.get(planned.arguments["payload"], _contents_taken(planned.arguments))
                self._try(_change(planned.arguments, contents), files, seen, limits)
            except ToolError as error:
                if number == 0:
                    return  # the call itself says so
                raise ToolError(
                    f"Nothing was written: a later write of this block, line {planned.line}, {planned.call}, cannot "
                    f"be made: {error}",
                    kind=error.kind,
                ) from error

    def _try(self, change: Change, files: Overlay, seen: Seen, limits: StepLimits) -> None:
        canonical = files.resolve(change.path or ".")
        limits.check(change, canonical)
        try:
            writes = self._planner.plan(change, files, seen)
        except StaleError as error:
            if not files.is_pending(canonical):
                now = files.text_file(canonical)  # the refusal shows it
                self._seen.read(canonical, now.version, now.text.lines)
                raise
            raise ToolError(
                f"{change.path!r}: it addresses lines that an earlier write of the block changes; make both one call",
                kind="ValueError",
            ) from error
        limits.count(change, canonical)
        for each in writes:
            files.put(each.canonical, each.change.data)
            _learn(seen, each)

    def _keep_unwritten(self) -> list[str]:
        """Keep what a block that failed did not come to write."""
        ahead = self._payloads.ahead()
        left, unreached = len(ahead), list[tuple[PlannedWrite, tuple[str, ...]]]()
        for planned in reversed(self._planned):
            if planned.payloads and planned.payloads <= left:
                unreached.append((planned, ahead[left - planned.payloads : left]))
                left -= planned.payloads
        told = [f"payload={self._kept.keep(contents)} for {each.call}" for each, contents in reversed(unreached)]
        return [f"[not reached; the contents are kept: {'; '.join(told)}]"] if told else []


def _contents_taken(arguments: dict[str, Any]) -> int:
    mode = arguments.get("mode", "w")
    check_mode(mode)
    if mode != "patch" and not arguments.get("path"):
        raise ToolError("path must name the file; only mode='patch' does without", kind="ValueError")
    return payloads_taken(mode, len(pairs(arguments.get("edits"))) if mode == "multi_edit" else None, retried=False)


def _change(arguments: dict[str, Any], contents: tuple[str, ...]) -> Change:
    return Change(
        path=arguments.get("path", ""),
        mode=arguments.get("mode", "w"),
        lines={name: arguments[name] for name in _LINE_ARGUMENTS if name in arguments},
        contents=contents,
        version=arguments.get("version"),
        force=arguments.get("force", False),
    )


def _learn(seen: Seen, write: FileWrite) -> None:
    if write.text is None:
        return
    know = seen.read if write.whole else seen.wrote
    know(write.canonical, write.version, write.text.lines)


def _check_range(start: object, end: object, count: int) -> int:
    """The last line of what a read asks for; an end behind the last line means the last line."""
    if not is_whole(start) or not (end is None or is_whole(end)):
        raise ToolError("start_line and end_line must be whole numbers", kind="TypeError")
    if not 1 <= start <= max(1, count):
        raise ToolError(f"start_line={start}: must be 1 to {max(1, count)}, the file's last line", kind="ValueError")
    if end is not None and end < start:
        raise ToolError(f"end_line={end}: must be at least start_line={start}", kind="ValueError")
    return count if end is None else min(end, count)
