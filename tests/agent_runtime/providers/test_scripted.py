from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.core.errors import ScriptError, SettingsError
from agent_runtime.core.values import IMAGE_TOKENS, Usage
from agent_runtime.providers.protocol import Message, ReplyEnd, Request, TextChunk
from agent_runtime.providers.scripted import ScriptedProvider, ScriptedReply, parse_script
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.providers.conversations import collect, conversation

SCRIPT = """\
- reply: |
    Looking.
    ```codepilot
    find("add")
    ```
- expect: [Result 1, {regex: "é .$"}]
  expect_not: Traceback
  usage: {input_tokens: 900, output_tokens: 40}
  stop: length
  reply: cut o
"""


def user(text: str) -> Request:
    return Request(system="", messages=(Message(role="user", text=text),))


async def test_a_file_is_replayed_to_the_character(tmp_path: Path) -> None:
    path = tmp_path / "demo.yml"
    path.write_text(SCRIPT, encoding="utf-8")
    provider = ScriptedProvider.from_file(path)
    first = await collect(provider.reply(conversation(1)))
    second = await collect(provider.reply(conversation(2)))
    assert first.text == 'Looking.\n```codepilot\nfind("add")\n```\n'
    assert second.text == "cut o"
    assert second.end == ReplyEnd(stop="length", usage=Usage(requests=1, input_tokens=900, output_tokens=40))
    assert provider.remaining == 0


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_replies_come_in_chunks_of_the_chosen_size(size: int) -> None:
    provider = ScriptedProvider(["abcdefgh"], chunk_chars=size)
    pieces = [chunk.text async for chunk in provider.reply(conversation()) if isinstance(chunk, TextChunk)]
    assert "".join(pieces) == "abcdefgh"
    assert {len(piece) for piece in pieces[:-1]} <= {size}


async def test_a_request_beyond_the_last_reply_is_an_error() -> None:
    provider = ScriptedProvider(["one"], source="demo.yml")
    await collect(provider.reply(conversation()))
    with pytest.raises(ScriptError, match=r"demo\.yml has 1 reply, .*needs one more.*Result 1"):
        await collect(provider.reply(conversation(2)))


async def test_an_expectation_that_fails_shows_entry_and_message() -> None:
    provider = ScriptedProvider(["one", ScriptedReply(text="two", expect=("2 passed",))], source="demo.yml")
    await collect(provider.reply(user("start")))
    with pytest.raises(ScriptError, match=r"demo\.yml, entry 2: .*should hold '2 passed'.*\n1 failed, 1 passed"):
        await collect(provider.reply(user("1 failed, 1 passed")))
    assert provider.remaining == 1


async def test_a_pattern_that_must_not_be_there_shows_its_surroundings() -> None:
    message = "x" * 5_000 + " Traceback (most recent call last) " + "y" * 5_000
    provider = ScriptedProvider([ScriptedReply(text="t", expect_not=(re.compile("Trace.ack"),))])
    with pytest.raises(ScriptError, match=r"'Trace\.ack'") as caught:
        await collect(provider.reply(user(message)))
    assert "xxx Traceback (most recent call last) yyy" in str(caught.value)
    assert len(str(caught.value)) < 1_000


async def test_a_long_message_is_shown_by_head_and_tail() -> None:
    provider = ScriptedProvider([ScriptedReply(text="t", expect=("nowhere",))])
    with pytest.raises(ScriptError, match="HEAD") as caught:
        await collect(provider.reply(user("HEAD" + "-" * 9_000 + "TAIL")))
    assert "TAIL" in str(caught.value)
    assert len(str(caught.value)) < 1_000


