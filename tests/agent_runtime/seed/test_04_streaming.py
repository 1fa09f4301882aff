"""§4: with `stream=True` text comes as the model writes it; without, once a reply is complete. Code never does, and a
completion only once the calls of its step have proved it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime import AsyncRuntime, EventType, on_stream
from tests.agent_runtime.seed.parts import Model, reply, watch

Start = Callable[..., tuple[AsyncRuntime, Model]]

WHOLE = (
    "I look first, as this shows:\n```python\nshown = 1\n```\n"
    '```codepilot\nwrite_file("hidden.txt")\n```\n```text\nhidden content\n```\n'
    "```completion\nAll of it is done now.\n```\n"
)


async def test_words_stream_in_many_pieces_before_the_code_runs_and_the_completion_after_it(
    start: Start, place: Path
) -> None:
    runtime, _ = start(WHOLE, using={"stream": True})
    pieces: list[str] = []
    before: list[str] = []

    @on_stream(runtime)
    def handle(text: str, **_: object) -> None:
        pieces.append(text)
        if not (place / "hidden.txt").exists():
            before.append(text)

    await runtime.run("Do it")
    text = "".join(pieces)
    assert len(pieces) > 5
    assert "I look first" in text
    assert "shown = 1" in text
    assert "All of it is done now." in text
    assert "hidden" not in text
    assert "codepilot" not in text
    assert "".join(before).rstrip() == text[: text.index("All of it")].rstrip()
    assert pieces[-1] == "All of it is done now.\n"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_completion_that_its_own_step_disproves_is_never_streamed(start: Start, stream: bool) -> None:  # noqa: FBT001 - a test's parameter
    runtime, _ = start(
        reply("assert False", say="I test it.", done="All tests pass."),
        reply("print(1)", done="One test fails."),
        using={"stream": stream},
    )
    seen = watch(runtime, EventType.STREAM, EventType.COMPLETION_WITHDRAWN)
    await runtime.run("Test it")
    assert "tests pass" not in str(seen)
    assert seen[-1] == (EventType.STREAM, {"text": "One test fails.\n"})


async def test_without_stream_the_text_of_a_reply_comes_as_one(start: Start) -> None:
    runtime, _ = start(reply("print(1)", say="First I look."), reply(say="Seen.", done="That is it."))
    seen = watch(runtime, EventType.STREAM)
    await runtime.run("Do it")
    texts = [arguments["text"].strip() for _, arguments in seen]
    assert texts[0] == "First I look."
    assert len(texts) == 2
    assert "Seen." in texts[1]
    assert "That is it." in texts[1]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_conversational_answer_streams_whole(start: Start, stream: bool) -> None:  # noqa: FBT001 - a test's parameter
    answer = "It falls back to an empty dict.\n\n```python\nreturn {}\n```\n\nSo nobody has to check for None.\n"
    runtime, _ = start(answer, using={"stream": stream})
    seen = watch(runtime, EventType.STREAM)
    await runtime.run("What if the file is missing?")
    assert "".join(arguments["text"] for _, arguments in seen).strip() == answer.strip()
    assert (len(seen) > 3) is stream
