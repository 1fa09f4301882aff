"""The network of a sandbox: made only if it is allowed and the sandbox can enforce the list of hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.network import Connection, Network
from agent_runtime.sandbox.protocol import Sandbox

if TYPE_CHECKING:  # few runs have a network
    from agent_runtime.sandbox.egress.proxy import Egress


def way_out(
    sandbox: Sandbox, network: Network, *, told: Callable[[Connection], None], lost: Callable[[str], None]
) -> Egress | None:
    """The way out of a sandbox, or None when there is to be no network.

    Args:
        sandbox: where programs run.
        network: what they may reach.
        told: called with each connection once it is over or was refused.
        lost: called with the reason when the network goes away.

    Raises:
        SettingsError: the sandbox keeps nothing from the network.
    """
    if not network:
        return None
    if sandbox.level != "bubblewrap":
        raise SettingsError(
            f"network: a sandbox of the level {sandbox.level!r} cannot enforce a list of hosts. "
            "Use the sandbox `bubblewrap`, or remove the network."
        )
    from agent_runtime.sandbox.egress.proxy import Egress  # noqa: PLC0415 - few runs have a network

    return Egress(network, told=told, lost=lost)
