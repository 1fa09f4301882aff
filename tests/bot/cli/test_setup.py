"""What the command line asks for, made into settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Rule, SettingsError
from bot.cli.chat import ChatOptions, agent, agent_file
from bot.cli.screen import PERMISSIONS, Permissions

_AGENT = """\
agent:
  name: A
  model:
    provider: anthropic
    name: one
    fallback: [{provider: openai}]
  runtime: {max_steps: 7, max_cost_usd: 1, sandbox: SANDBOX}
  permissions:
    - {allow: execute, commands: ["pytest *"]}
    - {deny: "*", paths: [secrets/**]}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with no key in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC", "OPENAI", "DASHSCOPE", "CODEPILOT"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
    return tmp_path


def write(folder: Path, name: str = "agent.yaml", *, sandbox: str = "auto") -> Path:
    path = folder / name
    path.write_text(_AGENT.replace("SANDBOX", sandbox), encoding="utf-8")
    return path


def test_the_agent_file_beside_it_is_read_when_none_is_named(here: Path) -> None:
    write(here)
    assert agent_file(ChatOptions()).model.name == "one"


def test_a_named_agent_file_works_where_it_lies_unless_told_otherwise(here: Path) -> None:
    (here / "elsewhere").mkdir()
    path = write(here / "elsewhere", "mine.yaml")
    assert agent_file(ChatOptions(agent=path)).work_dir == here / "elsewhere"
    assert agent_file(ChatOptions(agent=path, directory=here)).work_dir == here


def test_without_a_file_the_model_is_the_one_whose_key_is_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="No model: set "):
        agent_file(ChatOptions())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    settings = agent_file(ChatOptions(model="gpt-mine"))
    assert (settings.model.provider, settings.model.name, settings.work_dir) == ("openai", "gpt-mine", here)


def test_the_command_line_goes_before_the_file(here: Path) -> None:
    write(here)
    settings = agent_file(ChatOptions(model="two", max_steps=3, budget=0.5))
    assert (settings.model.provider, settings.model.name, len(settings.fallback)) == ("anthropic", "two", 1)
    assert (settings.limits.max_steps, settings.limits.max_cost_usd) == (3, 0.5)
    assert agent_file(ChatOptions()).limits.max_steps == 7


def test_a_named_provider_stands_alone(here: Path) -> None:
    write(here)
    settings = agent_file(ChatOptions(provider="openai"))
    assert (settings.model.provider, settings.model.name, settings.model.key_variable) == (
        "openai",
        None,
        "OPENAI_API_KEY",
    )
    assert settings.fallback == ()
    with pytest.raises(SettingsError, match="'openai'"):
        agent_file(ChatOptions(provider="openia"))


def test_an_address_is_that_of_a_compatible_server_which_needs_no_key(here: Path) -> None:
    model = agent_file(ChatOptions(base_url="http://localhost:11434/v1", model="qwen3")).model
    assert (model.provider, model.base_url, model.api_key()) == ("openai", "http://localhost:11434/v1", None)
    write(here)
    model = agent_file(ChatOptions(base_url="http://localhost:8000")).model
    assert (model.provider, model.base_url) == ("anthropic", "http://localhost:8000")


def test_the_address_in_the_environment_is_for_its_own_service(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert agent_file(ChatOptions()).model.base_url == "http://localhost:11434/v1"
    assert agent_file(ChatOptions(base_url="http://localhost:1/v1")).model.base_url == "http://localhost:1/v1"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1")
    model = agent_file(ChatOptions()).model
    assert (model.provider, model.base_url, model.key_variable) == ("anthropic", None, "ANTHROPIC_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert agent_file(ChatOptions(provider="openai")).model.api_key() == "sk-1"


def test_a_key_goes_only_to_the_address_that_it_was_meant_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(base_url: str) -> str | None:
        return agent_file(ChatOptions(base_url=base_url, provider="openai")).model.api_key()

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    foreign = "http://localhost:1/v1", "https://api.openai.com.evil.example/v1", "http://api.openai.com/v1", "https://["
    assert [key(url) for url in foreign] == [None] * 4
    assert key("https://eu.api.openai.com/v1") == "sk-of-openai"
    monkeypatch.setenv("CODEPILOT_API_KEY", "sk-of-the-server")
    assert key("http://localhost:1/v1") == "sk-of-the-server"
    (here / "agent.yaml").write_text(
        "agent: {name: A, model: {provider: openai, base_url: 'https://one.example/v1', api_key_env: OPENAI_API_KEY}}\n"
    )
    assert agent_file(ChatOptions()).model.api_key() == "sk-of-openai"
    assert agent_file(ChatOptions(base_url="https://two.example/v1")).model.api_key() == "sk-of-the-server"


def test_a_script_needs_no_key(here: Path) -> None:
    assert agent_file(ChatOptions(script=here / "script.yaml")).model.options.script == here / "script.yaml"


def test_the_file_s_rules_hold_and_a_sandbox_lets_commands_run(here: Path) -> None:
    write(here)
    assert [rule.decision for rule in agent_file(ChatOptions()).rules] == ["allow", "deny"]


@pytest.mark.parametrize("permissions", PERMISSIONS)
def test_without_a_sandbox_what_no_rule_allows_is_asked_about(here: Path, permissions: Permissions) -> None:
    write(here, sandbox="local")
    assert agent_file(ChatOptions(permissions=permissions)).rules[-1] == Rule(
        decision="ask", tool="execute", reason="no sandbox isolates it from this machine"
    )


def test_asking_about_everything_leaves_denied_what_is_denied(here: Path) -> None:
    write(here)
    rules = agent_file(ChatOptions(permissions="ask")).rules
    assert [(rule.decision, rule.tool) for rule in rules[:3]] == [
        ("deny", "*"),
        ("ask", "write_file"),
        ("ask", "execute"),
    ]


def test_an_agent_does_not_get_at_its_own_session(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(here))
    options = ChatOptions(script=here / "script.yaml", session="s")
    with pytest.raises(SettingsError, match="--dir"):
        agent(options)
    (here / "project").mkdir()
    assert agent(replace(options, directory=here / "project")).work_dir == here / "project"


def test_a_session_needs_a_home_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise RuntimeError("Could not determine home directory.")

    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    monkeypatch.setattr(Path, "home", missing)
    with pytest.raises(SettingsError, match=r"HOME.*--session"):
        agent(ChatOptions(script=here / "script.yaml", session="s"))
    assert agent(ChatOptions(script=here / "script.yaml")).work_dir == here


def test_a_repository_s_own_instructions_are_read(here: Path) -> None:
    (here / "script.yaml").write_text("- reply: x\n", encoding="utf-8")
    (here / "AGENTS.md").write_text("Use tabs.\n", encoding="utf-8")
    assert agent(ChatOptions(script=here / "script.yaml")).repository_instructions == {"AGENTS.md": "Use tabs."}
