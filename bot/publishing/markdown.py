"""Markdown for GitHub's pages: text from the model made harmless, code blocks, names and numbers.

In text that passes through `escape_markdown`, mentions, references to other threads, foreign links, images, raw HTML
and commands lose their effect. GitHub's own parser then reads the result; if anything live is left, the whole text is
shown as a code block. So a mistake in the rewriting costs beauty, never safety. `Allowed` names the people, threads and
pages that may be live.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cmarkgfm import _cmark

from bot.domain.characters import INVISIBLE

COMMENT_LIMIT = 65_536
"""Characters in a comment's body; GitHub answers 422 to more."""

# The limits of GitHub's parser. A longer run opens no code span: https://github.com/github/cmark-gfm/blob/master/src/inlines.c
MOST_TICKS = 80
"""Back ticks in a row that can begin and end a code span."""
# It keeps a fence's length in a byte, so that a run of 255 closes every longer fence:
# https://github.com/github/cmark-gfm/blob/master/src/blocks.c
_LONGEST_FENCE = 200

# ECMA-48 escape sequences: CSI, OSC up to its terminator, and the two-character ones.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|[@-Z\\-_a-z0-9=>])")
_UNSEEN = re.compile(f"[{INVISIBLE}]")


def clean(text: str) -> str:
    """Take out terminal codes, control and invisible characters; a carriage return keeps only what was drawn last."""
    if text.isascii() and text.isprintable():  # as most words of a log line are
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = _UNSEEN.sub("", "\n".join(lines))
    # Half a surrogate pair (a file name that is no UTF-8) cannot be sent.
    return text.encode("utf-8", errors="replace").decode()


def counted(number: int, noun: str) -> str:
    """A number of things, e.g. `1 file`, `1,200 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def one_line(text: str, limit: int) -> str:
    """The text on one line, cut at a word with an ellipsis when it is longer than `limit`."""
    flat = " ".join(clean(text).split())
    if len(flat) <= limit:
        return flat
    head = flat[: limit - 1]
    return (head.rpartition(" ")[0] or head).rstrip(" ,.;:-") + "…"


def clip(text: str, limit: int, note: str) -> str:
    """Cut at a line's end so that text and note fit into `limit` characters; shorter text stays as it is."""
    if len(text) <= limit:
        return text
    head = text[: max(0, limit - len(note) - 2)]
    return (head.rpartition("\n")[0] or head).rstrip() + "\n\n" + note


def _cut_runs(text: str, most: int) -> str:
    """The text with an ellipsis in each run of back ticks that no longer run can enclose."""
    return re.sub(f"`{{{most}}}(?=`)", r"\g<0>…", text)


def code(text: str) -> str:
    """An inline code span that shows exactly this text, whatever back ticks it holds."""
    text = _cut_runs(one_line(text, 500), MOST_TICKS // 2)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A code block that nothing in `text` can end."""
    return fenced_exactly(text.rstrip(), language)


def fenced_exactly(text: str, language: str = "") -> str:
    """The same, blank lines at the end and all; an empty text is a block without lines."""
    text = _cut_runs(text, _LONGEST_FENCE)
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}" if text else f"{fence}{language}\n{fence}"


