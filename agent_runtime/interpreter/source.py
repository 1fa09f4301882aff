"""What can be read off a control block's source without running it. Pure."""

from __future__ import annotations

import ast

Span = tuple[int, int]
"""Start and end of an expression as UTF-8 byte offsets into the source, the end exclusive."""


def discarded_calls(source: str) -> frozenset[Span]:
    """The calls whose value the code throws away: expression statements, wherever they stand."""
    starts = _line_starts(source)
    return frozenset(
        _span(node.value, starts)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )


def assigned_names(source: str) -> frozenset[str]:
    """Every name that the code may bind: variables, functions, classes, imports, caught exceptions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return frozenset(names)


def _span(node: ast.expr, starts: list[int]) -> Span:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


def _line_starts(source: str) -> list[int]:
    """Byte offset of each line's start, by the line ends that `ast` counts (not `str.splitlines`)."""
    data = source.encode()
    starts = [0]
    starts.extend(i + 1 for i, byte in enumerate(data) if byte == ord("\n"))
    return starts
