"""Clean untrusted text, so that the model reads only the visible text of a page, in time linear in its length.

`clean` is for Markdown, `clean_code` for code and logs, `clean_line` for names.
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

from bot.domain.characters import INVISIBLE, SURROGATES


def clean(text: str, *, limit: int) -> str:
    """Return the visible text of Markdown, cut to `limit` characters, and a note of what was removed.

    Code blocks and spans stay unchanged. Idempotent, unless the text was cut.
    """
    text, removed = remove_hidden(_normalize_newlines(text))
    parts = [f"{number:,} {noun}{'s' if number > 1 else ''}" for noun, number in removed.items() if number]
    text = clip(text, limit=limit)
    if not parts:
        return text
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"{text}\n\n[removed from this text: {listed}]".lstrip()


def clean_code(text: str, *, limit: int) -> str:
    """Return a diff or log with invisible characters spelled out, cut to `limit` characters."""
    text = spell_out_invisible(_normalize_newlines(text))
    return clip(disarm_forged_frames(text).strip("\n"), limit=limit)


def clean_line(text: str, *, limit: int) -> str:
    return " ".join(clean(text, limit=limit).split())


def clip(text: str, *, limit: int) -> str:
    """Cut the middle out of a text longer than `limit` characters; the start keeps two thirds."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[len(text) - tail :]}"


def _normalize_newlines(text: str) -> str:
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

# GitHub limits a text to 65,536 characters. A longer or unusually deep text is not parsed: all of it counts as prose.
_MAX_PARSED_CHARS = 70_000
_DEEPLY_NESTED = re.compile(r"^(?:[ \t]*(?:>|[-+*](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))){7}", re.MULTILINE)
_ROUNDS = 8
_MARKUP_SIGNS = re.compile(r"[<>\[\]&`~]+")

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
# A link's target and its title. Always matches, so no part of the text is scanned twice.
_TARGET = re.compile(rf"(\]\()({_SPACES}?+(?:<[^<>\n]*+>)?+\S*+)(?:{_SPACES}(?:{_QUOTED})[\s>]*+(?=\)))?+", re.DOTALL)
_SPACED_TARGET = re.compile(r"<[^<>\n]*[ \t][^<>\n]*>")
_BRACKET = re.compile(r"\\.|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*+>|!?\[|\]", re.DOTALL)
_AFTER_IMAGE = re.compile(r"\(\s*+(?:<[^<>\n]*+>|[^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)?+)\s*+\)|\[[^\[\]]*+\]")
_LABEL = re.compile(r"\]\[([^\[\]]{1,999})\]")
_FOOTNOTE = re.compile(r"^([ \t>*+-]*)\[\^[^\]\s]{1,999}\]:", re.MULTILINE)
_DEFINITION = re.compile(
    r"^[ \t>*+-]*\[(?:[^\[\]\\]|\\.){0,999}\]:(?:[^\n]|\n(?![ \t]*(?:\n|\Z)))*+", re.MULTILINE | re.DOTALL
)
_STASH_MARK = re.compile("\ue000([0-9]+)\ue001")
_IMAGE_MARK = "\ue002{}\ue003"
_IMAGE_MARK_PATTERN = re.compile(_IMAGE_MARK.format("([0-9]+)"))


def remove_hidden(text: str) -> tuple[str, Counter[str]]:
    """Remove hidden parts and forged frames from Markdown with line feeds; return the text and the removals by kind.

    Where GitHub may read a text differently, this removes too much rather than too little.
    """
    counts: Counter[str] = Counter()
    text = _apply_counting(remove_invisible, text, _INVISIBLE, counts).strip()
    return _remove_hidden_repeatedly(text, counts, _ImageMarks([])), counts


def visible_images(text: str) -> list[str]:
    """Return the addresses of visible images; empty for one from a link definition."""
    text, addresses = mark_image_tags(remove_invisible(text)[0].strip(), _IMAGE_MARK)
    images = _ImageMarks(addresses)
    _remove_hidden_repeatedly(text, Counter(), images)
    return images.visible


