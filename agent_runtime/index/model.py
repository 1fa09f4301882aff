"""The interface of the code index: what it finds, and how it is asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


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
