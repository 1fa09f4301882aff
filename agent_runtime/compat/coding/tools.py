"""`CodingTools` of llm-coding-agent: files and commands beneath one directory, as a toolbox of the `llm` package.

`CodingActions` are the same six tools as a family of this library: planned, confined to the directory, and sandboxed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import cached_property, partial
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import llm
from typing_extensions import override

from agent_runtime.compat.commands import Commands
from agent_runtime.core.errors import BoundExceededError, SandboxError, SettingsError, ToolError
from agent_runtime.core.values import ToolResult
from agent_runtime.policy.policy import CallFacts
from agent_runtime.processes.bounded import call_bounded
from agent_runtime.processes.spawn import LoopThread
from agent_runtime.sandbox.protocol import Sandbox, SandboxSettings
from agent_runtime.sandbox.select import SandboxName, pick_sandbox
from agent_runtime.sandbox.toolchains import read_toolchains
from agent_runtime.terminals.command import CommandReport
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools import changes
from agent_runtime.tools.changes import FileWrite
from agent_runtime.tools.files import CHANGED_MEANWHILE
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.tool import CallPlan, ToolFamily, preview_call, preview_command, refusal_plan
from agent_runtime.workspace import listing
from agent_runtime.workspace.diffs import Text, decode, unified_text, version_of
from agent_runtime.workspace.files import MAX_BYTES, StagedFile, Workspace, apply_changes, is_unchanged, quote_path
from agent_runtime.workspace.overlay import Overlay

PREFIX = "CodingTools_"
"""The prefix of the tools' names."""
MUTATING = ("write_file", "edit_file", "execute_command")
NAMES = ("read_file", "list_files", "search_files", *MUTATING)
_NOISE = frozenset({"node_modules", "__pycache__"})
_LISTED = 200
_FOUND = 1_000
_MOST_SECONDS = 600
_LINE_CHARS = 2_000
_READ_CHARS = 50_000
_DIFF_CHARS = 30_000
_LIGHT_CHARS = 256_000
_SECONDS = 10.0
_MEMORY = 200 * 1024**2


