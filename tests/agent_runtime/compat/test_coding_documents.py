"""The examples of llm-coding-agent's document, word for word but for their import lines and the path of the project."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import llm
import pytest
from click.testing import CliRunner
from llm.cli import cli

from tests.agent_runtime.compat.llm_models import ScriptedModel, plugged, read, write

TOOLS = (
    """\
from llm_coding_agent import CodingTools

tools = CodingTools("/path/to/project")
print(tools.read_file("README.md"))          # numbered lines, like cat -n
print(tools.read_file("big.log", offset=100, limit=50))
tools.write_file("notes/todo.md", "- ship it\\n")   # creates parent dirs
print(tools.edit_file("app.py", "DEBUG = True", "DEBUG = False"))
""",
    """\
print(tools.list_files("**/*.py"))            # newest first, respects .gitignore
print(tools.search_files("TODO", glob="*.py"))  # path:line:content matches
""",
    """\
print(tools.execute_command("pytest -x", timeout=300))
""",
)
AGENT = """\
from llm_coding_agent import CodingAgent

agent = CodingAgent(
    model="gpt-4.1-mini",        # any llm model ID, or a model instance
    root="/path/to/project",
    approve=True,                # approve every tool call
)
result = agent.run("Fix the failing test in tests/test_parser.py")
print(result.text)               # the model's final answer
for tool_call, tool_result in result.tool_calls:
    print(tool_call.name, tool_call.arguments)

agent.run("Now add a changelog entry")   # the conversation continues
"""
COMMANDS = (
    "llm code",
    'llm code "add type hints to utils.py"',
    "llm code -m gpt-4.1 -d ~/dev/myproject",
    "llm code --yolo",
    'llm code --allow "pytest*" --allow "git diff*"',
    "llm code -c",
    "llm logs --short",
    "llm chat --tool CodingTools --chain-limit 20",
)


class _Models:
    """A plugin with the models that the documents name."""

    def __init__(self) -> None:
        self.models = {name: ScriptedModel(model_id=name) for name in ("gpt-4.1-mini", "gpt-4.1")}

    @llm.hookimpl(trylast=True)  # so that they stand in place of OpenAI's
    def register_models(self, register: Callable[[llm.Model], None]) -> None:
        """Register them."""
        for model in self.models.values():
            register(model)


@pytest.fixture
def models() -> Iterator[dict[str, ScriptedModel]]:
    ours = _Models()
    with plugged(ours):
        yield ours.models


def _run(code: str, project: Path) -> dict[str, object]:
    names: dict[str, object] = {}
    code = code.replace("llm_coding_agent", "agent_runtime.compat.coding").replace("/path/to/project", str(project))
    exec(code, names)  # noqa: S102 - the document's own words
    return names


def test_the_example_of_the_tools(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text("# Title\nwords\n")
    (project / "app.py").write_text("import os\nDEBUG = True\n# TODO: tidy\n")
    (project / "big.log").write_text("".join(f"line {number}\n" for number in range(1, 201)))

    tools = _run("".join(TOOLS), project)["tools"]
    printed = capsys.readouterr().out

    assert printed.startswith("     1\t# Title\n     2\twords\n   101\tline 101\n")
    assert (
        "\n   150\tline 150\n... 50 more lines, use offset=150 to continue\nMade 1 replacement in app.py:\n" in printed
    )
    assert "\n-DEBUG = True\n+DEBUG = False\n" in printed
    assert "\napp.py\napp.py:3:# TODO: tidy\n" in printed
    assert "\nExit code: " in printed
    assert (project / "notes/todo.md").read_text() == "- ship it\n"
    tools.close()  # type: ignore[attr-defined]


def test_the_example_of_the_agent(
    project: Path, models: dict[str, ScriptedModel], capsys: pytest.CaptureFixture[str]
) -> None:
    models["gpt-4.1-mini"].script = [[read("hello.txt"), write("fix.txt")], "Fixed.", "Added."]
    agent = _run(AGENT, project)["agent"]

    assert capsys.readouterr().out == (
        "Fixed.\nCodingTools_read_file {'path': 'hello.txt'}\n"
        "CodingTools_write_file {'path': 'fix.txt', 'content': 'made\\n'}\n"
    )
    assert "changelog" in models["gpt-4.1-mini"].told()[-1]
    agent.close()  # type: ignore[attr-defined]


def test_the_commands(project: Path, models: dict[str, ScriptedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project.parent / "home/dev/myproject").mkdir(parents=True)
    llm.set_default_model("gpt-4.1-mini")  # type: ignore[no-untyped-call]
    for command in COMMANDS:
        for model in models.values():
            model.script = ["First.", "Second."]
        words = [os.path.expanduser(word) for word in shlex.split(command)[1:]]  # noqa: PTH111 - as a shell does
        done = CliRunner().invoke(cli, words, input="hello\n!quit\nquit\n", catch_exceptions=False)
        assert done.exit_code == 0, (command, done.output)
        assert "First." in done.output or "logs" in command, command
