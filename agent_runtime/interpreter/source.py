"""What can be read off a control block's source without running it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets into the source, the end exclusive."""


def discarded_calls(tree: ast.Module, source: str) -> frozenset[Span]:
    """The calls whose value the code throws away: expression statements, wherever they stand."""
    starts = _line_starts(source)
    return frozenset(
        _span(node.value, starts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )


def bound_names(tree: ast.Module) -> frozenset[str]:
    """Every name that the code may bind: variables, functions, classes, imports, attributes, constant keys."""
    return frozenset(name for node in ast.walk(tree) for name in _bound(node))


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store()):
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


def _line_starts(source: str) -> list[int]:
    """Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`)."""
    data = source.encode()
    starts = [0]
    starts.extend(i + 1 for i, byte in enumerate(data) if byte == ord("\n"))
    return starts
