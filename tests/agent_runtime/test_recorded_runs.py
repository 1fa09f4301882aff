"""The recorded runs of `bench/recordings`: they can be read, and what their requests cost with today's prompt."""

import json
from itertools import pairwise

import pytest

from agent_runtime.context.transcript import estimate
from agent_runtime.core.events import Ended, Replied
from agent_runtime.core.values import Status, ToolRequest, Usage
from agent_runtime.providers.protocol import Message, Request
from bench import replays
from bench.replays import ISSUES

MAX_PRICED_TOKENS = 51_500
"""Of all recorded runs together; only falls."""


def reply(text: str, *requests: ToolRequest) -> Replied:
    return Replied(step=0, text=text, usage=Usage(), requests=requests)


@pytest.mark.parametrize("name", ISSUES)
async def test_a_recorded_run_is_finished_and_each_request_begins_with_the_one_before(name: str) -> None:
    events = replays.read_recording(name)
    requests = replays.render_recording(events, await replays.present_prompt("blocks"))

    assert isinstance(ended := events[-1], Ended)
    assert ended.outcome.status == Status.FINISHED
    assert len(requests) == len(replays.replies_of(events)) > 1
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert len(after.messages) == len(before.messages) + 2


async def test_the_recorded_runs_cost_no_more_than_before() -> None:
    prompt = await replays.present_prompt("blocks")
    recordings = [replays.read_recording(name) for name in ISSUES]
    costs = [
        replays.price(replays.render_recording(events, prompt), replays.replies_of(events)) for events in recordings
    ]

    assert sum(cost.tokens for cost in costs) < MAX_PRICED_TOKENS


def test_what_a_request_shares_with_the_one_before_is_read_and_the_rest_is_written() -> None:
    opening, answer, result = "a " * 200, "b", "c " * 200
    first = Request(system="s", messages=(Message(role="user", text=opening),))
    further = (Message(role="assistant", text=answer), Message(role="user", text=result))
    second = Request(system="s", messages=(*first.messages, *further), status="step 2")
    shared, added, word = estimate("s") + estimate(opening), estimate(answer) + estimate(result), estimate("word")

    cost = replays.price([first, second], [reply("word"), reply("word")])

    plain = estimate("") + estimate("step 2")
    assert cost.tokens == pytest.approx(1.25 * (shared + added) + 0.1 * shared + plain + 5 * 2 * word)
    assert (cost.requests, cost.prompt, cost.first_message, cost.results) == (2, 1, len(opening), len(result))


def test_a_block_of_calls_becomes_native_calls_with_their_contents() -> None:
    text = (
        "Mending it.\n```codepilot\n"
        'write_file("a.py", 3, 4, mode="edit")\nwrite_file("b.py", mode="replace")\n'
        'execute("main", "pytest", check=True)\n'
        "```\n```python\nx = 1\n```\n```python\nold\n```\n```python\nnew\n```\n```completion\nMended.\n```\n"
    )

    native = replays.to_native_calls(reply(text))

    assert native.text == "Mending it."
    assert [(call.name, json.loads(call.arguments)) for call in native.requests] == [
        ("write_file", {"path": "a.py", "start_line": 3, "end_line": 4, "mode": "edit", "content": "x = 1\n"}),
        ("write_file", {"path": "b.py", "mode": "replace", "old": "old\n", "content": "new\n"}),
        ("execute", {"session_id": "main", "command": "pytest", "check": True}),
        ("finish", {"summary": "Mended."}),
    ]


def test_a_block_with_a_loop_becomes_a_script() -> None:
    native = replays.to_native_calls(reply("Reading.\n```codepilot\nfor f in list_files():\n    read_file(f)\n```\n"))

    assert [(call.name, json.loads(call.arguments)) for call in native.requests] == [
        ("script", {"code": "for f in list_files():\n    read_file(f)\n"})
    ]
