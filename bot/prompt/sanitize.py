"""Text from strangers, cleaned so that the model reads only what a reader of the page sees.

`clean` is for Markdown, `clean_code` for code and logs, `clean_line` for names. `without_hidden` removes text that
Markdown and HTML hide. Everything takes time linear in the length of the text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from typing_extensions import override

from bot.domain.characters import SURROGATES, UNSEEN


def clean(text: str, *, limit: int) -> str:
    """Markdown as its reader sees it, capped in length, with a note below it of what was removed.

    Invisible characters, HTML, descriptions of images, titles and definitions of links go; full-width letters and
    character references become plain text; collapsed parts are mentioned. Code blocks and spans stay to the letter.
    Line ends become line feeds. Cleaning a cleaned text that was not cut gives the same text.

    Args:
        text: any text.
        limit: characters to keep; a longer text loses its middle.
    """
    text, removed = without_hidden(_with_line_feeds(text))
    parts = [f"{number:,} {noun}{'s' if number > 1 else ''}" for noun, number in removed.items() if number]
    text = clip(text, limit=limit)
    if not parts:
        return text
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{text}\n\n[removed from this text: {listed}]".lstrip()


def clean_code(text: str, *, limit: int) -> str:
    """What programs wrote, such as a diff or a log, to the letter, with invisible characters spelled out.

    Args:
        text: any text.
        limit: characters to keep; a longer text loses its middle.
    """
    text = with_invisible_shown(_with_line_feeds(text))
    return clip(unforged(text).strip("\n"), limit=limit)


def clean_line(text: str, *, limit: int) -> str:
    """`clean`, for what must stay on one line, such as a title."""
    return " ".join(clean(text, limit=limit).split())


def clip(text: str, *, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters, and say how much; the start keeps two thirds."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[len(text) - tail :]}"


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


_INVISIBLE, _COMMENTS, _TAGS, _IMAGES, _TITLES, _DEFINITIONS, _INFOS = (
    "invisible character",
    "HTML comment",
    "HTML tag",
    "image description",
    "link title",
    "link definition",
    "code block title",
)

# GitHub's own limit of a text is 65,536 characters; what is longer, or nested deeper than people do, is all searched.
_PARSED_CHARS = 70_000
_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-+*](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))){7}", re.MULTILINE)
_ROUNDS = 8
_SIGNS = re.compile(r"[<>\[\]&`~]+")

# How browsers end a comment: https://html.spec.whatwg.org/multipage/parsing.html#comment-start-state
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
_CODE_OR_ANGLE = re.compile(r"\\.|(?P<ticks>`++)|<", re.DOTALL)
_ANGLED_TICK = re.compile(r"<[^\s<>`]*+`[^\s<>]*+>")
_BORDER = re.compile(r"(?<!\\)\|")
_TICKS = re.compile(r"`++")
_OPENING = re.compile(r"(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<word>[^\s`]*+)(?P<rest>[^\n]*+)")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.]{1,20}")
_QUOTED = r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)"
_SPACES = r"(?:\s[\s>]*+)"
# A link's target up to its end, and its title. It always matches, so no part of the text is read twice.
_TARGET = re.compile(rf"(\]\()({_SPACES}?+(?:<[^<>\n]*+>)?+\S*+)(?:{_SPACES}(?:{_QUOTED})[\s>]*+(?=\)))?+", re.DOTALL)
_SPACED_TARGET = re.compile(r"<[^<>\n]*[ \t][^<>\n]*>")
_BRACKET = re.compile(r"\\.|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*+>|!?\[|\]", re.DOTALL)
_AFTER_IMAGE = re.compile(r"\(\s*+(?:<[^<>\n]*+>|[^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)?+)\s*+\)|\[[^\[\]]*+\]")
_LABEL = re.compile(r"\]\[([^\[\]]{1,999})\]")
_FOOTNOTE = re.compile(r"^([ \t>*+-]*)\[\^[^\]\s]{1,999}\]:", re.MULTILINE)
_DEFINITION = re.compile(
    r"^[ \t>*+-]*\[(?:[^\[\]\\]|\\.){0,999}\]:(?:[^\n]|\n(?![ \t]*(?:\n|\Z)))*+", re.MULTILINE | re.DOTALL
)
_PLACE = re.compile("\ue000([0-9]+)\ue001")
_MARK = "\ue002{}\ue003"
_MARKED = re.compile(_MARK.format("([0-9]+)"))


def without_hidden(text: str) -> tuple[str, Counter[str]]:
    """The text as a page shows it, without a forged frame, and how many of which hiding places were emptied.

    A CommonMark parser finds the lines that are code, HTML or definitions. Code stays to the letter, since its reader
    sees all of it. The rest is searched again until nothing hidden is found, with patterns that take linear time.
    Where this and GitHub read a text differently, this removes too much rather than too little.

    Args:
        text: Markdown, its lines ended by line feeds.
    """
    counts: Counter[str] = Counter()
    text = _counted(without_invisible, text, _INVISIBLE, counts).strip()
    return _emptied(text, counts, _Images([])), counts


def shown_images(text: str) -> list[str]:
    """Addresses of the images that stand where `without_hidden` leaves text; empty for one that a definition gives.

    Args:
        text: as for `without_hidden`.
    """
    text, addresses = with_images_marked(without_invisible(text)[0].strip(), _MARK)
    images = _Images(addresses)
    _emptied(text, Counter(), images)
    return images.seen


@dataclass(frozen=True, slots=True)
class _Images:
    """Addresses of images by the numbers in their marks, and of those the ones that nothing hides."""

    addresses: list[str]
    seen: list[str] = field(default_factory=list)

    def marked(self, address: str) -> str:
        """A mark that stands for an image."""
        self.addresses.append(address)
        return _MARK.format(len(self.addresses) - 1)

    def shown(self, text: str) -> str:
        """The text with words in place of the marks."""
        return _MARKED.sub(self._shown, text)

    def _shown(self, mark: re.Match[str]) -> str:
        self.seen.append(self.addresses[int(mark[1])])
        return "[image]"


def _emptied(text: str, counts: Counter[str], images: _Images) -> str:
    for _ in range(_ROUNDS):
        before, text = text, _once(text, counts, images)
        if text == before:
            return text
    # What grows a new hiding place in every round is an attack; without these signs there is no Markdown left.
    images.seen.clear()
    return _SIGNS.sub(" ", text).strip()


def _once(text: str, counts: Counter[str], images: _Images) -> str:
    stash: list[str] = []
    labels: set[str] = set()
    text = _prose(text, stash, labels, counts)
    text = in_plain_letters(without_entities(text))
    # A reference such as `&#8203;` spells one; here no mark of the stash may go with it.
    text = _counted(without_spelled, text, _INVISIBLE, counts)
    # A space is left behind: were the ends joined, they could spell a new comment.
    text = _counted(lambda each: _COMMENT.subn(" ", each), text, _COMMENTS, counts)
    text = _counted(without_tags, text, _TAGS, counts)
    text = _counted(_without_titles, text, _TITLES, counts)
    text = _counted(lambda each: _without_images(each, labels, images), text, _IMAGES, counts)
    text = _LABEL.sub(lambda found: "]" if normalizeReference(found[1]) in labels else found[0], text)
    text = images.shown(_FOOTNOTE.sub(r"\1[footnote]", text))
    return unforged(_PLACE.sub(lambda place: stash[int(place[1])], text)).strip()


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    # Only the division into blocks is wanted; what is in a line is searched here.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _prose(text: str, stash: list[str], labels: set[str], counts: Counter[str]) -> str:
    """The text with code in the stash, and without definitions and the tags of whole blocks of HTML."""
    if len(text) > _PARSED_CHARS or _DEEP.search(text):
        return _counted(lambda each: _DEFINITION.subn("", each), text, _DEFINITIONS, counts)
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for first, last, kind in _blocks(text, labels):
        if first < position:
            continue
        out += lines[position:first]
        block = "\n".join(lines[first:last])
        if kind == "definition":
            counts[_DEFINITIONS] += 1
        elif kind == "fence":
            # Of the line that opens it a page shows the language at most.
            if (opening := _OPENING.search(block)) is not None:
                word = opening["word"] if _LANGUAGE.fullmatch(opening["word"]) else ""
                counts[_INFOS] += bool(opening["rest"].strip()) or word != opening["word"]
                block = f"{block[: opening.start()]}{opening['fence']}{word}{block[opening.end() :]}"
            out.append(_stashed(block, stash))
        elif kind == "html_block":
            block, tags, whole = html_without_tags(block)
            counts[_TAGS] += tags
            out.append(block)
            if not whole:
                # A tag that never ends takes everything after it out of sight.
                return "\n".join(out)
        elif kind == "tr_open":
            out.append("|".join(_code_stashed(cell, stash) for cell in _BORDER.split(block)))
        else:
            out.append(_code_stashed(block, stash))
        position = last
    return "\n".join([*out, *lines[position:]])


def _blocks(text: str, labels: set[str]) -> list[tuple[int, int, str]]:
    """First line, line after the last, and kind of every block that is not plain structure, in order."""
    env: dict[str, Any] = {}
    # What the cells of a table hold stands on the row's line.
    found = [
        (token.map[0], token.map[1], token.type)
        for token in _parser().parse(text, env)
        if token.map and token.type in {"fence", "html_block", "inline", "tr_open"}
    ]
    definitions = [(label, each["map"]) for label, each in env.get("references", {}).items()]
    definitions += [(each["label"], each["map"]) for each in env.get("duplicate_refs", [])]
    labels.update(label for label, _ in definitions)
    found += [(line, after, "definition") for _, (line, after) in definitions]
    return sorted(found, key=lambda block: (block[:2], block[2] != "tr_open"))


def _stashed(code: str, stash: list[str]) -> str:
    stash.append(code)
    return f"\ue000{len(stash) - 1}\ue001"


def _code_stashed(block: str, stash: list[str]) -> str:
    """A paragraph with its code spans in the stash, up to where HTML may have taken a back tick for itself."""
    # Where a code span ends that begins at a run of back ticks: after the next run of the same length.
    following: dict[int, int] = {}
    closers: dict[int, int] = {}
    for run in reversed(list(_TICKS.finditer(block))):
        length = len(run[0])
        if length in following:
            closers[run.start()] = following[length]
        following[length] = run.end()
    out: list[str] = []
    position = 0
    while (found := _CODE_OR_ANGLE.search(block, position)) is not None:
        out.append(block[position : found.start()])
        position = found.end()
        if found[0] == "<":
            tag = TAG.match(block, found.start()) or _ANGLED_TICK.match(block, found.start())
            if block.startswith(("<!", "<?"), found.start()) or (tag is not None and "`" in tag[0]):
                return "".join([*out, block[found.start() :]])
        elif found["ticks"] and block[found.start() - 1 : found.start()] == "`":
            # The run begins with one that a backslash took away: too odd to be told apart.
            return "".join([*out, block[found.start() :]])
        elif found["ticks"] and found.start() in closers:
            position = closers[found.start()]
        span = block[found.start() : position]
        # On one line and without a cell's border it is code for every reader.
        is_code = found["ticks"] and len(span) > len(found[0]) and "\n" not in span and "|" not in span
        out.append(_stashed(span, stash) if is_code else span)
    return "".join([*out, block[position:]])


def _without_titles(text: str) -> tuple[str, int]:
    number = 0

    def bare(found: re.Match[str]) -> str:
        nonlocal number
        shown = f"{found[1]}{_SPACED_TARGET.sub('<>', found[2])}"
        number += shown != found[0]
        return shown

    return _TARGET.sub(bare, text), number


def _without_images(text: str, labels: set[str], images: _Images) -> tuple[str, int]:
    out: list[str] = []
    position = number = 0
    for start, end, address in sorted(_images(text, labels)):
        if start < position:
            continue
        out += (text[position:start], images.marked(address))
        position = end
        number += 1
    return "".join([*out, text[position:]]), number


def _images(text: str, labels: set[str]) -> Iterator[tuple[int, int, str]]:
    """Where each begins and ends, and its address; empty for one that a definition elsewhere gives."""
    opened: list[tuple[int, bool]] = []
    for mark in _BRACKET.finditer(text):
        if mark[0] in {"[", "!["}:
            opened.append((mark.start(), mark[0] == "!["))
        elif mark[0] == "]" and opened:
            start, image = opened.pop()
            if not image:
                continue
            after = _AFTER_IMAGE.match(text, mark.end())
            if text.startswith("(", mark.end()) or (after is not None and normalizeReference(after[0][1:-1]) in labels):
                address = after[0][1:-1].strip() if after and after[0].startswith("(") else ""
                yield start, after.end() if after else mark.end(), address.removeprefix("<").removesuffix(">")
            elif labels and normalizeReference(text[start + 2 : mark.start()][:1000]) in labels:
                yield start, mark.end(), ""


def _counted(take_out: Callable[[str], tuple[str, int]], text: str, what: str, counts: Counter[str]) -> str:
    text, number = take_out(text)
    counts[what] += number
    return text


_SPELLED = re.compile(f"[{UNSEEN}{SURROGATES}]")
# Private characters, too, with which this module marks places.
_UNSEEN_OR_MARK = re.compile(f"[{UNSEEN}{SURROGATES}\ue000-\ue003]")
_INVISIBLE_RUN = re.compile(f"{_UNSEEN_OR_MARK.pattern}+")
_SPELLED_OUT = 4
# ECMA-48 escape sequences, with which programs colour what they print.
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?)")

# Forms that NFKC makes plain letters, digits and signs of: vertical and small ones, full width, mathematical, circled.
# Not the back tick and the tilde among them: a fence that they spelled would be none on the page.
_LOOKALIKE = re.compile(
    "[\u207d\u207e\u208d\u208e\u2024-\u2026\u2100-\u214f\u2474-\u24e9\ufe10-\ufe19\ufe30-\ufe6b"
    "\uff01-\uff3f\uff41-\uff5d\U0001d400-\U0001d7ff]+"
)

# Only with its semicolon: https://spec.commonmark.org/0.31.2/#entity-and-numeric-character-references
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_AMPERSANDS = re.compile(r"&(?:(?:amp|AMP|#0{0,5}38|#[xX]0{0,5}26);)+")
_ENTITY_ROUNDS = 8
_UNSPOKEN = {0x60: "'", **dict.fromkeys(range(0xE000, 0xE004))}

# The frame that the runtime puts around a quote, and marks that some model servers read as their own.
_FRAME = re.compile(r"\[(?=[ \t]*(?:end[ \t]+of[ \t]+)?(?:quote|instructions)\b)([^\[\]\n]{0,300})\]?", re.IGNORECASE)
_SERVER_MARK = re.compile(r"<\|(?=[\w:. -]{1,40}\|>)")


def without_invisible(text: str) -> tuple[str, int]:
    """The text without what draws nothing, and how many characters that were; tab and line feed stay."""
    return _UNSEEN_OR_MARK.subn("", text)


def without_spelled(text: str) -> tuple[str, int]:
    """`without_invisible`, for a text with marks of places in it."""
    return _SPELLED.subn("", text)


def with_invisible_shown(text: str) -> str:
    """The text with what draws nothing spelled out, e.g. `[U+202E]`; of a long run only its length is told.

    What colours a terminal just goes.
    """
    return _INVISIBLE_RUN.sub(_spelled_out, _TERMINAL_CODE.sub("", text))


def _spelled_out(run: re.Match[str]) -> str:
    if len(run[0]) > _SPELLED_OUT:
        return f"[{len(run[0]):,} invisible characters]"
    return "".join(f"[U+{ord(character):04X}]" for character in run[0])


def in_plain_letters(text: str) -> str:
    """The text with full-width, mathematical and other such letters and signs as ASCII."""
    return text if text.isascii() else _LOOKALIKE.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)


def without_entities(text: str) -> str:
    """The text with every character reference resolved, however deep one is in another.

    A back tick that comes of one becomes an apostrophe: on the page it is no code mark.
    """
    for _ in range(_ENTITY_ROUNDS):
        before, text = text, _ENTITY.sub(_resolved, _AMPERSANDS.sub("&", text))
        if text == before:
            return text
    # So deep that only malice makes it: taken apart, none is left that could be resolved.
    return text.replace("&", "& ")


def _resolved(entity: re.Match[str]) -> str:
    # A private character that marks a place is no one's to spell.
    return html.unescape(entity[0]).translate(_UNSPOKEN)


def unforged(text: str) -> str:
    """The text with nothing in it that looks like the frame of a quote, or like a model server's own marks."""
    return _SERVER_MARK.sub("< |", _FRAME.sub(r"(\1)", text))


