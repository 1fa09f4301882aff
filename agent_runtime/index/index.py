"""Code index of a workspace: built in the background, stored outside it, queried in worker processes.

Start with `WorkspaceIndex`. Nothing here raises: a run continues without an index.
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
from agent_runtime.index.ranking import EmbeddingError, Embeddings, fuse, rank_by_words
from agent_runtime.index.resolving import Finder, Resolver, callees, callers, find_used
from agent_runtime.index.snippets import read_uses
from agent_runtime.index.store import MAX_FILE_BYTES, SCHEMA, digest_of
from agent_runtime.processes.bounded import run_bounded
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.workspace.files import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function, method, class or other named part of a source file.

    Attributes:
        qualified: `Class.method`.
        kind: `function`, `method`, `class`, `interface`, `type`, `module`, `macro` or `constant`.
        first: line, from 1, with decorators and comments.
        header: line of the name.
        parents: header lines of the enclosing definitions.
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
    """A call site.

    Attributes:
        caller: innermost enclosing definition; None at the top of a file.
        callee: as qualified as known.
        sure: resolved, not only matched by name.
    """

    caller: Definition | None
    callee: str
    path: str
    line: int
    sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """An edge of a call graph, in the order of a tree listing.

    Attributes:
        depth: calls between it and the symbol, from 1.
        sure: resolved, not only matched by name.
    """

    way: Literal["callers", "callees"]
    depth: int
    name: str
    path: str
    line: int
    sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A source file's qualified names in the order of its lines; None if they are not known.

    Attributes:
        omitted: number of further names.
    """

    path: str
    is_test: bool
    names: tuple[str, ...] | None
    omitted: int = 0


class CodeIndex(Protocol):
    """Answers queries about a workspace's definitions. Nothing raises."""

    failure: str
    """Error of the last query, or ""."""

    async def wait_ready(self, seconds: float) -> bool:
        """Update the index in the background; return whether it is complete within the time."""

    async def search(self, text: str, most: int = 5) -> list[Definition]:
        """Return the definitions that match a text, best first."""

    async def find_definitions(self, symbol: str) -> list[Definition]:
        """Find `name`, `Class.name` or `path::Class.name`."""

    async def definition_at(self, path: str, line: int) -> Definition | None:
        """Return the innermost definition at a line."""

    async def find_used(self, snippets: Sequence[str], classes: Sequence[str]) -> list[list[Definition]]:
        """Return the functions that snippets run, and those behind these: callees and overrides.

        `classes` are those of variables of unknown value.
        """

    async def outline_files(self, paths: Sequence[str]) -> list[Outline]:
        """Return all source files, with the names of these first and of others up to a number of characters."""

    async def callers(self, symbol: str) -> list[Call]:
        """Return the calls of a symbol."""

    async def callees(self, symbol: str) -> list[Call]:
        """Return the calls in a symbol."""


log = logging.getLogger(__name__)
_FILE = "index.db"
_ROUND_SECONDS = 8.0
_MAX_ROUNDS = 60
_SECONDS = 30.0
_MEMORY = 512 * 1024**2
_ALL_FILES = 1_000_000
_QUERY_SECONDS = 5.0
_MAX_REFUSED = 20
MAX_CALLS = 500
"""Calls in one answer."""
_MAX_EMBEDDED = 20_000
_TEXTS_PER_CALL = 500  # that one worker's answer holds


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """Progress of an index.

    Attributes:
        parsed: files parsed by the last refresh.
        complete: up to date.
        problem: reason for a missing or partial index, or "".
    """

    files: int = 0
    parsed: int = 0
    complete: bool = False
    problem: str = ""


