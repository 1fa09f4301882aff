"""Network access of a job's commands: what the operator allows, narrowed to what the repository asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_runtime import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The network of one job.

    Attributes:
        network: what its commands may reach.
        left_out: what the repository wants and the operator does not allow, for the report.
    """

    network: Network
    left_out: tuple[str, ...] = ()


def narrowed(operator: Network, wanted: str | Sequence[str] | None) -> Narrowed:
    """Keep of the operator's network what the repository's own settings ask for; they never add to it.

    Args:
        operator: the most that may be reached, and the bounds.
        wanted: `off`, `registries` or a host, or several of them; None when the repository says nothing.

    Raises:
        ValueError: `wanted` cannot be understood; the text says what it must be.
    """
    if wanted is None:
        return Narrowed(network=operator)
    asked = Network.of(*([wanted] if isinstance(wanted, str) else wanted))
    network = operator.narrowed(asked)
    left_out = sorted(asked.allowed - network.allowed)
    return Narrowed(network=network, left_out=tuple(map(str, left_out)))


def unkept(level: str, networks: Mapping[str, Network | None]) -> str | None:
    """Why a sandbox cannot keep commands to the operator's networks, and what to do; None when it can, or has none to.

    Args:
        level: of the sandbox.
        networks: the settings that name hosts, by their names; None for one that is not set.
    """
    names = [name for name, network in networks.items() if network]
    if level == "bubblewrap" or not names:
        return None
    return (
        f"The sandbox `{level}` cannot enforce {' and '.join(names)}: its commands have no network at all. Use "
        f"CODEPILOT_SANDBOX=bubblewrap, or turn the network off: {', '.join(f'{name}=off' for name in names)}"
    )


_CLOSED = frozenset({"bubblewrap", "docker"})
"""The sandboxes that hold a command, whatever it does."""


def reachable(sandbox: str, network: Network) -> str:
    """What the commands of a run can reach beside the files of its workspace, in words; empty for nothing.

    Args:
        sandbox: its level.
        network: what the sandbox lets them reach.
    """
    if sandbox not in _CLOSED:
        return "this machine, because no sandbox isolates them"
    return f"the network ({network})" if network else ""


def reach(network: Network) -> str:
    """What a network is, for the comment: `no network`, or `network: registries`."""
    return f"network: {network}" if network else "no network"
