"""Comments that stand for code which was left out: written to a file they delete that code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_COMMENT = re.compile(
    r"^\s*(?:#+|//+|/\*+|\*|<!--|--+|;+|%+|\{/\*|\{#|\"\"\"|'{3})\s*(?P<text>.*?)\s*(?:\*/\}?|-->|#\})?\s*$"
)
_DOTS = r"(?:\.{3,}|…)"
_WHAT = (
    r"(?:code|file|content|contents|function|functions|class|classes|method|methods|implementation|body|logic|"
    r"imports|tests|lines|module|script|document|section|config|configuration)"
)
_WHICH = r"(?:the\s+|all\s+|your\s+)*(?:rest|remainder|remaining|existing|previous|other|original)"
_STAYS = (
    r"(?:unchanged|unmodified|(?:stays?|remains?|is|are)?\s*the\s+same|as\s+(?:before|is)|goes\s+here|omitted|here)"
)
_LONGEST = 500  # characters; such a comment is short
_LEFT_OUT = re.compile(
    rf"^{_DOTS}\s*\(?{_WHICH}\b.*$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*\b{_STAYS}\)?\s*{_DOTS}?\.?$"
    rf"|^\(?{_WHICH}\b[^.]*\b{_WHAT}\b[^.]*{_DOTS}$"
    rf"|^{_DOTS}\s*\(?(?:{_WHAT}\s+)?(?:unchanged|same\s+as\s+(?:before|above))\)?\s*{_DOTS}?$",
    re.IGNORECASE,
)


def placeholder_in(lines: Iterable[str], known: Sequence[str]) -> tuple[int, str] | None:
    """The first comment line that stands for left-out code, with its number from 1; None when there is none.

    Args:
        lines: what is to be written.
        known: lines of the file as it is: a comment that stood there already is no placeholder of this edit.
    """
    there: set[str] | None = None
    for number, line in enumerate(lines, 1):
        # Without runs of spaces, over which the expressions would backtrack.
        comment = _COMMENT.match(" ".join(line[:_LONGEST].split()))
        if comment and _LEFT_OUT.match(comment["text"]):
            there = {each.strip() for each in known} if there is None else there
            if line.strip() not in there:
                return number, line.strip()
    return None