# https://spec.commonmark.org/0.31.2/#raw-html; in a block quote a line break is followed by the quote's mark.
_SPACE = r"(?:[ \t]|\n(?![ \t]*\n)[ \t>]*)"
_VALUE = r"(?:[^\s\"'=<>`]++|\"(?:[^\"\n]|\n(?![ \t]*\n))*+\"|'(?:[^'\n]|\n(?![ \t]*\n))*+')"
_ATTRIBUTE = rf"{_SPACE}++[A-Za-z_:][\w.:-]*+(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+"
TAG = re.compile(rf"</?(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?:{_ATTRIBUTE})*+{_SPACE}*+/?>")

_DECLARATIONS = ((re.compile(r"<!\[CDATA\["), "]]>"), (re.compile(r"<\?"), "?>"), (re.compile(r"<![A-Za-z]"), ">"))
_UNSEEN = re.compile(
    r"<(?P<name>canvas|datalist|head|iframe|math|noembed|noframes|noscript|object|rp|script|select|style|svg|template"
    r"|textarea|title|video|audio|xmp)(?=[\s/>])",
    re.IGNORECASE,
)
_PIECE = re.compile(r"<!--|</?(?P<name>[A-Za-z][^\s/>]*+)|<[?!/]")
_STOP = re.compile(r"[>\"']")
_FOLDED = "[folded section]"

