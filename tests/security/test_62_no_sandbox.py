"""Threat 62: without a sandbox nothing runs, and the text says what fixes it; every run's report has the level."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_runtime import Network, SandboxError, SandboxSettings, pick_sandbox
from agent_runtime.sandbox import select
from agent_runtime.sandbox.protocol import Sandbox
from bot.domain.errors import ConfigError
from bot.domain.job import JobState
from bot.server import build, serve
from bot.settings.load import load
from bot.settings.models import Settings
from localhub import LocalHub
from tests.containers import StandIn
from tests.stage import FIX, WEBHOOK_SECRET, agent_settings, staged


def _settings(data: Path, *, network: Network | None = None) -> Settings:
    return Settings(
        agent=agent_settings(data, network=network),
        webhook_secret=SecretStr(WEBHOOK_SECRET),
        app_id=1,
        private_key=SecretStr("none is needed so far"),
        api_url="http://127.0.0.1:9",
        server_url="http://127.0.0.1:9",
        jobs=1,
        host="127.0.0.1",
        port=0,
    )


async def test_the_service_does_not_start_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").symlink_to(shutil.which("git") or "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"`bwrap`.*install"):
        async with serve.build_service(_settings(tmp_path / "data")):
            pass


def test_auto_is_never_the_sandbox_that_protects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: SandboxSettings) -> Sandbox:
        raise SandboxError("none here")

    monkeypatch.setattr(select, "_bubblewrap", refused)
    with pytest.raises(SandboxError, match="none here"):
        pick_sandbox("auto", SandboxSettings())


def test_the_bot_cannot_be_told_to_do_without(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"CODEPILOT_SANDBOX .* auto, bubblewrap, docker.*'local'"):
        load({"CODEPILOT_SANDBOX": "local"})


async def test_a_network_that_the_sandbox_cannot_keep_is_refused_before_any_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = StandIn.at(tmp_path / "engine").sandbox()
    monkeypatch.setattr(build, "pick_sandbox", lambda *_: container)
    settings = _settings(tmp_path / "data", network=Network.of("a.example"))
    with pytest.raises(ConfigError, match=r"`docker`.*CODEPILOT_NETWORK"):
        async with serve.build_service(settings):
            pass
    apart = replace(settings, agent=replace(settings.agent, network=Network(), setup_network=Network.of("a.example")))
    with pytest.raises(ConfigError, match="CODEPILOT_SETUP_NETWORK=off"):
        async with serve.build_service(apart):
            pass


async def test_the_level_stands_in_the_report_of_a_run(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE, end
    assert "bubblewrap, no network" in end.status