@dataclass(frozen=True, slots=True)
class _ImageMarks:
    addresses: list[str]
    visible: list[str] = field(default_factory=list)

    def add(self, address: str) -> str:
        self.addresses.append(address)
        return _IMAGE_MARK.format(len(self.addresses) - 1)

    def resolve(self, text: str) -> str:
        return _IMAGE_MARK_PATTERN.sub(self._resolve_mark, text)

    def _resolve_mark(self, mark: re.Match[str]) -> str:
        self.visible.append(self.addresses[int(mark[1])])
        return "[image]"


def _remove_hidden_repeatedly(text: str, counts: Counter[str], images: _ImageMarks) -> str:
    for _ in range(_ROUNDS):
        previous, text = text, _remove_hidden_once(text, counts, images)
        if text == previous:
            return text
    # Text that yields a new hidden part in every round is an attack. Without these signs no Markdown is left.
    images.visible.clear()
    return _MARKUP_SIGNS.sub(" ", text).strip()


def _remove_hidden_once(text: str, counts: Counter[str], images: _ImageMarks) -> str:
    stash: list[str] = []
    labels: set[str] = set()
    text = _stash_code(text, stash, labels, counts)
    text = normalize_letters(resolve_entities(text))
    # A reference such as `&#8203;` yields one. The stash's placeholders must stay here.
    text = _apply_counting(remove_spelled_invisible, text, _INVISIBLE, counts)
    # A space stays: joined ends could spell a new comment.
    text = _apply_counting(lambda text: _COMMENT.subn(" ", text), text, _COMMENTS, counts)
    text = _apply_counting(remove_tags, text, _TAGS, counts)
    text = _apply_counting(_remove_titles, text, _TITLES, counts)
    text = _apply_counting(lambda text: _mark_images(text, labels, images), text, _IMAGES, counts)
    text = _LABEL.sub(lambda label: "]" if normalizeReference(label[1]) in labels else label[0], text)
    text = images.resolve(_FOOTNOTE.sub(r"\1[footnote]", text))
    return disarm_forged_frames(_STASH_MARK.sub(lambda place: stash[int(place[1])], text)).strip()


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    # Only blocks are parsed; inline markup is searched by this module.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _stash_code(text: str, stash: list[str], labels: set[str], counts: Counter[str]) -> str:
    if len(text) > _MAX_PARSED_CHARS or _DEEPLY_NESTED.search(text):
        return _apply_counting(lambda text: _DEFINITION.subn("", text), text, _DEFINITIONS, counts)
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for first, last, kind in _find_blocks(text, labels):
        if first < position:
            continue
        out += lines[position:first]
        block = "\n".join(lines[first:last])
        if kind == "definition":
            counts[_DEFINITIONS] += 1
        elif kind == "fence":
            # A page shows no more of the opening line than the language.
            if (opening := _OPENING.search(block)) is not None:
                word = opening["word"] if _LANGUAGE.fullmatch(opening["word"]) else ""
                counts[_INFOS] += bool(opening["rest"].strip()) or word != opening["word"]
                block = f"{block[: opening.start()]}{opening['fence']}{word}{block[opening.end() :]}"
            out.append(_stash(block, stash))
        elif kind == "html_block":
            block, tags, is_closed = remove_html_tags(block)
            counts[_TAGS] += tags
            out.append(block)
            if not is_closed:
                # An unclosed tag hides the rest of the text.
                return "\n".join(out)
        elif kind == "tr_open":
            out.append("|".join(_stash_code_spans(cell, stash) for cell in _BORDER.split(block)))
        else:
            out.append(_stash_code_spans(block, stash))
        position = last
    return "\n".join([*out, *lines[position:]])


