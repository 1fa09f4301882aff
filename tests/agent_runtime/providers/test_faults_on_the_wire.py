"""Failures of a model service over a real socket, for each wire format."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing
from typing import Literal

import pytest

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRefusedError,
    ModelRejectedError,
    ModelUnreachableError,
)
from agent_runtime.providers import retry
from agent_runtime.providers.anthropic import AnthropicProvider
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import ReplyStart, TextChunk
from tests.agent_runtime.providers.conversations import (
    KEY,
    MODELS,
    WIRES,
    Naps,
    ask,
    collect,
    conversation,
    provider_on,
)
from tests.model_server import Breaks, Fails, ModelServer, Reply, Says, Wire
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("wire", WIRES)


async def test_retry_after_is_honoured(wire: Wire) -> None:
    naps = Naps()
    async with ModelServer(replies=[Fails(429, retry_after="17"), Fails(529), "Ok."]) as server:
        await ask(server, wire, options=ModelOptions(retry=naps.retry()))
    assert naps.seconds == [17.0, 2.0]


@pytest.mark.parametrize("how", ["drop", "early", "malformed", "odd", "error"])
async def test_a_reply_that_breaks_off_is_discarded_and_retried(
    wire: Wire, how: Literal["drop", "early", "malformed", "odd", "error"]
) -> None:
    async with ModelServer(replies=[Breaks(how, text="Half a reply"), "A whole reply."]) as server:
        reply = await ask(server, wire)
    assert (reply.text, reply.attempts, reply.voided) == ("A whole reply.", 2, ["Half a reply"])
    assert reply.end is not None
    assert reply.end.stop == "stop"
    assert reply.end.usage.requests == 1


async def test_exhausted_retries_report_the_last_failure_and_a_remedy(wire: Wire) -> None:
    faults: list[Reply] = [Fails(500), Breaks("drop"), Fails(529, "overloaded_error", "Too many people")]
    async with ModelServer(replies=faults) as server:
        with pytest.raises(ModelUnreachableError) as caught:
            await ask(server, wire)
    text = str(caught.value)
    assert "3 attempts" in text
    assert "HTTP 529" in text
    assert "Too many people" in text
    assert "Try again later" in text


async def test_a_silent_service_is_given_up_on(wire: Wire) -> None:
    naps = Naps()
    async with ModelServer(replies=[Breaks("silence"), "Awake."]) as server:
        reply = await ask(server, wire, options=ModelOptions(silence=1.0, retry=naps.retry()))
    assert (reply.text, reply.attempts) == ("Awake.", 2)


async def test_a_request_is_not_repeated_at_once_while_the_model_may_still_think(wire: Wire) -> None:
    async with ModelServer(replies=[Breaks("silence", text=""), "Never asked for."]) as server:
        with pytest.raises(ModelOutageError, match="`silence`"):
            await ask(server, wire, options=ModelOptions(silence=0.2, retry=Naps().retry(attempts=5)))
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", ["silence", "drop"])
async def test_a_reply_that_stalls_or_breaks_off_again_is_not_repeated_at_once(
    wire: Wire, how: Literal["silence", "drop"]
) -> None:
    async with ModelServer(replies=[Breaks(how), Breaks(how), "Never asked for."]) as server:
        with pytest.raises(ModelOutageError, match="2 attempts"):
            await ask(server, wire, options=ModelOptions(silence=0.2, retry=Naps().retry(attempts=5)))
    assert len(server.requests) == 2


@pytest.mark.parametrize("how", ["late drop", "late silence"])
async def test_a_reply_that_was_whole_before_the_connection_died_is_not_bought_again(
    wire: Wire, how: Literal["late drop", "late silence"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_DRAIN_SECONDS", 0.2)
    async with ModelServer(replies=[Breaks(how, text="All of it."), "Bought again."]) as server:
        reply = await ask(server, wire)
    assert (reply.text, reply.attempts) == ("All of it.", 1)
    assert reply.end is not None
    assert reply.end.stop == "stop"
    assert len(server.requests) == 1
    # Chat Completions tells the usage last; what is lost is charged by an estimate.
    assert [fault.billed for fault in reply.faults] == ([True] if wire == "chat" else [])


@pytest.mark.parametrize(("variable", "words"), [(None, "the argument `api_key`"), ("A_VARIABLE", "A_VARIABLE")])
async def test_a_bad_key_names_its_source_and_is_not_tried_again(wire: Wire, variable: str | None, words: str) -> None:
    said = f"Incorrect API key provided: {KEY}"
    async with ModelServer(replies=[Fails(401, "authentication_error", said)]) as server:
        with pytest.raises(ModelRejectedError, match=rf"\(HTTP 401\)\. Check {words}\.$") as caught:
            await ask(server, wire, options=ModelOptions(key_variable=variable))
    assert len(server.requests) == 1
    assert "HTTP 401" in str(caught.value)


async def test_a_key_without_rights_names_model_and_variable(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(403, "permission_error", "no")]) as server:
        with pytest.raises(ModelRejectedError, match=MODELS[wire]):
            await ask(server, wire)


async def test_an_unknown_model_is_named_with_the_setting(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(404, "not_found_error", "model: x")]) as server:
        with pytest.raises(ModelRejectedError, match=rf"{MODELS[wire]}.*Set `model`"):
            await ask(server, wire)


async def test_an_unknown_model_is_recognised_by_its_code(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(400, "model_not_found", "No such model")]) as server:
        with pytest.raises(ModelRejectedError, match=rf"'{MODELS[wire]}'.*`model`"):
            await ask(server, wire)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum"),
        ("context_length_exceeded", "This model's maximum context length is 8192 tokens."),
    ],
)
async def test_too_long_a_conversation_is_said_to_be_that(wire: Wire, code: str, message: str) -> None:
    async with ModelServer(replies=[Fails(400, code, message)]) as server:
        with pytest.raises(ContextOverflowError):
            await ask(server, wire)


async def test_a_request_too_large_for_the_service_is_too_long_a_conversation(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(413, "request_too_large", "Request exceeds the maximum size")]) as server:
        with pytest.raises(ContextOverflowError, match="maximum size"):
            await ask(server, wire)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (402, "billing_error", "pay"),
        (429, "insufficient_quota", "You exceeded your current quota"),
        (400, "invalid_request_error", "Your credit balance is too low to access the Claude API."),
    ],
)
async def test_no_credit_is_not_tried_again_and_says_whose(wire: Wire, status: int, code: str, message: str) -> None:
    async with ModelServer(replies=[Fails(status, code, message)]) as server:
        with pytest.raises(ModelRejectedError, match=r"credit.*set the argument `api_key` to"):
            await ask(server, wire)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("invalid_request_error", "Output blocked by content filtering policy"),
        ("content_policy_violation", "Your request was rejected by our safety system."),
    ],
)
async def test_a_content_filter_is_the_model_declining(wire: Wire, code: str, message: str) -> None:
    async with ModelServer(replies=[Fails(400, code, message)]) as server:
        with pytest.raises(ModelRefusedError, match=rf"\({message}"):
            await ask(server, wire)
    assert len(server.requests) == 1


async def test_a_service_that_forbids_a_retry_is_obeyed(wire: Wire) -> None:
    fault = Fails(429, "rate_limit_error", "Spend limit reached", headers={"x-should-retry": "false"})
    async with ModelServer(replies=[fault]) as server:
        with pytest.raises(ModelRejectedError, match="Spend limit reached"):
            await ask(server, wire)


async def test_any_other_refused_request_shows_the_services_words(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(400, "invalid_request_error", "temperature: not for this model")]) as server:
        with pytest.raises(ModelRejectedError, match="temperature: not"):
            await ask(server, wire)


async def test_a_refusal_is_an_error_of_its_own(wire: Wire) -> None:
    async with ModelServer(replies=[Says("I will not do that.", stop="refusal")]) as server:
        with pytest.raises(ModelRefusedError, match=r"declined to answer \(.+\)\. Rephrase"):
            await ask(server, wire)
    assert len(server.requests) == 1


async def test_no_error_ever_shows_the_key(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    leak = f"header authorization: Bearer {KEY} was odd"
    faults: list[Reply] = [Fails(status, "oops", leak) for status in (400, 401, 402, 403, 404, 413, 422, 500)]
    faults.append(Breaks("error", code="server_error", message=leak))
    for fault in faults:
        async with ModelServer(replies=[fault]) as server:
            with pytest.raises(ModelError) as caught:
                await ask(server, wire, options=ModelOptions(retry=Naps().retry(attempts=1)))
        assert KEY not in "".join(traceback.format_exception(caught.value))
    assert "header authorization" in caplog.text
    assert KEY not in caplog.text


async def test_leaving_a_reply_early_closes_its_stream(wire: Wire) -> None:
    async with ModelServer(replies=[Breaks("silence", text="Thinking about it"), "Next."]) as server:
        provider = provider_on(server, wire)
        async with aclosing(provider.reply(conversation())) as chunks:
            assert isinstance(await anext(chunks), ReplyStart)
            assert isinstance(await anext(chunks), TextChunk)
        assert (await collect(provider.reply(conversation()))).text == "Next."
        await provider.close()
        await provider.close()


async def test_a_cancelled_reply_stays_cancelled(wire: Wire) -> None:
    async with ModelServer(replies=[Breaks("silence")]) as server:
        provider = provider_on(server, wire)
        asking = asyncio.create_task(collect(provider.reply(conversation())))
        await eventually(lambda: server.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await provider.close()
    assert len(server.requests) == 1


async def test_the_sdks_own_retries_are_off(wire: Wire) -> None:
    async with ModelServer(replies=[Fails(503)]) as server:
        with pytest.raises(ModelUnreachableError):
            await ask(server, wire, options=ModelOptions(retry=Naps().retry(attempts=1)))
    assert len(server.requests) == 1
    assert not server.unexpected
    assert AnthropicProvider(api_key=KEY)._client.max_retries == 0
