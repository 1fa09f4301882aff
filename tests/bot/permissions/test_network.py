from __future__ import annotations

import pytest

from agent_runtime import Network, NetworkLimits
from bot.permissions.levels import narrowed, reachable, unkept

OPERATOR = Network(allowed=Network.of("registries", "a.example").allowed, limits=NetworkLimits(total_bytes=7))


def test_a_repository_that_says_nothing_gets_what_the_operator_allows() -> None:
    assert narrowed(OPERATOR, None).network == OPERATOR


@pytest.mark.parametrize("wanted", ["off", []])
def test_a_repository_may_want_nothing(wanted: str | list[str]) -> None:
    assert not narrowed(OPERATOR, wanted).network


def test_a_repository_gets_less_when_it_wants_less() -> None:
    found = narrowed(OPERATOR, ["pypi.org", "files.pythonhosted.org"])
    assert str(found.network) == "files.pythonhosted.org, pypi.org"
    assert found.network.limits == OPERATOR.limits
    assert found.left_out == ()


def test_a_repository_never_gets_more() -> None:
    found = narrowed(OPERATOR, ["a.example", "a.example:8443", "evil.example"])
    assert str(found.network) == "a.example"
    assert found.left_out == ("a.example:8443", "evil.example")
    assert not narrowed(Network(), "registries").network


def test_what_cannot_be_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="must name hosts"):
        narrowed(OPERATOR, ["*"])


def test_only_bubblewrap_keeps_to_a_list_of_hosts_and_every_setting_with_hosts_is_named() -> None:
    settings = {"CODEPILOT_NETWORK": OPERATOR, "CODEPILOT_SETUP_NETWORK": None}
    assert unkept("bubblewrap", settings) is None
    assert unkept("docker", {"CODEPILOT_NETWORK": Network(), "CODEPILOT_SETUP_NETWORK": None}) is None
    told = unkept("docker", settings)
    assert told is not None
    assert "CODEPILOT_SANDBOX=bubblewrap" in told
    assert told.endswith(": CODEPILOT_NETWORK=off")
    both = unkept("docker", settings | {"CODEPILOT_SETUP_NETWORK": OPERATOR})
    assert both is not None
    assert both.endswith(": CODEPILOT_NETWORK=off, CODEPILOT_SETUP_NETWORK=off")


@pytest.mark.parametrize(
    ("sandbox", "network", "told"),
    [
        ("bubblewrap", Network(), ""),
        ("docker", Network(), ""),
        ("bubblewrap", Network.of("pypi.org"), "the network (pypi.org)"),
        ("none", Network(), "this machine, because no sandbox isolates them"),
        ("", Network(), "this machine, because no sandbox isolates them"),
    ],
)
def test_what_commands_can_reach_beside_the_workspace(sandbox: str, network: Network, told: str) -> None:
    assert reachable(sandbox, network) == told
