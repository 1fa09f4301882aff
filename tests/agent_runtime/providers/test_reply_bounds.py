from __future__ import annotations

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.models import ModelOptions, Thinking, limit_max_tokens
from tests.agent_runtime.providers.conversations import KEY, collect, conversation
from tests.model_server import ModelServer


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
def test_no_more_is_asked_for_than_a_model_is_known_to_write(model: str, most: int) -> None:
    assert limit_max_tokens(ModelOptions(max_tokens=100_000), model).max_tokens == most
    assert limit_max_tokens(ModelOptions(max_tokens=77), model).max_tokens == 77


async def test_the_service_gets_what_its_model_takes() -> None:
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