class CodingTools(llm.Toolbox):  # type: ignore[no-untyped-call]  # llm leaves it untyped
    """File and shell tools for a coding agent, confined to a root directory.

    Each method gives a text; what cannot be done gives one that begins with `Error:`.

    Attributes:
        root: the directory, absolute.
    """

    _blocked = (*llm.Toolbox._blocked, "close")  # type: ignore[assignment]  # noqa: SLF001 - which methods are no tools

    def __init__(
        self, root: str | os.PathLike[str] = ".", sandbox: SandboxName = "auto", *, toolchains: str = "auto"
    ) -> None:
        """Get ready; no program is started yet.

        Args:
            root: the directory to work in; every path is beneath it.
            sandbox: where commands run: `auto`, `bubblewrap`, `docker`, or `local`, which isolates nothing. Without one
                that works on this machine, commands are refused.
            toolchains: see `read_toolchains`.
        """
        self.root = Path(root).resolve()
        self._config = {"root": str(self.root)}  # type: ignore[misc]  # what llm keeps in its database, as JSON
        self._actions = CodingActions(self.root, sandbox, toolchains)
        self._loop = LoopThread("CodingTools", owner=self, finalizer=self._actions.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_file(self, path: str, offset: int = 0, limit: int = 2000) -> str:
        """Read a text file with numbered lines, like cat -n.

        Paths are relative to the session root. Use offset (lines to skip) and limit to page through a long file.
        """
        return self._perform("read_file", path=path, offset=offset, limit=limit)

    def write_file(self, path: str, content: str) -> str:
        """Create or overwrite a file with the given content.

        Missing directories are made. To change a part of a file use edit_file.
        """
        return self._perform("write_file", path=path, content=content)

    def edit_file(
        self,
        path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - the documented signature
    ) -> str:
        """Replace an exact string in a file.

        old_string must match exactly, white space included, and occur once unless replace_all is true. Returns a diff
        of the change.
        """
        return self._perform(
            "edit_file", path=path, old_string=old_string, new_string=new_string, replace_all=replace_all
        )

    def list_files(self, pattern: str = "**/*", path: str = ".") -> str:
        """List files matching a glob pattern, newest first.

        Hidden, ignored and generated files are left out. At most 200 paths, relative to the searched directory.
        """
        return self._perform("list_files", pattern=pattern, path=path)

    def search_files(self, pattern: str, path: str = ".", glob: str | None = None, max_results: int = 100) -> str:
        """Search file contents for a regular expression.

        Returns matches as path:line_number:line, at most max_results. glob, e.g. "*.py", narrows the files.
        """
        return self._perform("search_files", pattern=pattern, path=path, glob=glob, max_results=max_results)

    def execute_command(self, command: str, timeout: int = 120) -> str:
        """Run a shell command in the session root directory.

        Returns stdout and stderr together, followed by the exit code. timeout is in seconds, 600 at most; after it the
        command and everything it started is killed.
        """
        return self._perform("execute_command", command=command, timeout=timeout)

    def close(self) -> None:
        """End running commands and release all resources; idempotent."""
        self._loop.stop()

    def _perform(self, name: str, **args: Any) -> str:  # noqa: ANN401 - whatever the tool takes
        return self._loop.run(partial(self._actions.perform, name, args))


class CodingActions(ToolFamily):
    """The six tools of llm-coding-agent on one directory; a family of tools for a runtime.

    Attributes:
        root: the directory.
    """

    value_types: ClassVar[dict[str, str]] = dict.fromkeys((f"{PREFIX}{name}" for name in NAMES), "str")
    labels: ClassVar[dict[str, str]] = {
        f"{PREFIX}read_file": "Reading {path}",
        f"{PREFIX}list_files": "Listing {pattern}",
        f"{PREFIX}search_files": "Searching for `{pattern}`",
        f"{PREFIX}write_file": "Writing {path}",
        f"{PREFIX}edit_file": "Editing {path}",
        f"{PREFIX}execute_command": "Running `{command}`",
    }

    def __init__(self, root: Path, sandbox: SandboxName, toolchains: str = "auto") -> None:
        self.root = root
        self._settings = SandboxSettings(toolchains=read_toolchains(toolchains))
        self._kind = sandbox
        self._logs = OutputLogs()
        self._commands = Commands(lambda: self.sandbox, root, self._logs)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the method of that name
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) in NAMES:
            return getattr(self, name.removeprefix(PREFIX))
        raise AttributeError(name)

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox of commands.

        Raises:
            SandboxError: this machine has no such sandbox.
        """
        return pick_sandbox(self._kind, self._settings)

    @cached_property
    def _workspace(self) -> Workspace:
        try:
            sandbox = self._sandbox_if_any
            if sandbox is None:
                return Workspace(self.root)
            return Workspace(
                self.root, agent_path=sandbox.inner_path(self.root), readable=self._logs.agent_paths(sandbox)
            )
        except OSError as error:
            raise ToolError(f"the session root {self.root} cannot be opened: {error.strerror or error}") from error

    @property
    def _sandbox_if_any(self) -> Sandbox | None:
        try:
            return self.sandbox
        except SandboxError:  # files need none
            return None

    @cached_property
    def _search(self) -> SearchTools:
        return SearchTools(self._workspace, self._sandbox_if_any, withholds=_is_noise)

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        """Tell what a call is about, and for a write what it does; see `Tool.plan`.

        Raises:
            ToolError: the path cannot be one of the root.
        """
        name = tool.removeprefix(PREFIX)
        if name in {"write_file", "edit_file"}:
            facts = CallFacts(tool=tool, args={"path": args["path"]}, writes=True)
            try:
                write = self._written(**args) if name == "write_file" else self._edited(**args)
            except ToolError as error:
                return refusal_plan(facts, error)
            return CallPlan(
                facts=CallFacts(tool=tool, args=facts.args, paths=(write.canonical,), writes=True),
                preview=lambda: changes.preview([write], self._unread(write)),
                apply=partial(self._apply, args["path"], write),
                is_current=partial(self._is_current, args["path"], write),
            )
        if name == "execute_command":
            command = args["command"]
            sandbox = self._sandbox_if_any
            cwd = str(self.root) if sandbox is None else sandbox.inner_path(self.root)
            facts = CallFacts(tool=tool, args=args, command=command, cwd=cwd)
            preview = partial(preview_command, command, terminal="coding", cwd=cwd, fresh=False)
            return CallPlan(facts=facts, preview=preview, apply=call)
        facts = CallFacts(tool=tool, args=args, paths=(self._workspace.resolve(args.get("path", ".")),))
        return CallPlan(facts=facts, preview=partial(preview_call, tool, args), apply=call)

    async def perform(self, name: str, args: dict[str, Any]) -> str:
        """Make a call that nobody need be asked about; what goes wrong is an `Error:` text."""
        try:
            if name in {"write_file", "edit_file"}:
                planned = await asyncio.to_thread(self.plan, f"{PREFIX}{name}", args, str)
                answer: ToolResult = await asyncio.to_thread(planned.apply)
            else:
                answer = await getattr(self, name)(**args)
        except (ToolError, SandboxError, SettingsError, BoundExceededError) as error:
            return f"Error: {error}"
        return answer.text

    async def read_file(self, path: str, offset: int = 0, limit: int = 2000) -> ToolResult:
        """Read a text file with numbered lines, like cat -n. Paths are relative to the session root; offset (lines to
        skip) and limit page through a long file.

        Raises:
            ToolError: no such text file beneath the root, or no such lines.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        return _told(await asyncio.to_thread(self._read, path, offset, limit))

    async def list_files(self, pattern: str = "**/*", path: str = ".") -> ToolResult:
        """List files beneath path that match a glob, newest first. Hidden, ignored and generated ones are left out; at
        most 200 names, relative to path.

        Raises:
            ToolError: no such directory, or no such glob.
        """  # noqa: D205 - as above
        base = await asyncio.to_thread(self._directory, path)
        found = await listing.list_bounded(self._workspace, pattern, path)
        names = [name for each in found.files if not _is_noise(".", name := each.removeprefix(base))]
        if "/" not in pattern:  # as with pathlib's glob: of this directory only
            names = [name for name in names if "/" not in name]
        lines = [*map(quote_path, names[:_LISTED])] or [f"No files found matching {pattern} in {path}"]
        if (more := len(names) - _LISTED) > 0:
            lines.append(f"... and {more} more files - use a more specific pattern")
        if not found.complete:
            lines.append("... and perhaps others: there are too many files to look at all of them")
        return _told("\n".join(lines))

    async def search_files(
        self, pattern: str, path: str = ".", glob: str | None = None, max_results: int = 100
    ) -> ToolResult:
        """Search lines of files by regular expression. Gives path:line:text for each match, at most max_results, paths
        relative to path. glob, e.g. "*.py", narrows which files are searched.

        Raises:
            ToolError: no such directory, an invalid pattern or number, or a search that takes too long.
        """  # noqa: D205 - as above
        base = await asyncio.to_thread(self._directory, path)
        if max_results < 1:
            raise ToolError(f"max_results={max_results}: must be at least 1", kind="ValueError")
        most = min(max_results, _FOUND)
        if glob and "/" in glob and not glob.startswith("!"):  # as with list_files: beneath path
            glob = escape(base) + glob.removeprefix("./").lstrip("/")
        found = await self._search.find(pattern, target=path, include=glob, max_results=min(most + 1, _FOUND))
        matches = found.value if isinstance(found.value, list) else []
        lines = [
            f"{str(match['file']).removeprefix(base)}:{match['line']}:{match['text']}"
            for match in matches
            if isinstance(match, dict)
        ]
        if not lines:
            return _told(f"No matches found for {pattern} in {path}")
        if len(lines) > max_results or len(lines) == _FOUND:
            lines = [*lines[:most], f"... results truncated at {most} matches"]
        return _told("\n".join(lines))

    async def write_file(self, path: str, content: str) -> ToolResult:
        """Create or overwrite a file; missing directories are made. To change a part of a file use edit_file.

        Raises:
            ToolError: it cannot be written there; nothing was.
        """
        return await asyncio.to_thread(lambda: self._apply(path, self._written(path, content)))

    async def edit_file(
        self,
        path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - the documented signature
    ) -> ToolResult:
        """Replace a string in a file. old_string must match exactly, white space included, and occur once unless
        replace_all is true. Returns a diff of the change.

        Raises:
            ToolError: it does not occur, or more than once; nothing was written.
        """  # noqa: D205 - as above
        edited = partial(self._edited, path, old_string, new_string, replace_all=replace_all)
        return await asyncio.to_thread(lambda: self._apply(path, edited()))

    async def execute_command(self, command: str, timeout: float = 120) -> ToolResult:  # noqa: ASYNC109 - the documented signature
        """Run a shell command in the session root. Gives stdout and stderr together, then the exit code. After timeout
        seconds (600 at most) it is killed with everything it started.

        Raises:
            ToolError: it cannot be run, or was stopped, with what it had written.
            SandboxError: there is no sandbox to run it in.
        """  # noqa: D205 - as above
        if timeout <= 0:
            raise ToolError(f"timeout={timeout}: must be above 0", kind="ValueError")
        seconds = min(timeout, _MOST_SECONDS)
        report = await self._commands.run(command, seconds=seconds)
        return _told(ended(report, timeout=seconds))

    async def close(self) -> None:
        await self._commands.close()
        if "_search" in self.__dict__:
            self._search.close()
        if "_workspace" in self.__dict__:
            self._workspace.close()
        self._logs.close()

    def _directory(self, path: str) -> str:
        """Return the prefix of the names in a directory."""
        if not self._workspace.is_directory(path):
            raise ToolError(f"{path} is not a directory", kind="NotADirectoryError")
        canonical = self._workspace.resolve(path)
        return "" if canonical == "." else f"{canonical}/"

    def _read(self, path: str, offset: int, limit: int) -> str:
        data = _bytes_of(Overlay(self._workspace), path)
        text = decode(data)
        if text is None:
            raise ToolError(f"binary file ({len(data)} bytes): {path}; use a shell command", kind="ValueError")
        return numbered(path, text, offset, limit)

    def _written(self, path: str, content: str) -> FileWrite:
        files = Overlay(self._workspace)
        old = files.read_text_or_none(path)
        told = f"Wrote {len(content.encode(errors='replace'))} bytes to {path}"
        unread = old is None and files.exists(path)
        return _write(files.resolve(path), old.data if old else None, Text(content), told, unread=unread)

    def _edited(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> FileWrite:  # noqa: FBT001, FBT002 - as `edit_file`
        if not old_string or old_string == new_string:
            why = "old_string and new_string are identical" if old_string else "old_string is empty; use write_file"
            raise ToolError(why, kind="ValueError")
        files = Overlay(self._workspace)
        data = _bytes_of(files, path)
        old = decode(data)
        if old is None:
            raise ToolError(f"binary file ({len(data)} bytes): {path}", kind="ValueError")
        if old.newline == "\r\n" and "\r" not in old_string + new_string and old_string not in old.raw:
            old_string, new_string = (each.replace("\n", "\r\n") for each in (old_string, new_string))
        elif old.newline == "\r\n" and "\r" not in new_string:
            new_string = new_string.replace("\n", "\r\n")
        count = old.raw.count(old_string)
        if not count:
            raise ToolError(f"old_string not found in {path}", kind="ValueError")
        if count > 1 and not replace_all:
            raise ToolError(
                f"old_string occurs {count} times in {path} - provide more surrounding context to make it unique, or "
                "pass replace_all=true",
                kind="ValueError",
            )
        if len(old.raw) + count * (len(new_string) - len(old_string)) > MAX_BYTES:
            raise ToolError(f"{path} would have more than {MAX_BYTES:,} characters; replace less", kind="ValueError")
        new = Text(old.raw.replace(old_string, new_string), old.encoding, old.bom)
        return _write(files.resolve(path), data, new, replaced(path, old, new, count))

    def _unread(self, write: FileWrite) -> dict[str, int]:
        path = write.canonical
        return {path: self._workspace.size(path)} if write.change.unread and self._workspace.exists(path) else {}

    def _is_current(self, path: str, write: FileWrite) -> bool:
        return self._workspace.resolve(path) == write.canonical and is_unchanged(self._workspace, write.change)

    def _apply(self, path: str, write: FileWrite) -> ToolResult:
        if not self._is_current(path, write):
            raise ToolError(CHANGED_MEANWHILE)
        apply_changes(self._workspace, [write.change])
        return _told("\n".join(write.note))


def _told(text: str) -> ToolResult:
    return ToolResult(value=text, text=text)


def _is_noise(directory: str, path: str) -> bool:
    """Whether a file is hidden or generated."""
    return any(part.startswith(".") or part in _NOISE for part in path.removeprefix(f"{directory}/").split("/"))


def _bytes_of(files: Overlay, path: str) -> bytes:
    try:
        return files.read_bytes(path)
    except ToolError as error:
        if error.kind != "FileNotFoundError":
            raise
        raise ToolError(f"file not found: {error}", kind=error.kind) from error


def _write(canonical: str, old: bytes | None, new: Text, told: str, *, unread: bool = False) -> FileWrite:
    try:
        data = new.encode(new.raw)
    except ToolError as error:
        raise ToolError(f"{canonical} not written: {error}", kind=error.kind) from error
    if len(data) > MAX_BYTES:
        raise ToolError(f"{canonical} not written: it would have {len(data):,} bytes; {MAX_BYTES:,} are the most")
    change = StagedFile(path=canonical, data=data, old=old, unread=unread)
    return FileWrite(canonical=canonical, change=change, text=new, version=version_of(data), note=[told])


def numbered(path: str, text: Text, offset: int, limit: int) -> str:
    """Return some lines as `cat -n` shows them, and the number of the rest."""
    if offset < 0 or limit < 1:
        raise ToolError(f"offset={offset}, limit={limit}: offset must be at least 0, limit at least 1")
    if not text.count:
        return "(empty file)"
    if offset >= text.count:
        raise ToolError(f"offset {offset} is beyond the end of {path} ({text.count} lines)", kind="ValueError")
    shown: list[str] = []
    room = _READ_CHARS
    for number, line in enumerate(text.first_lines(offset + limit)[offset:], offset + 1):
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}... [line truncated]"
        room -= len(cut) + 8
        if room < 0:
            break
        shown.append(f"{number:6d}\t{cut}")
    after = offset + len(shown)
    if left := text.count - after:
        why = "output truncated, " if room < 0 else ""
        shown.append(f"... {why}{left} more lines, use offset={after} to continue")
    return "\n".join(shown)


