"""MCP servers and skills as files describe them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Agent, AgentFile, Policy, Rule, SettingsError

FILE = """
agent:
  name: A
  model: {provider: scripted, script: script.yaml}
  skills: [skills]
  mcp:
    - name: docs
      url: https://mcp.example.com/mcp
      headers: {Authorization: "Bearer ${DOCS_TOKEN}"}
      allow: [search.all]
    - name: db
      command: server
      args: [--file, x]
      env: {KEY: k}
      tools: [read]
"""


def test_a_file_describes_servers_and_skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.yaml").write_text("- reply: x\n")
    skill = tmp_path / "skills" / "a" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: a\ndescription: b\n---\n")
    (tmp_path / "agent.yaml").write_text(FILE)
    monkeypatch.setenv("DOCS_TOKEN", "t-1")
    file = AgentFile.load(tmp_path / "agent.yaml")
    assert file.skills == {skill.as_posix(): skill.read_text()}
    docs, db = file.servers()
    assert (docs.headers, docs.secrets) == ({"Authorization": "Bearer t-1"}, ("t-1",))
    assert "t-1" not in repr(docs)
    assert (db.command, db.env, db.tools) == (("server", "--file", "x"), {"KEY": "k"}, ("read",))
    agent = Agent.from_file(file)
    assert agent.policy == Policy(limits=agent.policy.limits, rules=(Rule(decision="allow", tool="docs_search_all"),))
    with pytest.raises(SettingsError, match=r"'docs': the environment variable DOCS_TOKEN is not set"):
        file.servers({})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{name: a}", "write either `command` or `url`"),
        ("{name: a, command: x, url: 'https://a.example'}", "write either `command` or `url`"),
        ("{name: A-b, command: x}", "a name has up to 30 lower-case letters"),
        ("{name: a, url: 'http://a.example'}", "`url` must be https://"),
        ("{name: a, url: 'https://u:p@a.example'}", "secrets belong in `headers`"),
        ("{name: a, url: 'https://a.example', args: [x]}", "`args` has no effect"),
        ("{name: a, command: x, env: {A B: c}}", "no variable"),
        ("{name: a, command: x, tools: [b], allow: [c]}", "which `tools` does not list"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path, entry: str, why: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"agent:\n  name: A\n  model: {{provider: scripted}}\n  mcp:\n    - {entry}\n")
    with pytest.raises(SettingsError, match=why) as told:
        AgentFile.load(path)
    assert f"{path}:5" in str(told.value)


def test_a_file_of_servers_alone_names_each_once(tmp_path: Path) -> None:
    path = tmp_path / "mcp.yaml"
    path.write_text("mcp: [{name: a, command: x, env: {T: '${T}'}}]\n")
    assert AgentFile.read_servers(path, {"T": "1"})["a"].env == {"T": "1"}
    path.write_text("mcp: [{name: a, command: x}, {name: a, command: y}]\n")
    with pytest.raises(SettingsError, match="two MCP servers have the same name"):
        AgentFile.read_servers(path, {})
