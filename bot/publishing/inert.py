"""Make text from the model harmless on a GitHub page, still readable as Markdown. Pure.

Mentions, references to other threads, foreign links, images, raw HTML and commands lose their effect. What the
rewriting gives is then read by GitHub's own parser; should anything live be left, the whole text is shown as a code
block. So a surprise in the rewriting costs beauty, never safety.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.publishing.active import ACTIVE, Allowed
from bot.publishing.gfm import LINED, Node, parse
from bot.publishing.live import harmless, known_language
from bot.publishing.text import MOST_TICKS, clean, clip, code, fenced

__all__ = ["DEFAULT_LIMIT", "Allowed", "escape_markdown", "harmless"]

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
