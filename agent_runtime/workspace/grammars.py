"""Syntax errors in other languages than Python, for those whose grammar is installed (the extra `syntax`)."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser

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
