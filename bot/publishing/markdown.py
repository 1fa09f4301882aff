"""Markdown for GitHub: escape untrusted text, build code spans and blocks, format numbers.

`escape_markdown` disables mentions, references to other threads, foreign links, images, raw HTML and commands. GitHub's
own parser then verifies the result; if any markup is still active, the whole text becomes a code block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from bot.domain.characters import INVISIBLE
from bot.domain.cmark import LINE_BLOCKS, Node, parse_markdown

COMMENT_LIMIT = 62_000
"""Characters in a comment's text. GitHub allows 65,536; the rest is for the stamp of a workflow run."""

# The limits of GitHub's parser. A longer run opens no code span: https://github.com/github/cmark-gfm/blob/master/src/inlines.c
MOST_TICKS = 80
"""Longest run of back ticks that delimits a code span."""
# It keeps a fence's length in a byte, so that a run of 255 closes every longer fence:
# https://github.com/github/cmark-gfm/blob/master/src/blocks.c
_LONGEST_FENCE = 200

# ECMA-48 escape sequences: CSI, OSC up to its terminator, and the two-character ones.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|[@-Z\\-_a-z0-9=>])")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def clean(text: str) -> str:
    """Remove terminal codes, control and invisible characters; of a redrawn line only the last version stays."""
    if text.isascii() and text.isprintable():  # the common case
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = _INVISIBLE.sub("", "\n".join(lines))
    # Half a surrogate pair (a file name that is no UTF-8) cannot be sent.
    return text.encode("utf-8", errors="replace").decode()


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def one_line(text: str, limit: int) -> str:
    flat = " ".join(clean(text).split())
    if len(flat) <= limit:
        return flat
    head = flat[: limit - 1]
    return (head.rpartition(" ")[0] or head).rstrip(" ,.;:-") + "…"


def clip(text: str, limit: int, note: str) -> str:
    if len(text) <= limit:
        return text
    head = text[: max(0, limit - len(note) - 2)]
    return (head.rpartition("\n")[0] or head).rstrip() + "\n\n" + note


def _cut_runs(text: str, most: int) -> str:
    return re.sub(f"`{{{most}}}(?=`)", r"\g<0>…", text)


def code(text: str) -> str:
    text = _cut_runs(one_line(text, 500), MOST_TICKS // 2)
    longest_run = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest_run + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fence(text: str, language: str = "") -> str:
    return fence_exactly(text.rstrip(), language)


def fence_exactly(text: str, language: str = "") -> str:
    text = _cut_runs(text, _LONGEST_FENCE)
    longest_run = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest_run + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}" if text else f"{fence}{language}\n{fence}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{whole} s" if whole else f"{seconds:.1f} s"
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {seconds_left} s"


DEFAULT_LIMIT = 20_000

_TRUNCATED = "_Truncated: see the run's log for the full text._"
_LINE_COMMAND = re.compile(r"^([ \t]*(?:[-*+>][ \t]+|\d+[.)][ \t]+)*)/(?=[A-Za-z])", re.MULTILINE)
_DEFINITION = re.compile(r"^([ \t]*(?:[-*+>][ \t]+)*)\[(?=[^\]\n]*\]:)", re.MULTILINE)
_TICKS = re.compile("`+")
_STRAY_TICK = re.compile(r"(?P<before>(?<!\\)(?:\\\\)*+)\\?(?P<ticks>`+)")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_CELL = re.compile(r"(?<!\\)\|")


def escape_markdown(text: str, allowed: Allowlist, *, limit: int = DEFAULT_LIMIT) -> str:
    """Escape untrusted text so that only allowed markup stays active.

    Keeps `limit` characters of the text; the result has at most about twice as many.
    """
    text = clip(clean(text).strip(), limit, _TRUNCATED)
    # Escape every part that GitHub's parser does not treat as a code block.
    lines = text.split("\n")
    escaped: list[str] = []
    position = 0
    for node in parse_markdown(text):
        # A paragraph directly before a table has no line numbers.
        if node.kind not in LINE_BLOCKS or node.is_end or not node.lines[0]:
            continue
        # A code span never crosses the border of such a block.
        first, last = node.lines[0] - 1, _code_block_end(node, lines) if node.kind == "code_block" else node.lines[1]
        escaped += [_escape_inline(line, allowed) for line in lines[position:first]]
        part = lines[max(first, position) : last]
        if node.kind == "code_block":
            escaped += [_neutralize_fence(part[0]), *part[1:]] if part and first >= position else part
        elif node.kind == "table":
            escaped += ["|".join(_escape_inline(cell, allowed) for cell in _CELL.split(line)) for line in part]
        elif part:
            escaped.append(_escape_inline("\n".join(part), allowed))
        position = max(position, last)
    escaped += [_escape_inline(line, allowed) for line in lines[position:]]
    result = _close_fence("\n".join(escaped))
    return result if len(result) <= 2 * limit and is_harmless(result, allowed) else fence(text, "text")


