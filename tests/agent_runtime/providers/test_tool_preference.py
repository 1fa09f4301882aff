"""Which models are asked by native tool calls when nothing is said."""

from __future__ import annotations

import pytest

from agent_runtime.core.values import ToolRequest
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.protocol import tool_calling
from agent_runtime.providers.retry import FallbackProvider
from agent_runtime.providers.scripted import ScriptedProvider, ScriptedReply
from tests.agent_runtime.providers.conversations import KEY

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
