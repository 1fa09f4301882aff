"""Secrets leave no text whole, in pieces or in disguise."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.publishing.redact import MARK, Redactor

SECRET = "wh00k+s3cret/valu3=with&signs"
REDACTOR = Redactor([SECRET])


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET[::-1],
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        quote(SECRET, safe=""),
        "".join(f"%{b:02X}" for b in SECRET.encode()),
        SECRET[5:17],
        SECRET[-12:],
    ],
)
def test_every_form_is_taken_out(form: str) -> None:
    assert REDACTOR.redact(f"before {form} after") == f"before {MARK} after"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "x-access-token:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_taken_out_wherever_the_secret_stands_in_it(before: str, encode: object) -> None:
    assert callable(encode)
    shown = REDACTOR.redact(encode((before + SECRET + "tail").encode()).decode())
    assert MARK in shown
    assert len(shown.replace(MARK, "")) < 32


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "ghs_" + "a1B2" * 9,
        "ghs_12345_eyJhbGciOiJSUzI1NiJ9." + "aB-_" * 100 + "." + "cD3" * 20,
        "github_pat_" + "a1B2_" * 12,
        "sk-ant-api03-" + "a1B2-_" * 10,
        "sk-proj-" + "a1B2" * 10,
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut off before its end",
    ],
)
def test_known_shapes_are_taken_out_though_nobody_told_their_values(token: str) -> None:
    assert Redactor().redact(f"see {token}") == f"see {MARK}"


def test_ordinary_text_stays() -> None:
    text = "sk-ill issue, ghosts, eyJ alone; commit 3f786850e387550fdab836ed7e6dc881de23001b; PRIVATE KEY handling"
    assert REDACTOR.redact(text) == text


def test_a_key_of_several_lines_is_known_by_each_line_and_not_by_its_armour() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\nQ0lqYW5kb21zdHJpbmc\n-----END RSA PRIVATE KEY-----\n"
    redactor = Redactor([key])
    assert redactor.redact("x Q0lqYW5kb21zdHJpbmc y") == f"x {MARK} y"
    assert redactor.redact("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"


def test_a_short_secret_is_taken_out_whole() -> None:
    assert Redactor(["hunter2"]).redact("it is hunter2!") == f"it is {MARK}!"


@given(st.lists(st.integers(1, 9)))
def test_a_stream_cut_anywhere_shows_no_piece(cuts: list[int]) -> None:
    text = f"one {SECRET} two\nthree {SECRET}"
    stream = REDACTOR.stream()
    shown, rest = "", text
    for cut in cuts:
        shown += stream.feed(rest[:cut])
        rest = rest[cut:]
    shown += stream.feed(rest) + stream.close()
    assert shown == f"one {MARK} two\nthree {MARK}"


def test_repeated_token_openings_take_linear_time() -> None:
    for opening in ("eyJ", "ghs_", "sk-", "-----BEGIN PRIVATE KEY-----"):
        text = opening * 100_000
        assert len(REDACTOR.redact(text)) <= len(text)


def test_what_is_learnt_later_is_taken_out_and_a_copy_learns_on_its_own() -> None:
    first = Redactor(["the-first-secret"])
    second = first.copy()
    second.learn("minted-while-it-ran")
    text = "the-first-secret minted-while-it-ran"
    assert second.redact(text) == f"{MARK} {MARK}"
    assert first.redact(text) == f"{MARK} minted-while-it-ran"
