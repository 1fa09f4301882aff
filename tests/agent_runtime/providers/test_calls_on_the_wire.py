"""Native tool calls over a real socket, for each wire format."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from agent_runtime.core.values import ToolAnswer, ToolRequest, Usage
from agent_runtime.providers.models import ModelOptions, Thinking
from agent_runtime.providers.protocol import Message, ReplyEnd, ReplyParts, Request, ToolSchema, split_parts
from agent_runtime.transports.native import NativeReply, NativeTransport
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.providers.conversations import MODELS, WIRES, Collected, ask
from tests.agent_runtime.providers.test_requests_on_the_wire import STATUS, prefix, unmarked
from tests.model_server import ModelServer, Says, Wire

TOOL = ToolSchema(
    name="find", description="Find it.", parameters={"type": "object", "properties": {"a": {"type": "string"}}}
)
CALLS = (("toolu_1", "find", '{"a": "é"}'), ("toolu_2", "find", "{}"), ("toolu_3", "finish", '{"summary": "Done'))
PICTURE = picture("plot")


def requests_of(reply: Collected) -> tuple[ToolRequest, ...]:
    transport, state = NativeTransport(), NativeReply()
    for call in reply.calls:
        transport.feed_reply(state, call)
    transport.feed_reply(state, ReplyEnd(stop="stop", usage=Usage()))
    return state.requests


def conversation(steps: int, *said: Message) -> Request:
    """Build a conversation of steps with two calls each, one of them failed."""
    messages = [Message(role="user", text="Fix the bug.")]
    for step in range(1, steps + 1):
        asked = tuple(ToolRequest(id=f"c{step}_{n}", name="find", arguments='{"a": "x"}') for n in range(2))
        given = tuple(ToolAnswer(id=each.id, text=f"Result {each.id}", ok=each.id.endswith("0")) for each in asked)
        messages.append(Message(role="assistant", text="Looking." if step % 2 else "", requests=asked))
        messages.append(Message(role="user", text="" if step % 2 else "And hurry.", answers=given))
    return Request(system="Be brief.", messages=(*messages, *said), status=STATUS, tools=(TOOL,))


@pytest.mark.parametrize("wire", WIRES)
async def test_calls_are_read_piece_by_piece_as_the_model_wrote_them(wire: Wire) -> None:
    async with ModelServer(replies=[Says("Let me see.", calls=CALLS), Says("", calls=CALLS[:1])]) as server:
        both = await ask(server, wire, conversation(0))
        only = await ask(server, wire, conversation(0))
    assert both.text == "Let me see."
    assert [(each.id, each.name, each.arguments) for each in requests_of(both)] == [*CALLS]
    assert (only.text, len(requests_of(only))) == ("", 1)
    assert both.end is not None
    assert (both.end.stop, both.end.usage.output_tokens) == ("stop", 20)


@pytest.mark.parametrize("wire", WIRES)
async def test_tools_are_declared_and_only_where_there_are_any(wire: Wire) -> None:
    async with ModelServer(replies=["Ok.", "Ok."]) as server:
        await ask(server, wire, conversation(0))
        await ask(server, wire, replace(conversation(0), tools=()))
    declared = {"name": "find", "description": "Find it."}
    schema = dict(TOOL.parameters)
    assert server.requests[0].json["tools"] == [
        {
            "anthropic": {**declared, "input_schema": schema},
            "responses": {"type": "function", **declared, "parameters": schema, "strict": False},
            "chat": {"type": "function", "function": {**declared, "parameters": schema}},
        }[wire]
    ]
    assert "tools" not in server.requests[1].json


@pytest.mark.parametrize("wire", WIRES)
async def test_each_call_goes_back_with_its_answer_right_behind_it(wire: Wire) -> None:
    broken = ToolRequest(id="c9", name="find", arguments='{"a')
    shown = ToolAnswer(id="c9", text="not JSON", ok=False, images=(PICTURE,))
    said = (Message(role="assistant", text="", requests=(broken,)), Message(role="user", text="", answers=(shown,)))
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, conversation(2, *said))
    body = server.requests[0].json
    if wire == "anthropic":
        [_, first, answered, second, hurried, wrong, last] = body["messages"]
        assert [block["type"] for block in first["content"]] == ["text", "tool_use", "tool_use"]
        assert first["content"][1]["input"] == {"a": "x"}
        assert [block["is_error"] for block in answered["content"]] == [False, True]
        assert [block["type"] for block in second["content"]] == ["tool_use", "tool_use"]
        assert [block["type"] for block in hurried["content"]] == ["tool_result", "tool_result", "text"]
        assert wrong["content"][0]["input"] == {"INVALID_JSON": '{"a'}
        assert [block["type"] for block in last["content"]] == ["tool_result", "image", "text"]
        assert [part["type"] for part in last["content"][0]["content"]] == ["text"]
    elif wire == "responses":
        kinds = [item.get("type", item.get("role")) for item in body["input"]]
        step = ["function_call"] * 2 + ["function_call_output"] * 2
        last = ["function_call", "function_call_output", "user"]
        assert kinds == ["developer", "user", "assistant", *step, *step, "user", *last]
        assert json.loads(body["input"][-3]["arguments"]) == {"INVALID_JSON": '{"a'}
        assert [part["type"] for part in body["input"][-2]["output"]] == ["input_image", "input_text"]
    else:
        roles = [message["role"] for message in body["messages"]]
        step = ["assistant", "tool", "tool"]
        assert roles == ["system", "user", *step, *step, "user", "assistant", "tool", "user", "user"]
        assert [call["id"] for call in body["messages"][2]["tool_calls"]] == ["c1_0", "c1_1"]
        assert [message["tool_call_id"] for message in body["messages"][3:5]] == ["c1_0", "c1_1"]
        assert body["messages"][-2]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("value", ["NaN", "1e999", "[-Infinity]", r'"\ud83d"', r'{"\udc00": 1}'])
async def test_arguments_that_no_request_can_carry_go_back_as_a_text(wire: Wire, value: str) -> None:
    written = f'{{"a": {value}}}'
    odd = ToolRequest(id="c9", name="find", arguments=written)
    answer = Message(role="user", text="", answers=(ToolAnswer(id="c9", text="not JSON", ok=False),))
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, conversation(0, Message(role="assistant", text="", requests=(odd,)), answer))
    body = server.requests[0].json
    sent = {
        "anthropic": lambda: body["messages"][1]["content"][0]["input"],
        "responses": lambda: json.loads(body["input"][2]["arguments"]),
        "chat": lambda: json.loads(body["messages"][2]["tool_calls"][0]["function"]["arguments"]),
    }[wire]()
    assert sent == {"INVALID_JSON": written}


async def test_pictures_of_a_call_that_succeeded_stand_in_its_answer() -> None:
    asked = ToolRequest(id="c9", name="find", arguments="{}")
    shown = ToolAnswer(id="c9", text="a plot", images=(PICTURE,))
    said = (Message(role="assistant", text="", requests=(asked,)), Message(role="user", text="", answers=(shown,)))
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, "anthropic", conversation(0, *said))
    [answer, _status] = server.requests[0].json["messages"][-1]["content"]
    assert [part["type"] for part in answer["content"]] == ["image", "text"]


@pytest.mark.parametrize("wire", WIRES)
async def test_each_request_with_calls_is_a_prefix_of_the_next(wire: Wire) -> None:
    async with ModelServer(replies=["Go on."] * 8) as server:
        for step in range(1, 9):
            await ask(server, wire, conversation(step))
    for shorter, longer in pairwise(map(prefix, server.requests)):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)
    marks = {"anthropic": "cache_control", "responses": "prompt_cache_breakpoint"}
    if wire in marks:
        body = server.requests[-1].json
        assert json.dumps(body).count(marks[wire]) == 3  # the system prompt, and the last two messages of the user's
        assert marks[wire] not in json.dumps(unmarked(body))


@pytest.mark.parametrize("wire", WIRES)
async def test_reasoning_is_sent_back_with_calls_to_the_same_model(wire: Wire) -> None:
    options = ModelOptions(thinking=Thinking()) if wire == "anthropic" else ModelOptions()
    async with ModelServer(
        replies=[Says("So.", thinking="Hm, let me think.", calls=CALLS[:1]), "Ok.", "Ok."]
    ) as server:
        reply = await ask(server, wire, conversation(0), options)
        assert reply.end is not None
        asked = requests_of(reply)
        said = Message(role="assistant", text=reply.text, requests=asked, reasoning=reply.end.reasoning)
        answer = Message(role="user", text="", answers=(ToolAnswer(id=asked[0].id, text="found"),))
        await ask(server, wire, conversation(0, said, answer), options)
        other = said.reasoning.replace(MODELS[wire], "another")
        await ask(server, wire, conversation(0, replace(said, reasoning=other), answer), options)
    same, foreign = (received.json for received in server.requests[1:])
    match wire:
        case "anthropic":
            thought, text, call = same["messages"][1]["content"]
            assert thought == {"type": "thinking", "thinking": "Hm, let me think.", "signature": "signed"}
            assert (text["type"], call["type"]) == ("text", "tool_use")
            assert [block["type"] for block in foreign["messages"][1]["content"]] == ["text", "tool_use"]
        case "responses":
            [kept] = [item for item in same["input"] if item.get("type") == "reasoning"]
            assert kept["encrypted_content"] == "sealed"
            assert same["input"].index(kept) == 2
            assert "sealed" not in json.dumps(foreign)
        case "chat":
            assert same["messages"][2]["reasoning_content"] == "Hm, let me think."
            assert "reasoning_content" not in json.dumps(foreign)


async def test_a_budget_for_thoughts_is_not_sent_behind_calls_that_have_none() -> None:
    options = ModelOptions(thinking=Thinking())
    for model, sent in (("claude-opus-4-5", False), ("claude-sonnet-5-5", True)):
        async with ModelServer(replies=["Ok.", "Ok."]) as server:
            await ask(server, "anthropic", conversation(2), options, model=model)
            await ask(server, "anthropic", conversation(0), options, model=model)
        assert ["thinking" in received.json for received in server.requests] == [sent, True]


def test_parts_come_back_in_their_order_and_damaged_ones_not_at_all() -> None:
    parts = ReplyParts("m")
    parts.add_block({"n": 1})
    parts.add_text("one")
    parts.add_call("a")
    parts.add_block({"n": 2})
    parts.add_call("b")
    asked = tuple(ToolRequest(id=each, name="t", arguments="") for each in "ab")
    said = Message(role="assistant", text="one, then", requests=asked, reasoning=parts.reasoning)
    assert split_parts(said, "m") == [{"n": 1}, "one", asked[0], {"n": 2}, ", then", asked[1]]
    cut_off = replace(said, text="one", requests=asked[:1])
    assert split_parts(cut_off, "m") == [{"n": 1}, "one", asked[0]]
    for damaged in ("", "{", "[]", '{"model": "m"}', '{"model": "m", "kept": [[0]]}', '{"model": "x", "kept": []}'):
        assert split_parts(replace(said, reasoning=damaged), "m") == ["one, then", *asked]


async def test_a_server_that_numbers_all_calls_alike_is_understood() -> None:
    from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415 - for this test alone

    from agent_runtime.providers.faults import ModelService  # noqa: PLC0415 - the same
    from agent_runtime.providers.openai import ChatReader  # noqa: PLC0415 - the same

    service = ModelService(name="s", model="m", url="https://example.org", key_variable="K")
    reading, reply = ChatReader(service=service, parts=ReplyParts("m")), Collected()
    for id_ in ("a", "b"):
        call = {"index": 0, "id": id_, "function": {"name": "find", "arguments": f'{{"a": "{id_}"}}'}}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        reply.calls += reading.read(ChatCompletionChunk.model_validate({**chunk, "choices": [choice]}))  # type: ignore[arg-type] # nothing but calls
    assert [(each.id, each.arguments) for each in requests_of(reply)] == [("a", '{"a": "a"}'), ("b", '{"a": "b"}')]


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ({"index": 0, "id": "a", "function": {"name": "find", "arguments": {"a": 1}}}, [("a", "find", '{"a": 1}')]),
        ({"index": 0, "id": 7, "function": {"name": "find", "arguments": "{}"}}, [("7", "find", "{}")]),
        ({"index": [1], "id": None, "function": {"name": ["x"], "arguments": None}}, [("call_1", "__x__", "")]),
        ({"index": None, "id": None, "function": "find"}, [("call_1", "_", "")]),
        ("find", []),
    ],
)
def test_calls_of_an_odd_shape_are_read_as_far_as_they_can_be(call: object, read: list[tuple[str, str, str]]) -> None:
    from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415 - for this test alone

    from agent_runtime.providers.faults import ModelService  # noqa: PLC0415 - the same
    from agent_runtime.providers.openai import ChatReader  # noqa: PLC0415 - the same

    service = ModelService(name="s", model="m", url="https://example.org", key_variable="K")
    reading, reply = ChatReader(service=service, parts=ReplyParts("m")), Collected()
    for delta in ({"tool_calls": [call]}, {"tool_calls": "x", "content": ["y"]}):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        reply.calls += reading.read(ChatCompletionChunk.construct(**chunk))  # type: ignore[arg-type] # nothing but calls
    assert [(each.id, each.name, each.arguments) for each in requests_of(reply)] == read
