"""The code index of one workspace: built in the background, kept outside of it, asked in worker processes.

`CodeIndex` is how it is asked, and `WorkspaceIndex` the index itself; the questions are answered by `ask` from the
index's file, in a worker process, because strangers' files are in it. None of this raises: a run goes on without an
index.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote

from agent_runtime.core.errors import BoundExceededError, ToolError
from agent_runtime.core.values import EmbeddingService
from agent_runtime.index import store
from agent_runtime.index.ranking import EmbeddingError, Embeddings, fused, ranked
from agent_runtime.index.resolving import Finder, Resolver, callees, callers
from agent_runtime.index.store import MOST_BYTES, SCHEMA, digest_of
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.workspace.files import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function, method, class or other named piece of a source file.

    Attributes:
        path: its file, canonical in the workspace.
        name: its own name, `method`.
        qualified: with the names of what encloses it, `Class.method`.
        kind: `function`, `method`, `class`, `interface`, `type`, `module`, `macro` or `constant`.
        first: its first line, from 1, with the decorators and comments that belong to it.
        last: its last line.
        header: the line that names it.
        parents: the header lines of what encloses it, outermost first.
        is_test: whether its file is one of tests.
    """

    path: str
    name: str
    qualified: str
    kind: str
    first: int
    last: int
    header: int
    parents: tuple[int, ...]
    is_test: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One place that calls something.

    Attributes:
        caller: the innermost definition that the call stands in; None at the top of a file.
        callee: what is called, as qualified as it is known.
        path: the file of the call.
        line: its line, from 1.
        sure: whether imports, names and classes say that it is this callee, and not another one of the same name.
    """

    caller: Definition | None
    callee: str
    path: str
    line: int
    sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One line of a graph of calls, as a tree is listed: below what it depends on, or what depends on it.

    Attributes:
        way: which of the two trees it belongs to.
        depth: how many calls lie between it and the symbol, from 1.
        name: the definition that calls, or is called.
        path: the file of the call.
        line: its line.
        sure: see `Call`.
    """

    way: Literal["callers", "callees"]
    depth: int
    name: str
    path: str
    line: int
    sure: bool


class CodeIndex(Protocol):
    """Answers questions about the definitions of a workspace. None raises: without an index there is no answer."""

    unanswered: str
    """Why the last question has no answer; empty when it has one."""

    async def ready(self, seconds: float) -> bool:
        """Bring the index up to date; whether that was done within a time. It goes on in the background."""
        ...

    async def search(self, text: str, most: int = 5) -> list[Definition]:
        """What fits a text in words, best first."""
        ...

    async def named(self, symbol: str) -> list[Definition]:
        """What has a name: `name`, `Class.name` or `path::Class.name`."""
        ...

    async def at(self, path: str, line: int) -> Definition | None:
        """The innermost definition that a line lies in."""
        ...

    async def callers(self, symbol: str) -> list[Call]:
        """The calls of what has a name."""
        ...

    async def callees(self, symbol: str) -> list[Call]:
        """The calls that are in what has a name."""
        ...


log = logging.getLogger(__name__)
_FILE = "index.db"
_ROUND_SECONDS = 8.0
_MOST_ROUNDS = 60
_SECONDS = 30.0
_MEMORY = 512 * 1024**2
_ALL = 1_000_000
_ASK_SECONDS = 5.0
_MOST_CRASHING = 20
MOST_CALLS = 500
"""Calls that one answer holds."""
_MOST_EMBEDDED = 20_000
_TEXTS = 500  # that one worker's answer holds


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """What is known of an index.

    Attributes:
        files: how many files it has.
        parsed: how many of them were parsed by the last look, because they were new or had changed.
        complete: whether it is up to date.
        problem: why there is none, or what it leaves out; empty for nothing.
    """

    files: int = 0
    parsed: int = 0
    complete: bool = False
    problem: str = ""


