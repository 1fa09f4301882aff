"""Switching the model of a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import ModelSettings, Provider, SettingsError
from bot.cli.chat import ChatModels
from tests.bot.cli.test_commands import Desk

HERE = ModelSettings.named("anthropic", name="claude-opus-5-5")


@pytest.fixture(autouse=True)
def _no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("said", "provider", "name"),
    [
        ("claude-haiku-5-5", "anthropic", "claude-haiku-5-5"),
        ("gpt-6.2-sol", "openai", "gpt-6.2-sol"),
        ("qwen3.7-max", "alibaba", "qwen3.7-max"),
        ("alibaba/new", "alibaba", "new"),
        ("openai", "openai", None),
        ("anthropic", "anthropic", None),
        ("unheard-of", "anthropic", "unheard-of"),
        ("meta/llama", "anthropic", "meta/llama"),
    ],
)
def test_a_model_is_named_by_itself_or_with_its_service(said: str, provider: str, name: str | None) -> None:
    found = ChatModels(HERE).named(said)
    assert (found.provider, found.name) == (provider, name)


def test_a_server_of_ones_own_is_asked_for_any_name() -> None:
    found = ChatModels(ModelSettings.named("openai").at("http://localhost:1/v1")).named("claude-haiku-5-5")
    assert (found.provider, found.base_url, found.name) == ("openai", "http://localhost:1/v1", "claude-haiku-5-5")


def test_a_model_that_cannot_be_used_leaves_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(provider: Provider) -> None:
        raise SettingsError(f"not {provider.model}")

    models = ChatModels(HERE)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for said, told in (("two words", "spaces"), ("scripted", "--script"), ("gpt-6.2-sol", "OPENAI_API_KEY is not set")):
        with pytest.raises(SettingsError, match=told):
            models.switch(said, refused)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(SettingsError, match=r"not gpt-6\.2-sol"):
        models.switch("gpt-6.2-sol", refused)
    assert models.current is HERE


def test_a_chat_shows_its_model_and_switches_to_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.env |= {"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "sk-1"}
    said = "/model\n/model gpt-6-luna\n/model qwen-plus\nmodel\n/quit\n"
    done = desk.codepilot("chat", stdin=said)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    shown = [line for line in done.stderr.splitlines() if line.startswith("The model is ")]
    assert shown == [
        "The model is claude-sonnet-5-5 (anthropic).",
        "The model is gpt-6-luna (openai).",
        "The model is gpt-6-luna (openai).",
    ]
    assert "DASHSCOPE_API_KEY is not set" in done.stderr
    assert "  openai: gpt-6.2-sol, " in done.stderr
