"""Differences from CodePilot 0.9.1 that no section's test shows; `differences.toml` has the whole list."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import agent_runtime
from agent_runtime import Agent, AsyncRuntime, FileSession, Runtime, SettingsError, Status
from tests.agent_runtime.seed.parts import Model, reply, write_agent_file
from tests.model_server import Fails, ModelServer

Start = Callable[..., tuple[AsyncRuntime, Model]]
MODEL = {"provider": "anthropic", "name": "claude-sonnet-5-5", "api_key_env": "MY_KEY"}


async def test_a_control_block_opens_no_file(start: Start, place: Path) -> None:
    runtime, model = start(reply("open('made', 'w')"), reply(done="Could not."))
    await runtime.run("Write it")
    assert not (place / "made").exists()
    assert "Nothing was run" in model.read[1]


async def test_a_failed_call_ends_the_block(start: Start, place: Path) -> None:
    runtime, model = start(reply('read_file("none")\nwrite_file("made")', "x"), reply(done="Could not."))
    await runtime.run("Read it")
    assert "FileNotFoundError" in model.read[1]
    assert not (place / "made").exists()


def test_a_registered_handler_takes_the_place_of_printing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summaries: list[str] = []
    with Runtime(write_agent_file(tmp_path, reply(done="Done."))) as runtime:
        for event in ("stream", "finish"):
            runtime.hooks.register(event, lambda **arguments: summaries.append(arguments.get("summary", "")))
        runtime.run("Do it")
    assert summaries[-1] == "Done."
    assert "Done." not in capsys.readouterr().out


async def test_three_unreadable_replies_in_a_row_end_the_run(start: Start) -> None:
    runtime, model = start(*[reply("x = (")] * 4)
    assert (await runtime.run("Count")).status is Status.FORMAT_ERRORS
    assert len(model.requests) == 3


async def test_contents_stay_in_the_conversation(start: Start) -> None:
    runtime, model = start(reply('write_file("a.txt")', "a line of its own"), reply(done="Written."))
    await runtime.run("Write it")
    assert "a line of its own" in model.requests[1].messages[-2].text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "A", "model": MODEL}, "`agent`: must be set"),
        ({"agent": {"name": "A", "model": MODEL, "rolle": "x"}}, "Did you mean 'role'"),
        ({"agent": {"name": "A", "model": MODEL, "system_prompt": "gone.md"}}, r"gone\.md: cannot be read"),
    ],
)
def test_an_agent_file_that_the_original_reads_otherwise_is_refused(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        Agent.from_file(tmp_path / "agent.yaml")


async def test_defaults_of_the_agent_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (tmp_path / "agent.yaml").write_text(
        yaml.safe_dump({"agent": {"name": "A", "model": {"provider": "anthropic", "name": "claude-sonnet-5-5"}}}),
        encoding="utf-8",
    )
    with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY is not set"):
        AsyncRuntime(tmp_path / "agent.yaml")
    async with ModelServer([reply(done="Done.")]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url_anthropic)
        async with AsyncRuntime(tmp_path / "agent.yaml") as runtime:
            limits = runtime.agent.policy.limits
            assert (limits.max_steps, limits.max_seconds, limits.max_cost_usd) == (20, 1800, None)
            assert str(await runtime.run("Do it")) == "Done."
    request = server.requests[0]
    assert request.json["max_tokens"] == 16_000
    assert "temperature" not in request.json


async def test_a_refused_request_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-made-up")
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump({"agent": {"name": "A", "model": MODEL}}), encoding="utf-8")
    async with ModelServer([Fails(401)] * 3) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url_anthropic)
        async with AsyncRuntime(tmp_path / "agent.yaml") as runtime:
            outcome = await runtime.run("Do it")
    assert (outcome.status, outcome.steps, len(server.requests)) == (Status.FAILED, 0, 1)
    assert "401" in str(outcome)


async def test_a_session_is_a_log_and_its_directory_is_out_of_reach(tmp_path: Path) -> None:
    path = write_agent_file(tmp_path, reply(done="Done."))
    with pytest.raises(SettingsError, match="the agent's directory"):
        AsyncRuntime(path, session="file", session_dir=tmp_path / "workspace" / "sessions")
    async with AsyncRuntime(path, session="file", session_id="shop", session_dir=tmp_path / "sessions") as runtime:
        assert isinstance(runtime.session, FileSession)
        await runtime.run("Do it")
        assert runtime.session.path.name.startswith("shop-")
        assert runtime.session.path.suffix == ".jsonl"
        assert runtime.session.path.exists()


async def test_result_of_read_file(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("one\n")
    runtime, model = start(reply('read_file("a.txt")'), reply(done="Read."))
    await runtime.run("Read it")
    assert model.read[1].startswith("[read_file] 'a.txt' (lines 1\N{EN DASH}1 of 1, version ")
    assert "END OF FILE" not in model.read[1]


async def test_execute_waits_a_minute_and_runs_bash(start: Start) -> None:
    runtime, model = start(reply('execute("p", "ls", shell="powershell")'), reply(done="Could not."))
    execute = runtime.registry.get("execute")
    assert execute is not None
    assert inspect.signature(execute.func).parameters["timeout"].default == 60
    await runtime.run("List it")
    assert "terminals run bash" in model.read[1]


async def test_patterns_have_no_look_around(start: Start, place: Path) -> None:
    (place / "a.txt").write_text("--force\n")
    runtime, model = start(reply('find("--f")'), reply('find("(?=x)")'), reply(done="Found."))
    await runtime.run("Find it")
    assert "a.txt:1:--force" in model.read[1]
    assert "ValueError" in model.read[2]


async def test_files_of_git_are_refused(start: Start, place: Path) -> None:
    (place / ".git").mkdir()
    runtime, model = start(reply('write_file(".git/config")', "x"), reply(done="Could not."))
    await runtime.run("Write it")
    assert "PermissionError" in model.read[1]
    assert not (place / ".git" / "config").exists()


@pytest.mark.parametrize("name", ["MemoryManager", "MemoryConfig", "ContextArchive", "AgentConfig"])
def test_names_of_the_implementation_are_missing(name: str) -> None:
    assert not hasattr(importlib.import_module("agent_runtime"), name)
    assert not hasattr(agent_runtime.Runtime, "config")
    assert not hasattr(agent_runtime.Runtime, "provider")
