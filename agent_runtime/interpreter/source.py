"""What can be read off a control block's source without running it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import accumulate

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets into the source, the end exclusive."""


_BINDING = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
"""What binds a name, besides the targets of assignments."""


def discarded_calls(nodes: Collection[ast.AST], source: str) -> frozenset[Span]:
    """The calls whose value the code throws away: expression statements, wherever they stand.

    Args:
        nodes: all of the code's syntax tree.
        source: the code.
    """
    # Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`).
    starts = [0, *accumulate(len(line) + 1 for line in source.encode().split(b"\n"))]
    return frozenset(
        _span(node.value, starts) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )


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


def _span(node: ast.expr, starts: list[int]) -> Span:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
