"""Differences from llm-coding-agent and Pygent that no other test shows; `differences.toml` has the whole list."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from agent_runtime.compat import pygent
from agent_runtime.compat.coding import CodingTools
from agent_runtime.compat.pygent import Agent, Runtime
from agent_runtime.compat.pygent.models import Message
from agent_runtime.compat.pygent.tasks import DEFAULT_TASKS
from tests.agent_runtime.compat.pygent_models import ScriptedModel, calls
from tests.source_files import ROOT


def test_a_file_that_is_too_large_is_refused_and_latin_1_is_read(project: Path) -> None:
    (project / "latin.txt").write_bytes(b"caf\xe9\n")
    with (project / "large.txt").open("wb") as large:
        large.truncate(10_000_001)
    with CodingTools(project) as tools:
        assert tools.read_file("latin.txt") == "     1\tcafé"
        assert tools.read_file("large.txt").startswith("Error: ")


def test_a_search_has_no_look_around_and_a_limit(project: Path) -> None:
    (project / "many.txt").write_text("word\n" * 1_200)
    with CodingTools(project) as tools:
        assert tools.search_files("(?=word)").startswith("Error: ")
        found = tools.search_files("word", max_results=5_000).splitlines()
    assert len(found) == 1_001
    assert found[-1] == "... results truncated at 1000 matches"


def test_an_agent_of_pygent_prints_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[object] = []
    with Runtime(workspace=project) as runtime:
        model = ScriptedModel(calls(("write_file", {"path": "a", "content": "b"})), Message("assistant", "Written."))
        with Agent(runtime, model, listeners=[events.append]) as agent:
            agent.run_until_stop("Write it")
    assert events
    assert capsys.readouterr().out == ""


def test_the_first_message_to_a_model_of_pygent_describes_the_workspace(project: Path) -> None:
    model = ScriptedModel(Message("assistant", "Hello."))
    with Runtime(workspace=project) as runtime, Agent(runtime, model) as agent:
        agent.step("Say hello")
    text = model.requests[0][-1]["content"]
    assert "Say hello" in text
    assert "Working directory: " in text
    assert "hello.txt" in text


def test_the_package_has_no_command_of_pygent() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [*project["scripts"]] == ["codepilot"]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("config", "load_config"),
        ("errors", "APIError"),
        ("models", "set_custom_model"),
        ("openai_compat", "ToolCallFunction"),
        ("persona", "Persona"),
        ("runtime", "Runtime"),
        ("task_manager", "TaskManager"),
        ("task_tools", "register_task_tools"),
        ("tools", "register_tool"),
    ],
)
def test_the_modules_of_pygent_have_their_names(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"agent_runtime.compat.pygent.{module}"), name)
    assert hasattr(getattr(pygent, module), name)


@pytest.mark.parametrize(
    "name",
    [
        "delegate_task",
        "delegate_persona_task",
        "list_personas",
        "task_status",
        "collect_file",
        "download_file",
        "manager",
    ],
)
def test_the_private_names_of_pygents_suite_have_public_ones(name: str) -> None:
    assert hasattr(DEFAULT_TASKS, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agent", "run_interactive"),
        ("agent", "SYSTEM_MSG"),
        ("agent", "DEFAULT_PERSONA"),
        ("tools", "BUILTIN_TOOLS"),
        ("openai_compat", "chat"),
        ("task_manager", "Task"),
    ],
)
def test_names_of_pygents_implementation_are_missing(module: str, name: str) -> None:
    assert not hasattr(importlib.import_module(f"agent_runtime.compat.pygent.{module}"), name)
