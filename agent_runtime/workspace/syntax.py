"""Check a file's syntax and outline it. Pure.

Python is read by its own parser, other languages by the grammars of the extra `syntax`. `SyntaxMemory` finds the errors
that a change brings into a file; of a large Python file it parses only what changed.
"""

from __future__ import annotations

import ast
import importlib
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent_runtime.core import text as text_module
from agent_runtime.workspace.diffs import Text, outer_span

if TYPE_CHECKING:
    from tree_sitter import Parser


LONGEST = 1_000_000  # characters; a parse takes about a second a megabyte
_MOST_ENTRIES = 60
_HEADING = re.compile(r"^\s*(?:async\s+def|def|class)\s+\w+")
_MOST_BYTES = 1_000_000
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
"""The end of a file's name, and the module and function that give its grammar."""
_KEPT = 32  # files


def is_python(path: str) -> bool:
    """Whether a file's name says that it is Python."""
    return path.endswith((".py", ".pyi"))


def check(source: str) -> ast.Module | str:
    """Parse Python source: its tree, or its first error as one sentence."""
    try:
        return text_module.parse(source)
    except SyntaxError as error:
        where = f" (line {error.lineno}: {(error.text or '').strip()[:100]!r})" if error.lineno else ""
        return f"{error.msg}{where}"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte; nesting deeper than the parser's stack
        return str(error) or "nested too deeply for Python's parser"


def parsed(source: str) -> list[int] | str:
    """The lines, from 0, on which the top-level statements of a Python text begin, or its first error."""
    tree = check(source)
    if isinstance(tree, str):
        return tree
    first = [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) for node in tree.body]
    return sorted({line - 1 for line in first})


def outline(path: str, source: str, after_line: int) -> list[str]:
    """Classes and functions of a Python file that begin behind a line, with their line numbers.

    A file that does not parse is searched for lines that look like headings.
    """
    if not is_python(path) or len(source) > LONGEST:
        return []
    try:
        found = list(_headings(text_module.parse(source), 0))
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


def has_grammar(path: str) -> bool:
    """Whether a file's language may be checked."""
    return PurePosixPath(path).suffix in _GRAMMARS


def fault_in(path: str, source: str) -> str | None:
    """The first syntax error of a file, as one sentence; None when there is none, or no grammar for it is installed."""
    grammar = _GRAMMARS.get(PurePosixPath(path).suffix)
    parser = _parser(*grammar) if grammar else None
    data = source.encode(errors="replace")
    if parser is None or len(data) > _MOST_BYTES:
        return None
    node = parser.parse(data).root_node
    if not node.has_error and not node.is_missing:
        return None
    # The innermost error that comes first; only what holds one is looked into.
    while not node.is_missing:
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            break
        node = inner
    row = node.start_point[0]
    line = data.split(b"\n")[row].decode(errors="replace").strip()[:100]
    what = f"{node.type!r} is missing" if node.is_missing else "syntax error"
    return f"{what} (line {row + 1}: {line!r})"


@cache
def _parser(module: str, function: str) -> Parser | None:
    try:
        library, grammar = importlib.import_module("tree_sitter"), importlib.import_module(module)
    except ImportError:  # the extra is not installed; its files are then not checked
        return None
    parser: Parser = library.Parser(library.Language(getattr(grammar, function)()))
    return parser


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A text that parses, and the lines, from 0, on which its top-level statements begin."""

    text: Text
    starts: list[int]


class SyntaxMemory:
    """Finds the syntax errors that changes introduce.

    A Python file of 5,000 lines takes 40 ms to parse, and an agent edits the same file many times. So the first lines
    of the top-level statements in the last version that parsed are kept: if the statements that a change touches parse
    on their own, the file parses, too. Otherwise the whole file is parsed.
    """

    def __init__(
        self,
        parse: Callable[[str], list[int] | str | None] = parsed,
        fault: Callable[[str, str], str | None] = fault_in,
    ) -> None:
        """Remember nothing yet.

        Args:
            parse: `parsed`, or the same for large texts, which gives None where it cannot tell.
            fault: `fault_in`, or the same.
        """
        self._parse, self._fault = parse, fault
        self._known: OrderedDict[str, _Parsed] = OrderedDict()

    def introduced(self, path: str, old: Text | None, new: Text) -> str | None:
        """A syntax error that the file has now and had not before, as one sentence.

        Args:
            path: the file's name, which says its language.
            old: the file before; None when there was none.
            new: the file as it is to be.
        """
        if not is_python(path):
            fault = self._fault(path, new.raw)
            return fault if fault and (old is None or self._fault(path, old.raw) is None) else None
        if len(new.raw) > LONGEST:
            return None
        known = self._known.get(path)
        if known and old and known.text.raw == old.raw and (starts := self._starts_after(known, new)) is not None:
            self._keep(path, new, starts)
            return None
        checked = self._parse(new.raw)
        if isinstance(checked, str):
            return checked if old is None or isinstance(self._parse(old.raw), list) else None
        if checked is not None:
            self._keep(path, new, checked)
        return None

    def _starts_after(self, known: _Parsed, new: Text) -> list[int] | None:
        """Where the statements of the new text begin, if it can be told that it parses."""
        before, after = known.text.lines, new.lines
        first, old_end, new_end = outer_span(before, after)
        moved = new_end - old_end
        starts = known.starts
        low = max(0, bisect_right(starts, first - 1) - 1)
        high = bisect_left(starts, old_end)
        begin = starts[low] if low < len(starts) and starts[low] <= first else 0
        stop = starts[high] + moved if high < len(starts) else len(after)
        if not _counts_alike(new) or (begin and after[begin - 1].endswith("\\")):
            return None
        inner = self._parse("\n".join(after[begin:stop]) + "\n")
        if not isinstance(inner, list):
            return None
        kept = [start for start in starts[: low + 1] if start < begin]
        return [*kept, *(start + begin for start in inner), *(start + moved for start in starts[high:])]

    def _keep(self, path: str, text: Text, starts: list[int]) -> None:
        if not _counts_alike(text):
            return
        self._known[path] = _Parsed(text, starts)
        self._known.move_to_end(path)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def _counts_alike(text: Text) -> bool:
    """Whether Python counts the lines of a text as we do: a carriage return by itself ends one for Python only."""
    if "\r" not in text.raw:
        return True
    return text.raw.count("\r") == text.raw.count("\r\n") == text.raw.count("\n")