def duration(seconds: float) -> str:
    """A time span for people: `3 s`, `2 min 5 s`, `1 h 4 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{whole} s" if whole else f"{seconds:.1f} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


DEFAULT_LIMIT = 20_000

_CUT = "_Truncated: see the run's log for the full text._"
_LINE_COMMAND = re.compile(r"^([ \t]*(?:[-*+>][ \t]+|\d+[.)][ \t]+)*)/(?=[A-Za-z])", re.MULTILINE)
_DEFINITION = re.compile(r"^([ \t]*(?:[-*+>][ \t]+)*)\[(?=[^\]\n]*\]:)", re.MULTILINE)
_TICKS = re.compile("`+")
_STRAY_TICK = re.compile(r"(?P<before>(?<!\\)(?:\\\\)*+)\\?(?P<ticks>`+)")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_CELL = re.compile(r"(?<!\\)\|")


def escape_markdown(text: str, allowed: Allowed, *, limit: int = DEFAULT_LIMIT) -> str:
    """Give back Markdown that shows what `text` says and does nothing beyond that.

    Args:
        text: from anybody.
        allowed: what may keep its effect.
        limit: characters of `text` to show; the result has at most twice as many, and a few more.
    """
    text = clip(clean(text).strip(), limit, _CUT)
    # Neutralise every part that is no code block, as GitHub's parser divides the text.
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for node in parse(text):
        # The parser counts no lines of a paragraph that it found to stand before a table.
        if node.kind not in LINED or node.leaving or not node.lines[0]:
            continue
        # No code span leaves such a part.
        first, last = node.lines[0] - 1, _end_of_code(node, lines) if node.kind == "code_block" else node.lines[1]
        out += [_rewrite_part(line, allowed) for line in lines[position:first]]
        part = lines[max(first, position) : last]
        if node.kind == "code_block":
            out += [_inert_fence(part[0]), *part[1:]] if part and first >= position else part
        elif node.kind == "table":
            out += ["|".join(_rewrite_part(cell, allowed) for cell in _CELL.split(line)) for line in part]
        elif part:
            out.append(_rewrite_part("\n".join(part), allowed))
        position = max(position, last)
    out += [_rewrite_part(line, allowed) for line in lines[position:]]
    shown = _balanced("\n".join(out))
    return shown if len(shown) <= 2 * limit and harmless(shown, allowed) else fenced(text, "text")


def _end_of_code(node: Node, lines: list[str]) -> int:
    """The line after a code block's last: the parser's own count takes in a line too many where a quote ends it."""
    end = node.lines[0] - 1 + node.fenced + node.text.count("\n")
    opened = _FENCE.search(lines[node.lines[0] - 1]) if node.fenced else None
    if opened is None or end >= min(len(lines), node.lines[1]):
        return end
    run = lines[end].strip(" \t>")
    return end + (set(run) == {opened["fence"][0]} and len(run) >= len(opened["fence"]))


def _inert_fence(line: str) -> str:
    """The line that opens a code block, with a language that GitHub does no more than colour."""
    opened = _FENCE.search(line)
    if opened is None or not opened["info"].strip():
        return line
    return line[: opened.end("fence")] + known_language(opened["info"])


def _rewrite_part(text: str, allowed: Allowed) -> str:
    out = ""
    position = 0
    for start, end in _code_spans(text):
        out = _joined(_joined(out, _rewrite_text(text[position:start], allowed)), text[start:end])
        position = end
    return _LINE_COMMAND.sub(r"\1\\/", _joined(out, _rewrite_text(text[position:], allowed)))


def _joined(left: str, right: str) -> str:
    """Two code spans that touch would read as one longer run of back ticks."""
    return f"{left} {right}" if left.endswith("`") and right.startswith("`") else left + right


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Code spans by the parser's rule: a run of back ticks up to the next run of the same length."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(text)]
    following: dict[int, int] = {}
    closers: list[int | None] = [None] * len(runs)
    for number, (start, end) in reversed(list(enumerate(runs))):
        if end - start <= MOST_TICKS:
            closers[number] = following.get(end - start)
            following[end - start] = number
    number = 0
    while number < len(runs):
        start = runs[number][0]
        slashes = 0
        while start - slashes > 0 and text[start - slashes - 1] == "\\":
            slashes += 1
        closing = None if (slashes % 2 == 1) else closers[number]
        if closing is not None:
            yield start, runs[closing][1]
            number = closing
        number += 1


def _rewrite_text(text: str, allowed: Allowed) -> str:
    text = _DEFINITION.sub(r"\1\\[", text)
    out = ""
    position = 0
    for match in ACTIVE.finditer(text):
        neutral = _neutral(match, allowed)
        before = _escaped(text[position : match.start()])
        # A backslash would escape the back tick that now follows it.
        out = _joined(_joined(out, before.rstrip("\\") if neutral.startswith("`") else before), neutral)
        position = match.end()
    return _joined(out, _escaped(text[position:]))


def _neutral(match: re.Match[str], allowed: Allowed) -> str:
    if match["target"] is None:
        url = match["url"]
        stays = allowed.spoken(match) if url is None else allowed.link(url.rstrip(".,:;!?)*_~"))
        return match[0] if stays else code(match[0])
    label, target = match["label"], match["target"]
    if not match["image"] and allowed.link(target):
        return f"[{_rewrite_text(label, allowed)}]({target})"
    shown = _rewrite_text(label, allowed).strip()
    return f"{shown} ({code(target)})" if target and shown else shown or code(target)


def _escaped(text: str) -> str:
    """No raw HTML, no entity that turns into `@` or `#` once it is shown, no link that the rules above missed.

    No back tick that would pair with one of a code span behind it, either.
    """
    text = _STRAY_TICK.sub(lambda stray: stray["before"] + "\\`" * len(stray["ticks"]), text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return text.replace("<", "&lt;").replace("](", "]\\(").replace("][", "]\\[")


def _balanced(text: str) -> str:
    """Close a code fence that the text leaves open; one inside a list or a quote ends with it by itself."""
    if not _FENCE.search(text):
        return text
    lines = text.split("\n")
    last = next((node for node in reversed(parse(text)) if node.depth == 1 and not node.leaving), None)
    if last is None or last.kind != "code_block" or not last.fenced or last.lines[1] < len(lines):
        return text
    opened = _FENCE.search(lines[last.lines[0] - 1])
    closed = last.lines[0] + last.text.count("\n") < len(lines)
    return text if closed or opened is None else f"{text}\n{opened['fence']}"


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
        marker: the comment by which it knows its own, as `render.marker` makes it.
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


# Pages that only show something. Links to others can prepare what one more click does: a new file, an issue, a pull
# request, a grant to an app. No query is kept for the same reason.
_PAGE = re.compile(
    r"|/(?:actions|branches|issues|pulls|releases|tags)"
    r"|/(?:blame|blob|commits|tree)/[^/].*"
    r"|/commit/[0-9a-f]{7,64}"
    r"|/actions/runs/[0-9]+(?:/job/[0-9]+)?"
    r"|/releases/tag/[^/].*",
    re.DOTALL,
)
_QUERIES = {"", "plain=1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may keep its effect.

    Attributes:
        login: the person who asked; may be mentioned.
        number: the thread's own number; may be referred to.
        server: the GitHub server's address, e.g. `https://github.com`.
        repo: `owner/name` of the thread; links to those of its pages stay that only show something.
    """

    login: str
    number: int
    server: str
    repo: str

    def link(self, url: str) -> bool:
        """Whether a link may stay: to a page of this repository that changes nothing, and of no other thread."""
        if not url.isprintable() or "\\" in url:
            return False
        try:
            there, here = urlsplit(url), urlsplit(self.server)
        except ValueError:
            return False
        if (there.scheme, there.netloc) != (here.scheme, here.netloc) or there.query not in _QUERIES:
            return False
        path = unquote(there.path).rstrip("/")
        if {".", ".."} & set(path.split("/")):  # a browser walks up before it asks
            return False
        root, rest = path[: len(self.repo) + 1], path[len(self.repo) + 1 :]
        pull = f"/pull/{self.number}"
        own_thread = {f"/issues/{self.number}", pull, f"{pull}/files", f"{pull}/commits", f"{pull}/checks"}
        return root == f"/{self.repo}" and (_PAGE.fullmatch(rest) is not None or rest in own_thread)

    def mention(self, name: str) -> bool:
        """Whether `@name` may stay."""
        return name.casefold() == self.login.casefold()

    def reference(self, text: str) -> bool:
        """Whether `#1`, `owner/name#1` or `GH-1` may stay."""
        return text in {f"#{self.number}", f"{self.repo}#{self.number}"}

    def spoken(self, match: re.Match[str]) -> bool:
        """Whether a match of `SPOKEN` may stay."""
        if match["ref"] is not None:
            return self.reference(match["ref"])
        return match["name"] is not None and self.mention(match["name"].rstrip("-"))


