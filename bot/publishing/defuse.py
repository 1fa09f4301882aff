"""Text from the model made harmless on a GitHub page, still readable as Markdown. Pure.

Mentions, references to other threads, foreign links, images, raw HTML and commands lose their effect. What the
rewriting gives is then read by an independent CommonMark parser; should anything active be left, the whole text is
shown as a code block. So a surprise in the rewriting costs beauty, never safety.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.publishing.text import clean, clip, code, fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may keep its effect.

    Attributes:
        login: the person who asked; may be mentioned.
        number: the thread's own number; may be referred to.
        server: the GitHub server's address, e.g. `https://github.com`; links to it stay links.
        repo: `owner/name` of the thread.
    """

    login: str
    number: int
    server: str
    repo: str

    def link(self, url: str) -> bool:
        """Whether a link may stay: on the server, and no reference that shows up in another thread."""
        try:
            there, here = urlsplit(url), urlsplit(self.server)
        except ValueError:
            return False
        if (there.scheme, there.netloc) != (here.scheme, here.netloc):
            return False
        path = there.path.rstrip("/")
        if _THREAD_PATH.search(path) is None:
            return True
        return path in {f"/{self.repo}/issues/{self.number}", f"/{self.repo}/pull/{self.number}"}

    def mention(self, name: str) -> bool:
        """Whether `@name` may stay."""
        return name.casefold() == self.login.casefold()

    def reference(self, text: str) -> bool:
        """Whether `#1`, `owner/name#1` or `GH-1` may stay."""
        return text in {f"#{self.number}", f"{self.repo}#{self.number}"}


DEFAULT_LIMIT = 20_000

_CUT = "_Cut here: the whole is in the run's log._"
_THREAD_PATH = re.compile(r"/(?:issues|pull|pulls|discussions|commit|compare)/")
_MENTION = r"(?<![A-Za-z0-9])@(?P<name>[A-Za-z0-9][A-Za-z0-9-]*+(?:/[\w.-]++)?(?:\[bot\])?)"
_REFERENCE = r"(?P<ref>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?#\d++|(?<![\w&])#\d++|(?<!\w)[Gg][Hh]-\d++)"
_COMMIT = r"(?P<commit>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?@[0-9a-f]{7,40}\b)"
_URL = r"(?P<url>(?:(?<!\w)https?://|(?<![\w/.])www\.|(?<!\w)(?:mailto|xmpp|ftp):)[^\s<>`\"']++)"
_EMAIL = r"(?P<email>(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)"
_LINK = r"(?P<image>!?)\[(?P<label>[^\[\]\n]*+)\]\((?P<target>[^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)(?:\s[^()\n]*+)?\)"
_ACTIVE = re.compile(f"{_LINK}|{_URL}|{_EMAIL}|{_COMMIT}|{_REFERENCE}|{_MENTION}")
_LINE_COMMAND = re.compile(r"^([ \t]*(?:[-*+>][ \t]+|\d+[.)][ \t]+)*)/(?=[A-Za-z])", re.MULTILINE)
_DEFINITION = re.compile(r"^([ \t]*(?:[-*+>][ \t]+)*)\[(?=[^\]\n]*\]:)", re.MULTILINE)
_TICKS = re.compile("`+")
_PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")


def defuse(text: str, allowed: Allowed, *, limit: int = DEFAULT_LIMIT) -> str:
    """Give back Markdown that shows what `text` says and does nothing beyond that.

    Args:
        text: from anybody.
        allowed: what may keep its effect.
        limit: characters of `text` to show; the result has at most twice as many, and a few more.
    """
    text = clip(clean(text).strip(), limit, _CUT)
    shown = _balanced(_rewritten(text, allowed))
    return shown if len(shown) <= 2 * limit and harmless(shown, allowed) else fenced(text, "text")


def harmless(markdown: str, allowed: Allowed) -> bool:
    """Whether a parser finds no HTML, image, foreign link, mention, reference or command in it."""
    return all(_token_harmless(token, allowed) for token in _flat(_PARSER.parse(markdown)))


def _token_harmless(token: Token, allowed: Allowed) -> bool:
    if token.type in {"html_block", "html_inline", "image"}:
        return False
    if token.type == "link_open":
        return allowed.link(str(token.attrGet("href") or ""))
    if token.type == "inline":
        # GitHub looks for these in the text as shown, across emphasis; code is out of its reach.
        return _text_harmless(_shown(token), allowed)
    return True


