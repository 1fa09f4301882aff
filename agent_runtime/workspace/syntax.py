"""Syntax checks: Python by its parser, other languages by tree-sitter. Pure."""

from __future__ import annotations

import ast
import importlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent_runtime.core import text as text_module
from agent_runtime.workspace.diffs import Text, outer_span

if TYPE_CHECKING:
    from tree_sitter import Parser


MAX_CHARS = 1_000_000  # parsing takes about a second a megabyte
_MAX_BYTES = 1_000_000
_GRAMMARS = {
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("tree_sitter_typescript", "language_typescript")),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
    ".go": ("tree_sitter_go", "language"),
    ".rs": ("tree_sitter_rust", "language"),
    ".java": ("tree_sitter_java", "language"),
    **dict.fromkeys((".c", ".h"), ("tree_sitter_c", "language")),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp"), ("tree_sitter_cpp", "language")),
    ".rb": ("tree_sitter_ruby", "language"),
    **dict.fromkeys((".sh", ".bash"), ("tree_sitter_bash", "language")),
    ".json": ("tree_sitter_json", "language"),
    ".css": ("tree_sitter_css", "language"),
}
"""Module and function of the grammar, by file suffix."""
_MAX_CACHED_FILES = 32  # files


def is_python(path: str) -> bool:
    """Whether a file name is Python's."""
    return path.endswith((".py", ".pyi"))


def parse_python(source: str) -> ast.Module | str:
    """Parse Python; return the tree or the first error."""
    try:
        return text_module.parse(source)
    except SyntaxError as error:
        location = f" (line {error.lineno}: {(error.text or '').strip()[:100]!r})" if error.lineno else ""
        return f"{error.msg}{location}"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte; nesting deeper than the parser's stack
        return str(error) or "nested too deeply for Python's parser"


def statement_lines(source: str) -> list[int] | str:
    """Return the first lines, from 0, of top-level statements, or the first error."""
    tree = parse_python(source)
    if isinstance(tree, str):
        return tree
    first = [min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) for node in tree.body]
    return sorted({line - 1 for line in first})


def has_grammar(path: str) -> bool:
    """Whether a language has a grammar."""
    return PurePosixPath(path).suffix in _GRAMMARS


def find_error(path: str, source: str) -> str | None:
    """Return the first syntax error; None for none, or without a grammar."""
    grammar = _GRAMMARS.get(PurePosixPath(path).suffix)
    parser = _parser(*grammar) if grammar else None
    data = source.encode(errors="replace")
    if parser is None or len(data) > _MAX_BYTES:
        return None
    node = parser.parse(data).root_node
    if not node.has_error and not node.is_missing:
        return None
    # Descend to the first innermost error.
    while not node.is_missing:
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    row = node.start_point[0]
    line = data.split(b"\n")[row].decode(errors="replace").strip()[:100]
    problem = f"{node.type!r} is missing" if node.is_missing else "syntax error"
    return f"{problem} (line {row + 1}: {line!r})"


@cache
def _parser(module: str, function: str) -> Parser | None:
    try:
        library, grammar = importlib.import_module("tree_sitter"), importlib.import_module(module)
    except ImportError:  # without the extra, files are not checked
        return None
    parser: Parser = library.Parser(library.Language(getattr(grammar, function)()))
    return parser


@dataclass(frozen=True, slots=True)
class _ParsedText:
    text: Text
    starts: list[int]


class SyntaxChecker:
    """Finds syntax errors that changes introduce.

    Parsing 5,000 lines of Python takes 40 ms, so only changed top-level statements are parsed, if they parse alone.
    """

    def __init__(
        self,
        parse: Callable[[str], list[int] | str | None] = statement_lines,
        check: Callable[[str, str], str | None] = find_error,
    ) -> None:
        """Store the parsers, or bounded versions of them; `parse` may return None."""
        self._parse, self._check = parse, check
        self._cache: OrderedDict[str, _ParsedText] = OrderedDict()

    def find_new_error(self, path: str, old: Text | None, new: Text) -> str | None:
        """Return an error of the new text that the old one lacks."""
        if not is_python(path):
            error = self._check(path, new.raw)
            return error if error and (old is None or self._check(path, old.raw) is None) else None
        if len(new.raw) > MAX_CHARS:
            return None
        cached = self._cache.get(path)
        if cached and old and cached.text.raw == old.raw and (starts := self._starts_after(cached, new)) is not None:
            self._store(path, new, starts)
            return None
        checked = self._parse(new.raw)
        if isinstance(checked, str):
            return checked if old is None or isinstance(self._parse(old.raw), list) else None
        if checked is not None:
            self._store(path, new, checked)
        return None

    def _starts_after(self, cached: _ParsedText, new: Text) -> list[int] | None:
        before, after = cached.text.lines, new.lines
        first, old_end, new_end = outer_span(before, after)
        shift = new_end - old_end
        starts = cached.starts
        low = max(0, bisect_right(starts, first - 1) - 1)
        high = bisect_left(starts, old_end)
        begin = starts[low] if low < len(starts) and starts[low] <= first else 0
        stop = starts[high] + shift if high < len(starts) else len(after)
        if not _has_python_lines(new) or (begin and after[begin - 1].endswith("\\")):
            return None
        inner = self._parse("\n".join(after[begin:stop]) + "\n")
        if not isinstance(inner, list):
            return None
        unchanged = [start for start in starts[: low + 1] if start < begin]
        return [*unchanged, *(start + begin for start in inner), *(start + shift for start in starts[high:])]

    def _store(self, path: str, text: Text, starts: list[int]) -> None:
        if not _has_python_lines(text):
            return
        self._cache[path] = _ParsedText(text, starts)
        self._cache.move_to_end(path)
        while len(self._cache) > _MAX_CACHED_FILES:
            self._cache.popitem(last=False)


def _has_python_lines(text: Text) -> bool:
    """Whether Python counts lines as we do: not with lone carriage returns."""
    if "\r" not in text.raw:
        return True
    return text.raw.count("\r") == text.raw.count("\r\n") == text.raw.count("\n")
