"""HTML's tags: how they are written, and which of them take what they enclose out of sight. Pure.

Each function reads the text once, however many tags in it have no end.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markdown_it.common.utils import normalizeReference
from typing_extensions import override

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
