"""Requests to a model service over a real socket, for each wire format."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from agent_runtime.core.values import MAX_IMAGE_BYTES, Image, Usage
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Message, Request
from tests.agent_runtime.image_files import jpeg, png
from tests.agent_runtime.providers.conversations import KEY, WIRES, ask, collect, conversation, provider_on
from tests.model_server import Fails, ModelServer, Received, Says, Tokens, Wire

STATUS = "Step 3 of 30."
MARKS = ("cache_control", "prompt_cache_breakpoint")
IMAGES = (Image.of("issue #1", png()), Image.of("issue #2", jpeg()))


def unmarked(value: object) -> object:
    """Return a request's content without cache marks."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key not in MARKS}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def prefix(received: Received) -> str:
    """Return a request's cacheable prefix as bytes: system prompt and messages without the status."""
    body = received.json
    if received.wire == "anthropic":
        assert body["messages"][-1]["content"].pop() == {"type": "text", "text": STATUS}
        content = [body["system"], *body["messages"]]
    else:
        content = body["input" if received.wire == "responses" else "messages"]
        assert STATUS in json.dumps(content.pop())
    return json.dumps(unmarked(content)).removesuffix("]")


@pytest.mark.parametrize("images", [(), IMAGES], ids=["text", "images"])
@pytest.mark.parametrize("wire", WIRES)
async def test_each_request_is_a_prefix_of_the_next(wire: Wire, images: tuple[Image, ...]) -> None:
    async with ModelServer(replies=["Go on."] * 12) as server:
        for step in range(1, 13):
            await ask(server, wire, conversation(step, status=STATUS, images=images))
    prefixes = [prefix(received) for received in server.requests]
    for shorter, longer in pairwise(prefixes):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)


async def test_anthropic_marks_the_system_prompt_and_the_last_two_user_messages() -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, "anthropic", conversation(4, status=STATUS))
    body = server.requests[0].json
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    blocks = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    marked = [index for index, (_, block) in enumerate(blocks) if "cache_control" in block]
    assert marked == [4, 6]
    assert [blocks[index][0] for index in marked] == ["user", "user"]
    assert blocks[7] == ("user", {"type": "text", "text": STATUS})
    assert body["messages"][-1]["role"] == "user"


async def test_responses_marks_the_system_prompt_and_the_last_two_user_messages_and_nothing_else() -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, "responses", conversation(4, status=STATUS), ModelOptions(cache_key="session-1"))
    body = server.requests[0].json
    marked = [index for index, item in enumerate(body["input"]) if "prompt_cache_breakpoint" in json.dumps(item)]
    assert marked == [0, 5, 7]
    assert body["prompt_cache_options"] == {"mode": "explicit"}
    assert body["prompt_cache_key"] == "session-1"
    assert body["input"][-1] == {"role": "user", "content": [{"type": "input_text", "text": STATUS}]}
    assert body["store"] is False


@pytest.mark.parametrize("wire", WIRES)
async def test_headers_from_variables_are_sent_where_the_usual_key_is(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "X-Gateway: secret")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mona")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mona")
    entry = CATALOG["anthropic" if wire == "anthropic" else "openai"]
    async with ModelServer(replies=["Ok."] * 2) as server:
        await ask(server, wire, conversation())
        await ask(server, wire, conversation(), ModelOptions(key_variable=entry.key_variable))
    foreign, meant = ({name.lower(): value for name, value in each.headers.items()} for each in server.requests)
    assert "x-gateway" not in foreign
    assert "mona" not in str(foreign)
    assert meant["x-gateway"] == "secret"
    assert str(meant).count("of-mona") == (0 if wire == "anthropic" else 2)


def encoded_image(wire: Wire, number: int) -> dict[str, object]:
    """Return an image as the service's documentation encodes it."""
    image = IMAGES[number]
    url = f"data:{image.media_type};base64,{image.data}"
    match wire:
        case "anthropic":
            source = {"type": "base64", "media_type": image.media_type, "data": image.data}
            return {"type": "image", "source": source}
        case "responses":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "chat":
            return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("wire", WIRES)
async def test_images_go_in_order_before_the_text_of_their_message(wire: Wire) -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, conversation(2, status=STATUS, images=IMAGES))
    body = server.requests[0].json
    messages = body["input" if wire == "responses" else "messages"]
    first, *others = (message["content"] for message in messages if message["role"] == "user")
    assert unmarked(first[:2]) == [encoded_image(wire, 0), encoded_image(wire, 1)]
    assert (len(first), first[2]["text"]) == (3, "Fix the bug.")
    assert "image" not in json.dumps(others)


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
async def test_the_cache_mark_of_a_message_with_images_lies_behind_its_text(wire: Wire) -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, conversation(1, status=STATUS, images=IMAGES))
    body = server.requests[0].json
    parts = next(each for each in body.get("messages") or body["input"] if each["role"] == "user")["content"]
    assert [any(mark in part for mark in MARKS) for part in parts[:3]] == [False, False, True]


@pytest.mark.parametrize("wire", WIRES)
async def test_an_image_of_the_largest_size_arrives_to_the_byte(wire: Wire) -> None:
    large = Image.of("x", png() + b"\0" * (MAX_IMAGE_BYTES - len(png())))
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, conversation(images=(large,)))
    assert large.data.encode() in server.requests[0].body


