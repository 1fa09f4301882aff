"""Text from strangers, made to hold only what a reader of the page sees. Pure."""

from __future__ import annotations

import re

# Characters that draw nothing, or that change the order in which others are drawn. Tab and line feed are kept.
_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"  # soft hyphen, joiners, Arabic mark, Hangul and Khmer fillers
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # Mongolian selectors, zero width, bidi, format characters
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # fillers, variation selectors, byte order mark, annotations
    "\ud800-\udfff"  # lone surrogates
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical format characters
    "\U000e0000-\U000e0fff"  # tag characters and more variation selectors
    "]"
)

# How browsers end a comment: https://html.spec.whatwg.org/multipage/parsing.html#comment-start-state
_HTML_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)


def clean(text: str, *, limit: int) -> str:
    """Remove what a reader of the page cannot see, cap the length, and say below the text what was done.

    Line ends become line feeds. Cleaning a cleaned text that was not cut gives the same text.

    Args:
        text: any text.
        limit: characters to keep; a longer text loses its middle.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text, invisible = _INVISIBLE.subn("", text)
    # A space is left behind: were the ends joined, they could spell a new comment.
    text, comments = _HTML_COMMENT.subn(" ", text)
    removed = [_counted(invisible, "invisible character"), _counted(comments, "HTML comment")]
    note = " and ".join(part for part in removed if part)
    text = clip(text.strip(), limit=limit)
    return f"{text}\n\n[removed from this text: {note}]".lstrip() if note else text


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


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""
