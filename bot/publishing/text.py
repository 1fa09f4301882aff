"""Plain text made fit to show: control codes and invisible characters out, lengths bounded. Pure."""

from __future__ import annotations

import re

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
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Zero-width, directional, filler, variation and tag characters: nothing a reader could see.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def clean(text: str) -> str:
    """Take out terminal codes, control and invisible characters; a carriage return keeps only what was drawn last."""
    if text.isascii() and text.isprintable():  # as most words of a log line are
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = _INVISIBLE.sub("", _CONTROL.sub("", "\n".join(lines)))
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