def _find_blocks(text: str, labels: set[str]) -> list[tuple[int, int, str]]:
    env: dict[str, Any] = {}
    # Tokens of a table's cells have the line of their row.
    blocks = [
        (token.map[0], token.map[1], token.type)
        for token in _parser().parse(text, env)
        if token.map and token.type in {"fence", "html_block", "inline", "tr_open"}
    ]
    definitions = [(label, entry["map"]) for label, entry in env.get("references", {}).items()]
    definitions += [(entry["label"], entry["map"]) for entry in env.get("duplicate_refs", [])]
    labels.update(label for label, _ in definitions)
    blocks += [(line, after, "definition") for _, (line, after) in definitions]
    return sorted(blocks, key=lambda block: (block[:2], block[2] != "tr_open"))


def _stash(code: str, stash: list[str]) -> str:
    stash.append(code)
    return f"\ue000{len(stash) - 1}\ue001"


def _stash_code_spans(block: str, stash: list[str]) -> str:
    """Stash code spans up to the first back tick that may belong to HTML."""
    # A code span ends after the next run of back ticks of the same length.
    end_by_length: dict[int, int] = {}
    closers: dict[int, int] = {}
    for run in reversed(list(_TICKS.finditer(block))):
        length = len(run[0])
        if length in end_by_length:
            closers[run.start()] = end_by_length[length]
        end_by_length[length] = run.end()
    parts: list[str] = []
    position = 0
    while (match := _CODE_OR_ANGLE.search(block, position)) is not None:
        parts.append(block[position : match.start()])
        position = match.end()
        if match[0] == "<":
            tag = TAG.match(block, match.start()) or _ANGLED_TICK.match(block, match.start())
            if block.startswith(("<!", "<?"), match.start()) or (tag is not None and "`" in tag[0]):
                return "".join([*parts, block[match.start() :]])
        elif match["ticks"] and block[match.start() - 1 : match.start()] == "`":
            # The first back tick of the run is escaped: ambiguous.
            return "".join([*parts, block[match.start() :]])
        elif match["ticks"] and match.start() in closers:
            position = closers[match.start()]
        span = block[match.start() : position]
        # A span on one line and without a cell's border is code for every parser.
        is_code = match["ticks"] and len(span) > len(match[0]) and "\n" not in span and "|" not in span
        parts.append(_stash(span, stash) if is_code else span)
    return "".join([*parts, block[position:]])


def _remove_titles(text: str) -> tuple[str, int]:
    number = 0

    def replace(target: re.Match[str]) -> str:
        nonlocal number
        replacement = f"{target[1]}{_SPACED_TARGET.sub('<>', target[2])}"
        number += replacement != target[0]
        return replacement

    return _TARGET.sub(replace, text), number


def _mark_images(text: str, labels: set[str], images: _ImageMarks) -> tuple[str, int]:
    out: list[str] = []
    position = number = 0
    for start, end, address in sorted(_find_images(text, labels)):
        if start < position:
            continue
        out += (text[position:start], images.add(address))
        position = end
        number += 1
    return "".join([*out, text[position:]]), number


def _find_images(text: str, labels: set[str]) -> Iterator[tuple[int, int, str]]:
    open_brackets: list[tuple[int, bool]] = []
    for mark in _BRACKET.finditer(text):
        if mark[0] in {"[", "!["}:
            open_brackets.append((mark.start(), mark[0] == "!["))
        elif mark[0] == "]" and open_brackets:
            start, is_image = open_brackets.pop()
            if not is_image:
                continue
            after = _AFTER_IMAGE.match(text, mark.end())
            if text.startswith("(", mark.end()) or (after is not None and normalizeReference(after[0][1:-1]) in labels):
                address = after[0][1:-1].strip() if after and after[0].startswith("(") else ""
                yield start, after.end() if after else mark.end(), address.removeprefix("<").removesuffix(">")
            elif labels and normalizeReference(text[start + 2 : mark.start()][:1000]) in labels:
                yield start, mark.end(), ""


def _apply_counting(remove: Callable[[str], tuple[str, int]], text: str, kind: str, counts: Counter[str]) -> str:
    text, number = remove(text)
    counts[kind] += number
    return text