# GitHub's patterns know ASCII alone: a letter of another alphabet before `@`, `#` or `https` is no part of a word.
_REFERENCE = r"(?P<ref>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?#\d++|(?<![\w&])#\d++|(?<!\w)[Gg][Hh]-\d++)"
_COMMIT = r"(?P<commit>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?@[0-9a-f]{7,40}\b)"
_MENTION = r"(?<![A-Za-z0-9])@(?P<name>[A-Za-z0-9][A-Za-z0-9-]*+(?:/[\w.-]++)?(?:\[bot\])?)"
_URL = r"(?P<url>(?i:(?<![A-Za-z])(?:https?|ftp)://|(?<![\w/.])www\.|(?<![A-Za-z])(?:mailto|xmpp|ftp):)[^\s<>`\"']++)"
_EMAIL = r"(?P<email>(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)"
_LINK = r"(?P<image>!?)\[(?P<label>[^\[\]\n]*+)\]\((?P<target>[^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)(?:\s[^()\n]*+)?\)"

SPOKEN = re.compile(f"{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""What GitHub acts on in text that its parser leaves as text: mentions, and references to threads and commits."""

ACTIVE = re.compile(f"{_LINK}|{_URL}|{_EMAIL}|{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""The same, links, addresses and images in the source of a text."""

_EXTENSIONS = (b"autolink", b"table", b"strikethrough", b"tagfilter", b"tasklist")
# https://github.com/github/cmark-gfm/blob/master/src/cmark-gfm.h
_FOOTNOTES = 1 << 13
_VALIDATE_UTF8 = 1 << 9
_DONE, _EXIT = 1, 3
# What cmark says of a fence beside whether it is one: its length, its indentation and its character.
_FENCE_LENGTH = (ctypes.c_int, ctypes.c_int, ctypes.c_char)
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
    """The parts of a text in their order; what holds others is met twice, the second time when it is left.

    The tree is read, not the HTML, in which raw HTML cannot be told from the parser's own. `cmarkgfm` brings the
    library, but its functions never free a tree (a few megabytes a comment), so the library is called without them. The
    parser takes time and memory in proportion to the text.
    """
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
                    and bool(library.cmark_node_get_fenced(node, *(ctypes.byref(each()) for each in _FENCE_LENGTH))),
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