# Without brackets and with no quote inside another: with or without it the rest of the text reads the same.
_PLAIN = r"(?:\"[^\"'<>`]*+\"|'[^\"'<>`]*+'|[^\s\"'<>=`]++)"
_IMAGE = re.compile(rf"<img(?:\s++[A-Za-z-]++(?:\s*+=\s*+{_PLAIN})?+)*+\s*+/?>", re.IGNORECASE)


def without_tags(text: str) -> tuple[str, int]:
    """The text without tags and declarations, without what some of them enclose, and how many went.

    A space stays behind: were the neighbours joined, they could spell a new tag.
    """
    total = 0
    for opening, closing in _DECLARATIONS:
        out: list[str] = []
        position = 0
        while (found := opening.search(text, position)) and (end := text.find(closing, found.end())) >= 0:
            out += (text[position : found.start()], " ")
            position = end + len(closing)
            total += 1
        text = "".join([*out, text[position:]])
    text, enclosed = _without_unseen(text)
    text, tags = TAG.subn(lambda tag: _in_place_of(tag[0], tag["name"]), text)
    return text, total + enclosed + tags


def html_without_tags(block: str) -> tuple[str, int, bool]:
    """A block of HTML as a browser reads it, without tags; how many went; whether each of them had an end.

    One that has none hides the rest, which is then gone. Comments are left to the caller.
    """
    out: list[str] = []
    position = number = 0
    while (found := _PIECE.search(block, position)) is not None:
        out.append(block[position : found.start()])
        if found[0] == "<!--":
            end = block.find("-->", found.end())
            position = len(block) if end < 0 else end
            out.append(block[found.start() : position])
            continue
        number += 1
        after = _end_of_tag(block, found.end())
        if after is None:
            return "".join(out), number, False
        # What some elements enclose is taken out later, by their tags; these may be in different blocks.
        name, begins = found["name"] or "", "</" if found[0].startswith("</") else "<"
        out.append(f"{begins}{name}>" if _UNSEEN.match(f"<{name} ") else _in_place_of(begins, name))
        position = after
    return "".join([*out, block[position:]]), number, True


