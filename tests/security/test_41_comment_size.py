"""Threat 41: a comment always fits, its fences are closed, and no terminal code is in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.github import GitHub
from bot.localhub import LocalHub
from bot.publishing.defuse import Allowed
from bot.publishing.marker import marker
from bot.publishing.render import Activity, Check, StatusView, render_status
from tests.changes import a_file

ALLOWED = Allowed(login="mona", number=7, server="https://github.example", repo="octo/calc")
MARKER = marker("j1", 10, 7, key=b"k")
LONG = "x" * 1000


def rendered(completion: str, *, many: int = 0) -> str:
    return render_status(
        StatusView(
            state="done",
            asked="/codepilot fix",
            allowed=ALLOWED,
            job_id="j1",
            marker=MARKER,
            seconds=1,
            completion=completion,
            reason=completion,
            withheld=completion,
            activities=tuple(Activity(label=f"{n} {LONG}", state="done") for n in range(many)),
            files=tuple(a_file(f"{n}/{LONG}") for n in range(many)),
            checks=tuple(Check(command=LONG, exit_code=1, seconds=1) for _ in range(many)),
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "word " * 100_000,
        "`" * 300_000,
        "<" * 200_000,
        "line\n" * 100_000,
        "```py\n" + "x\n" * 90_000,
        "@a " * 60_000,
        "😀" * 70_000,
    ],
)
def test_any_length_fits_and_keeps_the_marker(text: str) -> None:
    body = rendered(text, many=500)
    assert len(body) <= 65_536
    assert body.endswith(MARKER)
    assert "Cut here" in body


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["```", "~~~", "````py", "text", "> ```", "- ```", "", "    x", "`"]), max_size=8))
def test_nothing_after_the_model_s_words_is_swallowed_by_an_open_fence(lines: list[str]) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).parse(rendered("\n".join(lines)))
    assert [t for t in tokens if t.type == "html_block" and t.content.strip() == MARKER and t.level == 0]


def test_terminal_codes_are_gone() -> None:
    body = rendered("\x1b[31mred\x1b[0m\x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b31m\n10%\r100%")
    assert "red" in body
    assert not [c for c in body if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


async def test_the_longest_comment_is_taken(hub: LocalHub) -> None:
    token = hub.add_user("mona").token
    repo = hub.add_repo("mona/calc", owner="mona", files={"a": "1"})
    number = hub.open_issue(repo, author="mona", title="T").number
    async with GitHub.for_token(token, hub.api_url, redact=str) as github:
        body = rendered("word " * 100_000, many=500)
        assert (await github.create_comment("mona/calc", number, body)).body == body
