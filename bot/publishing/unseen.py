"""Characters that nobody sees: spelled out where names and code are shown, and found where they deceive. Pure.

Some belong to ordinary text: what makes an emoji of a character, and the joiners of Arabic and Indic scripts.
"""

from __future__ import annotations

import re

# What turns the order in which others are drawn: https://trojansource.codes
_TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# What draws nothing: controls, fillers, marks, variation selectors, tags. A form feed stands between pages of old code.
_DRAWS_NOTHING = (
    "\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029"
    "\u2060-\u2065\u206a-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_PICTURES = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_JOINED = "\u0590-\u0dff\u0f00-\u109f\u1780-\u18aa\ufb1d-\ufefc\ufe0f" + _PICTURES

_SPELLED = re.compile(f"[{_TURNS}{_DRAWS_NOTHING}\f\u200c\u200d\ufe0e\ufe0f\ud800-\udfff\r]")
_DECEIVES = re.compile(
    f"[{_TURNS}{_DRAWS_NOTHING}]|(?<![{_PICTURES}])[\ufe0e\ufe0f](?!\u20e3)|(?<![{_JOINED}])[\u200c\u200d]"
)
# A lone carriage return lets a terminal draw a line over what stands before it.
_ADDED = re.compile(f"{_DECEIVES.pattern}|\r(?!\n)")
_BYTES = range(0xDC80, 0xDD00)
_WINDOW = 1 << 20
_MOST_LINES = 100_000
"""As many lines of other versions are passed over; a part with more counts as if it added some."""
_FIRST_LINE = re.compile(r"@@ -\d+(?:,\d+)? \+1(?:,\d+)? @@[^\n]*\n(?:-[^\n]*+\n)*+\+\Z")


def spelled_out(text: str) -> str:
    """The text with each character that nobody sees as e.g. `[U+202E]`, and a byte that is no text as `[0xE9]`."""
    return text if text.isascii() and text.isprintable() else _SPELLED.sub(_name, text)


def is_deceptive(name: str) -> bool:
    """Whether a name holds characters that make it look like another one."""
    return _DECEIVES.search(name) is not None or "\r" in name


def adds_unseen(section: str) -> bool:
    """Whether a file's part of a diff adds characters that nobody sees, or that turn the order of others.

    Args:
        section: as git writes it, from its `diff --git` line on.
    """
    at = 0
    for _ in range(_MOST_LINES):
        at = _next(section, at)
        if at < 0:
            return False
        begin = section.rfind("\n", 0, at) + 1
        if section[begin] != "+":
            at = section.find("\n", at)
            if at < 0:
                return False
        elif section[at] == "\ufeff" and at == begin + 1 and _FIRST_LINE.search(section[max(0, begin - 1_000) : at]):
            at += 1  # over the mark that says at the beginning of a file how it is encoded
        else:
            return True
    return True


def _next(section: str, start: int) -> int:
    """Where the next one stands; looked for in windows, so that other threads come to their turn."""
    while start < len(section):
        found = _ADDED.search(section, start, min(len(section), start + _WINDOW))
        if found is None:
            start += _WINDOW
        elif found[0] == "\r" and section[found.end() : found.end() + 1] == "\n":  # at the end of a window
            start = found.end()
        else:
            return found.start()
    return -1


def _name(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"[0x{number - 0xDC00:02X}]" if number in _BYTES else f"[U+{number:04X}]"