class WorkspaceIndex:
    """Implements `CodeIndex` on one workspace.

    Attributes:
        state: what the last look at the workspace came to.
        unanswered: why the last question has no answer; empty when it has one.
    """

    def __init__(
        self,
        workspace: Workspace,
        kept: Path | None = None,
        *,
        withholds: Callable[[str], bool] = lambda _path: False,
        service: EmbeddingService | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            workspace: what is indexed.
            kept: a file, out of the agent's reach, that the index begins with and is stored in once it is built, for
                later runs; several may share it.
            withholds: whether nothing is to be told about a file that nobody named, by canonical path.
            service: makes vectors, for a second ranking; None for words alone.
        """
        self._service = service
        self._embeddings: Embeddings | None = None
        self._embedding: asyncio.Task[None] | None = None
        self._workspace = workspace
        self._kept = kept
        self._withholds = withholds
        self._folder: Path | None = None
        self._refused: list[str] = []
        self._late = False  # a file was refused for the time it took, which a busy machine may have taken
        self._work: asyncio.Task[IndexState] | None = None
        self.state = IndexState()
        self.unanswered = ""

    @property
    def place(self) -> Path | None:
        """The database, once there is one."""
        return self._folder / _FILE if self._folder and (self._folder / _FILE).exists() else None

    @property
    def ranked_by_vectors(self) -> int:
        """How many definitions have a vector."""
        return self._embeddings.count if self._embeddings else 0

    async def ready(self, seconds: float) -> bool:
        """See `CodeIndex.ready`."""
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._refresh())
        await asyncio.wait([self._work], timeout=seconds)
        return self._work.done() and self.state.complete

    async def search(self, text: str, most: int = 5) -> list[Definition]:
        """See `CodeIndex.search`."""
        most = min(most, self._service.most) if self._service else most
        near: list[int] = []
        if self._embeddings is not None:
            try:
                near = await self._embeddings.nearest(text, 4 * most + 20)
            except EmbeddingError as error:
                self.state = replace(self.state, problem=str(error))
        return (await self._definitions("search", text, 4 * most + 20, near))[:most]

    async def named(self, symbol: str) -> list[Definition]:
        """See `CodeIndex.named`."""
        return await self._definitions("named", symbol, 100)

    async def at(self, path: str, line: int) -> Definition | None:
        """See `CodeIndex.at`."""
        return next(iter(await self._definitions("at", path, line)), None)

    async def callers(self, symbol: str) -> list[Call]:
        """See `CodeIndex.callers`."""
        return await self._calls("callers", symbol)

    async def callees(self, symbol: str) -> list[Call]:
        """See `CodeIndex.callees`."""
        return await self._calls("callees", symbol)

    async def graph(self, symbol: str, depth: int) -> list[Dependency]:
        """What calls a symbol, and what it calls, each to a depth, as two trees."""
        rows = cast("list[list[Any]]", await self._ask("graph", symbol, depth, MOST_CALLS))
        names = [field.name for field in fields(Dependency)]
        found = [Dependency(**dict(zip(names, row, strict=True))) for row in rows]
        return [each for each in found if not self._withholds(each.path)]

    async def close(self) -> None:
        """Stop what runs, and remove the private copy; idempotent."""
        running = [task for task in (self._work, self._embedding) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._work = self._embedding = None
        if self._embeddings is not None:
            await self._embeddings.close()
            self._embeddings = None
        if self._folder is not None:
            await run_in_thread(partial(shutil.rmtree, self._folder, ignore_errors=True))
            self._folder = None
        self.state = IndexState()

    async def _definitions(self, question: str, *arguments: object) -> list[Definition]:
        return self._shown(cast("list[list[Any]]", await self._ask(question, *arguments)))

    def _shown(self, rows: list[list[Any]]) -> list[Definition]:
        return [each for row in rows if not self._withholds((each := _definition(row)).path)]

    async def _calls(self, question: str, symbol: str) -> list[Call]:
        rows = cast(
            "list[tuple[str, int, str, bool, list[object] | None]]", await self._ask(question, symbol, MOST_CALLS)
        )
        return [
            Call(caller=_definition(caller) if caller else None, callee=callee, path=path, line=line, sure=sure)
            for path, line, callee, sure, caller in rows
            if not self._withholds(path)
        ]

    async def _ask(self, question: str, *arguments: object) -> object:
        if (place := self.place) is None:
            return []
        try:
            answer = await run_bounded(
                ask, str(place), question, *arguments, seconds=_ASK_SECONDS, what="Asking the code index"
            )
        except (BoundExceededError, ValueError, RuntimeError) as error:
            log.info("the code index gave no answer: %s", error)
            self.unanswered = str(error).partition("\n")[0]
            return []
        self.unanswered = ""
        return json.loads(answer)

    async def _refresh(self) -> IndexState:
        try:
            self.state = await self._rounds()
            if self._service is not None and (self._embeddings is None or self.state.parsed):
                if self._embedding is not None:  # what it has asked for is kept
                    self._embedding.cancel()
                    await asyncio.wait([self._embedding])
                self._embedding = asyncio.create_task(self._embed(self._service))
        except (OSError, BoundExceededError, RuntimeError) as error:  # a run goes on without it
            log.warning("there is no code index: %s", error)
            self.state = IndexState(problem=f"there is no code index: {error}")
        return self.state

    async def _embed(self, service: EmbeddingService) -> None:
        """Have vectors of all definitions, except of files about which nothing may be said."""
        place = self.place
        if place is None:
            return
        kept = self._kept.with_suffix(".vectors") if self._kept else place.with_suffix(".vectors")
        self._embeddings = self._embeddings or Embeddings(service, kept)
        texts: list[tuple[int, str]] = []
        after, more = 0, True
        try:
            while more and len(texts) < _MOST_EMBEDDED:
                what = "Reading definitions for the embedding service"
                asked = (self._workspace, str(place), after, _TEXTS)
                found = json.loads(await run_bounded(embedding_texts, *asked, seconds=_SECONDS, what=what))
                texts += [(number, text) for number, path, text in found if not self._withholds(path)]
                more, after = len(found) == _TEXTS, found[-1][0] if found else after
            await self._embeddings.take(texts)
        except (EmbeddingError, BoundExceededError, RuntimeError) as error:
            log.warning("definitions are found by words alone: %s", error)
            self.state = replace(self.state, problem=str(error))

    async def _rounds(self) -> IndexState:
        """Read what changed, in rounds of some seconds; what crashes its grammar is found by halves and left out."""
        first = self._folder is None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="codepilot-index-"))
            await run_in_thread(partial(_begin, self._folder / _FILE, self._kept))
        place, most, parsed = self._folder / _FILE, _ALL, 0
        grown = place.exists()  # it has words of what is gone, too, and may be too large for that alone
        for _ in range(_MOST_ROUNDS):
            try:
                told, database = await self._round(place, most)
            except BoundExceededError as error:
                if error.bound == "result" and grown:
                    place.unlink()
                    grown = False
                    continue
                if error.bound == "result" or most == 0 or len(self._refused) >= _MOST_CRASHING:
                    raise
                if most == 1:
                    told, _ = await self._round(place, 0)
                    self._refused.append(str(told["behind"]))
                    self._late |= error.bound == "seconds"
                most = max(1, min(most, 1024) // 4)
                continue
            parsed += int(cast("int", told["parsed"]))
            if database:
                await run_in_thread(partial(_written, place, database))
            if not told["behind"]:
                if parsed and first and self._kept is not None and not self._late:
                    await run_in_thread(partial(_store, place, self._kept))
                left_out = (
                    f"the code index has the first {told['files']:,} source files only" if told["truncated"] else ""
                )
                return IndexState(files=int(cast("int", told["files"])), parsed=parsed, complete=True, problem=left_out)
            most = min(_ALL, 4 * most)
        return IndexState(problem="the workspace is too large to be indexed")

    async def _round(self, place: Path, most: int) -> tuple[dict[str, object], bytes]:
        answer = await run_bounded(
            store.refresh,
            self._workspace,
            str(place),
            most,
            _ROUND_SECONDS,
            self._refused,
            seconds=_SECONDS,
            memory=_MEMORY,
            what="Indexing the workspace",
        )
        head, _, database = answer.partition(b"\n")
        return json.loads(head), database


def _definition(row: list[Any]) -> Definition:
    known = dict(zip((field.name for field in fields(Definition)), row, strict=False))
    return Definition(**known | {"parents": tuple(row[7])})


def _begin(place: Path, kept: Path | None) -> None:
    """Put in place what was kept, if that is whole and of this schema."""
    if kept is not None:
        with contextlib.suppress(OSError):  # none was kept yet
            head, _, database = kept.read_bytes().partition(b"\n")
            if head == _seal(database):
                place.write_bytes(database)


def _seal(database: bytes) -> bytes:
    """The line that a kept index begins with."""
    return b"codepilot-index %d %s" % (SCHEMA, digest_of(database).hex().encode())


def _written(place: Path, data: bytes) -> None:
    """Put a file in place in one step."""
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=".index-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(place)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _store(place: Path, kept: Path) -> None:
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = place.read_bytes()
        _written(kept, _seal(database) + b"\n" + database)
    except OSError as error:
        log.warning("the code index is not kept for the next run: %s", error)


Row = list[object]
"""Path, name, full name, kind, first, last, header line, header lines of parents, whether it is a test, number."""
_MOST_SENT = 1_500
# Only constants of this module are put into the text of statements.
# ruff: noqa: S608 - as said above
_COLUMNS = "f.path, d.name, d.qualified, d.kind, d.first, d.last, d.header, d.parent, f.is_test, d.id"
_SELECT = f"SELECT {_COLUMNS} FROM definitions d JOIN files f ON f.id = d.file"
_WITH_PATH = re.compile(r"/.*::|\.\w+::")


def ask(place: str, question: str, *arguments: object) -> str:
    """Answer one question.

    Args:
        place: the index's file.
        question: the name of one of `_QUESTIONS`.
        arguments: its own.

    Raises:
        ValueError: the file is no index.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(place)}?mode=ro&immutable=1", uri=True)) as database:
            database.execute("PRAGMA temp_store = MEMORY")
            return json.dumps(_QUESTIONS[question](database, *arguments))
    except sqlite3.Error as error:
        raise ValueError(f"the index cannot be read: {error}") from error


