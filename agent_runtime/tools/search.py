"""The tool `find`: search the workspace's lines with ripgrep in the sandbox, or with RE2 where there is no ripgrep."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.index.index import CodeIndex
from agent_runtime.policy.policy import CallFacts
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.sandbox import container
from agent_runtime.sandbox.protocol import Launch, Sandbox, libraries_of
from agent_runtime.tools.tool import Planned, of_call, text_of
from agent_runtime.workspace import search
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import HALVES, Include
from agent_runtime.workspace.search import Direct, Hits, ripgrep

if TYPE_CHECKING:
    from agent_runtime.sandbox.resident import Resident

_RESULTS = 50
_MOST_RESULTS = 1000
_MOST_CONTEXT = 20
_MAX_SECONDS = 20.0
_INDEX_SECONDS = 60.0
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")
_OPTIONS = (
    "--no-config",
    "--hidden",
    "--no-require-git",
    "--no-messages",
    "--iglob=!.git",
    "--iglob=!*\n*",  # no other tool opens names with control characters, and these would blur the output
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-global",
)
_SHAPE = ("--heading", "--with-filename", "--null", "--line-number", "--color=never")
"""What `Hits` reads."""


class SearchTools:
    """`find` on one workspace."""

    value_types: ClassVar[dict[str, str]] = {"find": "list[Match]"}
    labels: ClassVar[dict[str, str]] = {"find": "Searching for `{pattern}`"}
    stub_types: ClassVar[str] = "class Match(TypedDict): file: str; line: int; text: str\n"
    judged_by: ClassVar[dict[str, str]] = {"find": "target"}

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox | None = None,
        *,
        seconds: float = _MAX_SECONDS,
        withholds: Callable[[str, str], bool] = lambda _directory, _path: False,
        index: CodeIndex | None = None,
    ) -> None:
        """Search `workspace`.

        Args:
            workspace: where to search.
            sandbox: runs ripgrep, so that not even a directory that is swapped for a link while ripgrep walks through
                it leads out of the workspace. Without one it runs on the host, where it follows no link it meets.
            seconds: wall time of one search.
            withholds: whether a file is left out of searches that name only a directory above it; by the canonical
                paths of that directory and of the file.
            index: where `symbol=True` looks.
        """
        self._workspace = workspace
        self._index = index
        self._sandbox = sandbox
        self._seconds = seconds
        self._withholds = withholds
        self._program: Direct | Resident | None = None

    def close(self) -> None:
        """Stop what may run; idempotent."""
        if self._program is not None:
            self._program.close()
            self._program = None

    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
        """Name what a call would search; see `Tool.plan`.

        Raises:
            ToolError: a wrong argument, or a target that does not exist.
        """
        _check(args["pattern"], args.get("max_results", _RESULTS), args.get("context", 0))
        _include(args.get("include"), args.get("scope", "codebase"))
        paths = tuple(self._targets(args.get("scope", "codebase"), args.get("target"), None))
        facts = CallFacts(tool=tool, args=args, paths=paths)
        return Planned(facts=facts, preview=partial(of_call, tool, args), apply=call)

    def judge(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Name what a call of somebody else's `find` is to search; see `Judges.judge`.

        Raises:
            ToolError: the target is neither text nor a list of texts, or cannot be one of the workspace.
        """
        target = args["target"]
        named = target if isinstance(target, list | tuple) else [target or "."]
        paths = tuple(self._workspace.resolve(text_of(tool, "target", each)) for each in named)
        return CallFacts(tool=tool, args=args, paths=paths or (".",))

    async def find(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        pattern: str,
        scope: Literal["codebase", "file", "files"] = "codebase",
        target: str | list[str] | None = None,
        include: str | None = None,
        max_results: int = _RESULTS,
        context: int = 0,
        symbol: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
    ) -> ToolResult:
        """Search lines by regular expression (ripgrep; ignored files left out). target: the file or files of
        scope 'file'/'files', or a directory; include: a glob such as '*.py' or 'tests/**'. symbol=True:
        where a name is defined.

        Raises:
            ToolError: a wrong argument, an invalid pattern, or a search that takes too long.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        _check(pattern, max_results, context)
        wanted = _include(include, scope)
        if symbol:
            return await self._defined(pattern, self._targets(scope, target, wanted), wanted, max_results)
        targets = self._targets(scope, target, wanted)
        program, everything = ripgrep(), scope != "codebase"
        # What is named was decided on by its name.
        withholds = None if everything else partial(self._withholds, self._workspace.resolve(str(target or ".")))
        hits = Hits(most=max_results, wanted=wanted, context=context, withholds=withholds, columns=program is None)
        if targets and program is None:
            arguments = (self._workspace, pattern, targets, context, everything)
            output = await run_bounded(search.search, *arguments, seconds=self._seconds, what="find")
            await asyncio.to_thread(hits.feed, output)
        elif targets and program is not None:
            options = [*_OPTIONS, *_SHAPE, f"--context={context}", *(wanted.options if wanted else ())]
            options += ["--no-ignore-parent"] if targets == ["."] else []
            options += ["--text"] if everything else []
            try:
                async with asyncio.timeout(self._seconds):
                    await self._search(program, [*options, "-e", pattern, "--", *map(_argument, targets)], hits)
                    if names := hits.cut():
                        # Where a match is in its line is asked for these few files only: it costs ripgrep much.
                        again = ["--column", "--text", f"--max-count={max_results}", *options, "-e", pattern, "--"]
                        placed = Hits(most=max_results, context=context, columns=True)
                        await self._search(program, [*again, *map(_argument, names)], placed)
                        hits.place(placed)
            except TimeoutError as error:
                raise ToolError(
                    f"find was stopped after {self._seconds:g} s; narrow it with target or include",
                    kind="TimeoutError",
                ) from error
        found = hits.shown()
        return ToolResult(
            value=[{"file": hit.file, "line": hit.line, "text": hit.text} for hit in found if hit.matched],
            text=hits.text(),
        )

    async def _defined(self, name: str, targets: list[str], wanted: Include | None, most: int) -> ToolResult:
        """The definitions of a name, as matches in their first lines."""
        if self._index is None or not await self._index.wait_ready(_INDEX_SECONDS):
            raise ToolError("there is no code index of this workspace yet; search without symbol=True")
        named = await self._index.find_definitions(name)
        if self._index.failure:
            why = f"the code index gave no answer: {self._index.failure}. Search without symbol=True"
            raise ToolError(why, kind="TimeoutError")
        found = [
            each
            for each in named
            if any(start in {".", each.path} or each.path.startswith(f"{start}/") for start in targets)
            and (wanted is None or wanted.matches(each.path))
        ][:most]
        lines = [
            f"{each.path}:{each.header}:{each.kind} {each.qualified}, lines {each.first}-{each.last}" for each in found
        ]
        value: list[Plain] = [{"file": e.path, "line": e.header, "text": f"{e.kind} {e.qualified}"} for e in found]
        return ToolResult(value=value, text="\n".join([f"[find] {len(found)} definition(s)", *lines]))

    async def lines_with(self, texts: Sequence[str], *, seconds: float = 1.0, most: int = 20) -> list[tuple[str, int]]:
        """Where one of some texts stands, as a courtesy: a search that fails or takes long finds nothing."""
        pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in texts)
        try:
            async with asyncio.timeout(seconds):
                found = await self.find(pattern, max_results=most)
        except (TimeoutError, ToolError):
            return []
        return [(match["file"], match["line"]) for match in cast("list[dict[str, Any]]", found.value)]

    def _targets(self, scope: str, target: object, wanted: Include | None) -> list[str]:
        if scope not in {"codebase", "file", "files"}:
            raise ToolError(f"scope={scope!r}: must be 'codebase', 'file' or 'files'", kind="ValueError")
        if scope == "codebase":
            if target is not None and not isinstance(target, str):
                raise ToolError(f"target={target!r}: with scope='codebase' it must be one directory", kind="TypeError")
            self._require_reachable(target)
            start = "." if target is None else self._workspace.resolve(target)
            if not self._workspace.is_directory(start):
                raise ToolError(f"target {target!r} is not a directory; use scope='file'", kind="NotADirectoryError")
            if start == "." and wanted and wanted.directory:
                start = self._workspace.resolve(wanted.directory)
                return [start] if self._workspace.is_directory(start) else []
            return [start]
        names = [target] if scope == "file" else target
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            shape = "the path of one file" if scope == "file" else "a list of paths, at least one"
            raise ToolError(f"target={target!r}: with scope={scope!r} it must be {shape}", kind="ValueError")
        for name in names:
            self._require_reachable(name)
            if not self._workspace.exists(name):
                raise ToolError(f"target {name!r} does not exist", kind="FileNotFoundError")
            if not self._workspace.is_file(name):
                raise ToolError(f"target {name!r} is not a regular file; use scope='codebase' for a directory")
        return list(dict.fromkeys(map(self._workspace.resolve, names)))

    def _require_reachable(self, target: str | None) -> None:
        if target is not None and self._workspace.is_temporary(target):
            raise ToolError(f"target {target!r}: find looks only into the workspace; use grep", kind="ValueError")

    async def _search(self, ripgrep: Path, arguments: Sequence[str], hits: Hits) -> None:
        """Give all output of a search to `hits`.

        Raises:
            ToolError: ripgrep refused, or a line is too long.
        """
        idle = self._program is not None and not self._program.busy
        program = self._program if self._program is not None and idle else self._new_program(ripgrep)
        self._program = self._program or program
        try:
            async with aclosing(program.run([str(ripgrep), *arguments])) as chunks:
                async for chunk in chunks:
                    if hits.takes_time:  # RE2 lets others run meanwhile
                        await asyncio.to_thread(hits.feed, chunk)
                    else:
                        hits.feed(chunk)
        finally:
            if program is not self._program:
                program.close()
        if program.errors and program.exit_code != 0:
            raise ToolError(f"find: {program.errors}", kind="ValueError")

    def _new_program(self, ripgrep: Path) -> Direct | Resident:
        root, readable = self._workspace.root, self._workspace.readable
        if self._sandbox is None or not self._sandbox.apart or not self._workspace.confined:
            return Direct(lambda argv: Launch(argv=tuple(argv), env={}), root)
        if self._sandbox.level == "docker":
            return Direct(partial(self._in_container, self._sandbox), root)
        from agent_runtime.sandbox.resident import Resident  # noqa: PLC0415 - needs modules that Windows lacks

        # It lies beside this Python, where the sandbox shows nothing.
        return Resident(self._sandbox, root, {**readable, str(ripgrep): ripgrep})

    def _in_container(self, sandbox: Sandbox, argv: Sequence[str]) -> Launch:
        """A search in a container of its own, which ends by itself when nobody reads what it writes."""
        program, *arguments = argv
        words, shown = ["rg"], dict(self._workspace.readable)  # the image's own, where ours cannot run in a container
        if sys.platform == "linux":
            # An image may have older libraries than ours was built for, or others.
            words, libraries = container.loader_command(Path(program), sorted(libraries_of(Path(program))))
            shown |= libraries
        deadline = ("timeout", "-s", "KILL", str(int(self._seconds) + 1))
        return sandbox.launch((*deadline, *words, *arguments), workspace=self._workspace.root, readable=shown)


def _argument(target: str) -> str:
    """A path as ripgrep takes it, so that none can be an option."""
    return target if target.startswith("/") else "./" if target == "." else f"./{target}"


def _check(pattern: str, max_results: int, context: int) -> None:
    if not pattern or "\0" in pattern or HALVES.search(pattern):
        raise ToolError("pattern must be a regular expression of whole characters, without NUL", kind="ValueError")
    if not 1 <= max_results <= _MOST_RESULTS:
        raise ToolError(f"max_results={max_results}: must be 1 to {_MOST_RESULTS}", kind="ValueError")
    if not 0 <= context <= _MOST_CONTEXT:
        raise ToolError(f"context={context}: must be 0 to {_MOST_CONTEXT} lines", kind="ValueError")


def _include(include: str | None, scope: str) -> Include | None:
    if include is None:
        return None
    if scope != "codebase":
        raise ToolError(f"include is for scope='codebase'; with scope={scope!r} target says it all", kind="ValueError")
    return Include.parse(include)
