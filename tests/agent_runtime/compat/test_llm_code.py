"""`llm code` in the real `llm` program, with models that a plugin registers."""

from __future__ import annotations

import importlib
import json
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import llm
import pytest
from click.testing import CliRunner, Result
from llm.cli import cli

from agent_runtime.compat.coding import command as command_module
from tests.agent_runtime.compat.llm_models import Call, KeyedModel, ScriptedModel, Turn, execute, plugged, read, write

Say = Callable[..., ScriptedModel]
ROOT = Path(__file__).parents[3]


class _Models:
    """A plugin with a few models."""

    def __init__(self) -> None:
        self.model = ScriptedModel()
        self.keyed = KeyedModel()
        self.second = ScriptedModel("From the other.", model_id="other-model")

    @llm.hookimpl
    def register_models(self, register: Callable[[llm.Model], None]) -> None:
        """Register them."""
        register(self.model)
        register(self.second)
        register(self.keyed)  # type: ignore[arg-type]  # a KeyModel is registered as a model is


@pytest.fixture
def say() -> Iterator[Say]:
    models = _Models()

    def script(*turns: Turn) -> ScriptedModel:
        models.model.script = [*turns]
        return models.model

    with plugged(models):
        yield script


def _llm(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, arguments, input=typed, catch_exceptions=False)


def _code(project: Path, *arguments: str, typed: str = "") -> Result:
    return _llm("code", "-m", "scripted-model", "-d", str(project), *arguments, typed=typed)


def test_the_plugin_is_the_one_that_the_package_announces(say: Say) -> None:
    announced = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["llm"]

    assert [importlib.import_module(each) for each in announced.values()] == [command_module]
    assert "--allow" in _llm("code", "--help").output
    assert "CodingTools" in llm.get_tools()


def test_the_command_can_be_the_first_module_that_is_loaded() -> None:
    statement = "from agent_runtime.compat.coding.session import code; print(code.name)"
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("code\n", "")


def test_the_plugin_loads_nothing_that_other_commands_of_llm_do_not_need() -> None:
    statement = """
import llm.cli, sys
from agent_runtime.compat.coding import command
command.register_commands(llm.cli.cli)
print(*sorted(name for name in sys.modules if name.startswith("agent_runtime")))
"""
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, check=True)
    package = "agent_runtime.compat.coding"
    assert done.stdout.split() == ["agent_runtime", "agent_runtime.compat", package, f"{package}.command"]


def test_the_log_of_llm_has_what_the_user_typed(project: Path, say: Say) -> None:
    model = say([read("hello.txt")], "Three lines.", "Four lines.", "Five lines.")
    _code(project, "Read hello.txt", typed="And now?\n!quit\n")
    _code(project, "-c", "And later?")

    prompts = [line["prompt"] for line in json.loads(_llm("logs", "-n", "0", "--json").output)]
    assert [each for each in prompts if each] == ["Read hello.txt", "And now?", "And later?"]
    assert not any("[Task" in str(message) for message in model.prompts[-1].messages)
    assert all("Working directory: " in str(prompt.messages[0]) for prompt in model.prompts)


def test_a_session_goes_from_prompt_to_prompt(project: Path, say: Say) -> None:
    model = say([read("hello.txt")], "Three \x1b[2Jlines.", "Bye.")
    done = _code(project, "read it", "-s", "Be terse.", typed="and now?\n!tokens\n!quit\nnever\n")

    assert done.exit_code == 0
    assert "> read_file(path='hello.txt') ->      1\tone" in done.output
    assert "Three \\x1b[2Jlines.\n" in done.output
    assert "Bye." in done.output
    assert "Token usage: 300 input, 30 output" in done.output
    assert "Be terse." in model.prompts[0].system
    assert "never" not in str(model.prompts[-1].messages)


def test_writes_show_their_diff_and_are_made_when_they_are_approved(project: Path, say: Say) -> None:
    model = say([write("hello.txt", "one\n2\nthree\n"), write("b.txt")], [write("c.txt")], [write("d.txt")], "Done.")
    done = _code(project, "write", typed="y\nn\na\n")

    assert "-two\n+2\n" in done.output
    assert (project / "hello.txt").read_text() == "one\n2\nthree\n"
    assert [(project / name).exists() for name in ("b.txt", "c.txt", "d.txt")] == [False, True, True]
    assert "Cancelled" in model.prompts[1].tool_results[1].output


def test_always_means_the_commands_that_were_shown_and_no_others(project: Path, say: Say) -> None:
    say([execute("git status")], [execute("git status")], [execute("git init; touch made")], "Done.")
    done = _code(project, "look", typed="a\nn\n")

    assert "a=always: `git status`]" in done.output
    assert done.output.count("Approve?") == 2
    assert not (project / "made").exists()


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("echo one > made", False),
        ("echo one two", True),
        ("echo one; touch made", False),
        ("echoes one", False),
    ],
)
def test_an_allowed_command_is_that_command_alone(project: Path, say: Say, command: str, *, runs: bool) -> None:
    say([execute(command)], "Done.")
    done = _code(project, "go", "--allow", "echo*")

    assert ("Approve?" not in done.output) is runs
    assert not (project / "made").exists()