def _search(database: sqlite3.Connection, text: str, most: int, near: Sequence[int] = ()) -> list[Row]:
    """Definitions that words find, best first; among them those that are `near` by their vectors."""
    numbers = fused(ranked(database, text, most), near)
    found = [database.execute(f"{_SELECT} WHERE d.id = ?", (number,)).fetchone() for number in numbers]
    return _rows(database, [row for row in found if row])


def _named(database: sqlite3.Connection, symbol: str, most: int) -> list[Row]:
    """Definitions of a name, those outside of tests first."""
    return _rows(database, _named_rows(database, symbol)[:most])


def _at(database: sqlite3.Connection, path: str, line: int) -> list[Row]:
    found = database.execute(
        f"{_SELECT} WHERE f.path = ? AND d.first <= ? AND d.last >= ? AND d.kind <> 'constant' "
        "ORDER BY d.last - d.first, d.id DESC LIMIT 1",
        (path, line, line),
    )
    return _rows(database, found)


def _calls(find: Finder, database: sqlite3.Connection, symbol: str, most: int) -> list[Row]:
    """The calls of what has a name, or in it: path, line, callee, whether that is sure, and the definition around."""
    parts = symbol_parts(symbol)
    named = [row for row in _named_rows(database, symbol) if row[3] != "constant"]
    told: list[Row] = []
    for call in find(Resolver(database), [int(str(row[9])) for row in named], parts)[:most]:
        around = database.execute(f"{_SELECT} WHERE d.id = ?", (call.caller,)).fetchall() if call.caller else []
        told.append([call.path, call.line, call.callee, call.sure, _rows(database, around)[0] if around else None])
    return told


