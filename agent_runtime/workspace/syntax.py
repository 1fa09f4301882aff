"""Read a file with Python's own parser: its errors, its outline. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agent_runtime.core import newer_python

LONGEST = 1_000_000  # characters; a parse takes about a second a megabyte
_MOST_ENTRIES = 60
_HEADING = re.compile(r"^\s*(?:async\s+def|def|class)\s+\w+")


def is_python(path: str) -> bool:
    """Whether a file's name says that it is Python."""
    return path.endswith((".py", ".pyi"))


def check(source: str) -> ast.Module | str:
    """Parse Python source: its tree, or its first error as one sentence."""
    try:
        return newer_python.parse(source)
    except SyntaxError as error:
        where = f" (line {error.lineno}: {(error.text or '').strip()[:100]!r})" if error.lineno else ""
        return f"{error.msg}{where}"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte; nesting deeper than the parser's stack
        return str(error) or "nested too deeply for Python's parser"


def outline(path: str, source: str, after_line: int) -> list[str]:
    """Classes and functions of a Python file that begin behind a line, with their line numbers.

    A file that does not parse is searched for lines that look like headings.
    """
    if not is_python(path) or len(source) > LONGEST:
        return []
    try:
        found = list(_headings(newer_python.parse(source), 0))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = source.split("\n")
        found = [(number, line.rstrip()) for number, line in enumerate(lines, 1) if _HEADING.match(line)]
    width = len(str(found[-1][0])) if found else 0
    entries = [f"{number:>{width}} {text}" for number, text in found if number > after_line]
    rest = len(entries) - _MOST_ENTRIES
    return entries if rest <= 1 else [*entries[:_MOST_ENTRIES], f"… {rest} more"]


def _headings(node: ast.AST, depth: int) -> Iterator[tuple[int, str]]:
    """Top-level names and what stands directly in classes; functions inside functions are detail."""
    for child in ast.iter_child_nodes(node):
        indent = "  " * depth
        if isinstance(child, ast.ClassDef):
            yield child.lineno, f"{indent}class {child.name}"
            yield from _headings(child, depth + 1)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.lineno, f"{indent}def {child.name}"
        elif isinstance(child, ast.If | ast.Try):
            yield from _headings(child, depth)
