"""A gateway in the variable of an SDK receives the requests and the key; the public service receives neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import CATALOG, AgentFile, AsyncRuntime, Request, Runtime, SettingsError
from agent_runtime.compat import pygent
from agent_runtime.providers.anthropic import AnthropicProvider
from agent_runtime.providers.openai import OpenAIProvider
from agent_runtime.providers.protocol import Message
from tests.model_server import ModelServer

KEY = "sk-made-up-0123456789abcdef"
DONE = "```completion\nDone.\n```\n"
SERVICES = ["anthropic", "openai"]
MODEL = (
    "agent: {{name: A, model: {{provider: {provider}, name: m{more}}}, runtime: {{work_dir: work, sandbox: local}}}}\n"
)


@pytest.fixture(autouse=True)
async def public(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    """A server in the place of both public services."""
    for name in ("ANTHROPIC", "OPENAI", "CODEPILOT"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    async with ModelServer(replies=lambda _request: DONE) as server:
        for provider, url in ((AnthropicProvider, server.url_anthropic), (OpenAIProvider, server.url_openai)):
            monkeypatch.setattr(provider, "keyed_api", replace(provider.keyed_api, url=url))
        yield server


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    """A server that the variables of both SDKs name."""
    async with ModelServer(replies=lambda _request: DONE) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url_anthropic)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url_openai)
        yield server


@pytest.fixture
def servers(public: ModelServer, gateway: ModelServer) -> tuple[ModelServer, ModelServer]:
    return public, gateway


def agent_file(folder: Path, provider: str, more: str = "") -> Path:
    path = folder / "agent.yaml"
    path.write_text(MODEL.format(provider=provider, more=more))
    return path


def run_to_the_end(path: Path) -> str | None:
    with Runtime(path, quiet=True) as runtime:
        return runtime.run("Do it").summary


def key_of(server: ModelServer) -> str:
    """The key in the only request."""
    (request,) = server.requests
    headers = {name.lower(): value for name, value in request.headers.items()}
    return headers.get("authorization", "").removeprefix("Bearer ") or headers["x-api-key"]


@pytest.mark.parametrize("provider", SERVICES)
@pytest.mark.parametrize("variable", ["default", "usual", "GATEWAY_TOKEN"])
async def test_an_agent_file_s_requests_go_to_the_gateway_with_the_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    servers: tuple[ModelServer, ModelServer],
    provider: str,
    variable: str,
) -> None:
    public, gateway = servers
    usual = f"{provider.upper()}_API_KEY"
    monkeypatch.setenv(usual if variable in {"default", "usual"} else variable, KEY)
    monkeypatch.setenv(f"{provider.upper()}_CUSTOM_HEADERS", "X-Gateway: team")
    more = "" if variable == "default" else f", api_key_env: {usual if variable == 'usual' else variable}"
    path = agent_file(tmp_path, provider, more)
    assert await asyncio.to_thread(run_to_the_end, path) == "Done."
    assert key_of(gateway) == KEY
    assert {name.lower(): value for name, value in gateway.requests[0].headers.items()}["x-gateway"] == "team"
    assert not public.requests


@pytest.mark.parametrize("provider", SERVICES)
async def test_a_gateway_may_need_no_key_but_one_that_the_file_names_must_be_set(
    tmp_path: Path, public: ModelServer, gateway: ModelServer, provider: str
) -> None:
    async with AsyncRuntime(agent_file(tmp_path, provider)) as runtime:
        await runtime.run("Do it")
    assert key_of(gateway) == "no-key"
    with pytest.raises(SettingsError, match="GATEWAY_TOKEN is not set"):
        AsyncRuntime(agent_file(tmp_path, provider, ", api_key_env: GATEWAY_TOKEN"))
    assert not public.requests


async def test_fallback_models_use_the_gateway_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, public: ModelServer, gateway: ModelServer
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    async with ModelServer(replies=[]) as refuses:  # answers with an error that leads to the fallback
        monkeypatch.setattr(
            AnthropicProvider, "keyed_api", replace(AnthropicProvider.keyed_api, url=refuses.url_anthropic)
        )
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-anthropic")
        path = agent_file(tmp_path, "anthropic", ", fallback: [{provider: openai, name: n}]")
        async with AsyncRuntime(path) as runtime:
            assert (await runtime.run("Do it")).summary == "Done."
    assert key_of(gateway) == KEY
    assert not public.requests


@pytest.mark.parametrize("provider", SERVICES)
async def test_a_file_s_own_address_goes_before_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, public: ModelServer, gateway: ModelServer, provider: str
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
    async with ModelServer(replies=[DONE]) as other:
        url = other.url_anthropic if provider == "anthropic" else other.url_openai
        async with AsyncRuntime(agent_file(tmp_path, provider, f", base_url: '{url}'")) as runtime:
            await runtime.run("Do it")
        assert key_of(other) == "no-key"
    assert not public.requests
    assert not gateway.requests


async def test_pygent_s_model_follows_the_same_rule(
    monkeypatch: pytest.MonkeyPatch, public: ModelServer, gateway: ModelServer
) -> None:
    question = [{"role": "user", "content": "hi"}]
    await asyncio.to_thread(pygent.OpenAIModel().chat, question, "m", [])
    assert key_of(gateway) == "no-key"
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    with pytest.raises(pygent.APIError, match="set OPENAI_API_KEY"):
        await asyncio.to_thread(pygent.OpenAIModel().chat, question, "m", [])
    assert not public.requests


async def test_an_error_names_the_variable_with_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer(replies=[]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url_openai}/none")
        provider = AgentFile.load(agent_file(tmp_path, "openai")).provider()
        with pytest.raises(Exception, match="OPENAI_BASE_URL if you have set it"):
            async for _chunk in provider.reply(Request(system="", messages=(Message(role="user", text="hi"),))):
                pass
        await provider.close()


@pytest.mark.parametrize(
    "url", ["https://eu.api.openai.com/v1", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"]
)
def test_an_own_address_of_the_service_in_a_file_takes_its_key(tmp_path: Path, url: str) -> None:
    provider = next(name for name, entry in CATALOG.items() if entry.hosts and entry.is_own(url))
    model = AgentFile.load(agent_file(tmp_path, provider, f", base_url: '{url}'")).model
    assert model.api_key({str(CATALOG[provider].key_variable): KEY}) == KEY