def _graph(database: sqlite3.Connection, symbol: str, depth: int, most: int) -> list[Row]:
    """Callers of callers and callees of callees: way, depth, name, path, line, whether it is sure."""
    resolver, told = Resolver(database), list[Row]()

    def follow(way: str, numbers: Sequence[int], parts: Sequence[str], level: int, seen: frozenset[int]) -> None:
        for call in (callers if way == "callers" else callees)(resolver, numbers, parts):
            following = call.caller if way == "callers" else call.means
            if len(told) >= most or (following is not None and following in seen):
                continue
            known = resolver.known(following) if following is not None else None
            name = known.qualified if known else call.callee
            told.append([way, level, name, call.path, call.line, call.sure])
            if known and level < depth and call.sure:
                follow(way, [known.number], known.qualified.split("."), level + 1, seen | {known.number})

    named = [int(str(row[9])) for row in _named_rows(database, symbol) if row[3] != "constant"]
    for way in ("callers", "callees"):
        follow(way, named, symbol_parts(symbol), 1, frozenset(named))
    return told


def _named_rows(database: sqlite3.Connection, symbol: str) -> list[Row]:
    path = symbol.rpartition("::")[0] if _WITH_PATH.search(symbol) else ""
    parts = symbol_parts(symbol)
    if not parts:
        return []
    found = database.execute(f"{_SELECT} WHERE d.name = ? ORDER BY f.is_test, f.path, d.first", (parts[-1],))
    wanted = ".".join(parts)
    return [
        row
        for row in found
        if (not path or row[0] == path or str(row[0]).endswith(f"/{path}")) and _ends_in(row, wanted)
    ]