_INVISIBLE_CHARACTER = re.compile(f"[{INVISIBLE}{SURROGATES}]")
# Includes the private characters of this module's placeholders.
_INVISIBLE_OR_MARK = re.compile(f"[{INVISIBLE}{SURROGATES}\ue000-\ue003]")
_INVISIBLE_RUN = re.compile(f"{_INVISIBLE_OR_MARK.pattern}+")
_MAX_SPELLED_OUT = 4
# ECMA-48 escape sequences, e.g. for colours.
_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?)")

# Characters that NFKC maps to plain letters, digits and signs: vertical, small, full-width, mathematical, circled.
# Without back tick and tilde: a fence that they spell is no fence on the page.
_LOOKALIKE = re.compile(
    "[\u207d\u207e\u208d\u208e\u2024-\u2026\u2100-\u214f\u2474-\u24e9\ufe10-\ufe19\ufe30-\ufe6b"
    "\uff01-\uff3f\uff41-\uff5d\U0001d400-\U0001d7ff]+"
)

# Only with its semicolon: https://spec.commonmark.org/0.31.2/#entity-and-numeric-character-references
_ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_AMPERSANDS = re.compile(r"&(?:(?:amp|AMP|#0{0,5}38|#[xX]0{0,5}26);)+")
_ENTITY_ROUNDS = 8
_RESERVED = {0x60: "'", **dict.fromkeys(range(0xE000, 0xE004))}

# The runtime's frame around a quote, and the control marks of some model servers.
_FRAME = re.compile(r"\[(?=[ \t]*(?:end[ \t]+of[ \t]+)?(?:quote|instructions)\b)([^\[\]\n]{0,300})\]?", re.IGNORECASE)
_SERVER_MARK = re.compile(r"<\|(?=[\w:. -]{1,40}\|>)")


def remove_invisible(text: str) -> tuple[str, int]:
    return _INVISIBLE_OR_MARK.subn("", text)


def remove_spelled_invisible(text: str) -> tuple[str, int]:
    """Like `remove_invisible`, but keep this module's placeholders."""
    return _INVISIBLE_CHARACTER.subn("", text)


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


def resolve_entities(text: str) -> str:
    """Resolve character references, also nested ones.

    A resulting back tick becomes an apostrophe: on a page it marks no code.
    """
    for _ in range(_ENTITY_ROUNDS):
        previous, text = text, _ENTITY.sub(_resolve_entity, _AMPERSANDS.sub("&", text))
        if text == previous:
            return text
    # Nested this deep, it is an attack: break all remaining references.
    return text.replace("&", "& ")


def _resolve_entity(entity: re.Match[str]) -> str:
    # A reference must not produce one of this module's placeholders.
    return html.unescape(entity[0]).translate(_RESERVED)


def disarm_forged_frames(text: str) -> str:
    """Disarm imitations of a quote's frame or a model server's control mark."""
    return _SERVER_MARK.sub("< |", _FRAME.sub(r"(\1)", text))


# https://spec.commonmark.org/0.31.2/#raw-html; in a block quote, `>` follows a line break.
_SPACE = r"(?:[ \t]|\n(?![ \t]*\n)[ \t>]*)"
_VALUE = r"(?:[^\s\"'=<>`]++|\"(?:[^\"\n]|\n(?![ \t]*\n))*+\"|'(?:[^'\n]|\n(?![ \t]*\n))*+')"
_ATTRIBUTE = rf"{_SPACE}++[A-Za-z_:][\w.:-]*+(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+"
TAG = re.compile(rf"</?(?P<name>[A-Za-z][A-Za-z0-9-]*+)(?:{_ATTRIBUTE})*+{_SPACE}*+/?>")

