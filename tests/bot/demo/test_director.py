"""The screen of the demo in a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console

from agent_runtime import Streamed, StreamReset
from bot.demo.director import DemoScreen

PROSE = (
    "The fraction is read as if it were microseconds. I look at what the tests ask for and\nreproduce the failure, as "
    "`test_isoparse_fractional_seconds` does.\n"
)


def shown(*events: Streamed | StreamReset) -> list[str]:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    screen = DemoScreen(console)
    for event in events:
        screen.on_event(event)
    screen.heading("The end")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_models_text_is_wrapped_between_words() -> None:
    pieces = [Streamed(text=PROSE[start : start + 7]) for start in range(0, len(PROSE), 7)]
    lines = shown(*pieces)[:3]
    assert " ".join(" ".join(lines).split()) == " ".join(PROSE.replace("`", "").split())
    assert max(map(len, lines)) <= 80


def test_a_reply_that_broke_off_is_not_shown() -> None:
    lines = shown(Streamed(text="I begin"), StreamReset(attempt=2), Streamed(text="Again."))
    assert "I begin" not in "\n".join(lines)
    assert "Again." in [line.strip() for line in lines]


def test_no_sign_of_a_comment_breaks_its_frame() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    DemoScreen(console).markdown("- [x] \u26a0\ufe0f Running `x`\n- ✅ Done", title="comment")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\ufe0f" not in text
    assert {cell_len(line) for line in text.splitlines()} == {40}