def test_what_is_too_long_to_show_is_declined_unless_everything_is_approved(project: Path, say: Say) -> None:
    long = write("long.txt", "".join(f"{number}\n" for number in range(9_000)))
    model = say([long], "Well.")
    _code(project, "write", typed="y\n")
    assert "too long" in model.prompts[1].tool_results[0].output
    assert not (project / "long.txt").exists()

    say([long], "Done.")
    _code(project, "write", "--yolo")
    assert (project / "long.txt").exists()


def test_commands_of_the_session(project: Path, say: Say) -> None:
    say([write("a.txt")], "Done.")
    typed = "!tokens\n!model\n!yolo\nwrite\n!yolo\n!model nothing\n!model other-model\nhello\n!fly\n!exit\n"
    done = _code(project, typed=typed)

    assert (project / "a.txt").exists()
    for told in (
        "No token usage recorded",
        "Current model: scripted-model",
        "Auto-approval on",
        "Auto-approval off",
        "Error: 'Unknown model: nothing'",
        "Switched to other-model",
        "From the other.",
        "There is no !fly",
    ):
        assert told in done.output


def test_options_reach_the_agent_and_wrong_ones_are_named(project: Path, say: Say) -> None:
    model = say(*[[read("hello.txt")]] * 5)
    done = _code(project, "read", "--no-tool", "execute_command", "--chain-limit", "2")
    assert "Chain limit of 2 reached" in done.output
    assert "CodingTools_execute_command" not in {tool.name for tool in model.prompts[0].tools}

    everything = [["--allow", pattern] for pattern in ("*", "* ", "* *")]
    for wrong in (["-o", "fly", "1"], ["--no-tool", "fly"], *everything, ["-m", "fly"], ["--cid", "fly"]):
        refused = _llm("code", "-d", str(project), *wrong)
        assert (refused.exit_code, refused.output.startswith("Error: ")) == (1, True), refused.output


def test_key_options_and_sandbox_are_those_that_are_named(project: Path, say: Say) -> None:
    model = llm.get_model("keyed-model")
    assert isinstance(model, KeyedModel)
    options = ["--key", "mine", "-o", "temperature", "0.5", "--sandbox", "local", "--yolo"]
    done = _llm("code", "-m", "keyed-model", "-d", str(project), "where?", *options)

    assert "Done." in done.output
    assert model.given == [("mine", 0.5)] * 2
    assert model.answers == [f"{project}\nExit code: 0"]  # in a sandbox it would be another place


def test_a_database_that_is_none_or_that_cannot_be_written_is_told(project: Path, say: Say, tmp_path: Path) -> None:
    say("Never kept.", "Never kept.")
    done = _code(project, "first")
    assert done.exit_code == 0
    database = tmp_path / "llm" / "logs.db"
    with sqlite3.connect(database) as kept:
        kept.execute("create trigger full before insert on turns begin select raise(abort, 'disk is full'); end")
    say("Never kept.")
    done = _code(project, "second")
    assert (done.exit_code, "Error: disk is full" in done.output) == (1, True)
    database.write_bytes(b"no database" * 100)
    done = _code(project, "third")
    assert (done.exit_code, f"{database} cannot be read" in done.output) == (1, True)
    assert database.read_bytes() == b"no database" * 100


def test_a_turn_that_fails_is_told_and_the_session_goes_on(project: Path, say: Say) -> None:
    say(RuntimeError("gone"), "Back.", RuntimeError("gone"))

    assert "Back." in _code(project, "one", typed="two\n").output
    assert _code(project, "three").exit_code == 1


def test_a_session_is_in_llms_logs_and_can_be_continued(project: Path, say: Say) -> None:
    say([write("a.txt")], "First answer.")
    _code(project, "first question", "--yolo")
    model = say("Second answer.")
    _llm("code", "second question", "-c", "-d", str(project))
    conversation = _llm("logs", "--json", "-n", "0").output

    assert "First answer." in conversation
    assert "first question" in str(model.prompts[-1].messages)
    assert [message.role for message in model.prompts[-1].messages].count("system") == 1
    first = llm.cli.load_conversation(None)
    assert first is not None
    say("Third answer.")
    _llm("code", "third question", "--cid", first.id, "-d", str(project))
    shown = _llm("logs", "--cid", first.id).output
    assert [each in shown for each in ("First answer.", "Second answer.", "Third answer.")] == [True] * 3
    assert "CodingTools_write_file" in shown


def test_the_toolbox_works_in_llm_chat(project: Path, say: Say) -> None:
    calls: list[Call] = [read("hello.txt"), execute("wc -l < hello.txt")]
    model = say(calls, "Three.")
    tool = f'CodingTools({{"root": "{project}"}})'
    _llm("chat", "-m", "scripted-model", "--tool", tool, "--chain-limit", "20", typed="count\nquit\n")

    assert model.told() == ["     1\tone\n     2\ttwo\n     3\tthree", "3\nExit code: 0"]
