"""Characters that deceive: those that draw nothing, those that only look like ASCII, and forged frames. Pure."""

from __future__ import annotations

import html
import re
import unicodedata

# Characters that draw nothing, or that change the order in which others are drawn. Tab and line feed are kept.
_DRAWS_NOTHING = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"  # soft hyphen, joiners, Arabic mark, Hangul and Khmer fillers
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # Mongolian selectors, zero width, bidi, format characters
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # blank, fillers, variation selectors, byte order mark
    "\ud800-\udfff"  # lone surrogates
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"  # shorthand and musical format characters
    "\U000e0000-\U000e0fff"  # tag characters and more variation selectors
)
_SPELLED = re.compile(f"[{_DRAWS_NOTHING}]")
# Private characters, too, with which `hiding.py` marks places.
_INVISIBLE = re.compile(f"[{_DRAWS_NOTHING}\ue000-\ue003]")
_INVISIBLE_RUN = re.compile(f"{_INVISIBLE.pattern}+")
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
    return _INVISIBLE.subn("", text)


def without_spelled(text: str) -> tuple[str, int]:
    """`without_invisible`, for a text with marks of `hiding.py` in it."""
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
    # A private character that `hiding.py` marks places with is no one's to spell.
    return html.unescape(entity[0]).translate(_UNSPOKEN)


def unforged(text: str) -> str:
    """The text with nothing in it that looks like the frame of a quote, or like a model server's own marks."""
    return _SERVER_MARK.sub("< |", _FRAME.sub(r"(\1)", text))
