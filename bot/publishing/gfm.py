"""Parse a text as GitHub does: cmark-gfm with the extensions that GitHub turns on.

The tree is read, not the HTML: in the tree, raw HTML and what the parser made of Markdown cannot be taken for each
other. `cmarkgfm` brings the library; its own functions never free a tree, a few megabytes a comment, so the library
is called here without them. The parser takes time and memory in proportion to the text.
"""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

from cmarkgfm import _cmark

_EXTENSIONS = (b"autolink", b"table", b"strikethrough", b"tagfilter", b"tasklist")
# https://github.com/github/cmark-gfm/blob/master/src/cmark-gfm.h
_FOOTNOTES = 1 << 13
_VALIDATE_UTF8 = 1 << 9
_DONE, _EXIT = 1, 3
# What cmark says of a fence beside whether it is one: its length, its indentation and its character.
_FENCE = (ctypes.c_int, ctypes.c_int, ctypes.c_char)
# These are entered and never left: https://github.com/github/cmark-gfm/blob/master/src/iterator.c
_LEAVES = frozenset(
    {"html_block", "thematic_break", "code_block", "text", "softbreak", "linebreak", "code", "html_inline"}
)

LINED = frozenset({"code_block", "paragraph", "heading", "table"})
"""The blocks of which the lines are told."""


class Node(NamedTuple):
    """A part of a text, as the parser met it.

    Attributes:
        kind: cmark's name of it, e.g. `paragraph`, `text`, `code`, `link`, `html_block`.
        depth: how many nodes it lies in; the document's own parts lie in one.
        leaving: whether this is the end of a node that holds others.
        text: what it says: of a text, of code, of raw HTML.
        target: where a link or an image leads.
        info: what stands behind the opening of a code fence.
        fenced: of a code block, whether it stands between fences.
        lines: the first and the last line, counted from 1; of the blocks in `LINED` only.
    """

    kind: str
    depth: int
    leaving: bool = False
    text: str = ""
    target: str = ""
    info: str = ""
    fenced: bool = False
    lines: tuple[int, int] = (0, 0)


def parse(text: str) -> list[Node]:
    """The parts of a text in their order; what holds others is met twice, the second time when it is left."""
    library = _library()
    found: list[Node] = []
    depth = 0
    parser = library.cmark_parser_new(_FOOTNOTES | _VALIDATE_UTF8)
    root = iterator = None
    try:
        for name in _EXTENSIONS:
            library.cmark_parser_attach_syntax_extension(parser, library.cmark_find_syntax_extension(name))
        raw = text.encode("utf-8", errors="replace")
        library.cmark_parser_feed(parser, raw, len(raw))
        root = library.cmark_parser_finish(parser)
        iterator = library.cmark_iter_new(root)
        while (event := library.cmark_iter_next(iterator)) != _DONE:
            node = library.cmark_iter_get_node(iterator)
            kind = _string(library.cmark_node_get_type_string(node))
            if event == _EXIT:
                depth -= 1
                found.append(Node(kind, depth, leaving=True))
            elif kind == "text":
                found.append(Node(kind, depth, text=_string(library.cmark_node_get_literal(node))))
            else:
                block, lined = kind == "code_block", kind in LINED
                part = Node(
                    kind,
                    depth,
                    text=_string(library.cmark_node_get_literal(node)) if kind in _LEAVES else "",
                    target=_string(library.cmark_node_get_url(node)) if kind in {"link", "image"} else "",
                    info=_string(library.cmark_node_get_fence_info(node)) if block else "",
                    fenced=block
                    and bool(library.cmark_node_get_fenced(node, *(ctypes.byref(each()) for each in _FENCE))),
                    lines=(library.cmark_node_get_start_line(node), library.cmark_node_get_end_line(node))
                    if lined
                    else (0, 0),
                )
                found.append(part)
                depth += kind not in _LEAVES
    finally:
        if iterator is not None:
            library.cmark_iter_free(iterator)
        library.cmark_node_free(root)
        library.cmark_parser_free(parser)
    return found


def _string(value: bytes | None) -> str:
    return value.decode("utf-8", errors="replace") if value else ""


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(_cmark.__file__)
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, gives, *takes in (
        ("cmark_gfm_core_extensions_ensure_registered", None),
        ("cmark_find_syntax_extension", pointer, text),
        ("cmark_parser_new", pointer, number),
        ("cmark_parser_attach_syntax_extension", number, pointer, pointer),
        ("cmark_parser_feed", None, pointer, text, ctypes.c_size_t),
        ("cmark_parser_finish", pointer, pointer),
        ("cmark_parser_free", None, pointer),
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
        function.restype, function.argtypes = gives, takes
    library.cmark_gfm_core_extensions_ensure_registered()
    return library
