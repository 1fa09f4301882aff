"""Find what would be live in a text on a GitHub page, by GitHub's own parser. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bot.publishing.active import SPOKEN, Allowed
from bot.publishing.gfm import Node, parse
from bot.publishing.text import clip, code, fenced

_BLOCKS = "document block_quote list item tasklist paragraph heading table table_header table_row table_cell"
_SHOWN = "thematic_break code_block text softbreak linebreak code emph strong strikethrough link"
_INERT = frozenset(f"{_BLOCKS} {_SHOWN}".split())
_STILL = _INERT - {"link"}
_LAST_COMMENT = re.compile(r"\n\n<!-- [\w:=. -]+ -->\Z")
_HTML = frozenset({"html_block", "html_inline"})
_INLINE = frozenset({"text", "code", "emph", "strong", "strikethrough", "link", "html_inline"})
_OUR_TAGS = re.compile(r"</?(?:details|summary|sub)>")
_ADDRESS = re.compile(r"\S*://\S*")
# In a formula these link, load or change what stands around it: https://docs.mathjax.org/en/latest/input/tex/macros
_FORMULA = re.compile(
    r"\\(?:href|url|includegraphics|html\w*|class|cssId|style|require|unicode|[gex]?def|newcommand)\b"
)
# GitHub draws what is in others: https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/creating-diagrams
_COLOURED = """
asm awk bash bat batch c c# c++ clj clojure cmake cmd conf console cpp cs csharp css csv cuda cython dart diff docker
dockerfile elixir elm erlang ex fish fortran fsharp go graphql groovy gherkin go.mod h haskell hcl hpp hs html http
ini java javascript jinja jinja2 js json json5 jsonc jsx julia kotlin kt latex less lisp log lua make makefile
markdown matlab md mdx nginx nim nix none objc objective-c ocaml output pascal patch perl php plain plaintext
powershell proto protobuf ps1 pwsh py pycon python python3 pytb r racket rb regex rst ruby rust rs sass scala scheme
scss sh shell shell-session sol solidity sql starlark svelte swift tcl terraform tex text toml traceback ts tsv tsx
txt typescript vb verilog vhdl vim vue wasm xml yaml yml zig zsh
"""
_LANGUAGES = frozenset(_COLOURED.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What the bot itself put around foreign words.

    Attributes:
        links: where its own links lead.
        marker: the comment by which it knows its own, as `marker.marker` makes it.
        tags: whether `<details>`, `<summary>` and `<sub>` are there.
        languages: of fences beyond those that are only coloured.
    """

    links: frozenset[str] = frozenset()
    marker: str = ""
    tags: bool = False
    languages: frozenset[str] = frozenset()


_NOTHING = Own()


def harmless(markdown: str, allowed: Allowed, own: Own = _NOTHING) -> bool:
    """Whether nothing in it is live that neither is allowed nor our own.

    Live are raw HTML, images, links, mentions, references, drawings, and formulas that do more than show something.
    """
    nodes = parse(markdown)
    if not all(node.leaving or _node_harmless(node, allowed, own) for node in nodes):
        return False
    text = "".join(_spoken(nodes, own))
    formula = "$" in text and _FORMULA.search(text + "".join(node.text for node in nodes if node.kind == "code"))
    return not formula and all(allowed.spoken(match) for match in SPOKEN.finditer(text))


def sealed(markdown: str, allowed: Allowed, own: Own, *, limit: int) -> str:
    """The text as it is to be sent: itself when it is harmless as a whole, else all of it as a code block."""
    if harmless(markdown, allowed, own):
        return markdown
    tail = f"\n\n{own.marker}" if own.marker else ""
    body = markdown.replace(own.marker, "") if own.marker else markdown
    room = limit - len(tail)
    while len(shown := fenced(clip(body, room, "…"), "text")) > limit - len(tail):
        room -= len(shown) - (limit - len(tail))
    return shown + tail


def quiet(redact: Callable[[str], str]) -> Callable[[str], str]:
    """The same redaction for texts that were made harmless before: what it takes out brings nothing to life.

    Without a word before it `(//evil.example)` is text, and behind `[redacted]` a link; and a key that is cut out may
    take one back tick of a pair with it.
    """

    def redacted(text: str) -> str:
        shown = redact(text)
        if shown == text or _live(shown) <= _live(text):
            return shown
        marker = _LAST_COMMENT.search(shown)
        body = shown[: marker.start()] if marker else shown
        block = fenced(body, "text") if "\n" in body else code(body)
        return block + (marker[0] if marker else "")

    return redacted


def known_language(info: str) -> str:
    """What may stand behind the opening of a code fence: a language that is only coloured, else `text`."""
    word = info.split(maxsplit=1)[0].casefold() if info.strip() else ""
    return word if not word or word in _LANGUAGES else "text"


def _node_harmless(node: Node, allowed: Allowed, own: Own) -> bool:
    if node.kind in _HTML:
        return own.tags and "<" not in _ours_out(node.text, own)
    if node.kind == "link":
        return node.target in own.links or allowed.link(node.target)
    if node.kind == "code_block":
        return not node.info or node.info in own.languages or node.info.casefold() == known_language(node.info)
    return node.kind in _INERT


def _ours_out(html: str, own: Own) -> str:
    return _OUR_TAGS.sub("", html.replace(own.marker, "") if own.marker else html)


def _spoken(nodes: Iterable[Node], own: Own) -> Iterator[str]:
    """The text in which GitHub looks for mentions and references, across emphasis; code is out of its reach."""
    link: Node | None = None
    for node in nodes:
        if node.kind == "link":
            link = None if node.leaving else node
        elif node.kind == "text":
            if link is None:
                yield node.text
            elif link.target not in own.links:
                # GitHub takes nothing inside a link for a reference; the texts of the model's links are still checked.
                yield _ADDRESS.sub(" ", node.text)
        elif node.kind == "code":
            yield "\ufffc"
        elif node.kind in _HTML:
            yield _ours_out(node.text, own)
        elif node.kind not in _INLINE:
            yield "\n"


def _live(markdown: str) -> set[str]:
    """Everything in it that acts, no matter for whom."""
    nodes = parse(markdown)
    acting = {
        f"{node.kind} {node.target}{node.info or node.text}"
        for node in nodes
        if not node.leaving and (node.kind not in _STILL or node.info)
    }
    return acting | {match[0] for match in SPOKEN.finditer("".join(_spoken(nodes, _NOTHING)))}
