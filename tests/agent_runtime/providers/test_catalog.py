from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions, OpenAIApi
from agent_runtime.providers.openai import responses_body
from tests.agent_runtime.providers.conversations import KEY, ask, conversation
from tests.model_server import ModelServer, Wire


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingsError, match=r"'antropic'.*'anthropic'\?.*: alibaba, anthropic, azure"):
        provider_for("antropic")


async def test_a_provider_has_a_default_model_and_takes_another() -> None:
    for name in ("alibaba", "anthropic", "openai"):
        plain, other = provider_for(name, api_key=KEY), provider_for(name, api_key=KEY, model="m-1")
        assert (plain.model, other.model) == (CATALOG[name].default_model, "m-1")
        await plain.close()
        await other.close()


@pytest.mark.parametrize("name", ["alibaba", "anthropic", "openai"])
@pytest.mark.parametrize("key", [None, "", "  \n"])
def test_a_missing_key_names_its_source(name: str, key: str | None) -> None:
    with pytest.raises(SettingsError, match=r"set the argument `api_key`\."):
        provider_for(name, api_key=key)
    with pytest.raises(SettingsError, match=r"set A_VARIABLE\."):
        provider_for(name, api_key=key, options=ModelOptions(key_variable="A_VARIABLE"))


@pytest.mark.parametrize("key", ["two words", "smart\u2019quote", "line\nbreak"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(SettingsError, match="check the argument `api_key`") as caught:
        provider_for("openai", api_key=key)
    assert key not in str(caught.value)


def test_keys_are_not_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("alibaba", "anthropic", "openai"):
        monkeypatch.setenv(str(CATALOG[name].key_variable), KEY)
        with pytest.raises(SettingsError):
            provider_for(name)


async def test_a_compatible_server_may_need_no_key() -> None:
    async with ModelServer(replies=["Hi."]) as server:
        provider = provider_for("openai", base_url=server.url_openai, model="qwen")
        assert [chunk async for chunk in provider.reply(conversation())]
        await provider.close()
    assert server.requests[0].wire == "chat"
    assert server.requests[0].json["model"] == "qwen"


@pytest.mark.parametrize(("api", "wire"), [(None, "chat"), ("chat", "chat"), ("responses", "responses")])
async def test_openai_uses_chat_for_a_compatible_server_by_default(api: OpenAIApi | None, wire: Wire) -> None:
    async with ModelServer(replies=["Hi."]) as server:
        await ask(server, "chat", options=ModelOptions(api=api))
    assert server.requests[0].wire == wire


@pytest.mark.parametrize(
    ("model", "marks"),
    [
        ("gpt-6.2-sol", True),
        ("gpt-6-luna", True),
        ("gpt-5.6-sol", True),
        ("gpt-10", True),
        ("gpt-5.5", False),
        ("gpt-5", False),
        ("o3", False),
        ("my-gpt-6", False),
    ],
)
def test_cache_marks_go_only_to_models_that_know_them(model: str, *, marks: bool) -> None:
    body = responses_body(conversation(3), model=model, options=ModelOptions())
    assert ("prompt_cache_options" in body) == marks
    assert ("prompt_cache_breakpoint" in str(body)) == marks


def test_scripted_needs_a_script_and_replays_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs a script"):
        provider_for("scripted")
    path = tmp_path / "s.yml"
    path.write_text("- reply: Hi.\n", encoding="utf-8")
    provider = provider_for("scripted", options=ModelOptions(script=path))
    assert (provider.model, provider.sees_images) == ("scripted", False)
    assert provider_for("scripted", options=ModelOptions(script=path, images=True)).sees_images


@pytest.mark.parametrize("settings", [{"max_tokens": 0}, {"temperature": 2.5}, {"temperature": -0.1}, {"silence": 0.0}])
def test_options_no_service_can_follow_are_refused_by_name(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        ModelOptions(**settings)  # type: ignore[arg-type]  # the point of the test


def test_no_sdk_is_loaded_before_a_provider_is_made() -> None:
    code = (
        "import sys, agent_runtime.providers.catalog; "
        "print({'anthropic', 'openai', 'httpx2', 'llm', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://example.org", "https://", "http://h:99999", "http://[::1"])
@pytest.mark.parametrize("name", ["alibaba", "anthropic", "openai"])
def test_an_address_that_is_none_is_refused(name: str, url: str) -> None:
    with pytest.raises(SettingsError, match="base_url is"):
        provider_for(name, api_key=KEY, base_url=url)