def _shown(inline: Token) -> str:
    parts: list[str] = []
    inside_link = 0
    for child in inline.children or ():
        inside_link += child.nesting if child.type.startswith("link_") else 0
        if child.type in {"text", "text_special"}:
            parts.append(re.sub(r"\S*://\S*", " ", child.content) if inside_link else child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            parts.append("\n")
        elif child.type == "code_inline":
            parts.append("\ufffc")
    return "".join(parts)


def _text_harmless(text: str, allowed: Allowed) -> bool:
    return all(_may_stay(match, allowed) for match in _ACTIVE.finditer(text) if match["target"] is None)


def _may_stay(match: re.Match[str], allowed: Allowed) -> bool:
    if match["url"] is not None:
        return allowed.link(match["url"].rstrip(".,:;!?)*_~"))
    if match["ref"] is not None:
        return allowed.reference(match["ref"])
    if match["name"] is not None:
        return allowed.mention(match["name"].rstrip("-"))
    return False


def _rewritten(text: str, allowed: Allowed) -> str:
    """Neutralise every part that is no code block, as a CommonMark parser divides the text."""
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for first, last in _code_blocks(text):
        out += _rewrite_prose("\n".join(lines[position:first]), allowed).split("\n") if first > position else []
        out += lines[first:last]
        position = last
    if position < len(lines):
        out.append(_rewrite_prose("\n".join(lines[position:]), allowed))
    return "\n".join(out)


def _code_blocks(text: str) -> Iterator[tuple[int, int]]:
    for token in _PARSER.parse(text):
        if token.type in {"fence", "code_block"} and token.map:
            yield token.map[0], token.map[1]


def _rewrite_prose(text: str, allowed: Allowed) -> str:
    """Rewrite prose paragraph by paragraph, code spans left alone; a span never reaches over a blank line."""
    parts = re.split(r"(\n[ \t]*\n)", text)
    return "".join(part if number % 2 else _rewrite_paragraph(part, allowed) for number, part in enumerate(parts))


def _rewrite_paragraph(text: str, allowed: Allowed) -> str:
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
    """Code spans by CommonMark's rule: a run of back ticks up to the next run of the same length."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(text)]
    closers = _next_of_same_length(runs)
    number = 0
    while number < len(runs):
        start = runs[number][0]
        closing = None if _is_escaped(text, start) else closers[number]
        if closing is not None:
            yield start, runs[closing][1]
            number = closing
        number += 1


def _next_of_same_length(runs: list[tuple[int, int]]) -> list[int | None]:
    seen: dict[int, int] = {}
    found: list[int | None] = [None] * len(runs)
    for number in range(len(runs) - 1, -1, -1):
        length = runs[number][1] - runs[number][0]
        found[number] = seen.get(length)
        seen[length] = number
    return found


def _is_escaped(text: str, position: int) -> bool:
    slashes = 0
    while position - slashes > 0 and text[position - slashes - 1] == "\\":
        slashes += 1
    return slashes % 2 == 1


def _rewrite_text(text: str, allowed: Allowed) -> str:
    text = _DEFINITION.sub(r"\1\\[", text)
    out = ""
    position = 0
    for match in _ACTIVE.finditer(text):
        neutral = _neutral(match, allowed)
        before = _escaped(text[position : match.start()])
        # A backslash would escape the back tick that now follows it.
        out = _joined(_joined(out, before.rstrip("\\") if neutral.startswith("`") else before), neutral)
        position = match.end()
    return _joined(out, _escaped(text[position:]))


def _neutral(match: re.Match[str], allowed: Allowed) -> str:
    if match["target"] is None:
        return match[0] if _may_stay(match, allowed) else code(match[0])
    label, target = match["label"], match["target"]
    if not match["image"] and allowed.link(target):
        return f"[{_rewrite_text(label, allowed)}]({target})"
    shown = _rewrite_text(label, allowed).strip()
    return f"{shown} ({code(target)})" if target and shown else shown or code(target)


def _escaped(text: str) -> str:
    """No raw HTML, no entity that turns into `@` or `#` once it is shown, no link that the rules above missed."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return text.replace("<", "&lt;").replace("](", "]\\(").replace("][", "]\\[")


def _balanced(text: str) -> str:
    """Close a code fence that the text leaves open; one inside a list or a quote ends with it by itself."""
    last = next((t for t in reversed(_PARSER.parse(text)) if t.type == "fence" and t.level == 0), None)
    lines = text.split("\n")
    if last is None or last.map is None or last.map[1] < len(lines):
        return text
    closing = lines[-1].strip()
    closed = set(closing) == {last.markup[0]} and len(closing) >= len(last.markup) and last.map[1] - last.map[0] > 1
    return text if closed else f"{text}\n{last.markup}"


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])
