"""All of Unicode: every use of the table covers the characters that it has to."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable

import pytest

from bot.domain import characters
from bot.prompt.sanitize import remove_invisible, spell_out_invisible
from bot.publishing.markdown import clean
from bot.publishing.screening import adds_unseen, escape_unseen, is_deceptive

KINDS = ("CONTROLS", "BIDI", "BLANKS", "ZERO_WIDTH", "JOINERS", "EMOJI_SELECTORS", "SURROGATES")
ALL = [chr(number) for number in range(sys.maxunicode + 1)]
UNSEEN = (
    "0-8 B-1F 7F-9F AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 2028-202E 2060-206F 2800 3164 FE00-FE0F FEFF "
    "FFA0 FFF0-FFFB 1BCA0-1BCA3 1D159 1D173-1D17A E0000-E0FFF"
)
SURROGATES = "D800-DFFF"


def of(ranges: str) -> set[str]:
    bounds = [each.split("-") for each in ranges.split()]
    return {chr(number) for each in bounds for number in range(int(each[0], 16), int(each[-1], 16) + 1)}


@pytest.mark.parametrize(
    ("clears", "ranges"),
    [
        (lambda text: remove_invisible(text)[0], f"{UNSEEN} {SURROGATES}"),
        (spell_out_invisible, f"{UNSEEN} {SURROGATES}"),
        (clean, f"{UNSEEN} {SURROGATES}"),
        (escape_unseen, f"{UNSEEN} {SURROGATES}"),
    ],
    ids=["prompt", "code in the prompt", "published", "shown for approval"],
)
def test_no_character_that_nobody_sees_is_left_and_every_other_one_is(
    clears: Callable[[str], str], ranges: str
) -> None:
    left = set(clears("\n".join(f"a{char}b" for char in ALL)))
    assert set(ALL) - left == of(ranges)


def adds(text: str) -> bool:
    return adds_unseen(f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +2 @@\n+a{text}b\n")


@pytest.mark.parametrize("needs_a_person", [is_deceptive, adds])
def test_every_character_that_nobody_sees_needs_a_person_but_a_form_feed(
    needs_a_person: Callable[[str], bool],
) -> None:
    unseen = of(UNSEEN) - {"\f"}
    assert {char for char in unseen if not needs_a_person(char)} == set()
    assert not needs_a_person("".join(char for char in ALL if char not in unseen))


def test_no_character_is_in_two_kinds() -> None:
    kinds = [set(re.findall(f"[{getattr(characters, kind)}]", "".join(ALL))) for kind in KINDS]
    assert sum(map(len, kinds)) == len(set().union(*kinds)) == len(of(f"{UNSEEN} {SURROGATES}"))


def test_every_control_and_format_character_is_in_a_kind_but_tab_line_feed_and_those_that_are_drawn() -> None:
    drawn = of("9 A 600-605 6DD 70F 890-891 8E2 110BD 110CD 13430-1345F")
    assert {char for char in ALL if unicodedata.category(char) in {"Cc", "Cf"}} <= of(UNSEEN) | drawn
