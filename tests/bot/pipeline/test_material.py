from __future__ import annotations

import pytest

from bot.gate.brief import LinkedFile
from bot.pipeline.material import linked

TEXT = "one\ntwo\x0c\u2028still two\nthree\n"


@pytest.mark.parametrize(
    ("fragment", "place", "text"),
    [
        ("L3", "a.py lines 3-3", "three"),
        ("L2-L3", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L2-L99", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L4-L9", "a.py", TEXT),
        ("L3-L2", "a.py", TEXT),
        ("", "a.py", TEXT),
    ],
)
def test_lines_of_a_linked_file_are_those_that_read_file_numbers(fragment: str, place: str, text: str) -> None:
    assert linked("a.py", fragment, TEXT) == LinkedFile(place=place, text=text)
