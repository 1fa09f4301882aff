from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.gate.sanitise import clean, clean_line, clip

NOTE = "[removed from this text: "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a <!-- hidden --> b", "a   b"),
        ("a <!-- hidden\nlines\n--> b", "a   b"),
        ("a <!-- hidden --!> b", "a   b"),
        ("a <!-- never closed", "a"),
        ("<!<!-- x -->-- hidden -->", "<! -- hidden -->"),
        ("a <!--> b --> c", "a   b --> c"),
        ("a <!---> b --> c", "a   b --> c"),
        ("<!-- <!-- a --> b -->", "b -->"),
        ("a <!\u200b-- hidden --> b", "a   b"),
        ("a <!-- x --\u2060> b", "a   b"),
    ],
)
def test_html_comments_go_whatever_their_form(text: str, kept: str) -> None:
    cleaned = clean(text, limit=1000)
    assert cleaned.partition(f"\n\n{NOTE}")[0] == kept
    assert "HTML comment" in cleaned


_ZERO_WIDTH_AND_BIDI = "\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2061\u2064\u2066\u2069\u061c\u2028"
_FILLERS_AND_SELECTORS = "\u3164\u115f\u1160\u00ad\ufeff\ufe0f\U000e0041\U000e007f\U000e0100"
_CONTROLS = "\x00\x1b\x7f\x9b\ud800"


@pytest.mark.parametrize("character", [*_ZERO_WIDTH_AND_BIDI, *_FILLERS_AND_SELECTORS, *_CONTROLS], ids=ascii)
def test_invisible_characters_go_and_the_reader_is_told(character: str) -> None:
    assert clean(f"pass{character}word", limit=100) == f"password\n\n{NOTE}1 invisible character]"


@pytest.mark.parametrize(
    "text", ["plain", "tab\tand\n\nlines", "naïve café 漢字 עברית العربية 🙂", "a < b -- c > d", "`<!-`"]
)
def test_what_a_reader_sees_stays(text: str) -> None:
    assert clean(text, limit=1000) == text


def test_line_ends_become_line_feeds_without_a_note() -> None:
    assert clean("a\r\nb\rc", limit=100) == "a\nb\nc"


def test_a_long_text_loses_its_middle_and_says_how_much() -> None:
    text = clip("a" * 600 + "b" * 600, limit=900)
    assert text == "a" * 600 + "\n[… 300 characters left out …]\n" + "b" * 300


def test_a_title_stays_on_one_line() -> None:
    assert clean_line("a\n\n# b\tc", limit=100) == "a # b c"


@given(st.lists(st.sampled_from(["<!--", "-->", "--!>", "<!", "--", ">", "-", "!", "x", "\u200b", "\U000e0041", "\n"])))
def test_cleaning_reaches_a_fixpoint(parts: list[str]) -> None:
    once = clean("".join(parts), limit=10_000)
    text = once.partition(NOTE)[0]
    assert "<!--" not in text
    assert clean(text, limit=10_000) == text.strip()


@given(st.text())
def test_no_format_or_control_character_that_draws_nothing_is_left(text: str) -> None:
    drawn = set(range(0x600, 0x606)) | {0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    left = {c for c in clean(text, limit=10_000) if unicodedata.category(c) in {"Cf", "Cc", "Cs"}} - {"\t", "\n"}
    hieroglyph_joiners = range(0x13430, 0x13460)
    assert {c for c in left if ord(c) not in drawn and ord(c) not in hieroglyph_joiners} == set()


def test_hostile_nesting_costs_no_more_than_its_length() -> None:
    # Work that grew with the square of this would run into the suite's time limit.
    hostile = "<!" * 100_000 + "<!---->" * 50_000 + "--" * 100_000 + "<!-" * 100_000
    assert "50000 HTML comments" in clean(hostile, limit=1000)