def symbol_parts(symbol: str) -> list[str]:
    """The names of a symbol, without its path."""
    dotted = symbol.rpartition("::")[2] if _WITH_PATH.search(symbol) else symbol
    return [part for part in re.split(r"\.|::|#", dotted.removesuffix("()")) if part]


def _ends_in(row: Row, wanted: str) -> bool:
    """Whether a definition's full name ends in a dotted name; the module may stand before the class."""
    module = str(row[0]).rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
    return f".{module}.{row[2]}".endswith(f".{wanted}")


def _rows(database: sqlite3.Connection, found: Iterable[Row]) -> list[Row]:
    """Definitions as they are returned: the lines of their parents in place of a number."""
    told: list[Row] = []
    for row in found:
        parents: list[int] = []
        above = row[7]
        while above is not None:
            header, above = database.execute("SELECT header, parent FROM definitions WHERE id = ?", (above,)).fetchone()
            parents.insert(0, header)
        told.append([*row[:7], parents, bool(row[8]), row[9]])
    return told


def embedding_texts(workspace: Workspace, place: str, after: int, most: int) -> str:
    """What an embedding service is sent of some definitions: number, path, and text, in JSON.

    Args:
        workspace: where their files are.
        place: the index's file.
        after: the number behind which to begin.
        most: how many there may be.
    """
    told: list[Row] = []
    with workspace, closing(sqlite3.connect(f"file:{quote(place)}?mode=ro&immutable=1", uri=True)) as database:
        found = database.execute(
            "SELECT d.id, f.path, d.qualified, d.first, d.last FROM definitions d JOIN files f ON f.id = d.file "
            "WHERE d.id > ? AND d.kind <> 'constant' AND NOT f.is_test ORDER BY d.id LIMIT ?",
            (after, most),
        )
        path, lines = "", list[str]()
        for number, file, qualified, first, last in found:
            if file != path:
                path = file
                try:
                    lines = workspace.read_bytes(path, MOST_BYTES).decode(errors="replace").split("\n")
                except ToolError:  # gone meanwhile
                    lines = []
            told.append([number, path, f"{path} {qualified}\n" + "\n".join(lines[first - 1 : last])[:_MOST_SENT]])
    return json.dumps(told)


_QUESTIONS: dict[str, Callable[..., object]] = {
    "search": _search,
    "named": _named,
    "at": _at,
    "callers": partial(_calls, callers),
    "callees": partial(_calls, callees),
    "graph": _graph,
}
