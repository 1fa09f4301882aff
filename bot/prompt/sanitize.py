"""Clean untrusted text, so that the model reads only the visible text of a page, in time linear in its length.

`clean` is for Markdown, `clean_code` for code and logs, `clean_line` for titles and names.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote

from typing_extensions import override

from bot.domain.characters import INVISIBLE, SURROGATES
from bot.domain.cmark import render_html


def clean(text: str, *, limit: int) -> str:
    """Return the visible text of Markdown, cut to `limit` characters, and a note of the parts that were removed.

    The words are those of the rendered page, in its order. If the source without its hidden parts has the same words,
    it is returned, because it keeps the author's line breaks and indentation; else the page itself.
    """
    text = _normalize_newlines(text)
    invisible = remove_invisible(text)[1]
    text = _UNENCODABLE.sub("", text)
    page = render_page(text)
    source, removed = remove_hidden(text)
    if _words(source) != _words(page.text):
        missing = Counter(_words(html.unescape(text))) - Counter(_words(page.text))
        source, removed = page.text, Counter({"hidden word": missing.total()})
    shown = _DIAGRAM.sub(lambda diagram: _DIAGRAM_COMMENT.sub("", diagram[0]), source)
    removed["diagram line"] += source.count("\n") - shown.count("\n")
    removed["invisible character"] += invisible
    return _annotate(disarm_forged_frames(shown).strip(), removed, limit)


# Lines that are not drawn: https://mermaid.js.org/syntax/flowchart.html#comments, and texts for screen readers.
_DIAGRAM = re.compile(r"(?ims)(?<![`~])(?P<mark>`{3,}+|~{3,}+)[ \t]*+mermaid\b.*?(?=^[ \t>]*+(?P=mark)|\Z)")
_DIAGRAM_COMMENT = re.compile(r"(?im)^[ \t>]*+(?:%%|acc(?:Title|Descr)\b(?:[ \t]*+\{[^}]*+)?).*\n?")


def clean_line(text: str, *, limit: int) -> str:
    """Return plain text, such as a title or a name, on one line; GitHub shows all of it, tags and references too."""
    text, invisible = remove_invisible(text)
    line = " ".join(disarm_forged_frames(normalize_letters(text)).split())
    return " ".join(_annotate(line, Counter({"invisible character": invisible}), limit).split())


def clean_code(text: str, *, limit: int) -> str:
    """Return a diff or log with invisible characters spelled out, cut to `limit` characters."""
    text = spell_out_invisible(_normalize_newlines(text))
    return clip(disarm_forged_frames(text).strip("\n"), limit=limit)


def clip(text: str, *, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters; the start keeps two thirds."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[len(text) - tail :]}"


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _annotate(text: str, removed: Counter[str], limit: int) -> str:
    parts = [f"{number:,} {noun}{'s' if number > 1 else ''}" for noun, number in removed.items() if number]
    text = clip(text, limit=limit)
    if not parts:
        return text
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{text}\n\n[removed from this text: {listed}]".lstrip()


# Words of the page: letters, digits, and signs outside ASCII. Numbers of list items are counted anew by the page.
_WORD = re.compile(r"[^\W_]+|[^\s\x00-\x7f]")
_LIST_NUMBER = re.compile(r"^[ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t>]++|$))*+", re.MULTILINE)


def _words(text: str) -> list[str]:
    return _WORD.findall(unquote(_LIST_NUMBER.sub("", text)))


# https://spec.commonmark.org/0.31.2/#raw-html; in a block quote, `>` follows a line break.
_SPACE = r"(?:[ \t]|\n(?![ \t]*\n)[ \t>]*)"
_VALUE = r"(?:[^\s\"'=<>`]++|\"(?:[^\"\n]|\n(?![ \t]*\n))*+\"|'(?:[^'\n]|\n(?![ \t]*\n))*+')"
_ATTRIBUTE = rf"{_SPACE}++[A-Za-z_:][\w.:-]*+(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+"
# How browsers end a comment: https://html.spec.whatwg.org/multipage/parsing.html#comment-start-state
_COMMENT = r"(?P<comment><!--(?:-?>|.*?(?:--!?>|\Z)))"
_SOURCE = re.compile(
    r"(?P<fence>^[ \t>*+-]*+(?P<mark>`{3,}+|~{3,}+))[ \t]*+(?P<word>[^\s`]*+)(?P<rest>[^`\n]*+$)"
    r"(?P<code>.*?(?:^[ \t>]*+(?P=mark)[`~]*+[ \t]*+$|\Z))"
    r"|\\."
    r"|(?P<ticks>`++)(?:[^\n]{1,1000}?(?<!`)(?P=ticks)(?!`))?"
    rf"|{_COMMENT}"
    rf"|<(?P<tag>/?[A-Za-z][A-Za-z0-9-]*+)(?:{_ATTRIBUTE})*+{_SPACE}*+/?>"
    r"|(?P<image>!\[[^\[\]\n]{0,1000}+\]\([ ]?<?[^()<>\s]*+>?(?:[ ](?:\"[^\"\n]*+\"|'[^'\n]*+'))?\))"
    r"|(?P<footnote>\[\^[^\]\s]{1,999}\])"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)",
    re.DOTALL | re.MULTILINE,
)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.]{1,20}")
_NOUNS = {"comment": "HTML comment", "tag": "HTML tag", "image": "image description"}


def remove_hidden(text: str) -> tuple[str, Counter[str]]:
    """Remove the usual hidden parts from Markdown source; return the rest and the removals by kind.

    An approximation: it does not parse blocks, so that its result must be compared with the page.
    """
    counts: Counter[str] = Counter()
    parts: list[str] = []
    position = 0
    for part in _SOURCE.finditer(text):
        visible = _visible_source(part)
        parts += (normalize_letters(text[position : part.start()]), visible)
        position = part.end()
        for group, noun in _NOUNS.items():
            counts[noun] += part[group] is not None and visible != part[0]
        title = part["fence"] and (part["rest"].strip() or not _LANGUAGE.fullmatch(part["word"] or "a"))
        counts["code block title"] += bool(title)
    return remove_invisible("".join([*parts, normalize_letters(text[position:])]))[0], counts


def _visible_source(part: re.Match[str]) -> str:
    if part["fence"]:
        language = part["word"] if _LANGUAGE.fullmatch(part["word"]) else ""
        return f"{part['fence']}{language}{part['code']}"
    if tag := part["tag"]:
        is_text = tag.removeprefix("/").casefold() in _FILTERED
        return part[0] if is_text else "[image]" if tag.casefold() == "img" else tag_text(tag)
    if part["entity"]:
        return normalize_letters(html.unescape(part[0]))
    replaced = {"comment": "", "image": "[image]", "footnote": _FOOTNOTE}
    return next((text for group, text in replaced.items() if part[group]), part[0])


_FOLDED, _FOOTNOTE, _UNKNOWN_TAG = "[folded section]", "[footnote]", "<…>"
_BLOCKS = re.compile(
    r"blockquote|br|caption|center|dd|details|div|dl|dt|figcaption|figure|footer|h1|h2|h3|h4"
    r"|h5|h6|header|hr|li|ol|p|pre|section|summary|table|tbody|tfoot|thead|tr|ul"
)
_INLINE = re.compile(
    r"a|abbr|b|bdi|bdo|cite|code|col|colgroup|del|dfn|em|i|img|input|ins|kbd|mark|picture|q"
    r"|rp|rt|ruby|s|samp|small|source|span|strike|strong|sub|sup|td|th|time|tt|u|var|wbr"
)
# Tags that people write for generic types and Python's and JavaScript's traces. Without verbs: they form no sentence.
_TYPES = re.compile(
    r"T|K|V|T1|T2|Any|Boolean|Double|Float|Integer|Long|Number|Object|String|bool|boolean|char"
    r"|double|float|int|number|str|string|anonymous|dictcomp|genexpr|lambda|listcomp|module"
    r"|setcomp|stdin|stdout"
)


def tag_text(tag: str) -> str:
    """Return the text in place of a tag, given as `name` or `/name`.

    GitHub removes unknown tags, such as `<String>`. Their names could be words of a hidden instruction, so that only
    names of types are shown.
    """
    name = tag.removeprefix("/")
    if _BLOCKS.fullmatch(name.casefold()):
        return f"\n{_FOLDED}\n" if tag.casefold() == "details" else "\n"
    if _INLINE.fullmatch(name.casefold()):
        return " " if name.casefold() in {"td", "th"} else ""
    return f"<{tag}>" if _TYPES.fullmatch(name) else _UNKNOWN_TAG


# Tokens of HTML: https://html.spec.whatwg.org/multipage/parsing.html#tokenization
_ASSIGNED = r"[ \t\n\f]*+=[ \t\n\f]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f>\"'][^ \t\n\f>]*+|(?=>)|\Z)"
_TOKEN = re.compile(
    rf"{_COMMENT}"
    r"|<(?P<tag>/?[A-Za-z][^ \t\n\f/>]*+)"
    rf"(?P<attributes>(?:[ \t\n\f/]++|(?:=[^ \t\n\f/>=]*+|[^ \t\n\f/>=]++)(?:{_ASSIGNED})?+)*+)(?:>|\Z)"
    r"|<[!?/][^>]*+(?:>|\Z)",
    re.DOTALL,
)
# GitHub's tag filter makes their tags text, unless they are written in an odd way.
_FILTERED = frozenset(["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"])
# Elements whose content is, or may be, removed with them.
_UNSEEN = frozenset(["audio", "math", "noscript", "rp", "svg", "template", "video"])
_UNSEEN_TAG = re.compile(rf"<(?:{'|'.join(sorted(_UNSEEN))})(?![A-Za-z])", re.IGNORECASE)
_MAX_NESTING, _MAX_TARGET_WORDS = 8, 4


@dataclass(slots=True)
class Page:
    """The text and the pictures of a rendered page."""

    parts: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    lists: list[int] = field(default_factory=list)
    quotes: int = 0
    link: tuple[int, str] | None = None
    code: tuple[int, str] | None = None
    language: str = ""
    has_footnotes: bool = False
    is_new_item: bool = False
    is_row: bool = False

    @property
    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self.parts).strip().split("\n")]
        # Of several empty lines, also within a quote, one stays.
        empty = [not line.strip("> ") for line in lines]
        return "\n".join(line for n, line in enumerate(lines) if not (n and empty[n] and empty[n - 1])).strip()

    def add_text(self, raw: str) -> None:
        text = remove_invisible(html.unescape(raw))[0]
        self._write(text if self.code else normalize_letters(text))

    def _write(self, text: str) -> None:
        if self.is_row and text.isspace():
            text = ""
        if self.is_new_item:
            text = text.lstrip("\n")
        if text:
            self.is_new_item = False
            self.parts.append(text.replace("\n", f"\n{self._indent(len(self.lists))}"))

    def _indent(self, depth: int) -> str:
        return "> " * min(self.quotes, _MAX_NESTING) + "   " * min(depth, _MAX_NESTING)

    def add_tag(self, tag: str, attributes: str) -> None:
        if tag.casefold() == "img":
            self.images.append(f"<img{attributes}>")
            self._write("[image]")
        elif self.code:
            self._add_to_code(self.code, tag.casefold(), attributes)
        else:
            self._add_markup(tag, tag.casefold(), attributes)

    def _add_to_code(self, code: tuple[int, str], tag: str, attributes: str) -> None:
        start, kind = code
        if tag == "code" and (language := _CODE_LANGUAGE.match(attributes)):
            self.language = language[1]
        if tag != f"/{kind}":
            return
        text = "".join(self.parts[start:])
        longest = max(map(len, re.findall("`+", text)), default=0)
        fence = "`" * max(longest + 1, 3 if kind == "pre" else 1)
        new_line = f"\n{self._indent(len(self.lists))}"
        text = f"{self.language}{new_line}{text.rstrip()}{new_line}" if kind == "pre" else text
        pad = " " if text.startswith("`") or text.endswith("`") else ""
        self.parts[start:] = [f"{fence}{pad}{text}{pad}{fence}"]
        self.code, self.language = None, ""

    def _add_markup(self, tag: str, lower: str, attributes: str) -> None:
        if lower in {"pre", "code"}:
            self._write("\n" if lower == "pre" else "")
            self.code = (len(self.parts), lower)
        elif lower in {"a", "/a"}:
            self._end_link()
            if lower == "a" and (target := _TARGET.match(attributes)):
                self.link = (len(self.parts), target[2] or html.unescape(target[1]))
        elif lower in {"ul", "ol"}:
            start = _START.match(attributes)
            self.lists.append(int(start[1]) if start else 1 if lower == "ol" else -1)
        elif lower in {"/ul", "/ol"}:
            self.lists = self.lists[:-1]
            self._write("\n")
        elif lower == "li" and self.lists:
            number = self.lists[-1]
            marker = f"{_FOOTNOTE}: " if self.has_footnotes else f"{number}. " if number >= 0 else "- "
            self.parts.append(f"\n{self._indent(len(self.lists) - 1)}{marker}")
            self.lists[-1] += number >= 0
            self.is_new_item = True
        elif lower in {"blockquote", "/blockquote"}:
            self.quotes = max(0, self.quotes + (1 if lower == "blockquote" else -1))
            self._write("\n")
        else:
            self.is_row = lower == "tr" or (self.is_row and lower != "/tr")
            self.has_footnotes |= lower == "section" and "data-footnotes" in attributes
            self._write(tag_text(tag))
            self._write(_marker(lower, attributes))

    def _end_link(self) -> None:
        if self.link is None:
            return
        start, target = self.link
        self.link = None
        text, shown = "".join(self.parts[start:]), unquote(target)
        if target.startswith("data-footnote"):
            self.parts[start:] = [_FOOTNOTE if target == "data-footnote-ref" else ""]
        elif text not in {shown, shown.partition("://")[2], shown.removeprefix("mailto:")}:
            # A reader sees where a link goes, but no prose that is written as a place.
            is_place = len(shown.split()) <= (_MAX_TARGET_WORDS if shown.startswith(("http://", "https://")) else 1)
            self.parts[start:] = [f"[{text}]({target if is_place else ''})"]


def _marker(tag: str, attributes: str) -> str:
    if tag == "input" and attributes.startswith(' type="checkbox"'):
        return "[x]" if " checked" in attributes else "[ ]"
    return _MARKERS.get(tag, "")


_MARKERS = {
    **{f"{end}{name}": sign for name, sign in (("em", "*"), ("strong", "**"), ("del", "~~")) for end in ("", "/")},
    **{f"h{level}": f"{'#' * level} " for level in range(1, 7)},
    "td": " | ",
    "th": " | ",
    "hr": "---\n",
}
_TARGET = re.compile(r' href="([^"]*)"(?:[^>]* (data-footnote-(?:back)?ref))?')
_START = re.compile(r' start="([0-9]{1,9})"')
_CODE_LANGUAGE = re.compile(r' class="language-([A-Za-z0-9+#.]{1,20})"')


def render_page(text: str) -> Page:
    """Return the text that a reader of the rendered Markdown sees.

    GitHub's sanitizer removes comments and unknown tags, and keeps the text between tags.
    """
    source, page = render_html(text), Page()
    ends = _find_unseen(source)
    position = 0
    for token in _TOKEN.finditer(source):
        if token.start() < position:
            continue
        if token.start() > position:
            page.add_text(source[position : token.start()])
        position = token.end()
        tag = token["tag"]
        if tag and tag.casefold() in _FILTERED:
            closing = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(source, position)
            position = closing.start() if closing else len(source)
        elif token.start() in ends:
            position = ends[token.start()]
        elif tag:
            page.add_tag(tag, token["attributes"])
    page.add_text(source[position:])
    return page


def _find_unseen(source: str) -> dict[int, int]:
    """Return the ends of unseen elements by their starts."""
    ends: dict[int, int] = {}
    if not _UNSEEN_TAG.search(source):
        return ends
    opened: dict[str, list[int]] = {}
    for token in _TOKEN.finditer(source):
        tag = (token["tag"] or "").casefold()
        # The next part of a ruby annotation ends the one before.
        if opened.get("rp") and tag in {"rp", "rt", "/ruby"}:
            ends[opened["rp"].pop()] = token.start()
        if tag in _UNSEEN:
            opened.setdefault(tag, []).append(token.start())
        elif tag.startswith("/") and opened.get(tag[1:]):
            ends[opened[tag[1:]].pop()] = token.end()
    ends.update(dict.fromkeys(opened.get("rp", ()), len(source)))
    return ends


def visible_images(text: str) -> list[str]:
    """Return the addresses of the pictures that the rendered Markdown shows."""
    page = render_page(_normalize_newlines(text))
    return [source for tag in page.images for source in image_sources(tag)]


def image_markup(text: str) -> Iterator[str]:
    """Yield the Markdown and HTML of pictures, except in code and comments and by reference."""
    for part in _SOURCE.finditer(text):
        if part["image"] or (part["tag"] or "").casefold() == "img":
            yield part[0]


_INVISIBLE = re.compile(f"[{INVISIBLE}{SURROGATES}]")
_UNENCODABLE = re.compile(f"[\0{SURROGATES}]")
_INVISIBLE_RUN = re.compile(f"{_INVISIBLE.pattern}+")
_MAX_SPELLED_OUT = 4
# ECMA-48 escape sequences, e.g. for colours.
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?)")

# Characters that NFKC maps to plain letters, digits and signs: vertical, small, full-width, mathematical, circled.
# Without back tick and tilde: a fence that they spell is no fence on the page.
_LOOKALIKE = re.compile(
    "[\u207d\u207e\u208d\u208e\u2024-\u2026\u2100-\u214f\u2474-\u24e9\ufe10-\ufe19\ufe30-\ufe6b"
    "\uff01-\uff3f\uff41-\uff5d\U0001d400-\U0001d7ff]+"
)

# The runtime's frame around a quote, and the control marks of some model servers.
_FRAME = re.compile(r"\[(?=[ \t]*(?:end[ \t]+of[ \t]+)?(?:quote|instructions)\b)([^\[\]\n]{0,300})\]?", re.IGNORECASE)
_SERVER_MARK = re.compile(r"<\|(?=[\w:. -]{1,40}\|>)")


def remove_invisible(text: str) -> tuple[str, int]:
    return _INVISIBLE.subn("", text)


def spell_out_invisible(text: str) -> str:
    """Remove terminal codes and spell out invisible characters, e.g. `[U+202E]`."""
    return _INVISIBLE_RUN.sub(_code_points, _TERMINAL_CODE.sub("", text))


def _code_points(run: re.Match[str]) -> str:
    if len(run[0]) > _MAX_SPELLED_OUT:
        return f"[{len(run[0]):,} invisible characters]"
    return "".join(f"[U+{ord(character):04X}]" for character in run[0])


def normalize_letters(text: str) -> str:
    """Convert full-width, mathematical and similar characters to ASCII."""
    return text if text.isascii() else _LOOKALIKE.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)


def disarm_forged_frames(text: str) -> str:
    """Disarm imitations of a quote's frame or a model server's control mark."""
    return _SERVER_MARK.sub("< |", _FRAME.sub(r"(\1)", text))


def image_sources(page: str) -> list[str]:
    reader = _ImageSourceParser()
    reader.feed(page)
    return reader.sources


class _ImageSourceParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sources: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and (source := dict(attrs).get("src")):
            self.sources.append(source)