class WorkspaceIndex:
    """Implements `CodeIndex` on one workspace."""

    def __init__(
        self,
        workspace: Workspace,
        cache_path: Path | None = None,
        *,
        is_hidden: Callable[[str], bool] = lambda _path: False,
        service: EmbeddingService | None = None,
    ) -> None:
        """Store the options.

        Args:
            workspace: to index.
            cache_path: caches the index between runs, outside the agent's reach; may be shared.
            is_hidden: excludes a path from answers.
            service: adds a ranking by vectors.
        """
        self._service = service
        self._embeddings: Embeddings | None = None
        self._embedding: asyncio.Task[None] | None = None
        self._workspace = workspace
        self._cache_path = cache_path
        self._is_hidden = is_hidden
        self._folder: Path | None = None
        self._refused: list[str] = []
        self._had_timeout = False  # a file was refused for its time, perhaps on a busy machine
        self._work: asyncio.Task[IndexState] | None = None
        self.state = IndexState()
        self.failure = ""

    @property
    def database_path(self) -> Path | None:
        """Path of the database, or None."""
        return self._folder / _FILE if self._folder and (self._folder / _FILE).exists() else None

    @property
    def vector_count(self) -> int:
        """Number of definitions with a vector."""
        return self._embeddings.count if self._embeddings else 0

    async def wait_ready(self, seconds: float) -> bool:
        """See `CodeIndex`."""
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._refresh())
        await asyncio.wait([self._work], timeout=seconds)
        return self._work.done() and self.state.complete

    async def search(self, text: str, most: int = 5) -> list[Definition]:
        """See `CodeIndex`."""
        most = min(most, self._service.most) if self._service else most
        nearest: list[int] = []
        if self._embeddings is not None:
            try:
                nearest = await self._embeddings.nearest(text, 4 * most + 20)
            except EmbeddingError as error:
                self.state = replace(self.state, problem=str(error))
        return (await self._definitions("search", text, 4 * most + 20, nearest))[:most]

    async def find_definitions(self, symbol: str) -> list[Definition]:
        """See `CodeIndex`."""
        return await self._definitions("named", symbol, 100)

    async def definition_at(self, path: str, line: int) -> Definition | None:
        """See `CodeIndex`."""
        return next(iter(await self._definitions("at", path, line)), None)

    async def find_used(self, snippets: Sequence[str], classes: Sequence[str]) -> list[list[Definition]]:
        """See `CodeIndex`."""
        groups = cast("list[list[list[Any]]]", await self._query("used", snippets, classes))
        return [[d for row in rows if not self._is_hidden((d := _definition(row)).path)] for rows in groups]

    async def outline_files(self, paths: Sequence[str]) -> list[Outline]:
        """See `CodeIndex`."""
        rows = cast("list[tuple[str, bool, list[str] | None]]", await self._query("outline", list(paths)))
        return [
            Outline(path=path, is_test=is_test, names=None if names is None else tuple(names))
            for path, is_test, names in rows
            if not self._is_hidden(path)
        ]

    async def callers(self, symbol: str) -> list[Call]:
        """See `CodeIndex`."""
        return await self._calls("callers", symbol)

    async def callees(self, symbol: str) -> list[Call]:
        """See `CodeIndex`."""
        return await self._calls("callees", symbol)

    async def graph(self, symbol: str, depth: int) -> list[Dependency]:
        """Return a symbol's callers and callees, each as a tree of a depth."""
        rows = cast("list[list[Any]]", await self._query("graph", symbol, depth, MAX_CALLS))
        names = [field.name for field in fields(Dependency)]
        edges = [Dependency(**dict(zip(names, row, strict=True))) for row in rows]
        return [edge for edge in edges if not self._is_hidden(edge.path)]

    async def close(self) -> None:
        """Stop background work and remove the private copy; idempotent."""
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
        rows = cast("list[list[Any]]", await self._query(question, *arguments))
        return [definition for row in rows if not self._is_hidden((definition := _definition(row)).path)]

    async def _calls(self, question: str, symbol: str) -> list[Call]:
        rows = cast(
            "list[tuple[str, int, str, bool, list[object] | None]]", await self._query(question, symbol, MAX_CALLS)
        )
        return [
            Call(caller=_definition(caller) if caller else None, callee=callee, path=path, line=line, sure=sure)
            for path, line, callee, sure, caller in rows
            if not self._is_hidden(path)
        ]

    async def _query(self, query: str, *arguments: object) -> object:
        if (path := self.database_path) is None:
            return []
        try:
            answer = await run_bounded(
                answer_query, str(path), query, *arguments, seconds=_QUERY_SECONDS, task="Asking the code index"
            )
        except (BoundExceededError, ValueError, RuntimeError) as error:
            log.info("the code index gave no answer: %s", error)
            self.failure = str(error).partition("\n")[0]
            return []
        self.failure = ""
        return json.loads(answer)

    async def _refresh(self) -> IndexState:
        try:
            self.state = await self._run_rounds()
            if self._service is not None and (self._embeddings is None or self.state.parsed):
                if self._embedding is not None:  # received vectors stay cached
                    self._embedding.cancel()
                    await asyncio.wait([self._embedding])
                self._embedding = asyncio.create_task(self._embed(self._service))
        except (OSError, BoundExceededError, RuntimeError) as error:  # a run continues without an index
            log.warning("there is no code index: %s", error)
            self.state = IndexState(problem=f"there is no code index: {error}")
        return self.state

    async def _embed(self, service: EmbeddingService) -> None:
        database = self.database_path
        if database is None:
            return
        vectors = self._cache_path.with_suffix(".vectors") if self._cache_path else database.with_suffix(".vectors")
        self._embeddings = self._embeddings or Embeddings(service, vectors)
        texts: list[tuple[int, str]] = []
        after, more = 0, True
        try:
            while more and len(texts) < _MAX_EMBEDDED:
                purpose = "Reading definitions for the embedding service"
                arguments = (self._workspace, str(database), after, _TEXTS_PER_CALL)
                batch = json.loads(await run_bounded(embedding_texts, *arguments, seconds=_SECONDS, task=purpose))
                texts += [(number, text) for number, path, text in batch if not self._is_hidden(path)]
                more, after = len(batch) == _TEXTS_PER_CALL, batch[-1][0] if batch else after
            await self._embeddings.update(texts)
        except (EmbeddingError, BoundExceededError, RuntimeError) as error:
            log.warning("definitions are found by words alone: %s", error)
            self.state = replace(self.state, problem=str(error))

    async def _run_rounds(self) -> IndexState:
        """Refresh in rounds; files that crash their grammar are found by bisection and excluded."""
        first = self._folder is None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="codepilot-index-"))
            await run_in_thread(partial(_restore, self._folder / _FILE, self._cache_path))
        path, max_files, parsed = self._folder / _FILE, _ALL_FILES, 0
        is_old = path.exists()  # it may be too large only because of words of removed files
        for _ in range(_MAX_ROUNDS):
            try:
                report, database = await self._run_round(path, max_files)
            except BoundExceededError as error:
                if error.bound == "result" and is_old:
                    path.unlink()
                    is_old = False
                    continue
                if error.bound == "result" or max_files == 0 or len(self._refused) >= _MAX_REFUSED:
                    raise
                if max_files == 1:
                    report, _ = await self._run_round(path, 0)
                    self._refused.append(str(report["behind"]))
                    self._had_timeout |= error.bound == "seconds"
                max_files = max(1, min(max_files, 1024) // 4)
                continue
            parsed += int(cast("int", report["parsed"]))
            if database:
                await run_in_thread(partial(_write_atomically, path, database))
            if not report["behind"]:
                if parsed and first and self._cache_path is not None and not self._had_timeout:
                    await run_in_thread(partial(_save, path, self._cache_path))
                note = (
                    f"the code index has the first {report['files']:,} source files only" if report["truncated"] else ""
                )
                return IndexState(files=int(cast("int", report["files"])), parsed=parsed, complete=True, problem=note)
            max_files = min(_ALL_FILES, 4 * max_files)
        return IndexState(problem="the workspace is too large to be indexed")

    async def _run_round(self, path: Path, max_files: int) -> tuple[dict[str, object], bytes]:
        answer = await run_bounded(
            store.refresh,
            self._workspace,
            str(path),
            max_files,
            _ROUND_SECONDS,
            self._refused,
            seconds=_SECONDS,
            memory=_MEMORY,
            task="Indexing the workspace",
        )
        head, _, database = answer.partition(b"\n")
        return json.loads(head), database


def _definition(row: list[Any]) -> Definition:
    values = dict(zip((field.name for field in fields(Definition)), row, strict=False))
    return Definition(**values | {"parents": tuple(row[7])})


def _restore(path: Path, cache: Path | None) -> None:
    """Restore a cached index that is intact and of this schema."""
    if cache is not None:
        with contextlib.suppress(OSError):  # there is no cache yet
            head, _, database = cache.read_bytes().partition(b"\n")
            if head == _header(database):
                path.write_bytes(database)


def _header(database: bytes) -> bytes:
    """Return the header line of a cached index."""
    return b"codepilot-index %d %s" % (SCHEMA, digest_of(database).hex().encode())


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".index-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _save(path: Path, cache: Path) -> None:
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = path.read_bytes()
        _write_atomically(cache, _header(database) + b"\n" + database)
    except OSError as error:
        log.warning("the code index is not kept for the next run: %s", error)


Row = list[object]
"""Path, name, qualified name, kind, first, last, header line, parents' header lines, is_test, number."""
_MAX_TEXT_CHARS = 1_500
# ruff: noqa: S608 - statements are built from constants of this module only
_COLUMNS = "f.path, d.name, d.qualified, d.kind, d.first, d.last, d.header, d.parent, f.is_test, d.id"
_SELECT = f"SELECT {_COLUMNS} FROM definitions d JOIN files f ON f.id = d.file"
_OUTLINE = (
    "SELECT d.qualified FROM definitions d LEFT JOIN definitions p ON p.id = d.parent WHERE d.file = ? "
    "AND d.kind <> 'constant' AND (p.id IS NULL OR p.kind NOT IN ('function', 'method')) ORDER BY d.first"
)
_MAX_OUTLINE_CHARS = 40_000
_WITH_PATH = re.compile(r"/.*::|\.\w+::")


def answer_query(path: str, query: str, *arguments: object) -> str:
    """Answer a query of `_QUERIES` from a database.

    Raises:
        ValueError: not an index.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as database:
            database.execute("PRAGMA temp_store = MEMORY")
            return json.dumps(_QUERIES[query](database, *arguments))
    except sqlite3.Error as error:
        raise ValueError(f"the index cannot be read: {error}") from error


def _search(database: sqlite3.Connection, text: str, limit: int, nearest: Sequence[int] = ()) -> list[Row]:
    numbers = fuse(rank_by_words(database, text, limit), nearest)
    rows = [database.execute(f"{_SELECT} WHERE d.id = ?", (number,)).fetchone() for number in numbers]
    return _with_parents(database, [row for row in rows if row])


def _find_definitions(database: sqlite3.Connection, symbol: str, limit: int) -> list[Row]:
    return _with_parents(database, _matching_rows(database, symbol)[:limit])


def _definition_at(database: sqlite3.Connection, path: str, line: int) -> list[Row]:
    rows = database.execute(
        f"{_SELECT} WHERE f.path = ? AND d.first <= ? AND d.last >= ? AND d.kind <> 'constant' "
        "ORDER BY d.last - d.first, d.id DESC LIMIT 1",
        (path, line, line),
    )
    return _with_parents(database, rows)


def _find_used(database: sqlite3.Connection, snippets: Sequence[str], classes: Sequence[str]) -> list[list[Row]]:
    numbers = [int(str(row[9])) for symbol in classes for row in _matching_rows(database, symbol)]
    groups = find_used(Resolver(database), read_uses(snippets), numbers)
    return [
        _with_parents(
            database, [database.execute(f"{_SELECT} WHERE d.id = ?", (number,)).fetchone() for number in group]
        )
        for group in groups
    ]


def _outline(database: sqlite3.Connection, paths: Sequence[str]) -> list[Row]:
    """Return path, whether it is a test, and the names of each file, of some without names."""
    files = database.execute("SELECT path, id, is_test, size FROM files ORDER BY is_test, path").fetchall()
    order = {path: place for place, path in enumerate(reversed(paths), start=1)}
    rows: list[Row] = []
    used = 0
    for path, file, in_tests, size in sorted(files, key=lambda row: -order.get(row[0], 0)):
        names = None
        if used < _MAX_OUTLINE_CHARS and size <= MAX_FILE_BYTES:
            names = list(dict.fromkeys(name for (name,) in database.execute(_OUTLINE, (file,))))
            used += sum(map(len, names))
        rows.append([path, bool(in_tests), names])
    return sorted(rows, key=lambda row: str(row[0]))


def _calls(finder: Finder, database: sqlite3.Connection, symbol: str, limit: int) -> list[Row]:
    """Return path, line, callee, whether it is resolved, and the caller of each call."""
    parts = symbol_parts(symbol)
    definitions = [row for row in _matching_rows(database, symbol) if row[3] != "constant"]
    rows: list[Row] = []
    for call in finder(Resolver(database), [int(str(row[9])) for row in definitions], parts)[:limit]:
        outer = database.execute(f"{_SELECT} WHERE d.id = ?", (call.caller,)).fetchall() if call.caller else []
        caller = _with_parents(database, outer)[0] if outer else None
        rows.append([call.path, call.line, call.callee, call.sure, caller])
    return rows


def _graph(database: sqlite3.Connection, symbol: str, depth: int, limit: int) -> list[Row]:
    """Return way, depth, name, path, line and whether it is resolved of each edge."""
    resolver, edges = Resolver(database), list[Row]()

    def follow(way: str, numbers: Sequence[int], parts: Sequence[str], level: int, visited: frozenset[int]) -> None:
        for call in (callers if way == "callers" else callees)(resolver, numbers, parts):
            following = call.caller if way == "callers" else call.target
            if len(edges) >= limit or (following is not None and following in visited):
                continue
            node = resolver.definition(following) if following is not None else None
            name = node.qualified if node else call.callee
            edges.append([way, level, name, call.path, call.line, call.sure])
            if node and level < depth and call.sure:
                follow(way, [node.number], node.qualified.split("."), level + 1, visited | {node.number})

    start = [int(str(row[9])) for row in _matching_rows(database, symbol) if row[3] != "constant"]
    for way in ("callers", "callees"):
        follow(way, start, symbol_parts(symbol), 1, frozenset(start))
    return edges


def _matching_rows(database: sqlite3.Connection, symbol: str) -> list[Row]:
    path = symbol.rpartition("::")[0] if _WITH_PATH.search(symbol) else ""
    parts = symbol_parts(symbol)
    if not parts:
        return []
    rows = database.execute(f"{_SELECT} WHERE d.name = ? ORDER BY f.is_test, f.path, d.first", (parts[-1],))
    dotted = ".".join(parts)
    return [
        row
        for row in rows
        if (not path or row[0] == path or str(row[0]).endswith(f"/{path}")) and _matches(row, dotted)
    ]


def symbol_parts(symbol: str) -> list[str]:
    """Split a symbol into names, without its path."""
    dotted = symbol.rpartition("::")[2] if _WITH_PATH.search(symbol) else symbol
    return [part for part in re.split(r"\.|::|#", dotted.removesuffix("()")) if part]


def _matches(row: Row, dotted: str) -> bool:
    """Whether a qualified name, with its module, ends in a dotted name."""
    module = str(row[0]).rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
    return f".{module}.{row[2]}".endswith(f".{dotted}")


def _with_parents(database: sqlite3.Connection, rows: Iterable[Row]) -> list[Row]:
    """Replace the parent in each row with all parents' lines."""
    completed: list[Row] = []
    for row in rows:
        parents: list[int] = []
        above = row[7]
        while above is not None:
            header, above = database.execute("SELECT header, parent FROM definitions WHERE id = ?", (above,)).fetchone()
            parents.insert(0, header)
        completed.append([*row[:7], parents, bool(row[8]), row[9]])
    return completed


def embedding_texts(workspace: Workspace, database_path: str, after: int, limit: int) -> str:
    """Return JSON with number, path and text of the next definitions after a number."""
    texts: list[Row] = []
    with workspace, closing(sqlite3.connect(f"file:{quote(database_path)}?mode=ro&immutable=1", uri=True)) as database:
        rows = database.execute(
            "SELECT d.id, f.path, d.qualified, d.first, d.last FROM definitions d JOIN files f ON f.id = d.file "
            "WHERE d.id > ? AND d.kind <> 'constant' AND NOT f.is_test ORDER BY d.id LIMIT ?",
            (after, limit),
        )
        path, lines = "", list[str]()
        for number, file, qualified, first, last in rows:
            if file != path:
                path = file
                try:
                    lines = workspace.read_bytes(path, MAX_FILE_BYTES).decode(errors="replace").split("\n")
                except ToolError:  # removed meanwhile
                    lines = []
            texts.append([number, path, f"{path} {qualified}\n" + "\n".join(lines[first - 1 : last])[:_MAX_TEXT_CHARS]])
    return json.dumps(texts)


_QUERIES: dict[str, Callable[..., object]] = {
    "search": _search,
    "named": _find_definitions,
    "at": _definition_at,
    "used": _find_used,
    "outline": _outline,
    "callers": partial(_calls, callers),
    "callees": partial(_calls, callees),
    "graph": _graph,
}
