"""The tool `find`: search lines with ripgrep in the sandbox, or with RE2 without ripgrep."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from typing_extensions import override

from agent_runtime.core.errors import ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.index.index import CodeIndex
from agent_runtime.policy.policy import CallFacts
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.sandbox import container
from agent_runtime.sandbox.protocol import Launch, Sandbox, find_libraries
from agent_runtime.tools.tool import CallPlan, ToolFamily, preview_call, require_text
from agent_runtime.workspace import search
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.listing import SURROGATES, Include
from agent_runtime.workspace.search import DirectRunner, Hits, find_ripgrep

if TYPE_CHECKING:
    from agent_runtime.sandbox.resident import Resident

_DEFAULT_RESULTS = 50
_MAX_RESULTS = 1000
_MAX_CONTEXT = 20
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
_OUTPUT_FORMAT = ("--heading", "--with-filename", "--null", "--line-number", "--color=never")
"""Output format that `Hits` parses."""


class SearchTools(ToolFamily):
    value_types: ClassVar[dict[str, str]] = {"find": "list[Match]"}
    labels: ClassVar[dict[str, str]] = {"find": "Searching for `{pattern}`"}
    stub_types: ClassVar[str] = "class Match(TypedDict): file: str; line: int; text: str\n"
    policy_parameters: ClassVar[dict[str, str]] = {"find": "target"}
    minor_parameters: ClassVar[dict[str, tuple[str, ...]]] = {"find": ("scope", "max_results")}

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox | None = None,
        *,
        seconds: float = _MAX_SECONDS,
        withholds: Callable[[str, str], bool] = lambda _directory, _path: False,
        index: CodeIndex | None = None,
    ) -> None:
        """Create the tool.

        Args:
            sandbox: runs ripgrep, so that a directory replaced by a link meanwhile leads nowhere; without one
                ripgrep runs on the host and follows no link.
            seconds: time limit of one search.
            withholds: whether to omit a file, from the canonical paths of the searched directory and the file.
        """
        self._workspace = workspace
        self._index = index
        self._sandbox = sandbox
        self._seconds = seconds
        self._withholds = withholds
        self._program: DirectRunner | Resident | None = None

    def close(self) -> None:
        """Stop the search program; idempotent."""
        if self._program is not None:
            self._program.close()
            self._program = None

    @override
    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> CallPlan:
        """Plan a call; see `Tool.plan`."""
        _check_arguments(args["pattern"], args.get("max_results", _DEFAULT_RESULTS), args.get("context", 0))
        _parse_include(args.get("include"), args.get("scope", "codebase"))
        scope = self._infer_scope(args.get("scope", "codebase"), args.get("target"))
        paths = tuple(self._resolve_targets(scope, args.get("target"), None))
        facts = CallFacts(tool=tool, args=args, paths=paths)
        return CallPlan(facts=facts, preview=partial(preview_call, tool, args), apply=call)

    @override
    def policy_facts(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Return the targets of a call; see `ToolFamily`."""
        target = args["target"]
        targets = target if isinstance(target, list | tuple) else [target or "."]
        paths = tuple(self._workspace.resolve(require_text(tool, "target", name)) for name in targets)
        return CallFacts(tool=tool, args=args, paths=paths or (".",))

    async def find(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        pattern: str,
        scope: Literal["codebase", "file", "files"] = "codebase",
        target: str | list[str] | None = None,
        include: str | None = None,
        max_results: int = _DEFAULT_RESULTS,
        context: int = 0,
        symbol: bool = False,  # noqa: FBT001, FBT002 - control code passes it by name
    ) -> ToolResult:
        """Search lines with ripgrep. target: directory or file; include: glob; symbol=True: definitions of a name.
        Returns [{file, line, text}].

        Ignored files are left out, unless target names them. scope='files' takes a list of files as target. At most
        max_results matches and 20 lines of context are shown.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        _check_arguments(pattern, max_results, context)
        context = min(context, _MAX_CONTEXT)
        glob = _parse_include(include, scope)
        inferred = self._infer_scope(scope, target)
        targets = self._resolve_targets(inferred, target, glob)
        if symbol:
            return await self._find_definitions(pattern, targets, glob, max_results)
        program, is_explicit = find_ripgrep(), inferred != "codebase"
        # The policy has decided on explicit targets.
        withholds = None if is_explicit else partial(self._withholds, self._workspace.resolve(str(target or ".")))
        hits = Hits(limit=max_results, include=glob, context=context, is_hidden=withholds, columns=program is None)
        if targets and program is None:
            arguments = (self._workspace, pattern, targets, context, is_explicit)
            output = await run_bounded(search.search, *arguments, seconds=self._seconds, task="find")
            await asyncio.to_thread(hits.feed, output)
        elif targets and program is not None:
            options = [*_OPTIONS, *_OUTPUT_FORMAT, f"--context={context}", *(glob.ripgrep_options if glob else ())]
            options += ["--no-ignore-parent"] if targets == ["."] else []
            options += ["--text"] if is_explicit else []
            try:
                async with asyncio.timeout(self._seconds):
                    await self._search(program, [*options, "-e", pattern, "--", *map(_argument, targets)], hits)
                    if names := hits.truncated_files():
                        # Only these few files are searched with columns, which are expensive in find_ripgrep.
                        exact = ["--column", "--text", f"--max-count={max_results}", *options, "-e", pattern, "--"]
                        placed = Hits(limit=max_results, context=context, columns=True)
                        await self._search(program, [*exact, *map(_argument, names)], placed)
                        hits.use_columns(placed)
            except TimeoutError as error:
                raise ToolError(
                    f"find was stopped after {self._seconds:g} s; narrow it with target or include",
                    kind="TimeoutError",
                ) from error
        matches = hits.first_hits()
        return ToolResult(
            value=[{"file": hit.file, "line": hit.line, "text": hit.text} for hit in matches if hit.matched],
            text=hits.render(),
        )

    async def _find_definitions(self, name: str, targets: list[str], glob: Include | None, maximum: int) -> ToolResult:
        if self._index is None or not await self._index.wait_ready(_INDEX_SECONDS):
            raise ToolError("there is no code index of this workspace yet; search without symbol=True")
        candidates = await self._index.find_definitions(name)
        if self._index.failure:
            problem = f"the code index gave no answer: {self._index.failure}. Search without symbol=True"
            raise ToolError(problem, kind="TimeoutError")
        hits = [
            d
            for d in candidates
            if any(start in {".", d.path} or d.path.startswith(f"{start}/") for start in targets)
            and (glob is None or glob.matches(d.path))
        ][:maximum]
        lines = [f"{d.path}:{d.header}:{d.kind} {d.qualified}, lines {d.first}-{d.last}" for d in hits]
        value: list[Plain] = [{"file": d.path, "line": d.header, "text": f"{d.kind} {d.qualified}"} for d in hits]
        return ToolResult(value=value, text="\n".join([f"[find] {len(hits)} definition(s)", *lines]))

    async def find_texts(
        self, texts: Sequence[str], *, seconds: float = 1.0, maximum: int = 20
    ) -> list[tuple[str, int]]:
        """Return file and line of texts; none if the search fails or takes too long."""
        pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", text) for text in texts)
        try:
            async with asyncio.timeout(seconds):
                result = await self.find(pattern, max_results=maximum)
        except (TimeoutError, ToolError):
            return []
        return [(match["file"], match["line"]) for match in cast("list[dict[str, Any]]", result.value)]

    def _infer_scope(self, scope: str, target: object) -> str:
        """Return the scope of a search, `file` if the target is a file."""
        is_file = scope == "codebase" and isinstance(target, str) and self._workspace.is_file(target)
        return "file" if is_file else scope

    def _resolve_targets(self, scope: str, target: object, glob: Include | None) -> list[str]:
        if scope not in {"codebase", "file", "files"}:
            raise ToolError(f"scope={scope!r}: must be 'codebase', 'file' or 'files'", kind="ValueError")
        if scope == "codebase":
            if target is not None and not isinstance(target, str):
                raise ToolError(f"target={target!r}: with scope='codebase' it must be one directory", kind="TypeError")
            self._require_reachable(target)
            start = "." if target is None else self._workspace.resolve(target)
            if not self._workspace.is_directory(start):
                raise ToolError(f"target {target!r} is neither a directory nor a file", kind="NotADirectoryError")
            if start == "." and glob and glob.directory:
                start = self._workspace.resolve(glob.directory)
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
        idle = self._program is not None and not self._program.is_busy
        program = self._program if self._program is not None and idle else self._new_program(ripgrep)
        self._program = self._program or program
        try:
            async with aclosing(program.run([str(ripgrep), *arguments])) as chunks:
                async for chunk in chunks:
                    if hits.is_slow:  # RE2 lets others run meanwhile
                        await asyncio.to_thread(hits.feed, chunk)
                    else:
                        hits.feed(chunk)
        finally:
            if program is not self._program:
                program.close()
        if program.errors and program.exit_code != 0:
            raise ToolError(f"find: {program.errors}", kind="ValueError")

    def _new_program(self, ripgrep: Path) -> DirectRunner | Resident:
        root, readable = self._workspace.root, self._workspace.readable
        if self._sandbox is None or not self._sandbox.is_isolated or not self._workspace.confined:
            return DirectRunner(lambda argv: Launch(argv=tuple(argv), env={}), root)
        if self._sandbox.level == "docker":
            return DirectRunner(partial(self._launch_in_container, self._sandbox), root)
        from agent_runtime.sandbox.resident import Resident  # noqa: PLC0415 - needs modules that Windows lacks

        # ripgrep is installed next to this Python, outside the sandbox's mounts.
        return Resident(self._sandbox, root, {**readable, str(ripgrep): ripgrep})

    def _launch_in_container(self, sandbox: Sandbox, argv: Sequence[str]) -> Launch:
        """Search in a separate container, which ends by itself if its output is not read."""
        program, *arguments = argv
        words, mounts = ["rg"], dict(self._workspace.readable)  # the image's own, where ours cannot run in a container
        if sys.platform == "linux":
            # An image may have other libraries, or older ones.
            words, libraries = container.loader_command(Path(program), sorted(find_libraries(Path(program))))
            mounts |= libraries
        deadline = ("timeout", "-s", "KILL", str(int(self._seconds) + 1))
        return sandbox.launch((*deadline, *words, *arguments), workspace=self._workspace.root, readable=mounts)


def _argument(target: str) -> str:
    """Return a path that ripgrep cannot take for an option."""
    return target if target.startswith("/") else "./" if target == "." else f"./{target}"


def _check_arguments(pattern: str, max_results: int, context: int) -> None:
    if not pattern or "\0" in pattern or SURROGATES.search(pattern):
        raise ToolError("pattern must be a regular expression of whole characters, without NUL", kind="ValueError")
    if not 1 <= max_results <= _MAX_RESULTS:
        raise ToolError(f"max_results={max_results}: must be 1 to {_MAX_RESULTS}", kind="ValueError")
    if context < 0:
        raise ToolError(f"context={context}: must not be negative", kind="ValueError")


def _parse_include(include: str | None, scope: str) -> Include | None:
    if include is None:
        return None
    if scope != "codebase":
        raise ToolError(f"include is for scope='codebase'; with scope={scope!r} target says it all", kind="ValueError")
    return Include.parse(include)
