"""Character ranges of invisible and direction-changing characters, for use inside a regular expression's `[…]`.

No character is in two ranges. Tab and line feed are in none.
"""

from __future__ import annotations

CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Control characters, which a terminal obeys: form feed, carriage return and escape among them."""

BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Bidirectional controls: https://trojansource.codes"""

BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers and the empty Braille pattern: letters and symbols that are drawn as a blank."""

ZERO_WIDTH = (
    "\u00ad\u034f\u17b4\u17b5\u180b-\u180f\u200b"  # soft hyphen, grapheme joiner, Khmer vowels, Mongolian selectors
    "\u2028\u2029\u2060-\u2065\u206a-\u206f"  # separators of lines and paragraphs, format characters
    "\ufe00-\ufe0d\ufeff\ufff0-\ufffb"  # variation selectors, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"  # shorthand and musical format characters
    "\U000e0000-\U000e0fff"  # tag characters and more variation selectors
)

JOINERS = "\u200c\u200d"
"""Zero-width joiner and non-joiner, used by many scripts and inside emoji."""

EMOJI_SELECTORS = "\ufe0e\ufe0f"
"""Variation selectors for the text and the emoji form of a symbol."""

SURROGATES = "\ud800-\udfff"
"""Surrogate halves; Python decodes an undecodable byte to one."""

INVISIBLE = CONTROLS + BIDI + BLANKS + ZERO_WIDTH + JOINERS + EMOJI_SELECTORS
"""All ranges except the surrogates, which cannot be encoded."""
