"""Threat 25: a repository names no model, no API, no tool server and no hook, and no host that the operator did not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_runtime import Network, RunLimits
from bot.domain.access import Bounds
from bot.domain.commands import Options
from bot.domain.job import JobState
from bot.permissions.levels import narrow_network
from bot.permissions.permissions import EffectiveOptions, resolve_options
from bot.permissions.repo_config import RepoConfigError, parse_config
from localhub import LocalHub
from tests.stage import FILES, acting, staged


@pytest.mark.parametrize(
    "key",
    [
        "base_url: https://evil.example",
        "api_url: https://evil.example",
        "hooks: {start: evil}",
    ],
)
async def test_a_repository_cannot_name_a_model_an_api_a_tool_server_or_a_hook(
    hub: LocalHub, tmp_path: Path, key: str
) -> None:
    """The whole file is rejected then, since the rest may depend on such a key."""
    nothing = acting("print('looked')", completion="There is nothing to do.")
    files = FILES | {".github/codepilot.yml": f"{key}\nsetup: [touch ran]\n"}
    async with staged(hub, tmp_path, [nothing], files=files) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
    assert end.state is JobState.DONE
    assert "setup: touch ran" not in end.status
    assert "permission: `ask`" in end.status
    assert len(stage.providers) == 1
    assert f"`{key.partition(':')[0]}`" in end.status
    assert "unknown key" in end.status


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("provider: openai", "provider"),
        ("model_url: https://evil.example", "model_url"),
        ("mcp_servers: {evil: {command: evil}}", "mcp_servers"),
        ("verbs: {fix: {base_url: 'https://evil.example'}}", "verbs.fix.base_url"),
        ("labels: {hook: evil}", "labels.hook"),
        ("trusted_bots: [1]", "trusted_bots"),
        ("allowed_users: [mallory]", "allowed_users"),
        ("sandbox: local", "sandbox"),
    ],
)
def test_there_is_no_key_for_what_reaches_further_than_the_repository(text: str, key: str) -> None:
    with pytest.raises(RepoConfigError, match=f"`{re.escape(key)}`: unknown key"):
        parse_config(text.encode())


@pytest.mark.parametrize("text", ["mcp: [{name: evil, command: evil}]", "mcp: {evil: {command: evil}}"])
def test_a_repository_cannot_define_a_tool_server(text: str) -> None:
    with pytest.raises(RepoConfigError, match=r"`mcp.*`: must be"):
        parse_config(text.encode())


def test_a_tool_server_that_the_operator_does_not_define_is_not_used() -> None:
    config = parse_config(b"mcp: [evil, docs]")
    bounds = Bounds(limits=RunLimits(), servers=("docs", "db"))
    made = resolve_options("fix", Options(), config, bounds)
    assert isinstance(made, EffectiveOptions)
    assert made.servers == ("docs",)
    assert "`evil`" in made.notes[0]


def test_a_model_that_the_operator_does_not_offer_is_not_used() -> None:
    config = parse_config(b"model: expensive\nbudget_usd: 1000\nmax_steps: 1000")
    bounds = Bounds(limits=RunLimits(max_steps=5, max_cost_usd=1), model="usual")
    made = resolve_options("fix", Options(), config, bounds)
    assert isinstance(made, EffectiveOptions)
    assert (made.model, made.limits) == ("usual", bounds.limits)


@pytest.mark.parametrize("wanted", ["registries", "[evil.example]", "[a.example, evil.example, 'a.example:8443']"])
def test_its_network_is_at_most_the_operators(wanted: str) -> None:
    operator = Network.of("a.example", "b.example")
    config = parse_config(f"network: {wanted}".encode())
    assert narrow_network(operator, config.network).network.allowed <= operator.allowed
    assert not narrow_network(Network(), config.network).network
