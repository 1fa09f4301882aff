"""GitHub's own Markdown parser: its tree, and its HTML.

`cmarkgfm`'s own functions leak each tree (a few megabytes a comment), so its C library is called directly.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cmarkgfm import _cmark

_EXTENSIONS = (b"autolink", b"table", b"strikethrough", b"tagfilter", b"tasklist")
# https://github.com/github/cmark-gfm/blob/master/src/cmark-gfm.h
_FOOTNOTES = 1 << 13
_UNSAFE = 1 << 17
_VALIDATE_UTF8 = 1 << 9
_DONE, _EXIT = 1, 3
# cmark's output parameters for a fence: length, indentation and character.
_FENCE_OUT = (ctypes.c_int, ctypes.c_int, ctypes.c_char)
# These are entered and never left: https://github.com/github/cmark-gfm/blob/master/src/iterator.c
_LEAVES = frozenset(
    {"html_block", "thematic_break", "code_block", "text", "softbreak", "linebreak", "code", "html_inline"}
)

LINE_BLOCKS = frozenset({"code_block", "paragraph", "heading", "table"})
"""Blocks with line numbers."""


class Node(NamedTuple):
    """A node of the parsed document.

    Attributes:
        kind: cmark's name, e.g. `paragraph`, `text`, `code`, `link`, `html_block`.
        depth: number of enclosing nodes.
        info: info string of a code fence.
        lines: first and last line, from 1; only for `LINE_BLOCKS`.
    """

    kind: str
    depth: int
    is_end: bool = False
    text: str = ""
    target: str = ""
    info: str = ""
    is_fenced: bool = False
    lines: tuple[int, int] = (0, 0)


def parse_markdown(text: str) -> list[Node]:
    """Parse GitHub Markdown into nodes in document order; a container also yields an end node.

    Time and memory are linear in the text.
    """
    library = _load_cmark()
    nodes: list[Node] = []
    depth = 0
    with _parse(text) as (_, root):
        iterator = library.cmark_iter_new(root)
        try:
            while (event := library.cmark_iter_next(iterator)) != _DONE:
                node = library.cmark_iter_get_node(iterator)
                kind = _decode(library.cmark_node_get_type_string(node))
                if event == _EXIT:
                    depth -= 1
                    nodes.append(Node(kind, depth, is_end=True))
                elif kind == "text":
                    nodes.append(Node(kind, depth, text=_decode(library.cmark_node_get_literal(node))))
                else:
                    nodes.append(_read_node(library, node, kind, depth))
                    depth += kind not in _LEAVES
        finally:
            library.cmark_iter_free(iterator)
    return nodes


def render_html(text: str) -> str:
    """Render GitHub Markdown as HTML with GitHub's tag filter, before its sanitizer."""
    library = _load_cmark()
    with _parse(text) as (parser, root):
        extensions = library.cmark_parser_get_syntax_extensions(parser)
        page = library.cmark_render_html(root, _UNSAFE | _FOOTNOTES, extensions)
        try:
            return _decode(ctypes.string_at(page))
        finally:
            _free(page)


@contextmanager
def _parse(text: str) -> Iterator[tuple[int, int]]:
    library = _load_cmark()
    parser = library.cmark_parser_new(_FOOTNOTES | _VALIDATE_UTF8)
    root = None
    try:
        for name in _EXTENSIONS:
            library.cmark_parser_attach_syntax_extension(parser, library.cmark_find_syntax_extension(name))
        raw = text.encode("utf-8", errors="replace")
        library.cmark_parser_feed(parser, raw, len(raw))
        root = library.cmark_parser_finish(parser)
        yield parser, root
    finally:
        library.cmark_node_free(root)
        library.cmark_parser_free(parser)


def _read_node(library: ctypes.CDLL, node: int, kind: str, depth: int) -> Node:
    block, has_lines = kind == "code_block", kind in LINE_BLOCKS
    return Node(
        kind,
        depth,
        text=_decode(library.cmark_node_get_literal(node)) if kind in _LEAVES else "",
        target=_decode(library.cmark_node_get_url(node)) if kind in {"link", "image"} else "",
        info=_decode(library.cmark_node_get_fence_info(node)) if block else "",
        is_fenced=block and bool(library.cmark_node_get_fenced(node, *(ctypes.byref(ctype()) for ctype in _FENCE_OUT))),
        lines=(library.cmark_node_get_start_line(node), library.cmark_node_get_end_line(node)) if has_lines else (0, 0),
    )


def _decode(value: bytes | None) -> str:
    return value.decode("utf-8", errors="replace") if value else ""


@functools.cache
def _load_cmark() -> ctypes.CDLL:
    library = ctypes.CDLL(_cmark.__file__)
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result_type, *argument_types in (
        ("cmark_gfm_core_extensions_ensure_registered", None),
        ("cmark_find_syntax_extension", pointer, text),
        ("cmark_parser_new", pointer, number),
        ("cmark_parser_attach_syntax_extension", number, pointer, pointer),
        ("cmark_parser_feed", None, pointer, text, ctypes.c_size_t),
        ("cmark_parser_finish", pointer, pointer),
        ("cmark_parser_free", None, pointer),
        ("cmark_parser_get_syntax_extensions", pointer, pointer),
        ("cmark_render_html", pointer, pointer, number, pointer),
        ("cmark_iter_new", pointer, pointer),
        ("cmark_iter_next", number, pointer),
        ("cmark_iter_get_node", pointer, pointer),
        ("cmark_iter_free", None, pointer),
        ("cmark_node_get_type_string", text, pointer),
        ("cmark_node_get_literal", text, pointer),
        ("cmark_node_get_url", text, pointer),
        ("cmark_node_get_fence_info", text, pointer),
        ("cmark_node_get_fenced", number, pointer, pointer, pointer, pointer),
        ("cmark_node_get_start_line", number, pointer),
        ("cmark_node_get_end_line", number, pointer),
        ("cmark_node_free", None, pointer),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result_type, argument_types
    library.cmark_gfm_core_extensions_ensure_registered()
    return library


def _free(memory: int) -> None:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    free(memory)