_DECLARATIONS = ((re.compile(r"<!\[CDATA\["), "]]>"), (re.compile(r"<\?"), "?>"), (re.compile(r"<![A-Za-z]"), ">"))
_INVISIBLE_ELEMENT = re.compile(
    r"<(?P<name>canvas|datalist|head|iframe|math|noembed|noframes|noscript|object|rp|script|select|style|svg|template"
    r"|textarea|title|video|audio|xmp)(?=[\s/>])",
    re.IGNORECASE,
)
_PIECE = re.compile(r"<!--|</?(?P<name>[A-Za-z][^\s/>]*+)|<[?!/]")
_STOP = re.compile(r"[>\"']")
_FOLDED = "[folded section]"

# No brackets and no nested quotes, so that its removal does not change how the rest is parsed.
_PLAIN = r"(?:\"[^\"'<>`]*+\"|'[^\"'<>`]*+'|[^\s\"'<>=`]++)"
_IMAGE = re.compile(rf"<img(?:\s++[A-Za-z-]++(?:\s*+=\s*+{_PLAIN})?+)*+\s*+/?>", re.IGNORECASE)


def remove_tags(text: str) -> tuple[str, int]:
    """Remove and count tags, declarations and invisible elements.

    Leaves a space for each: joined neighbours could spell a new tag.
    """
    total = 0
    for opening, closing in _DECLARATIONS:
        out: list[str] = []
        position = 0
        while (start := opening.search(text, position)) and (end := text.find(closing, start.end())) >= 0:
            out += (text[position : start.start()], " ")
            position = end + len(closing)
            total += 1
        text = "".join([*out, text[position:]])
    text, enclosed = _remove_invisible_elements(text)
    text, tags = TAG.subn(lambda tag: _replacement(tag[0], tag["name"]), text)
    return text, total + enclosed + tags


def remove_html_tags(block: str) -> tuple[str, int, bool]:
    """Remove the tags of an HTML block; return the text, their number, and whether all were closed.

    An unclosed tag hides the rest, which is removed. Comments stay.
    """
    out: list[str] = []
    position = number = 0
    while (piece := _PIECE.search(block, position)) is not None:
        out.append(block[position : piece.start()])
        if piece[0] == "<!--":
            end = block.find("-->", piece.end())
            position = len(block) if end < 0 else end
            out.append(block[piece.start() : position])
            continue
        number += 1
        after = _end_of_tag(block, piece.end())
        if after is None:
            return "".join(out), number, False
        # The tags of invisible elements stay for `_remove_invisible_elements`: they may be in different blocks.
        name, opening = piece["name"] or "", "</" if piece[0].startswith("</") else "<"
        out.append(f"{opening}{name}>" if _INVISIBLE_ELEMENT.match(f"<{name} ") else _replacement(opening, name))
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


def _replacement(tag: str, name: str) -> str:
    return f" {_FOLDED} " if name.casefold() == "details" and not tag.startswith("</") else " "


def _remove_invisible_elements(text: str) -> tuple[str, int]:
    out: list[str] = []
    unclosed: set[str] = set()
    position = number = 0
    for tag in _INVISIBLE_ELEMENT.finditer(text):
        name = tag["name"].casefold()
        if tag.start() < position or name in unclosed:
            continue
        end = re.compile(rf"</{name}\b[^<>]*+>?", re.IGNORECASE).search(text, tag.end())
        if end is None:
            unclosed.add(name)
            continue
        out += (text[position : tag.start()], " ")
        position = end.end()
        number += 1
    return "".join([*out, text[position:]]), number


def mark_image_tags(text: str, mark: str) -> tuple[str, list[str]]:
    """Replace `<img>` tags by `mark` with a number; return the text and the addresses.

    Tags that are equal as parts of a label share a mark. Unusually written tags stay.
    """
    numbers: dict[str, int] = {}
    addresses: list[str] = []

    def replace(tag: re.Match[str]) -> str:
        if not (sources := image_sources(tag[0])):
            return tag[0]
        label = normalizeReference(tag[0])
        if label not in numbers:
            numbers[label] = len(addresses)
            addresses.append(sources[0])
        return mark.format(numbers[label])

    return _IMAGE.sub(replace, text), addresses


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
