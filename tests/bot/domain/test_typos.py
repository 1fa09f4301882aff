from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.commands import is_transposition, is_typo

_WORDS = st.text(alphabet="abc", max_size=6)


@pytest.mark.parametrize("word", ["reviw", "rreview", "reviev", "reveiw", "rveiew", "eview", "reviewx", "revie"])
def test_one_slip_is_one_letter_or_one_swap(word: str) -> None:
    assert is_typo(word, "review")


@pytest.mark.parametrize("word", ["review", "", "rview?", "weiver", "revi", "reviewed", "evrieW"])
def test_anything_more_or_less_is_no_slip(word: str) -> None:
    assert not is_typo(word, "review")


@given(_WORDS, _WORDS)
def test_a_slip_goes_both_ways(word: str, other: str) -> None:
    assert is_typo(word, other) == is_typo(other, word)
    assert is_transposition(word, other) == is_transposition(other, word)


@given(_WORDS, st.integers(min_value=0, max_value=6))
def test_a_letter_more_is_a_slip(word: str, place: int) -> None:
    assert is_typo(word[:place] + "x" + word[place:], word)
