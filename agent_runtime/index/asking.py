"""Answer questions from an index's file. Runs in a worker process."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from urllib.parse import quote

from agent_runtime.core.errors import ToolError
from agent_runtime.index.building import MOST_BYTES
from agent_runtime.index.ranking import fused, ranked
from agent_runtime.index.resolving import Finder, Resolver, callees, callers
from agent_runtime.workspace.files import Workspace

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


def _at(database: sqlite3.Connection, path: str, line: int) -> list[Row]:
    found = database.execute(
        f"{_SELECT} WHERE f.path = ? AND d.first <= ? AND d.last >= ? AND d.kind <> 'constant' "
        "ORDER BY d.last - d.first, d.id DESC LIMIT 1",
        (path, line, line),
    )
    return _rows(database, found)


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


def texts(workspace: Workspace, place: str, after: int, most: int) -> str:
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
