"""Find text that Markdown and HTML hide from a reader of the page, and remove it. Pure.

A parser of CommonMark tells which lines are code, HTML or definitions; code stays to the letter, for its reader sees
all of it. Everything else is searched, with patterns that take no more than linear time, until nothing is found any
more. Where this and GitHub read a text differently, this removes too much rather than too little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference

from bot.gate.characters import in_plain_letters, unforged, without_entities, without_invisible, without_spelled
from bot.gate.tags import TAG, html_without_tags, with_images_marked, without_tags

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
