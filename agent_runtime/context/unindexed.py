"""Find definitions without an index: in the files that a text names, and where names are defined."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence

from agent_runtime.context.clues import Clues
from agent_runtime.context.passages import located
from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.index.languages import is_test, language_of
from agent_runtime.index.model import Call, Definition
from agent_runtime.index.parsing import TooSlowError, parse
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import Workspace

log = logging.getLogger(__name__)

_SECONDS = 0.7
_MOST_PARSED = 16
_MOST_FILES = 400
_MOST_SEEN = 20_000
_MOST_CHARS = 10_000_000
_READ_BYTES = 400_000
_DEFINES = r"(?:def|class|function|func|fn|struct|interface|trait|type|module)[ \t*]{1,4}(?:\([^)\n]{0,80}\)[ \t])?"


class NamedFiles:
    """Implements `CodeIndex` for a text: its lines and names are known, nothing is searched, no call is found."""

    unanswered = ""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._definitions = definitions

    async def ready(self, seconds: float) -> bool:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.ready`."""
        return True

    async def search(self, text: str, most: int = 5) -> list[Definition]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.search`."""
        return []

    async def named(self, symbol: str) -> list[Definition]:
        """See `CodeIndex.named`."""
        path, _, name = symbol.rpartition("::")
        found = (each for each in self._definitions if f".{each.qualified}".endswith(f".{name}"))
        return [each for each in found if each.path == path or not path]

    async def at(self, path: str, line: int) -> Definition | None:
        """See `CodeIndex.at`."""
        around = [each for each in self._definitions if each.path == path and each.first <= line <= each.last]
        return min(around, key=lambda each: each.last - each.first, default=None)

    async def callers(self, symbol: str) -> list[Call]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.callers`."""
        return []

    async def callees(self, symbol: str) -> list[Call]:  # noqa: ARG002 - of the protocol
        """See `CodeIndex.callees`."""
        return []


async def named_files(workspace: Workspace, clues: Clues, *, seconds: float = _SECONDS) -> NamedFiles:
    """Read what a text names, in a worker process: a bounded number of files, and what is found within some seconds."""
    places, files, tests = await asyncio.to_thread(located, workspace, clues)
    paths = [*(place.path for place in places), *files, *(test.partition("::")[0] for test in tests)]
    names = [name.rpartition(".")[2] for name in clues.names]
    try:
        async with asyncio.timeout(seconds):
            answer = await run_bounded(
                _read, workspace, paths, names, seconds / 2, what="Looking for what the task names"
            )
    except (BoundExceededError, TimeoutError):
        log.info("the first message shows no definitions: there is no code index yet, and they were not found in time")
        return NamedFiles([])
    return NamedFiles([Definition(**each | {"parents": tuple(each["parents"])}) for each in json.loads(answer)])


def _read(workspace: Workspace, paths: Sequence[str], names: Sequence[str], seconds: float) -> str:
    with workspace:
        chosen = dict.fromkeys(path for path in paths if language_of(path))
        if names:
            chosen.update(dict.fromkeys(_defining(workspace, names, time.monotonic() + seconds)))
        return json.dumps([each for path in list(chosen)[:_MOST_PARSED] for each in _definitions(workspace, path)])


def _defining(workspace: Workspace, names: Sequence[str], until: float) -> Iterator[str]:
    """The files that define one of some names, outermost first."""
    defines = re.compile(rf"\b{_DEFINES}(?:{'|'.join(map(re.escape, names))})\b")
    paths: list[str] = []
    for number, (_, prefix, entry) in enumerate(listing.entries(workspace)):
        if number > _MOST_SEEN or time.monotonic() > until:
            break
        if entry is not None and entry.is_file(follow_symlinks=False) and language_of(entry.name):
            paths.append(prefix + entry.name)
    left = _MOST_CHARS
    for path in sorted(paths, key=lambda path: (path.count("/"), path))[:_MOST_FILES]:
        source = _bytes(workspace, path).decode(errors="replace")
        left -= len(source)
        if left < 0 or time.monotonic() > until:
            return
        if defines.search(source):
            yield path


def _definitions(workspace: Workspace, path: str) -> Iterator[dict[str, object]]:
    language = language_of(path)
    if language is None:
        return
    try:
        pieces = parse(language, _bytes(workspace, path)).pieces
    except (LookupError, TooSlowError):
        return
    for piece in pieces:
        parents, around = list[int](), piece
        while around.parent >= 0:
            around = pieces[around.parent]
            parents.insert(0, around.header)
        yield {
            "path": path, "name": piece.name, "qualified": piece.qualified, "kind": piece.kind, "first": piece.first,
            "last": piece.last, "header": piece.header, "parents": parents, "is_test": is_test(path),
        }  # fmt: skip


def _bytes(workspace: Workspace, path: str) -> bytes:
    try:
        return workspace.read_bytes(path, _READ_BYTES)
    except ToolError:  # not readable, or gone in this moment
        return b""