def _code_block_end(node: Node, lines: list[str]) -> int:
    end = node.lines[0] - 1 + node.is_fenced + node.text.count("\n")
    opened = _FENCE.search(lines[node.lines[0] - 1]) if node.is_fenced else None
    if opened is None or end >= min(len(lines), node.lines[1]):
        return end
    run = lines[end].strip(" \t>")
    return end + (set(run) == {opened["fence"][0]} and len(run) >= len(opened["fence"]))


def _neutralize_fence(line: str) -> str:
    opened = _FENCE.search(line)
    if opened is None or not opened["info"].strip():
        return line
    return line[: opened.end("fence")] + highlighted_language(opened["info"])


def _escape_inline(text: str, allowed: Allowlist) -> str:
    escaped = ""
    position = 0
    for start, end in _code_spans(text):
        escaped = _join(_join(escaped, _escape_active(text[position:start], allowed)), text[start:end])
        position = end
    return _LINE_COMMAND.sub(r"\1\\/", _join(escaped, _escape_active(text[position:], allowed)))


def _join(first: str, second: str) -> str:
    return f"{first} {second}" if first.endswith("`") and second.startswith("`") else first + second


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield code spans by the parser's rule: from a run of back ticks to the next run of equal length."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(text)]
    next_runs: dict[int, int] = {}
    closers: list[int | None] = [None] * len(runs)
    for number, (start, end) in reversed(list(enumerate(runs))):
        if end - start <= MOST_TICKS:
            closers[number] = next_runs.get(end - start)
            next_runs[end - start] = number
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


def _escape_active(text: str, allowed: Allowlist) -> str:
    text = _DEFINITION.sub(r"\1\\[", text)
    escaped = ""
    position = 0
    for match in ACTIVE_MARKUP.finditer(text):
        neutral = _neutralize_match(match, allowed)
        before = _escape_characters(text[position : match.start()])
        # A backslash would escape the back tick that now follows it.
        escaped = _join(_join(escaped, before.rstrip("\\") if neutral.startswith("`") else before), neutral)
        position = match.end()
    return _join(escaped, _escape_characters(text[position:]))


def _neutralize_match(match: re.Match[str], allowed: Allowlist) -> str:
    if match["target"] is None:
        url = match["url"]
        is_allowed = allowed.permits_match(match) if url is None else allowed.permits_link(url.rstrip(".,:;!?)*_~"))
        address = match[0].rstrip(".,:;!?")  # the rest is the sentence's
        return match[0] if is_allowed else code(address) + match[0][len(address) :]
    label, target = match["label"], match["target"]
    if not match["image"] and allowed.permits_link(target):
        return f"[{_escape_active(label, allowed)}]({target})"
    text = _escape_active(label, allowed).strip()
    return f"{text} ({code(target)})" if target and text else text or code(target)