def _end_of_tag(block: str, position: int) -> int | None:
    while (stop := _STOP.search(block, position)) is not None:
        if stop[0] == ">":
            return stop.end()
        closing = block.find(stop[0], stop.end())
        if closing < 0:
            return None
        position = closing + 1
    return None


def _in_place_of(tag: str, name: str) -> str:
    return f" {_FOLDED} " if name.casefold() == "details" and not tag.startswith("</") else " "


def _without_unseen(text: str) -> tuple[str, int]:
    """Without what stands between tags of elements that no page shows; a tag without an end encloses nothing."""
    out: list[str] = []
    unclosed: set[str] = set()
    position = number = 0
    for found in _UNSEEN.finditer(text):
        name = found["name"].casefold()
        if found.start() < position or name in unclosed:
            continue
        end = re.compile(rf"</{name}\b[^<>]*+>?", re.IGNORECASE).search(text, found.end())
        if end is None:
            unclosed.add(name)
            continue
        out += (text[position : found.start()], " ")
        position = end.end()
        number += 1
    return "".join([*out, text[position:]]), number


def with_images_marked(text: str, mark: str) -> tuple[str, list[str]]:
    """The text with its `<img>` tags replaced by `mark`, into which each puts its number; and their addresses.

    Tags that are the same as parts of a label have one mark. One whose attributes are written oddly stays as it is.
    """
    numbers: dict[str, int] = {}
    addresses: list[str] = []

    def marked(tag: re.Match[str]) -> str:
        if not (sources := image_sources(tag[0])):
            return tag[0]
        label = normalizeReference(tag[0])
        if label not in numbers:
            numbers[label] = len(addresses)
            addresses.append(sources[0])
        return mark.format(numbers[label])

    return _IMAGE.sub(marked, text), addresses


def image_sources(page: str) -> list[str]:
    """The addresses of the images in HTML."""
    reader = _Sources()
    reader.feed(page)
    return reader.found


class _Sources(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and (source := dict(attrs).get("src")):
            self.found.append(source)
