"""GitHub's own parser has the last word on what is sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.publishing.markdown import Own, harmless, parse, quiet, sealed
from bot.publishing.redact import Redactor
from tests.github_page import ALLOWED, live_in

_MARKER = "<!-- ours -->"
_TOKEN = "ghp_" + "a1B2" * 9
_KEY = "-----BEGIN PRIVATE KEY-----"
_OWN = Own(links=frozenset({"https://github.example/run/1"}), marker=_MARKER, tags=True)


@pytest.mark.parametrize(
    "active",
    [
        *("@hubot", "#9", "o/r#1", "o/r@abcdef1", "<b>x</b>", "<!-- x -->", "![a](b)", "[a](https://evil.example)"),
        *("&#64;hubot", "https://evil.example", "1https://evil.example", "www.evil.example", "a@b.example"),
        *("a ` b `@hubot` `", "```mermaid\nx\n```", "$`\\href{x}{y}`$", "[a](x)", "<sub>x</sub>", "[^1]\n\n[^1]: x"),
    ],
)
def test_the_parser_sees_what_github_would_act_on(active: str) -> None:
    assert not harmless(active, ALLOWED)


def test_the_bots_own_frame_is_known_and_nothing_beside_it() -> None:
    more = "<details><summary>2 more</summary>\n\nx\n</details>"
    body = f"[run #9](https://github.example/run/1) for @mona\n\n{more}\n\n{_MARKER}"
    assert harmless(body, ALLOWED, _OWN)
    assert sealed(body, ALLOWED, _OWN, limit=1_000) == body
    for other in ("<b>", "<!-- theirs -->", "<sub class=x>", "[x](https://github.example/run/2)", "<sub>@hubot</sub>"):
        assert not harmless(f"{other}\n\n{body}", ALLOWED, _OWN)


@pytest.mark.parametrize("text", ["@hubot", "`" * 900, "``` `" * 200, "line\n" * 300])
def test_what_is_live_as_a_whole_is_sent_as_a_block_that_keeps_the_marker(text: str) -> None:
    sent = sealed(f"@hubot {text}\n\n{_MARKER}", ALLOWED, _OWN, limit=1_000)
    assert len(sent) <= 1_000
    assert sent.endswith(f"\n\n{_MARKER}")
    assert live_in(sent) == {"<!-- ours -->"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"see {_TOKEN} and `@hubot`", "see [redacted] and `@hubot`"),
        (f"see {_TOKEN}(//evil.example)", "`see [redacted](//evil.example)`"),
        (f"see\n{_TOKEN}(//evil.example)\n\n{_MARKER}", f"```text\nsee\n[redacted](//evil.example)\n```\n\n{_MARKER}"),
        (f"a {_KEY} bA=\n\n    {_KEY.replace('BEGIN', 'END')} @hubot", "`a [redacted] @hubot`"),
        (f"`` {_KEY} `` xA= `{_KEY.replace('BEGIN', 'END')}` `@hubot`", "``` `` [redacted]` `@hubot` ```"),
    ],
)
def test_what_is_redacted_brings_nothing_to_life(before: str, after: str) -> None:
    assert harmless(before, ALLOWED, _OWN)
    shown = quiet(Redactor().redact)(before)
    assert shown == after
    assert harmless(shown, ALLOWED, _OWN)


def test_reading_a_text_keeps_none_of_it() -> None:
    text = "**a** `x` " * 3_000
    parse(text)
    before = _resident()
    for _ in range(20):
        parse(text)
    assert _resident() - before < 25_000_000  # without freeing it is three times as much


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")
