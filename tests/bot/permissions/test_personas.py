"""Personas: the front matter of agents as GitHub documents it, and the tools that remain."""

from __future__ import annotations

import pytest

from agent_runtime import SettingsError
from bot.permissions.levels import tools_for
from bot.permissions.personas import Persona, describe_unknown, persona_paths

PATH = ".github/agents/docs.agent.md"
ALL = tools_for("auto", writes=True)
SEARCH = ("list_files", "find", "semantic_search", "trace_callers", "trace_callees", "trace_graph")


def parse(head: str, text: str = "Write docs.") -> Persona:
    return Persona.parse(PATH, f"---\ndescription: Writes docs.\n{head}\n---\n{text}\n")


def test_a_file_is_read_and_keys_of_other_tools_are_ignored() -> None:
    head = (
        "name: Docs\ntarget: vscode\nmcp-servers:\n  x: {type: local, command: evil}\nhandoffs: [a]\nmetadata: {a: b}"
    )
    persona = parse(head)
    assert persona == Persona(path=PATH, text="Write docs.", description="Writes docs.")
    assert persona.select_tools(ALL) == ALL
    assert persona.select_servers(["wiki"]) == ("wiki",)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("['*']", ALL),
        ("[]", ()),
        ("[read, Edit]", ("read_file", "write_file", "list_files")),
        ("read, search", ("read_file", *SEARCH)),
        ("[Bash]", ("execute", "read_output", "send_input", "terminate_terminal")),
        ("[write_file, ask_user]", ("write_file", "ask_user")),
        ("[web, todo, azure.extension/tool, wiki/*]", ()),
    ],
)
def test_tools_are_an_alias_or_a_name_and_only_restrict(tools: str, expected: tuple[str, ...]) -> None:
    persona = parse(f"tools: {tools}")
    assert persona.select_tools(ALL) == expected
    assert set(persona.select_tools(("read_file",))) <= {"read_file"}


def test_a_server_is_named_with_all_of_its_tools() -> None:
    assert parse("tools: [read, wiki/*, other/one]").select_servers(["wiki", "other"]) == ("wiki",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Write docs.", "front matter"),
        ("---\nname: x\n---\nWrite docs.", "`description` must say"),
        ("---\ndescription: [x]\n---\nWrite docs.", "`description` must say"),
        ("---\ndescription: x\n---\n \n", "has no text"),
        ("---\ndescription: x\ntools: {a: b}\n---\nx", "`tools` must be a name or a list of names"),
        ("---\ndescription: x\nmodel: [[a]]\n---\nx", "`model` must be a name or a list of names"),
        ("---\ndescription: x\na: " + "[" * 100 + "\n---\nx", "more than 64"),
        ("---\ndescription: x\n" + "# many\n" * 1_000 + "---\nx", "front matter"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(content: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=PATH) as refusal:
        Persona.parse(PATH, content)
    assert problem in str(refusal.value)


def test_files_are_named_as_on_github_and_strange_names_are_left_out() -> None:
    folder = ".github/agents"
    names = [
        "README.md",
        "AGENTS.md",
        "b.md",
        "a.agent.md",
        "a.md",
        "Docs.agent.md",
        "x y.md",
        "`x`.md",
        "x.txt",
        "d/e.md",
    ]
    assert persona_paths([*(f"{folder}/{name}" for name in names), "agents/z.agent.md"]) == {
        "docs": f"{folder}/Docs.agent.md",
        "a": f"{folder}/a.agent.md",
        "b": f"{folder}/b.md",
    }


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    answer = describe_unknown("Doc", ["docs", "tests"])
    assert "no agent `Doc`" in answer
    assert "Did you mean `--agent docs`?" in answer
    assert "There are `docs`, `tests`." in answer
    assert "and 5 more" in describe_unknown("x", [f"a{n}" for n in range(25)])
    assert describe_unknown("x", []).endswith("on the base branch.")
