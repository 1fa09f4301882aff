r"""Characters that a reader cannot see, or that change the order in which others are drawn.

Each constant holds the characters of one kind, as they are written inside a character class of a regular expression:
`re.compile(f"[{TURNS}{BLANKS}]")`. No character is in two kinds. Tab and line feed are in none.
"""

from __future__ import annotations

CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Controls, which a terminal obeys: form feed, carriage return and escape among them."""

TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text: https://trojansource.codes"""

BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers and the empty Braille pattern: letters and symbols that are drawn as a blank."""

DRAWS_NOTHING = (
    "\u00ad\u034f\u17b4\u17b5\u180b-\u180f\u200b"  # soft hyphen, grapheme joiner, Khmer vowels, Mongolian selectors
    "\u2028\u2029\u2060-\u2065\u206a-\u206f"  # separators of lines and paragraphs, format characters
    "\ufe00-\ufe0d\ufeff\ufff0-\ufffb"  # variation selectors, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"  # shorthand and musical format characters
    "\U000e0000-\U000e0fff"  # tag characters and more variation selectors
)

JOINERS = "\u200c\u200d"
"""The two that join or part letters in many scripts, and the parts of an emoji."""

EMOJI_SELECTORS = "\ufe0e\ufe0f"
"""The two that choose between the black and the coloured form of a symbol."""

SURROGATES = "\ud800-\udfff"
"""Halves of a pair; Python puts a byte that is no text into one."""

UNSEEN = CONTROLS + TURNS + BLANKS + DRAWS_NOTHING + JOINERS + EMOJI_SELECTORS
"""All kinds but the surrogates, which cannot be sent."""
