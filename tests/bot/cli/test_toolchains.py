"""The virtual environment of a project at every entry of the command line and the library."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import llm
import pytest
from click.testing import CliRunner
from llm.cli import cli as llm_cli

from agent_runtime import Agent, AsyncRuntime, SandboxSettings, ScriptedProvider, pick_sandbox
from agent_runtime.compat.coding import CodingTools
from agent_runtime.compat.pygent import Runtime
from bot.__main__ import cli
from tests.agent_runtime.compat.llm_models import ScriptedModel, execute, plugged

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def with_pytest() -> Iterator[Path]:
    """A project with a test runner, which starts sooner than pytest, in an environment of its own."""
    folder = tempfile.TemporaryDirectory(dir="/tmp")  # a sandbox has a /dev of its own
    project = Path(folder.name)
    venv.create(project / ".venv", with_pip=False)
    site = next((project / ".venv").glob("lib/python3*/site-packages"))
    (site / "pytest.py").write_text("import test_sum\ntest_sum.test_sum()\nprint('1 passed')\n")
    program = project / ".venv" / "bin" / "pytest"
    program.write_text(f"#!{project}/.venv/bin/python\nimport sys; sys.path.insert(0, '.'); import pytest\n")
    program.chmod(0o755)
    (project / "test_sum.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    yield project
    folder.cleanup()


@pytest.fixture
def project(with_pytest: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with its Python under the home directory, as the current directory."""
    monkeypatch.setenv("HOME", str(Path(sys.base_prefix).resolve().parent))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.chdir(with_pytest)
    (with_pytest / "result").unlink(missing_ok=True)
    return with_pytest


def _script(folder: Path) -> str:
    calls = 'execute("main", "pytest -x > result", check=True)'
    script = folder / "script.yaml"
    script.write_text(
        "- reply: |\n    ```codepilot\n    " + calls + "\n    ```\n    ```completion\n    Done.\n    ```\n"
    )
    return str(script)


def test_the_tests_of_a_project_with_an_environment_run(project: Path, tmp_path: Path) -> None:
    command = ["run", "Run the tests", "--script", _script(tmp_path)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "Toolchains: .venv (Python of " in done.output
    assert "1 passed" in (project / "result").read_text()
    hidden = CliRunner().invoke(cli, [*command, "--toolchains", "none"])
    assert hidden.exit_code == 1
    assert "Toolchains" not in hidden.output


def test_an_agent_file_turns_toolchains_off_and_the_option_turns_them_on(project: Path, tmp_path: Path) -> None:
    script = _script(tmp_path)
    agent = tmp_path / "agent.yaml"
    agent.write_text(
        json.dumps(
            {
                "agent": {
                    "name": "A",
                    "model": {"provider": "scripted", "script": script},
                    "runtime": {"toolchains": "none", "work_dir": str(project)},
                }
            }
        )
    )
    assert CliRunner().invoke(cli, ["run", "Run the tests", "--trust", "--agent", str(agent)]).exit_code == 1
    done = CliRunner().invoke(cli, ["run", "Run the tests", "--trust", "--agent", str(agent), "--toolchains", "auto"])
    assert done.exit_code == 0, done.output


def test_the_faces_of_other_systems_find_it(project: Path) -> None:
    with CodingTools(project) as tools:
        assert "1 passed" in tools.execute_command("pytest -x")
    with CodingTools(project, toolchains="none") as tools:
        assert "command not found" in tools.execute_command("pytest -x")
    with Runtime(workspace=project) as runtime:
        assert "1 passed" in runtime.bash("pytest -x")
    with Runtime(workspace=project, toolchains="none") as runtime:
        assert "command not found" in runtime.bash("pytest -x")


class _Models:
    """A plugin with a model that runs the tests."""

    @llm.hookimpl
    def register_models(self, register: Callable[[llm.Model], None]) -> None:
        model = ScriptedModel()
        model.script = [[execute("pytest -x > result")], "Done."]
        register(model)


def test_llm_code_says_it_and_finds_it(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    with plugged(_Models()):
        command = ["code", "-m", "scripted-model", "-d", str(project), "--yolo", "Test"]
        done = CliRunner().invoke(llm_cli, command, input="")
    assert "Toolchains: .venv (Python of " in done.output, done.output
    assert "1 passed" in (project / "result").read_text()


def test_the_library_finds_it_without_a_setting(project: Path) -> None:
    calls = '```codepilot\nexecute("main", "pytest -x > result", check=True)\n```\n```completion\nDone.\n```\n'
    agent = Agent(provider=ScriptedProvider([calls]), work_dir=project, sandbox=pick_sandbox("auto", SandboxSettings()))

    async def run() -> None:
        async with AsyncRuntime(agent) as runtime:
            await runtime.run("Run the tests")

    asyncio.run(run())
    assert "1 passed" in (project / "result").read_text()


def test_the_tool_server_says_it(project: Path) -> None:
    command = [sys.executable, "-m", "bot", "mcp", "--dir", str(project)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "Toolchains: .venv (Python of " in done.stderr