async def test_only_the_newest_message_is_searched() -> None:
    provider = ScriptedProvider([ScriptedReply(text="t", expect=("Fix the bug",))])
    with pytest.raises(ScriptError):
        await collect(provider.reply(conversation(2)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must be a list"),
        ("reply: hi", "must be a list"),
        ("- [", "is not YAML"),
        ("- hi", "entry 1: an entry must be a mapping"),
        ("- reply: a\n- replay: b", r"entry 2: unknown key 'replay'. Did you mean 'reply'\?"),
        ("- expect: a", "entry 1: `reply` is missing"),
        ("- reply: 3", "entry 1: `reply` is missing or not text"),
        ("- reply: a\n  stop: lenght", r"unknown stop 'lenght'. Did you mean 'length'\?"),
        ("- reply: a\n  usage: {input: 3}", "unknown key 'input'. Did you mean 'input_tokens'"),
        ("- reply: a\n  usage: {input_tokens: many}", "`usage` input_tokens must be a whole number"),
        ("- reply: a\n  usage: {input_tokens: true}", "`usage` input_tokens must be a whole number"),
        ("- reply: a\n  expect: {regexp: x}", "unknown key 'regexp'. Did you mean 'regex'"),
        ("- reply: a\n  expect: {regex: '('}", "is not a regular expression"),
        ("- reply: a\n  expect: [3]", "an expectation that is not text must be a mapping"),
    ],
)
def test_a_script_that_is_none_is_refused_with_place_and_remedy(text: str, complaint: str) -> None:
    with pytest.raises(ScriptError, match=complaint) as caught:
        parse_script(text, source="demo.yml")
    assert "demo.yml" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nowhere\.yml"):
        ScriptedProvider.from_file(tmp_path / "nowhere.yml")


@pytest.mark.parametrize(("chunk_chars", "delay"), [(0, 0.0), (16, -1.0)])
def test_impossible_pacing_is_refused(chunk_chars: int, delay: float) -> None:
    with pytest.raises(SettingsError, match=f"{chunk_chars} .* {delay}"):
        ScriptedProvider([], chunk_chars=chunk_chars, delay=delay)


async def test_usage_counts_the_previous_request_as_cached() -> None:
    provider = ScriptedProvider(["a" * 40, "b" * 40, "c" * 40])
    history = (Message(role="user", text="u" * 400),)
    first = await collect(provider.reply(Request(system="s" * 800, messages=history, status="t" * 20)))
    grown = (*history, Message(role="assistant", text="a" * 40), Message(role="user", text="v" * 360))
    second = await collect(provider.reply(Request(system="s" * 800, messages=grown, status="t" * 20)))
    rewritten = (Message(role="user", text="w" * 400),)
    third = await collect(provider.reply(Request(system="s" * 800, messages=rewritten)))
    assert first.end is not None
    assert first.end.usage == Usage(requests=1, input_tokens=5, cache_write_tokens=300, output_tokens=10)
    assert second.end is not None
    assert second.end.usage == Usage(
        requests=1, input_tokens=5, cached_tokens=300, cache_write_tokens=100, output_tokens=10
    )
    assert third.end is not None
    assert (third.end.usage.cached_tokens, third.end.usage.cache_write_tokens) == (0, 300)
    assert third.end.usage.cost_usd == 0.0


async def test_images_count_like_any_message_and_are_cached_like_one() -> None:
    provider = ScriptedProvider(["One.", "Two."], sees_images=True)
    first = Request(system="", messages=(Message(role="user", text="Look", images=(picture(), picture())),))
    more = (Message(role="assistant", text="One."), Message(role="user", text="On"))
    ends = [
        (await collect(provider.reply(each))).end for each in (first, replace(first, messages=(*first.messages, *more)))
    ]
    usages = [end.usage for end in ends if end is not None]
    assert usages[0].cache_write_tokens == 2 * IMAGE_TOKENS + 1
    assert usages[1].cached_tokens == usages[0].cache_write_tokens


async def test_a_script_may_ask_for_calls() -> None:
    text = '- calls: [{read_file: {path: é.py}}, {broken: "{"}]\n- {reply: Both., calls: [{finish: {}}]}\n'
    provider = ScriptedProvider(parse_script(text, source="demo.yml"), chunk_chars=4)
    assert provider.tool_calling == "preferred"
    first, second = [await collect(provider.reply(conversation())) for _ in range(2)]
    assert [(call.index, call.id, call.name) for call in first.calls if call.name] == [
        (0, "call_1", "read_file"),
        (1, "call_2", "broken"),
    ]
    told = ["".join(call.arguments for call in first.calls if call.index == index) for index in range(2)]
    assert told == ['{"path": "é.py"}', "{"]
    assert (first.text, second.text) == ("", "Both.")


@pytest.mark.parametrize("calls", ["read_file", "[read_file]", "[{a: {}, b: {}}]", "[{a: 1}]", "[]"])
def test_calls_that_are_none_are_refused(calls: str) -> None:
    with pytest.raises(ScriptError, match=r"demo\.yml, entry 1: `(?:calls|reply)`"):
        parse_script(f"- calls: {calls}\n", source="demo.yml")
