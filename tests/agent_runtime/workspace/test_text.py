from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.errors import ToolError
from agent_runtime.workspace.diffs import Text, decode, version_of


@pytest.mark.parametrize(
    ("data", "encoding", "raw"),
    [
        (b"plain\n", "utf-8", "plain\n"),
        ("žluťoučký\n".encode(), "utf-8", "žluťoučký\n"),
        (b"\xef\xbb\xbfmarked\n", "utf-8", "marked\n"),
        (b"\xff\xfea\0\n\0", "utf-16-le", "a\n"),
        (b"\xfe\xff\0a\0\n", "utf-16-be", "a\n"),
        (b"\xff\xfe\0\0a\0\0\0", "utf-32-le", "a"),
        (b"caf\xe9 au lait, d\xe9j\xe0 vu\n", "latin-1", "café au lait, déjà vu\n"),
        (b"", "utf-8", ""),
    ],
)
def test_encodings_are_recognised_and_given_back(data: bytes, encoding: str, raw: str) -> None:
    text = decode(data)
    assert text is not None
    assert (text.encoding, text.raw) == (encoding, raw)
    assert text.encode(text.raw) == data


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"a\0b", bytes(range(256)), b"\x80\x81\x82\x83" * 100])
def test_binary_data_is_no_text(data: bytes) -> None:
    assert decode(data) is None


@given(st.binary(max_size=200))
def test_every_text_gives_back_its_bytes(data: bytes) -> None:
    text = decode(data)
    assert text is None or text.encode(text.raw) == data


def test_only_newlines_end_lines() -> None:
    assert Text("a\x0cb\u2028c\rd\ne").lines == ("a\x0cb\u2028c\rd", "e")


def test_carriage_returns_belong_to_the_line_ending_where_most_lines_have_them() -> None:
    assert Text("a\r\nb\r\nc\n").lines == ("a", "b", "c")
    assert Text("a\r\nb\nc\n").lines == ("a\r", "b", "c")


def test_a_character_that_the_encoding_lacks_is_named() -> None:
    with pytest.raises(ToolError, match=r"latin-1 and cannot hold '€' \(U\+20AC\)"):
        Text("x", "latin-1").encode("5 €")


def test_what_is_unusual_is_said_and_what_is_not_is_not() -> None:
    assert Text("a\n").peculiarities == ""
    assert Text("").peculiarities == ""
    assert Text("a\r\nb", "utf-16-le", b"\xff\xfe").peculiarities == (
        "utf-16-le, CRLF line endings, no newline at the end"
    )
    assert Text("a\n", "utf-8", b"\xef\xbb\xbf").peculiarities == "UTF-8 with byte order mark"


def test_a_version_is_the_beginning_of_the_content_s_sha256() -> None:
    assert version_of(b"") == "e3b0c442"
