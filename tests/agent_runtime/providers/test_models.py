"""Abilities and prices of models."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.values import ToolRequest, Usage
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import (
    ModelOptions,
    ReasoningEffort,
    Thinking,
    accepts_images,
    cap_max_tokens,
    load_prices,
    require_image_support,
    thinking_param,
)
from agent_runtime.providers.protocol import tool_calling
from agent_runtime.providers.retry import FallbackProvider
from agent_runtime.providers.scripted import ScriptedProvider, ScriptedReply
from tests.agent_runtime.image_files import picture
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
def test_thinking_is_sent_in_the_parameter_of_the_model(
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
async def test_reasoning_effort_is_sent_to_openai(wire: Literal["responses", "chat"], said: dict[str, object]) -> None:
    async with ModelServer(replies=["Ok."]) as server:
        await ask(server, wire, options=ModelOptions(reasoning_effort="none"))
    assert said.items() <= server.requests[0].json.items()


def test_an_unknown_effort_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"reasoning_effort 'hihg'.*'high'"):
        ModelOptions(reasoning_effort="hihg")  # type: ignore[arg-type]  # the point of the test


MILLION = Usage(input_tokens=1_000_000)


def test_the_list_is_dated_and_knows_the_default_models() -> None:
    prices = load_prices()
    assert prices.as_of >= date(2026, 11, 1)
    for name in ("anthropic", "openai"):
        assert prices.find_price(CATALOG[name].default_model) is not None


def test_reading_from_the_cache_is_cheaper_and_writing_dearer_for_every_model() -> None:
    for price in load_prices().models.values():
        for rate in filter(None, [price.rate, price.long_rate]):
            assert 0 < rate.cache_read < rate.input < rate.cache_write < rate.output
        assert (price.long_rate is None) == (price.long_above == 0)


@pytest.mark.parametrize("model", ["claude-sonnet-5-5-20260928", "gpt-6.2-sol-2026-11-10"])
def test_a_dated_snapshot_has_the_price_of_its_model(model: str) -> None:
    assert load_prices().with_cost(model, Usage(output_tokens=1_000_000)).cost_usd == 10.0


@pytest.mark.parametrize("model", ["claude-sonnet-5-5-turbo", "gpt-6.2", "gpt-6.2-sol-mini", "claude", "", "llama3"])
def test_a_similar_name_has_no_known_cost(model: str) -> None:
    assert load_prices().with_cost(model, MILLION).cost_usd is None


def test_a_long_request_is_dearer_as_a_whole() -> None:
    short = Usage(input_tokens=1_000, cached_tokens=271_000, output_tokens=1_000)
    long = Usage(input_tokens=1_001, cached_tokens=271_000, output_tokens=1_000)
    prices = load_prices()
    assert prices.with_cost("gpt-6.2-sol", short).cost_usd == pytest.approx(
        (1_000 * 2 + 271_000 * 0.1 + 1_000 * 10) / 1e6
    )
    assert prices.with_cost("gpt-6.2-sol", long).cost_usd == pytest.approx(
        (1_001 * 4 + 271_000 * 0.2 + 1_000 * 15) / 1e6
    )


def test_an_operators_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        '{"as_of": "2026-12-01", "models": {"m": {"input": 3, "cache_read": 1, "cache_write": 2, "output": 4}}}',
        encoding="utf-8",
    )
    assert load_prices(path).with_cost("m", MILLION).cost_usd == 3.0


@pytest.mark.parametrize("text", ["", "[]", '{"as_of": "2026-12-01", "models": {"m": {"input": 3}}}', '{"models": {}}'])
def test_a_list_of_another_shape_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"broken\.json"):
        load_prices(path)


def test_a_missing_list_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.json"):
        load_prices(tmp_path / "nowhere.json")


@pytest.mark.parametrize("model", load_prices().models)
def test_all_models_of_the_price_list_see(model: str) -> None:
    assert accepts_images(model)


@pytest.mark.parametrize(
    "model",
    [
        "claude-3-5-haiku-20241022",
        "claude-3-opus-20240229",
        "claude-sonnet-4-20250514",
        "claude-sonnet-5-5",
        "anthropic/claude-opus-5-5",
        "chatgpt-4o-latest",
        "gpt-4o-mini-2024-07-18",
        "gpt-4.1-nano",
        "gpt-4-turbo",
        "gpt-5",
        "gpt-5.5-pro",
        "gpt-5.3-codex",
        "openai/GPT-6.2-sol",
        "gpt-10",
        "o1",
        "o3-pro",
        "o4-mini",
        "qwen-vl-max-latest",
        "qwen2.5-vl-72b-instruct",
        "Qwen/Qwen3-VL-8B-Instruct",
        "qvq-max",
        "qwen3.6-plus",
        "qwen3.7-plus-2026-06-02",
    ],
)
def test_a_model_of_a_family_that_sees_is_known_to(model: str) -> None:
    assert accepts_images(model)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "scripted",
        "claude-2.1",
        "claude-instant-1.2",
        "my-claude-sonnet-5",
        "gpt-3.5-turbo",
        "gpt-4",
        "gpt-4-32k",
        "gpt-4o-mini-transcribe",
        "gpt-4o-audio-preview",
        "gpt-5.3-codex-spark",
        "gpt-oss-120b",
        "o1-mini",
        "o1-preview",
        "o3-mini",
        "qwen3.7-max",
        "qwen3-max",
        "qwen-plus",
        "qwen3-coder-plus",
        "deepseek-v4",
        "llama-3.3-70b",
    ],
)
def test_any_other_model_is_taken_not_to(model: str) -> None:
    assert not accepts_images(model)


@pytest.mark.parametrize("model", ["gpt-6.2-sol", "qwen3.7-max"])
@pytest.mark.parametrize("said", [True, False])
def test_the_images_option_overrides_the_family(model: str, *, said: bool) -> None:
    assert accepts_images(model, said) is said


@pytest.mark.parametrize(("name", "known"), [("alibaba", False), ("anthropic", True), ("openai", True)])
async def test_a_provider_accepts_images_by_model_or_option(name: str, *, known: bool) -> None:
    for said in (None, True, False):
        provider = provider_for(name, api_key=KEY, options=ModelOptions(images=said))
        assert provider.model == CATALOG[name].default_model
        assert provider.sees_images is (known if said is None else said)
        await provider.close()


@pytest.mark.parametrize(("count", "said"), [(1, "has 1 image, "), (2, "has 2 images, ")])
def test_showing_images_to_a_model_that_does_not_see_is_refused_with_the_setting(count: int, said: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"{said}.*'scripted' is not known to support images.*`images: true`.*images=True"
    ):
        require_image_support(ScriptedProvider([]), (picture(),) * count)


def test_without_images_or_with_sight_nothing_is_refused() -> None:
    require_image_support(ScriptedProvider([]), ())
    require_image_support(ScriptedProvider([], sees_images=True), (picture(),))


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("gpt-4-turbo", 4_096),
        ("gpt-4-turbo-2024-04-09", 4_096),
        ("openai/gpt-4", 8_192),
        ("gpt-4o-mini", 16_384),
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet-latest", 8_192),
        ("claude-opus-4-1-20250805", 32_000),
        ("claude-sonnet-4-5", 64_000),
        ("qwen-max", 8_192),
        ("qwen3-max", 100_000),
        ("claude-opus-4-8", 100_000),
        ("claude-sonnet-5-5", 100_000),
        ("my-own-model", 100_000),
    ],
)
def test_max_tokens_is_capped_by_the_models_limit(model: str, most: int) -> None:
    assert cap_max_tokens(ModelOptions(max_tokens=100_000), model).max_tokens == most
    assert cap_max_tokens(ModelOptions(max_tokens=77), model).max_tokens == 77


async def test_the_service_gets_the_capped_max_tokens() -> None:
    async with ModelServer(replies=["Ok."]) as server:
        url = server.url_openai
        provider = provider_for("alibaba", api_key=KEY, model="qwen-max", base_url=url)
        await collect(provider.reply(conversation()))
        await provider.close()
    assert server.requests[0].json["max_tokens"] == 8_192


def test_a_budget_of_thinking_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    options = ModelOptions(max_tokens=60_000, thinking=Thinking(budget_tokens=40_000))
    with pytest.raises(SettingsError, match="32000"):
        provider_for("anthropic", api_key=KEY, model="claude-opus-4-1", options=options)


CALL = ScriptedReply(calls=(ToolRequest(id="c", name="find", arguments=""),))


@pytest.mark.parametrize(
    ("service", "model", "base_url", "told"),
    [
        ("anthropic", "claude-sonnet-5-5", None, "supported"),
        ("openai", "gpt-6.2-sol", None, "supported"),
        ("openai", "gpt-5.1-codex-max", None, "preferred"),
        ("openai", "openai/gpt-5-codex", "http://localhost:1/v1", "supported"),
        ("alibaba", "qwen3-coder-plus", None, "preferred"),
        ("alibaba", "qwen3.7-max", None, "supported"),
    ],
)
def test_blocks_are_the_default_but_for_models_made_for_tool_calls(
    service: str, model: str, base_url: str | None, told: str
) -> None:
    assert tool_calling(provider_for(service, model=model, api_key=KEY, base_url=base_url)) == told


def test_a_chain_follows_its_first_model_if_all_of_it_can_call_tools() -> None:
    class Speaks(ScriptedProvider):
        tool_calling = "unsupported"

    calls, plain, speaks = ScriptedProvider([CALL]), ScriptedProvider(["x"]), Speaks([])
    told = [tool_calling(FallbackProvider(each)) for each in ([calls, plain], [plain, calls], [calls, speaks])]
    assert told == ["preferred", "supported", "unsupported"]


def test_a_provider_that_knows_nothing_of_calls_has_none() -> None:
    class Foreign:
        model, sees_images = "m", False

    assert tool_calling(Foreign()) == "unsupported"  # type: ignore[arg-type] # as much of a provider as is asked