def _escape_characters(text: str) -> str:
    text = _STRAY_TICK.sub(lambda stray: stray["before"] + "\\`" * len(stray["ticks"]), text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return text.replace("<", "&lt;").replace("](", "]\\(").replace("][", "]\\[")


def _close_fence(text: str) -> str:
    if not _FENCE.search(text):
        return text
    lines = text.split("\n")
    last = next((node for node in reversed(parse_markdown(text)) if node.depth == 1 and not node.is_end), None)
    if last is None or last.kind != "code_block" or not last.is_fenced or last.lines[1] < len(lines):
        return text
    opened = _FENCE.search(lines[last.lines[0] - 1])
    is_closed = last.lines[0] + last.text.count("\n") < len(lines)
    return text if is_closed or opened is None else f"{text}\n{opened['fence']}"


_BLOCK_KINDS = "document block_quote list item tasklist paragraph heading table table_header table_row table_cell"
_LEAF_KINDS = "thematic_break code_block text softbreak linebreak code emph strong strikethrough link"
_INERT_KINDS = frozenset(f"{_BLOCK_KINDS} {_LEAF_KINDS}".split())
_INACTIVE_KINDS = _INERT_KINDS - {"link"}
_LAST_COMMENT = re.compile(r"\n\n<!-- [\w:=. -]+ -->\Z")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HTML_KINDS = frozenset({"html_block", "html_inline"})
_INLINE_KINDS = frozenset({"text", "code", "emph", "strong", "strikethrough", "link", "html_inline"})
_BOT_TAGS = re.compile(r"</?(?:details|summary|sub)>")
_ADDRESS = re.compile(r"\S*://\S*")
# Formula macros that link, load or affect surrounding content: https://docs.mathjax.org/en/latest/input/tex/macros
_FORMULA = re.compile(
    r"\\(?:href|url|includegraphics|html\w*|class|cssId|style|require|unicode|[gex]?def|newcommand)\b"
)
# GitHub renders diagrams in other languages: https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/creating-diagrams
_HIGHLIGHTED = """
asm awk bash bat batch c c# c++ clj clojure cmake cmd conf console cpp cs csharp css csv cuda cython dart diff docker
dockerfile elixir elm erlang ex fish fortran fsharp go graphql groovy gherkin go.mod h haskell hcl hpp hs html http
ini java javascript jinja jinja2 js json json5 jsonc jsx julia kotlin kt latex less lisp log lua make makefile
markdown matlab md mdx nginx nim nix none objc objective-c ocaml output pascal patch perl php plain plaintext
powershell proto protobuf ps1 pwsh py pycon python python3 pytb r racket rb regex rst ruby rust rs sass scala scheme
scss sh shell shell-session sol solidity sql starlark svelte swift tcl terraform tex text toml traceback ts tsv tsx
txt typescript vb verilog vhdl vim vue wasm xml yaml yml zig zsh
"""
_LANGUAGES = frozenset(_HIGHLIGHTED.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class BotMarkup:
    """Markup that the bot adds around untrusted text: links, its marker, HTML tags, fence languages."""

    links: frozenset[str] = frozenset()
    marker: str = ""
    tags: bool = False
    languages: frozenset[str] = frozenset()


_NO_MARKUP = BotMarkup()


def is_harmless(markdown: str, allowed: Allowlist, markup: BotMarkup = _NO_MARKUP) -> bool:
    nodes = parse_markdown(markdown)
    if not all(node.is_end or _is_node_harmless(node, allowed, markup) for node in nodes):
        return False
    text = "".join(_reference_text(nodes, markup))
    formula = "$" in text and _FORMULA.search(text + "".join(node.text for node in nodes if node.kind == "code"))
    return not formula and all(allowed.permits_match(match) for match in REFERENCES.finditer(text))


def defuse(markdown: str, allowed: Allowlist, markup: BotMarkup, *, limit: int) -> str:
    """Return the text if it is harmless, else all of it as a code block."""
    if is_harmless(markdown, allowed, markup):
        return markdown
    tail = f"\n\n{markup.marker}" if markup.marker else ""
    body = markdown.replace(markup.marker, "") if markup.marker else markdown
    room = limit - len(tail)
    while len(block := fence(clip(body, room, "…"), "text")) > limit - len(tail):
        room -= len(block) - (limit - len(tail))
    return block + tail


def redact_inertly(redact: Callable[[str], str]) -> Callable[[str], str]:
    """Wrap a redaction for escaped text, so that a removal cannot activate markup.

    `(//evil.example)` is plain text, but becomes a link behind `[redacted]`; a removed key may take one back tick of a
    pair with it.
    """

    def redacted(text: str) -> str:
        result = redact(text)
        if result == text or _active_elements(result) <= _active_elements(text):
            return result
        marker = _LAST_COMMENT.search(result)
        body = result[: marker.start()] if marker else result
        block = fence(body, "text") if "\n" in body else code(body)
        return block + (marker[0] if marker else "")

    return redacted


def highlighted_language(info: str) -> str:
    """Return the language of a code fence, or `text` if GitHub does more than highlight it."""
    word = info.split(maxsplit=1)[0].casefold() if info.strip() else ""
    return word if not word or word in _LANGUAGES else "text"


def _is_node_harmless(node: Node, allowed: Allowlist, markup: BotMarkup) -> bool:
    if node.kind in _HTML_KINDS:
        return markup.tags and "<" not in _strip_markup(node.text, markup)
    if node.kind == "link":
        return node.target in markup.links or allowed.permits_link(node.target)
    if node.kind == "code_block":
        return not node.info or node.info in markup.languages or node.info.casefold() == highlighted_language(node.info)
    return node.kind in _INERT_KINDS


def _strip_markup(html: str, markup: BotMarkup) -> str:
    return _BOT_TAGS.sub("", html.replace(markup.marker, "") if markup.marker else html)


def _reference_text(nodes: Iterable[Node], markup: BotMarkup) -> Iterator[str]:
    """Yield the text in which GitHub looks for mentions and references; code is out of its reach."""
    link: Node | None = None
    for node in nodes:
        if node.kind == "link":
            link = None if node.is_end else node
        elif node.kind == "text":
            if link is None:
                yield node.text
            elif link.target not in markup.links:
                # GitHub ignores references inside a link, but the model's link texts are checked all the same.
                yield _ADDRESS.sub(" ", node.text)
        elif node.kind == "code":
            yield "\ufffc"
        elif node.kind in _HTML_KINDS:
            yield _strip_markup(node.text, markup)
        elif node.kind not in _INLINE_KINDS:
            yield "\n"


def active_references(markdown: str) -> frozenset[str]:
    """Return the mentions and references that GitHub makes links of, and the targets of links."""
    targets = frozenset(node.target for node in parse_markdown(markdown) if node.kind == "link" and not node.is_end)
    return targets.union(match[0] for match in REFERENCES.finditer(extract_text(markdown)))


def extract_text(markdown: str) -> str:
    """Return the text in which references can be active: not in code, comments, pictures and the words of links."""
    parts, target, start = list[str](), "", 0
    for node in parse_markdown(markdown):
        if node.kind in {"link", "image"} and not node.is_end:
            target, start = node.target, len(parts)
        elif node.kind in {"link", "image"}:
            words = "".join(parts[start:])
            parts[start:] = [words if words == target else "\ufffc"]
        elif node.kind in _HTML_KINDS | {"text"}:
            parts.append(node.text if node.kind == "text" else _COMMENT.sub("\ufffc", node.text))
        elif node.kind not in {"emph", "strong", "strikethrough"}:
            parts.append("\n" if node.kind in {"softbreak", "linebreak"} else " \ufffc ")
    return "".join(parts)


def _active_elements(markdown: str) -> set[str]:
    nodes = parse_markdown(markdown)
    elements = {
        f"{node.kind} {node.target}{node.info or node.text}"
        for node in nodes
        if not node.is_end and (node.kind not in _INACTIVE_KINDS or node.info)
    }
    return elements | {match[0] for match in REFERENCES.finditer("".join(_reference_text(nodes, _NO_MARKUP)))}


# Read-only pages. Others can prefill an action that one click completes: a new file, an issue, a pull request, an app
# grant. Queries are rejected for the same reason.
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
class Allowlist:
    """Mentions, references and links that may stay active: the user, thread, server and repository of a job.

    Attributes:
        all_threads: whether references to other threads of the repository stay active, too.
    """

    login: str
    number: int
    server: str
    repo: str
    all_threads: bool = False

    def permits_link(self, url: str) -> bool:
        """Whether the link leads to a read-only page of this repository, and not to another thread."""
        if not url.isprintable() or "\\" in url:
            return False
        try:
            target, home = urlsplit(url), urlsplit(self.server)
        except ValueError:
            return False
        if (target.scheme, target.netloc) != (home.scheme, home.netloc) or target.query not in _QUERIES:
            return False
        path = unquote(target.path).rstrip("/")
        if {".", ".."} & set(path.split("/")):  # a browser resolves these before the request
            return False
        root, rest = path[: len(self.repo) + 1], path[len(self.repo) + 1 :]
        pull = f"/pull/{self.number}"
        own_thread = {f"/issues/{self.number}", pull, f"{pull}/files", f"{pull}/commits", f"{pull}/checks"}
        return root == f"/{self.repo}" and (_PAGE.fullmatch(rest) is not None or rest in own_thread)

    def permits_mention(self, name: str) -> bool:
        return name.casefold() == self.login.casefold()

    def permits_reference(self, text: str) -> bool:
        is_local = self.all_threads and text.startswith("#")
        return is_local or text in {f"#{self.number}", f"{self.repo}#{self.number}"}

    def permits_match(self, match: re.Match[str]) -> bool:
        if match["ref"] is not None:
            return self.permits_reference(match["ref"])
        return match["name"] is not None and self.permits_mention(match["name"].rstrip("-"))


# GitHub's patterns know ASCII alone: a letter of another alphabet before `@`, `#` or `https` is no part of a word.
_REFERENCE = r"(?P<ref>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?#\d++|(?<![\w&])#\d++|(?<!\w)[Gg][Hh]-\d++)"
_COMMIT = r"(?P<commit>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?@[0-9a-f]{7,40}\b)"
_MENTION = r"(?<![A-Za-z0-9])@(?P<name>[A-Za-z0-9][A-Za-z0-9-]*+(?:/[\w.-]++)?(?:\[bot\])?)"
_URL = r"(?P<url>(?i:(?<![A-Za-z])(?:https?|ftp)://|(?<![\w/.])www\.|(?<![A-Za-z])(?:mailto|xmpp|ftp):)[^\s<>`\"']++)"
_EMAIL = r"(?P<email>(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)"
_LINK = r"(?P<image>!?)\[(?P<label>[^\[\]\n]*+)\]\((?P<target>[^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)(?:\s[^()\n]*+)?\)"

REFERENCES = re.compile(f"{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""Mentions, and references to threads and commits, which GitHub activates in plain text."""

ACTIVE_MARKUP = re.compile(f"{_LINK}|{_URL}|{_EMAIL}|{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""The same, plus links, addresses and images in Markdown source."""
