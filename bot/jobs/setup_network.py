"""Detect a setup that failed for lack of network, and name the setting that gives it one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime import Connection, Destination, Network
from bot.gate.network import Narrowed
from bot.publishing.text import code, fenced

INPUT, VARIABLE = "setup-network", "CODEPILOT_SETUP_NETWORK"

# What resolvers and clients of package registries say where there is no way out.
_UNREACHED = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve|unable to resolve host|"
    r"failed to resolve|getaddrinfo|ENOTFOUND|EAI_AGAIN|ENETUNREACH|network is unreachable|no such host|"
    r"unknownhostexception|unknown host|failed to lookup address|dns error|nodename nor servname|"
    r"failed to establish a new connection|couldn't connect to server|could not connect to server",
    re.IGNORECASE,
)
# Registries that `registries` leaves out, because one can publish there, too: they have to be named.
_NAMED_APART = re.compile(r"\b(?:registry\.npmjs\.org|registry\.yarnpkg\.com|rubygems\.org)\b")
_MOST_HOSTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What setup could reach.

    Attributes:
        operator: what the operator allows.
        narrowed: of that, what the repository wants.
        wanted: what the repository's file says; empty where it says nothing.
        file: where that file is.
        on_runner: whether the operator is a workflow, which sets inputs and no variables.
        keeps: whether the sandbox can keep programs to a list of hosts.
    """

    operator: Network
    narrowed: Narrowed
    wanted: tuple[str, ...]
    file: str
    on_runner: bool
    keeps: bool = True


def refused_hosts(connections: Sequence[Connection]) -> tuple[Destination, ...]:
    """The hosts that were asked for and are not on the list."""
    found = {
        Destination(each.host, each.port)
        for each in connections
        if not each.allowed and each.reason.endswith("may reach") and each.port and _is_name(each.host)
    }
    return tuple(sorted(found))[:_MOST_HOSTS]


def network_remedy(output: str, refused: Sequence[Destination], reach: Reach) -> str:
    """What gives setup the network that it failed for lack of, as Markdown; empty where the network was not the cause.

    Args:
        output: what the command that failed wrote.
        refused: the hosts that it asked for and may not reach.
        reach: what it could reach.
    """
    network = reach.narrowed.network
    if refused:
        names = ", ".join(code(str(each)) for each in refused)
        cause = f"It tried to reach {names}, which setup may not reach."
    elif not network and _UNREACHED.search(output):
        cause = "It requires the network, and setup has none."
    else:
        return ""
    needed = Network(allowed=network.allowed | set(refused))
    if not network:
        wanted = Network.of(*reach.wanted) or Network.of("registries")
        named = {Destination(host) for host in _NAMED_APART.findall(output)}
        needed = Network(allowed=needed.allowed | wanted.allowed | named)
    steps = []
    if not needed.allowed <= reach.operator.allowed:
        hosts = str(Network(allowed=needed.allowed | reach.operator.allowed))
        sandbox = "" if reach.keeps else " This requires the sandbox `bubblewrap`."
        if reach.on_runner:
            lines = fenced(f"with:\n  {INPUT}: {hosts}", "yaml")
            steps.append(f"In the workflow, add this input to the Codepilot step:{sandbox}\n\n{lines}")
        else:
            steps.append(f"The operator allows it with `{VARIABLE}={hosts.replace(', ', ',')}`.{sandbox}")
    if reach.wanted and not needed.allowed <= Network.of(*reach.wanted).allowed:
        steps.append(f"In `{reach.file}` on the base branch:\n\n{fenced(f'network: [{needed}]', 'yaml')}")
    return "\n\n".join([cause, *steps])


def _is_name(host: str) -> bool:
    try:
        Destination.parse(host)
    except ValueError:
        return False
    return True
