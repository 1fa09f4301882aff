from __future__ import annotations

import pytest

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRefusedError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
)
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import FallbackProvider
from agent_runtime.providers.scripted import ScriptedProvider
from tests.agent_runtime.providers.conversations import Naps, collect, conversation, provider_on
from tests.model_server import Breaks, Fails, ModelServer, Received, Reply, Says, Sends, Tokens

DOWN = Fails(529, "overloaded_error", "Overloaded")
UNREADABLE = Sends(b"{}", "application/json")
UNKNOWN = Fails(404, "not_found_error", "x")


class Clock:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def chain(server: ModelServer, clock: Clock | None = None) -> FallbackProvider:
    """Anthropic first, then OpenAI; each tries twice."""
    options = ModelOptions(retry=Naps().retry(attempts=2))
    providers: list[Provider] = [provider_on(server, wire, options) for wire in ("anthropic", "responses")]
    return FallbackProvider(providers, clock=clock or Clock())


async def test_the_first_model_answers_while_it_can() -> None:
    async with ModelServer(replies=["From the first."]) as server:
        provider = chain(server)
        reply = await collect(provider.reply(conversation()))
        await provider.close()
    assert reply.end is not None
    assert (reply.text, reply.end.model, provider.model) == ("From the first.", *["claude-sonnet-5-5"] * 2)


@pytest.mark.parametrize(
    "fault",
    [
        Fails(529, "overloaded_error", "Overloaded"),
        Fails(401, "authentication_error", "no"),
        Fails(402, "billing_error", "pay"),
        Fails(404, "not_found_error", "model: x"),
        Breaks("drop"),
    ],
)
async def test_the_next_model_stands_in_and_is_priced_as_itself(fault: Reply) -> None:
    tokens = Tokens(uncached=300_000, output=0)

    def answer(request: Received) -> Reply:
        return fault if request.wire == "anthropic" else Says("From the second.", tokens=tokens)

    async with ModelServer(replies=answer) as server:
        provider = chain(server)
        reply = await collect(provider.reply(conversation()))
        await provider.close()
    assert reply.end is not None
    assert (reply.text, reply.end.model) == ("From the second.", "gpt-6.2-sol")
    # Above 272,000 tokens gpt-6.2-sol costs 4 dollars a million; claude-sonnet-5-5 always 2.
    assert reply.end.usage.cost_usd == pytest.approx(1.2)


async def test_half_a_reply_of_the_model_that_failed_is_void() -> None:
    async with ModelServer(replies=[Breaks("drop", text="Half"), Breaks("drop", text="Again"), "Whole."]) as server:
        provider = chain(server)
        reply = await collect(provider.reply(conversation()))
        await provider.close()
    assert (reply.text, reply.voided, reply.attempts) == ("Whole.", ["Half", "Again"], 3)


async def test_the_model_that_stood_in_is_kept_for_a_while_and_then_the_first_is_tried_again() -> None:
    clock, up = Clock(), False

    def answer(request: Received) -> Reply:
        return DOWN if request.wire == "anthropic" and not up else f"By {request.wire}."

    async with ModelServer(replies=answer) as server:
        provider = chain(server, clock)
        texts = [(await collect(provider.reply(conversation()))).text]
        up = True
        clock.now += 599
        texts.append((await collect(provider.reply(conversation()))).text)
        clock.now += 2
        texts.append((await collect(provider.reply(conversation()))).text)
        await provider.close()
    assert texts == ["By responses.", "By responses.", "By anthropic."]
    assert [received.wire for received in server.requests] == ["anthropic"] * 2 + ["responses"] * 2 + ["anthropic"]


async def test_after_a_fallback_fails_the_first_model_is_tried_again() -> None:
    down = {"anthropic"}

    def answer(request: Received) -> Reply:
        return DOWN if request.wire in down else f"By {request.wire}."

    async with ModelServer(replies=answer) as server:
        provider = chain(server)
        texts = [(await collect(provider.reply(conversation()))).text]
        down = {"responses"}
        texts += [(await collect(provider.reply(conversation()))).text for _ in range(2)]
        await provider.close()
    assert texts == ["By responses.", "By anthropic.", "By anthropic."]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fails(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ContextOverflowError),
        (Says("I will not.", stop="refusal"), ModelRefusedError),
    ],
)
async def test_too_long_a_conversation_and_a_refusal_are_not_taken_elsewhere(
    fault: Reply, error: type[ModelError]
) -> None:
    async with ModelServer(replies=[fault]) as server:
        provider = chain(server)
        with pytest.raises(error):
            await collect(provider.reply(conversation()))
        await provider.close()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        pytest.param(DOWN, DOWN, ModelOutageError, id="both down"),
        pytest.param(DOWN, UNKNOWN, ModelOutageError, id="one down"),
        pytest.param(Breaks("drop"), Breaks("drop"), ModelOutageError, id="both break off"),
        pytest.param(UNREADABLE, UNREADABLE, ModelUnreachableError, id="both unreadable"),
        pytest.param(UNREADABLE, UNKNOWN, ModelRejectedError, id="one unreadable"),
    ],
)
async def test_when_every_model_fails_each_is_named_with_its_error_and_an_outage_can_be_waited_for(
    first: Reply, second: Reply, error: type[ModelError]
) -> None:
    async with ModelServer(replies=lambda request: first if request.wire == "anthropic" else second) as server:
        provider = chain(server)
        with pytest.raises(error, match="2 models") as caught:
            await collect(provider.reply(conversation()))
        await provider.close()
    assert type(caught.value) is error
    assert "claude-sonnet-5-5: " in str(caught.value)
    assert "gpt-6.2-sol: " in str(caught.value)


def test_a_chain_that_cannot_work_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least one provider"):
        FallbackProvider([])
    with pytest.raises(SettingsError, match="sticky_seconds is -1"):
        FallbackProvider([ScriptedProvider([])], sticky_seconds=-1)


@pytest.mark.parametrize(
    ("each", "all_of_them"), [((True, True), True), ((True, False), False), ((False, True), False)]
)
def test_a_chain_sees_only_if_all_of_its_models_do(each: tuple[bool, ...], *, all_of_them: bool) -> None:
    chained = FallbackProvider([ScriptedProvider([], sees_images=sees) for sees in each])
    assert chained.sees_images is all_of_them
