from __future__ import annotations

from typing import Literal

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.models import ModelOptions, ReasoningEffort, Thinking, thinking_param
from tests.agent_runtime.providers.conversations import KEY, MODELS, Naps, ask, collect, conversation
from tests.model_server import ModelServer, Says

BUDGET = {"type": "enabled", "budget_tokens": 8_000}
ADAPTIVE = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("model", "on", "off"),
    [
        ("claude-3-7-sonnet-20250219", BUDGET, None),
        ("claude-haiku-4-5-20251001", BUDGET, None),
        ("claude-opus-4-5", BUDGET, None),
        ("claude-sonnet-4-6", ADAPTIVE, None),
        ("claude-opus-4-8", ADAPTIVE, None),
        ("claude-sonnet-5", ADAPTIVE, {"type": "disabled"}),
        ("claude-opus-5", ADAPTIVE, {"type": "disabled"}),
        ("claude-haiku-5-5", ADAPTIVE, {"type": "disabled"}),
        ("claude-sonnet-5-5", ADAPTIVE, {"type": "between_tools"}),
        ("claude-sonnet-5-5-20260928", ADAPTIVE, {"type": "between_tools"}),
        ("my-own-model", BUDGET, None),
    ],
)
def test_a_model_is_told_to_think_in_the_words_it_takes(
    model: str, on: dict[str, object], off: dict[str, object] | None
) -> None:
    assert thinking_param(model, Thinking()) == on
    assert thinking_param(model, Thinking(enabled=False)) == off


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1", "claude-mythos-5"])
def test_a_model_that_always_thinks_refuses_not_to_before_anything_is_sent(model: str) -> None:
    with pytest.raises(SettingsError, match=r"`reasoning_effort` to 'low'"):
        provider_for("anthropic", api_key=KEY, model=model, options=ModelOptions(thinking=Thinking(enabled=False)))


@pytest.mark.parametrize("budget", [0, 1023, 16_000, 20_000])
def test_a_budget_must_leave_room_for_the_answer(budget: int) -> None:
    with pytest.raises(SettingsError, match=rf"budget_tokens is {budget}; .*max_tokens.* 16000"):
        ModelOptions(thinking=Thinking(budget_tokens=budget))
    ModelOptions(thinking=Thinking(enabled=False, budget_tokens=budget))


async def test_the_seeds_thinking_block_reaches_an_older_model_as_a_budget() -> None:
    options = ModelOptions(max_tokens=8_096, thinking=Thinking(budget_tokens=8_000), retry=Naps().retry())
    async with ModelServer(replies=[Says("Done.", thinking="Let me see.")]) as server:
        url = server.url_anthropic
        provider = provider_for("anthropic", api_key=KEY, model="claude-opus-4-5", base_url=url, options=options)
        reply = await collect(provider.reply(conversation()))
        await provider.close()
    assert server.requests[0].json["thinking"] == BUDGET
    assert reply.text == "Done."


@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        ("claude-opus-4-5", None, 0.2),
        ("claude-opus-4-5", Thinking(enabled=False), 0.2),
        ("claude-opus-4-5", Thinking(), None),
        ("my-own-model", None, 0.2),
        ("my-own-model", Thinking(), None),
        ("claude-sonnet-5-5", None, None),
    ],
)
async def test_a_temperature_is_not_sent_to_a_model_that_thinks(
    model: str, thinking: Thinking | None, sent: float | None
) -> None:
    options = ModelOptions(temperature=0.2, thinking=thinking)
    async with ModelServer(replies=["Ok."]) as server:
        provider = provider_for("anthropic", api_key=KEY, model=model, base_url=server.url_anthropic, options=options)
        await collect(provider.reply(conversation()))
        await provider.close()
    assert server.requests[0].json.get("temperature") == sent


async def test_the_default_model_decides_itself_how_long_it_thinks_and_no_thought_is_text() -> None:
    options = ModelOptions(thinking=Thinking(), reasoning_effort="high")
    async with ModelServer(replies=[Says("Done.", thinking="Let me see.")]) as server:
        reply = await ask(server, "anthropic", options=options)
    body = server.requests[0].json
    assert (body["thinking"], body["output_config"]) == (ADAPTIVE, {"effort": "high"})
    assert reply.text == "Done."


async def test_without_settings_nothing_is_said_of_reasoning() -> None:
    async with ModelServer(replies=["Ok."] * 3) as server:
        for wire in MODELS:
            await ask(server, wire)
    for received in server.requests:
        assert not {"thinking", "output_config", "reasoning", "reasoning_effort"} & set(received.json)


@pytest.mark.parametrize("effort", ["none", "minimal"])
def test_anthropic_knows_fewer_words_for_effort(effort: ReasoningEffort) -> None:
    with pytest.raises(SettingsError, match="Anthropic; use low"):
        provider_for("anthropic", api_key=KEY, options=ModelOptions(reasoning_effort=effort))


@pytest.mark.parametrize(
    ("wire", "said"), [("responses", {"reasoning": {"effort": "none"}}), ("chat", {"reasoning_effort": "none"})]
)
async def test_openai_is_told_how_hard_to_reason(wire: Literal["responses", "chat"], said: dict[str, object]) -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, options=ModelOptions(reasoning_effort="none"))
    assert said.items() <= server.requests[0].json.items()


def test_a_word_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"reasoning_effort 'hihg'.*'high'"):
        ModelOptions(reasoning_effort="hihg")  # type: ignore[arg-type]  # the point of the test