async def test_chat_sends_a_compatible_server_only_common_parameters() -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, "chat", conversation(2, status=STATUS))
    received = server.requests[0]
    assert received.path == "/v1/chat/completions"
    assert set(received.json) == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert [message["role"] for message in received.json["messages"]] == ["system", "user", "assistant", "user", "user"]
    assert received.json["messages"][-1]["content"] == STATUS


@pytest.mark.parametrize(
    ("wire", "limit"), [("anthropic", "max_tokens"), ("responses", "max_output_tokens"), ("chat", "max_tokens")]
)
async def test_options_reach_the_service_and_unset_ones_do_not(wire: Wire, limit: str) -> None:
    async with ModelServer(replies=["Ok.", "Ok."]) as server:
        await ask(server, wire)
        await ask(server, wire, options=ModelOptions(max_tokens=77, temperature=0.5))
    plain, tuned = (received.json for received in server.requests)
    assert plain[limit] == 16_000
    assert "temperature" not in plain
    assert tuned[limit] == 77
    assert tuned.get("temperature") == (None if wire == "anthropic" else 0.5)  # the default model there refuses it


@pytest.mark.parametrize("wire", WIRES)
async def test_the_key_travels_in_the_header_only(wire: Wire) -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire)
    received = server.requests[0]
    assert any(KEY in value for value in received.headers.values())
    assert KEY.encode() not in received.body


@pytest.mark.parametrize("wire", WIRES)
async def test_without_system_prompt_and_status_neither_is_sent(wire: Wire) -> None:
    request = Request(system="", messages=(Message(role="user", text="Hello"),))
    async with ModelServer(replies=["Hi."]) as server:
        await ask(server, wire, request)
    body = server.requests[0].json
    assert "system" not in body
    assert len(body["input" if wire == "responses" else "messages"]) == 1


async def test_a_blank_message_is_worded_for_anthropic_which_refuses_blanks() -> None:
    messages = (
        Message(role="user", text="Hi"),
        Message(role="assistant", text=" \n"),
        Message(role="user", text="?"),
    )
    async with ModelServer(replies=["Hi."]) as server:
        await ask(server, "anthropic", Request(system="", messages=messages))
    assert server.requests[0].json["messages"][1]["content"][0]["text"] == "(empty)"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("text", ["Plain.", "é 🐛 \u2028 line\r\nend\n", "```codepilot\nprint('x')\n```\n" * 50])
async def test_text_arrives_to_the_character(wire: Wire, text: str) -> None:
    async with ModelServer(replies=[Says(text, thinking="Hm, let me see.")]) as server:
        assert (await ask(server, wire)).text == text


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
async def test_blocks_of_one_reply_do_not_share_a_line(wire: Wire) -> None:
    async with ModelServer(replies=[Says(("Looking.", "```codepilot\n", "x()\n```"))]) as server:
        assert (await ask(server, wire)).text == "Looking.\n```codepilot\nx()\n```"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("said", "meant"), [("stop", "stop"), ("length", "length")])
async def test_the_stop_reason_is_passed_on(wire: Wire, said: str, meant: str) -> None:
    async with ModelServer(replies=[Says("Text", stop=said)]) as server:
        reply = await ask(server, wire)
    assert reply.end is not None
    assert reply.end.stop == meant


@pytest.mark.parametrize(
    ("wire", "said", "meant"),
    [
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "tool_use", "stop"),
        ("anthropic", "pause_turn", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "a_reason_to_come", "length"),
        ("responses", "max_messages", "length"),
        ("chat", "tool_calls", "stop"),
        ("chat", "a_reason_to_come", "length"),
    ],
)
async def test_rarer_stop_reasons_count_as_cut_off_unless_the_reply_is_whole(wire: Wire, said: str, meant: str) -> None:
    async with ModelServer(replies=[Says("Text", stop=said)]) as server:
        reply = await ask(server, wire)
    assert reply.end is not None
    assert reply.end.stop == meant


@pytest.mark.parametrize("wire", WIRES)
async def test_usage_keeps_uncached_cached_and_written_tokens_apart(wire: Wire) -> None:
    tokens = Tokens(uncached=120, cached=9_000, cache_write=800, output=345)
    async with ModelServer(replies=[Fails(529), Says("Ok.", tokens=tokens)]) as server:
        reply = await ask(server, wire)
    assert reply.end is not None
    cost = reply.end.usage.cost_usd
    assert replace(reply.end.usage, cost_usd=None) == Usage(
        requests=1, input_tokens=120, cached_tokens=9_000, cache_write_tokens=800, output_tokens=345, cost_usd=None
    )
    # claude-sonnet-5-5 and gpt-6.2-sol cost the same: 2, 0.10, 2.50 and 10 dollars a million.
    assert cost == pytest.approx((120 * 2 + 9_000 * 0.1 + 800 * 2.5 + 345 * 10) / 1e6)


@pytest.mark.parametrize("wire", WIRES)
async def test_one_connection_serves_many_requests(wire: Wire) -> None:
    async with ModelServer(replies=["One.", "Two.", "Three."]) as server:
        provider = provider_on(server, wire)
        for _ in range(3):
            await collect(provider.reply(conversation()))
        await provider.close()
    assert len({received.port for received in server.requests}) == 1
