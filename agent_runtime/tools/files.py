"""The tools that read, write and list files of the workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Literal

from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.index import parsing
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.tools import reading
from agent_runtime.tools.changes import adopted
from agent_runtime.tools.planned import Planned, text_of
from agent_runtime.tools.preview import of_call
from agent_runtime.tools.writing import Writer
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.overlay import Overlay
from agent_runtime.workspace.paths import in_line
from agent_runtime.workspace.seen import Seen
from agent_runtime.workspace.staging import StagedFile
from agent_runtime.workspace.watch import Watch

_LISTED = 200
_SECONDS = 5.0


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
            spans = call_bounded(parsing.spans, path, source, symbol, seconds=_SECONDS, what=what)
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
        result = reading.shown(path, file, start_line, end_line)
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
