"""Setup that failed for want of a network is told which setting gives it one; no other failure is."""

from __future__ import annotations

import pytest

from agent_runtime import Connection, Destination, Network
from bot.jobs.setup import Reach, network_remedy, refused_hosts
from bot.permissions.levels import narrowed

PIP = "Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/six/"


def a_reach(
    operator: str = "off",
    wanted: tuple[str, ...] = (),
    *,
    file: str = ".github/codepilot.yml",
    on_runner: bool = True,
    keeps: bool = True,
) -> Reach:
    network = Network.of(*operator.split(","))
    return Reach(
        operator=network,
        narrowed=narrowed(network, wanted or None),
        wanted=wanted,
        file=file,
        on_runner=on_runner,
        keeps=keeps,
    )


def test_in_a_workflow_the_input_is_named_with_the_line_to_add() -> None:
    assert network_remedy(PIP, (), a_reach(wanted=("registries",))) == (
        "It requires the network, and setup has none.\n\nIn the workflow, add this input to the Codepilot "
        "step:\n\n```yaml\nwith:\n  setup-network: registries\n```"
    )


def test_on_a_server_the_variable_is_named() -> None:
    said = network_remedy(PIP, (), a_reach(on_runner=False, keeps=False))
    assert said.endswith("with `CODEPILOT_SETUP_NETWORK=registries`. This requires the sandbox `bubblewrap`.")


def test_a_registry_that_has_to_be_named_is() -> None:
    said = network_remedy("npm error network request to https://registry.npmjs.org/a failed, ENOTFOUND", (), a_reach())
    assert "setup-network: registries, registry.npmjs.org" in said


def test_hosts_that_were_asked_for_and_refused_are_added_where_they_are_missing() -> None:
    refused = (Destination("registry.npmjs.org"),)
    said = network_remedy("", refused, a_reach("registries", ("registries",)))
    assert said.startswith("It tried to reach `registry.npmjs.org`, which setup may not reach.")
    assert "setup-network: registries, registry.npmjs.org" in said
    assert (
        "In `.github/codepilot.yml` on the base branch:\n\n```yaml\nnetwork: [registries, registry.npmjs.org]" in said
    )


def test_where_the_operator_allows_it_only_the_repositorys_own_file_is_named() -> None:
    said = network_remedy(PIP, (), a_reach("registries", ("off",)))
    assert said == (
        "It requires the network, and setup has none.\n\nIn `.github/codepilot.yml` on the base "
        "branch:\n\n```yaml\nnetwork: [registries]\n```"
    )


def test_a_file_that_a_workflow_names_is_the_one_that_is_told() -> None:
    said = network_remedy(PIP, (), a_reach("registries", ("off",), file=".github/codepilot/nightly.yml"))
    assert "In `.github/codepilot/nightly.yml` on the base branch:" in said


@pytest.mark.parametrize("output", ["", "error: Microsoft Visual C++ 14.0 is required", "No module named 'x'"])
def test_another_failure_is_told_nothing_of_networks(output: str) -> None:
    assert not network_remedy(output, (), a_reach())
    assert not network_remedy(PIP, (), a_reach("registries"))


def test_only_what_is_on_no_list_counts_as_refused() -> None:
    listed = "registry.npmjs.org:443 is not on the list of hosts that this sandbox may reach"
    connections = [
        Connection(host="registry.npmjs.org", port=443, allowed=False, reason=listed),
        Connection(host="pypi.org", port=443, allowed=False, reason="the name pypi.org cannot be resolved"),
        Connection(host="127.0.0.1", port=443, allowed=False, reason=listed),
        Connection(host="pypi.org", port=443, allowed=True),
    ]
    assert refused_hosts(connections) == (Destination("registry.npmjs.org"),)
