"""Threat 41: comments and check runs always fit, their fences are closed, and no terminal code is in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.github.client import GitHub
from bot.github.types import CommentTarget
from bot.publishing.checks import Check
from bot.publishing.markdown import Allowlist
from bot.publishing.markers import sign_marker
from bot.publishing.render import render_check, render_status
from bot.publishing.status_view import Activity, StatusView
from localhub import LocalHub
from tests.builders import a_job
from tests.changes import a_file
from tests.status_views import a_status_view

ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")
MARKER = sign_marker("j1", 10, 7, key=b"k")
LONG = "x" * 1000


def rendered(completion: str, *, many: int = 0) -> str:
    return render_status(a_view(completion, many=many))


def a_view(completion: str, *, many: int, patch: str = "") -> StatusView:
    return a_status_view(
        state="done",
        command="/codepilot fix",
        allowed=ALLOWED,
        job_id="j1",
        marker=MARKER,
        seconds=1,
        completion=completion,
        patch=patch,
        reason=completion,
        withheld=completion,
        activities=tuple(Activity(label=f"{n} {LONG}", state="done") for n in range(many)),
        files=tuple(a_file(f"{n}/{LONG}") for n in range(many)),
        checks=tuple(Check(command=LONG, exit_code=1, seconds=1) for _ in range(many)),
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
    assert "Truncated" in body


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["```", "~~~", "````py", "text", "> ```", "- ```", "", "    x", "`"]), max_size=8))
def test_nothing_after_the_model_s_words_is_swallowed_by_an_open_fence(lines: list[str]) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).parse(rendered("\n".join(lines)))
    assert [t for t in tokens if t.type == "html_block" and t.content.strip() == MARKER and t.level == 0]


def test_terminal_codes_are_gone() -> None:
    body = rendered("\x1b[31mred\x1b[0m\x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b31m\n10%\r100%")
    assert "red" in body
    assert not [c for c in body if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


@pytest.mark.parametrize(
    "patch", ["+line\n" * 100_000, "`" * 300_000, "\x1b[31m+red\x1b[0m\n" * 20_000, "\udcff" * 90_000]
)
async def test_the_longest_check_run_is_taken(patch: str, hub: LocalHub) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files={"a": "1"})
    app = hub.add_app("codepilot")
    view = a_view("word " * 100_000, many=500, patch=patch)
    draft = render_check(view, job=a_job(), head_sha=hub.branches(repo)["main"])
    async with GitHub.for_installation(
        app.id,
        app.private_key_pem,
        hub.install(app, repo),
        hub.api_url,
        redact=lambda text: text.replace("x", "[redacted]"),
        seconds_between_writes=0,
    ) as github:
        await github.checks.create("mona/calc", draft)
    [run] = hub.check_runs(repo)
    assert "Truncated: the whole patch has" in draft.text
    assert max(len(run.summary or ""), len(run.text or "")) <= 65_535
    assert "\x1b" not in draft.text


async def test_the_longest_comment_is_taken(hub: LocalHub) -> None:
    token = hub.add_user("mona").token
    repo = hub.add_repo("mona/calc", owner="mona", files={"a": "1"})
    number = hub.open_issue(repo, author="mona", title="T").number
    async with GitHub.for_token(token, hub.api_url, redact=str) as github:
        body = rendered("word " * 100_000, many=500)
        assert (
            await github.comments.create("mona/calc", CommentTarget(kind="thread", number=number), body)
        ).body == body
