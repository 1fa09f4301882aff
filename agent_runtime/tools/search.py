"""The tool that searches the workspace, by ripgrep."""

from __future__ import annotations

import asyncio
import shutil
import sysconfig
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Literal

from agent_runtime.errors import ToolError
from agent_runtime.sandbox.protocol import Launch, Sandbox
from agent_runtime.tools.protocol import ToolResult
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.globs import Include
from agent_runtime.workspace.hits import Hits

_MOST_RESULTS = 1000
_MOST_CONTEXT = 20
_MAX_SECONDS = 20.0
_MAX_OUTPUT = 64_000_000
_MAX_ERRORS = 4_000
_CHUNK = 1 << 16
_OPTIONS = (
    "--no-config",
    "--json",
    "--hidden",
    "--no-require-git",
    "--no-messages",
    "--iglob=!.git",
    "--max-filesize=50M",
)


class SearchTools:
    """`find` on one workspace."""

    value_types: ClassVar[dict[str, str]] = {"find": "list[Match]"}
    labels: ClassVar[dict[str, str]] = {"find": "Searching for `{pattern}`"}
    stub_types: ClassVar[str] = "class Match(TypedDict):\n    file: str\n    line: int\n    text: str\n"

    def __init__(self, workspace: Workspace, sandbox: Sandbox | None = None, *, seconds: float = _MAX_SECONDS) -> None:
        """Search `workspace`.

        Args:
            workspace: where to search.
            sandbox: runs ripgrep, so that not even a directory that is swapped for a link while ripgrep walks through
                it leads out of the workspace. Without one it runs on the host, where it follows no link it meets.
            seconds: wall time of one search.
        """
        self._workspace = workspace
        self._sandbox = sandbox
        self._seconds = seconds

    async def find(  # noqa: PLR0917 - the signature that users of the first CodePilot know
        self,
        pattern: str,
        scope: Literal["codebase", "file", "files"] = "codebase",
        target: str | list[str] | None = None,
        include: str | None = None,
        max_results: int = 50,
        context: int = 0,
    ) -> ToolResult:
        """Search lines by regular expression (ripgrep; ignored files left out). target: the file or files of
        scope 'file'/'files', or a directory; include: a glob such as '*.py' or 'tests/**'.

        Raises:
            ToolError: a wrong argument, an invalid pattern, a search that takes too long, or no ripgrep.
        """  # noqa: D205 - the model is told the first paragraph, where a blank line costs tokens
        _check(pattern, max_results, context)
        wanted = _include(include, scope)
        targets = self._targets(scope, target, wanted)
        hits = Hits(most=max_results, wanted=wanted)
        if targets:
            options = [*_OPTIONS, f"--context={context}", *(wanted.options if wanted else ())]
            options += ["--no-ignore-parent"] if targets == ["."] else []
            await self._run(
                [*options, "-e", pattern, "--", *("./" if each == "." else f"./{each}" for each in targets)], hits
            )
        found = hits.shown()
        return ToolResult(
            value=[{"file": hit.file, "line": hit.line, "text": hit.text} for hit in found if hit.matched],
            text=hits.text(),
        )

    def _targets(self, scope: str, target: object, wanted: Include | None) -> list[str]:
        if scope not in {"codebase", "file", "files"}:
            raise ToolError(f"scope={scope!r}: must be 'codebase', 'file' or 'files'", kind="ValueError")
        if scope == "codebase":
            return self._directory(target, wanted)
        names = [target] if scope == "file" else target
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            shape = "the path of one file" if scope == "file" else "a list of paths, at least one"
            raise ToolError(f"target={target!r}: with scope={scope!r} it must be {shape}", kind="ValueError")
        return list(dict.fromkeys(self._file(name) for name in names))

    def _file(self, name: str) -> str:
        if not self._workspace.exists(name):
            raise ToolError(f"target {name!r} does not exist", kind="FileNotFoundError")
        if not self._workspace.is_file(name):
            raise ToolError(f"target {name!r} is not a regular file; use scope='codebase' for a directory")
        return self._workspace.resolve(name)

    def _directory(self, target: object, wanted: Include | None) -> list[str]:
        if target is not None and not isinstance(target, str):
            raise ToolError(f"target={target!r}: with scope='codebase' it must be one directory", kind="TypeError")
        start = "." if target is None else self._workspace.resolve(target)
        if not self._workspace.is_directory(start):
            raise ToolError(f"target {target!r} is not a directory; use scope='file'", kind="NotADirectoryError")
        if start == "." and wanted and wanted.directory:
            start = self._workspace.resolve(wanted.directory)
            return [start] if self._workspace.is_directory(start) else []
        return [start]

    async def _run(self, arguments: Sequence[str], hits: Hits) -> None:
        launch = self._launch(arguments)
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._workspace.root,
            env=dict(launch.env),
        )
        try:
            async with asyncio.timeout(self._seconds):
                errors = await _collect(process, hits)
        except TimeoutError as error:
            raise ToolError(
                f"find was stopped after {self._seconds:g} s; narrow it with target or include",
                kind="TimeoutError",
            ) from error
        finally:
            await _end(process)
        if errors and process.returncode not in {0, 1} and not hits.cut:
            raise ToolError(f"find: {errors}", kind="ValueError")

    def _launch(self, arguments: Sequence[str]) -> Launch:
        if self._sandbox is not None:
            return self._sandbox.launch([_ripgrep(), *arguments], workspace=self._workspace.root)
        return Launch(argv=(_ripgrep(), *arguments), env={})


async def _collect(process: asyncio.subprocess.Process, hits: Hits) -> str:
    """Feed a search's output to `hits` until it ends or says too much; the answer is its error output."""
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both are pipes")
    errors = asyncio.ensure_future(_head(process.stderr))
    try:
        size = 0
        async for line in _lines(process.stdout):
            size += len(line)
            hits.add(line)
            if size > _MAX_OUTPUT:
                hits.cut = True
                return ""
        text = await errors
        await process.wait()
        return text
    finally:
        errors.cancel()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; `readline` gives up at a limit."""
    rest: list[bytes] = []
    while chunk := await stream.read(_CHUNK):
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for piece in more:
            yield b"".join(rest)
            rest = [piece]


async def _head(stream: asyncio.StreamReader) -> str:
    """The beginning of a stream, which is read to its end so that its writer does not block."""
    kept = b""
    while chunk := await stream.read(_CHUNK):
        kept = (kept + chunk)[:_MAX_ERRORS]
    return kept.decode(errors="replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


def _ripgrep() -> str:
    """Where ripgrep is: on the PATH, or beside this Python, where its wheel puts it.

    Raises:
        ToolError: nowhere.
    """
    found = shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts"))
    if found is None:
        raise ToolError(
            "find needs ripgrep: `apt-get install ripgrep`, `brew install ripgrep` or `pip install ripgrep` brings it",
            kind="FileNotFoundError",
        )
    return found


def _check(pattern: str, max_results: int, context: int) -> None:
    if not pattern or "\0" in pattern:
        raise ToolError("pattern must be a regular expression, not empty and without NUL", kind="ValueError")
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
