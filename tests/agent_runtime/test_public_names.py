from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

import agent_runtime

_HEAVY = (
    "anthropic",
    "boto3",
    "google",
    "httpx",
    "httpx2",
    "jsonschema",
    "llm",
    "mcp",
    "openai",
    "pydantic",
    "pydantic_monty",
    "pyte",
    "sqlalchemy",
    "tree_sitter",
    "yaml",
)


def imported_by(statement: str) -> set[str]:
    """The modules that a statement loads in a new process."""
    program = f"import sys\nbefore = {{*sys.modules}}\n{statement}\nprint(*{{*sys.modules}} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_types_of_the_fields_of_public_values_can_be_looked_up() -> None:
    values = [each for name in dir(agent_runtime) if is_dataclass(each := getattr(agent_runtime, name))]
    assert agent_runtime.Agent in values
    for value in values:
        assert {each.name for each in fields(value)} <= get_type_hints(value).keys()


def test_the_package_alone_loads_none_of_its_modules() -> None:
    loaded = imported_by("import agent_runtime")
    assert {name for name in loaded if name.startswith("agent_runtime")} == {"agent_runtime"}
    assert "asyncio" not in loaded


def test_a_name_loads_only_what_it_needs() -> None:
    loaded = imported_by("from agent_runtime import Policy")
    assert "agent_runtime.policy.policy" in loaded
    assert not {name for name in loaded if name.startswith(("agent_runtime.run", "agent_runtime.providers"))}


@pytest.mark.parametrize("names", ["Agent, AsyncRuntime, FileSession, Runtime", "*"])
def test_nothing_heavy_is_loaded_before_it_is_used(names: str) -> None:
    loaded = imported_by(f"from agent_runtime import {names}")
    assert "agent_runtime.run.runtime" in loaded
    assert not loaded & {*_HEAVY}


def test_the_names_of_llm_coding_agent_are_there_and_loaded_last() -> None:
    assert "llm" not in imported_by("import agent_runtime; dir(agent_runtime); from agent_runtime import *")
    assert "llm" in imported_by(
        "from agent_runtime import CodingAgent, CodingTools; CodingAgent.run; CodingTools.read_file"
    )


def test_what_a_run_works_with_is_loaded_when_a_runtime_is_made() -> None:
    loaded = imported_by("from agent_runtime import Agent, AsyncRuntime")
    later = ("agent.agent_file", "index", "providers.catalog", "run.run.", "run.toolbox", "tools", "transports")
    assert not {name for name in loaded for part in later if f"{name}.".startswith(f"agent_runtime.{part}")}


def test_after_preloading_a_run_loads_nothing_of_the_library(tmp_path: Path) -> None:
    program = f"""
import asyncio
from pathlib import Path
from agent_runtime import Agent, AsyncRuntime, SandboxSettings, ScriptedProvider, Status, pick_sandbox, preload
preload("anthropic")
before = {{*sys.modules}}
replies = ['```codepilot\\nwrite_file("a.py")\\nexecute("main", "true")\\n```\\n```write a.py\\nx = 1\\n```\\n',
    '```completion\\nDone.\\n```\\n']
agent = Agent(provider=ScriptedProvider(replies), work_dir=Path({str(tmp_path)!r}),
    sandbox=pick_sandbox("local", SandboxSettings()))
async def run():
    async with AsyncRuntime(agent) as runtime:
        assert (await runtime.run("Write a.py")).status is Status.FINISHED
asyncio.run(run())
"""
    loaded = imported_by(program)
    assert not {name for name in loaded if name.startswith("agent_runtime")}


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="No agent_runtime attribute Agents"):
        getattr(agent_runtime, "Agents")  # noqa: B009 - type checkers refuse the name itself
