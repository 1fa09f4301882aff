"""Read facts from a control block's source without running it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import accumulate

from agent_runtime.core import newer_python

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets into the source, the end exclusive."""


_BINDING = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
"""What binds a name, besides the targets of assignments."""


class CodeError(Exception):
    """Python code that does not parse.

    Attributes:
        line: 1-based line in the code, or None when the parser does not say.
        reason: the parser's words.
    """

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@lru_cache(maxsize=1)  # a control block is parsed by the reader of the reply, for its writes, and to run it
def parse_code(code: str) -> ast.Module:
    """Parse Python code; nobody may change the tree.

    Raises:
        CodeError: it does not parse.
    """
    try:
        return newer_python.parse(code)
    except SyntaxError as error:
        raise CodeError(f"{error.msg} ({newer_python.DIALECT})", error.lineno) from None
    except ValueError as error:  # Null characters, before Python 3.12.
        raise CodeError(str(error), None) from None
    except (RecursionError, MemoryError):  # How CPython's parser says that code is nested too deeply.
        raise CodeError("too deeply nested", None) from None


def discarded_calls(nodes: Collection[ast.AST], source: str) -> frozenset[Span]:
    """The calls whose value the code throws away: expression statements, wherever they stand.

    Args:
        nodes: all of the code's syntax tree.
        source: the code.
    """
    # Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`).
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    calls = [node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    ends = [starts[(call.end_lineno or call.lineno) - 1] + (call.end_col_offset or 0) for call in calls]
    return frozenset((starts[call.lineno - 1] + call.col_offset, end) for call, end in zip(calls, ends, strict=True))


def bound_names(nodes: Collection[ast.AST]) -> frozenset[str]:
    """Every name that the code may bind: variables, functions, classes, imports, attributes, constant keys.

    Args:
        nodes: all of the code's syntax tree.
    """
    return frozenset(
        name
        for node in nodes
        if (isinstance(node, _BINDING) or isinstance(getattr(node, "ctx", None), ast.Store))
        for name in _bound(node)
    )


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            yield key
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=None):
            yield name.partition(".")[0]
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            pass
