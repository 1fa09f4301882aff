from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.sessions.codec import escape_key, file_name, unescape_key

IDS = [
    "a/b",
    "a_b",
    "a-b",
    "A",
    "a",
    "",
    ".",
    "..",
    "../x",
    "x" * 300,
    "x" * 301,
    "a\0b",
    "ß",
    "\ud83d\ude00",
    "😀",
    "CON",
]


def test_ids_never_share_a_file_not_even_where_case_does_not_count() -> None:
    assert len({file_name(session_id).lower() for session_id in IDS}) == len(IDS)


@given(st.text(st.characters(exclude_categories=())))
def test_a_file_name_is_short_and_plain_whatever_the_id(session_id: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", file_name(session_id))


def test_people_find_an_id_in_its_file_name() -> None:
    assert file_name("Ecommerce API/v2").startswith("ecommerce-api-v2-")


@given(st.text(st.characters(exclude_categories=())))
def test_an_escaped_text_is_text_for_a_database_and_comes_back(text: str) -> None:
    assert "\0" not in escape_key(text)
    escape_key(text).encode("utf-8")
    assert unescape_key(escape_key(text)) == text


@pytest.mark.parametrize("session_id", ["ecommerce-api", "user 42", "é/☃", "octo/calc#7"])
def test_an_ordinary_id_is_its_own_key(session_id: str) -> None:
    assert escape_key(session_id) == session_id