def replaced(path: str, old: Text, new: Text, count: int) -> str:
    head = f"Made {count} replacement{'' if count == 1 else 's'} in {path}:\n--- {path} (before)\n+++ {path} (after)"
    if len(old.raw) + len(new.raw) <= _LIGHT_CHARS:
        return f"{head}\n{unified_text(old.lines, new.lines, _DIFF_CHARS)}"
    try:
        what = f"Comparing {path!r}"
        # A worker cannot import this package, which imports much of the runtime.
        given = (old.lines, new.lines, _DIFF_CHARS)
        return f"{head}\n{call_bounded(unified_text, *given, seconds=_SECONDS, memory=_MEMORY, task=what)}"
    except BoundExceededError as error:
        return f"{head}\n(no diff: {error})"


def ended(report: CommandReport, *, timeout: float) -> str:
    """Render the end of a command: its output, and its exit code in the last line."""
    if report.status == "completed" or (report.status == "restarted" and report.exit_code is not None):
        notes = [f"({report.note})"] if report.note else []
        if report.log is not None:
            notes.append(f"(output truncated; all of it: {report.log})")
        return "\n".join([report.output.rstrip("\n") or "(no output)", *notes, f"Exit code: {report.exit_code}"])
    why = report.note or f"the command ended as {report.status}"
    if report.status == "running":
        why = f"command timed out after {timeout:g}s"
    elif report.status == "waiting for input":
        why = "the command asks for input on its terminal, and nobody can type it; it was stopped"
    raise ToolError(f"{why}\nPartial output:\n{report.output}" if report.output else why, kind="TimeoutError")
