"""Which models are known to see, and who may say otherwise."""

from __future__ import annotations

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions, accepts_images, load_prices, require_sight
from agent_runtime.providers.scripted import ScriptedProvider
from tests.agent_runtime.image_files import picture
from tests.agent_runtime.providers.conversations import KEY


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
def test_what_is_said_goes_before_what_is_known(model: str, *, said: bool) -> None:
    assert accepts_images(model, said) is said


@pytest.mark.parametrize(("name", "known"), [("alibaba", False), ("anthropic", True), ("openai", True)])
async def test_a_provider_sees_what_its_model_does_unless_told_otherwise(name: str, *, known: bool) -> None:
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
        require_sight(ScriptedProvider([]), (picture(),) * count)


def test_without_images_or_with_sight_nothing_is_refused() -> None:
    require_sight(ScriptedProvider([]), ())
    require_sight(ScriptedProvider([], sees_images=True), (picture(),))
