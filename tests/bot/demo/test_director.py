"""The screen of the demo in a terminal of 80 columns."""

from __future__ import annotations

import io
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from agent_runtime import Event, ModelAwaited, Streamed, StreamReset
from bot.demo.director import DemoScreen
from bot.settings.load import load_demo

PROSE = (
    "The fraction is read as if it were microseconds. I look at what the tests ask for and\nreproduce the failure, as "
    "`test_isoparse_fractional_seconds` does.\n"
)


def shown(*events: Event) -> list[str]:
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


def test_a_wait_for_the_model_is_shown() -> None:
    lines = shown(ModelAwaited(reason="the name of its host cannot be resolved", seconds=2.0))
    assert lines[0] == "(no reply: the name of its host cannot be resolved; trying again in 2 s)"


def test_no_sign_of_a_comment_breaks_its_frame() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    DemoScreen(console).markdown("- [x] \u26a0\ufe0f Running `x`\n- ✅ Done", title="comment")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\ufe0f" not in text
    assert {cell_len(line) for line in text.splitlines()} == {40}


def test_the_demo_waits_for_its_model_for_a_minute(tmp_path: Path) -> None:
    agent = load_demo(None, data_dir=tmp_path, toolchains=(), base_url="http://localhost:1/v1", model="m", environ={})
    assert (agent.model_patience, agent.limits.outage_seconds) == (60, 60)
