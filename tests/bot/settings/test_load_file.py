"""The settings file: the same settings by shorter names, after the environment, and closed where it holds a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_runtime import Network
from bot.domain.access import Caps, TrustedBots
from bot.domain.errors import ConfigError
from bot.settings.load import load, load_action, survey

WHOLE = """\
webhook_secret: s3cret-and-long-enough
app_id: 123
private_key_file: {key}
anthropic_api_key: sk-ant-1
jobs: 4
network: off
setup_network: [registries, index.example.com]
allow_root: no
max_cost_usd: 2.5
toolchains: [/opt/node, /opt/python]
trusted_bots: [1, "dependabot[bot]"]
allowed_users: [mona, Octocat]
review_on: [opened, push]
allow_commands:
  - npm run e2e *
  - ./scripts/check
caps: {{user: 5, unattended: 0}}
trigger: ['/codepilot', '@bot']
level: read-only
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    key = tmp_path / "app.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    path = tmp_path / "codepilot.yml"
    path.write_text(WHOLE.format(key=key))
    for each in (key, path):
        each.chmod(0o600)
    return path


def _problems(path: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load({"CODEPILOT_CONFIG": str(path)})
    return caught.value.problems


def test_everything_can_stand_in_the_file(file: Path) -> None:
    settings = load({"CODEPILOT_CONFIG": str(file)})
    assert (settings.app_id, settings.jobs) == (123, 4)
    assert settings.webhook_secret.get_secret_value() == "s3cret-and-long-enough"
    agent = settings.agent
    assert agent.api_key is not None
    assert agent.api_key.get_secret_value() == "sk-ant-1"
    assert (agent.network, agent.setup_network) == (Network(), Network.of("registries", "index.example.com"))
    assert (agent.allow_root, agent.limits.max_cost_usd, agent.level) == (False, 2.5, "read-only")
    assert agent.toolchains == (Path("/opt/node"), Path("/opt/python"))
    assert agent.trusted_bots == TrustedBots(ids=frozenset({1}), logins=frozenset({"dependabot[bot]"}))
    assert (agent.allowed_users, agent.review_on) == (frozenset({"mona", "octocat"}), frozenset({"opened", "push"}))
    assert agent.caps == Caps(user=5, unattended=0)
    assert (agent.allow_commands, agent.triggers) == (("npm run e2e *", "./scripts/check"), ("/codepilot", "@bot"))


def test_the_environment_goes_before_the_file(file: Path) -> None:
    settings = load({"CODEPILOT_CONFIG": str(file), "CODEPILOT_JOBS": "9", "CODEPILOT_LEVEL": ""})
    assert (settings.jobs, settings.agent.level) == (9, "read-only")


def test_the_inputs_of_the_action_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "codepilot.yml"
    path.write_text("max_steps: 9\nmax_seconds: 60\nlevel: auto\n")
    runner = {
        "CODEPILOT_CONFIG": str(path),
        "INPUT_MAX-STEPS": "3",
        "GITHUB_TOKEN": "t",
        "GITHUB_EVENT_PATH": "/e",
        "GITHUB_EVENT_NAME": "issues",
        "GITHUB_REPOSITORY": "octo/calc",
        "GITHUB_RUN_ID": "1",
        "ANTHROPIC_API_KEY": "k",
    }
    agent = load_action(runner).agent
    assert (agent.limits.max_steps, agent.limits.max_seconds, agent.level) == (3, 60, "auto")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_step: 3", "codepilot.yml:20: `max_step`: unknown key. Did you mean 'max_steps'?"),
        ("port: http", "codepilot.yml:20: `port`: must be a whole number from 0 to 65535, not 'http'."),
        ("config: other.yml", "`config`: unknown key."),
        ("token: ghs_x", "`token`: unknown key."),
        ("host:", "`host`: must be text or a number; put it in quotes, or remove the key."),
        ("jobs: 5", "`jobs` is also set in line 5; remove one of them."),
        ("keep_days: [1, 2]", "`keep_days`: must be a whole number from 1 to 3650, not '1,2'."),
    ],
)
def test_what_does_not_fit_is_told_with_line_and_key(file: Path, line: str, message: str) -> None:
    file.write_text(f"{file.read_text()}{line}\n")
    assert any(message in problem for problem in _problems(file)), _problems(file)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602])
def test_a_file_with_a_secret_must_not_be_open_to_every_user(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert any(f"run: chmod 600 {file}" in problem for problem in _problems(file))


def test_a_file_without_a_secret_may_be(file: Path) -> None:
    file.write_text("jobs: 2\n")
    file.chmod(0o644)
    assert survey({"CODEPILOT_CONFIG": str(file)}).settings.agent.level == "ask"
    assert not any("chmod" in problem for problem in _problems(file))


def test_a_wrong_secret_is_not_shown(file: Path) -> None:
    file.write_text("webhook_secret: hunter2\napi_url: https://me:hunter2@x\n")
    assert "hunter2" not in "".join(_problems(file))


def test_what_is_no_readable_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "binary").write_bytes(b"\xff")
    cases = {"none": "No such file", ".": "directory", "pipe": "is not a file", "binary": "is not UTF-8"}
    for name, told in cases.items():
        assert any(told in problem for problem in _problems(tmp_path / name)), name
