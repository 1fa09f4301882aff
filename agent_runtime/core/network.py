"""Network access of programs in a sandbox: none, or a list of hosts over TLS. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from typing_extensions import override

# Names as certificates have them (RFC 1123 with the dots of RFC 5280): at least two labels, the last of them no number,
# so that no spelling of an address is one.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{4,253}}\Z)(?:{_LABEL}\.)+(?=[a-z]){_LABEL}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_PORT = 65_535
OFF, REGISTRIES = "off", "registries"


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A host and a port.

    Attributes:
        host: a name in lower case, without a dot at its end.
        port: a TCP port.
    """

    host: str
    port: int = 443

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or not 1 <= self.port <= _MAX_PORT:
            raise ValueError(f"{self.host}:{self.port} is not a host name in lower case and a port from 1 to 65535")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host` or `host:port`.

        Raises:
            ValueError: it is neither; the text says what it must be.
        """
        host, colon, port = text.strip().lower().partition(":")
        if colon and not _PORT.fullmatch(port):
            raise ValueError(f"must name hosts as example.org or example.org:8443, not {text!r}")
        try:
            return cls(host, int(port) if colon else 443)
        except ValueError:
            raise ValueError(
                f"must name hosts as example.org or example.org:8443 (no address, no wildcard, no path), not {text!r}"
            ) from None

    @override
    def __str__(self) -> str:
        """As it is written in settings."""
        return self.host if self.port == 443 else f"{self.host}:{self.port}"  # noqa: PLR2004 - HTTPS


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Bounds of the connections of one sandbox.

    Attributes:
        total_bytes: sent and received together, over all connections.
        connections: over the whole life of the sandbox, the refused ones included.
        at_once: connections open at a time; more have to wait.
        handshake_seconds: for each step up to the first byte of content: request, name, connection, TLS greeting.
        idle_seconds: without a byte in either direction.
    """

    total_bytes: int = 2 * 1024**3
    connections: int = 2_000
    at_once: int = 64
    handshake_seconds: float = 10.0
    idle_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What programs in a sandbox may reach: by default nothing.

    Attributes:
        allowed: where to, exactly; TLS only.
        limits: bounds.
    """

    allowed: frozenset[Destination] = frozenset()
    limits: NetworkLimits = field(default_factory=NetworkLimits)

    @classmethod
    def of(cls, *words: str) -> Self:
        """The network that words describe: `off`, `registries`, hosts as `example.org` or `example.org:8443`.

        Raises:
            ValueError: a word is none of these, or `off` does not stand alone; the text says what it must be.
        """
        given = [word.strip().lower() for word in words if word.strip()]
        if OFF in given and len(given) > 1:
            raise ValueError(f"must be `{OFF}` alone or hosts, not both: {', '.join(given)}")
        allowed: set[Destination] = set()
        for word in given:
            if word == REGISTRIES:
                allowed |= registries()
            elif word != OFF:
                allowed.add(Destination.parse(word))
        return cls(allowed=frozenset(allowed))

    def narrowed(self, wanted: Network) -> Network:
        """What both allow, within these bounds. A request for less than this never gets more."""
        return replace(self, allowed=self.allowed & wanted.allowed)

    def __bool__(self) -> bool:
        """Whether anything can be reached."""
        return bool(self.allowed)

    @override
    def __str__(self) -> str:
        """As it is written in settings, for reports."""
        whole = bool(self.allowed) and registries() <= self.allowed
        hosts = sorted(self.allowed - registries() if whole else self.allowed)
        return ", ".join([*([REGISTRIES] if whole else []), *map(str, hosts)]) or OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection that a program in a sandbox asked for, once it is over or was refused.

    Attributes:
        host: the host that was asked for, in lower case; empty when the request could not be read.
        port: the port that was asked for, or 0.
        allowed: whether content could pass.
        reason: why it was refused or broken off; empty when it simply ended.
        sent: bytes that the other side got.
        received: bytes that came back.
    """

    host: str
    port: int
    allowed: bool
    reason: str = ""
    sent: int = 0
    received: int = 0

    @override
    def __str__(self) -> str:
        """One line for logs."""
        verdict = "allowed" if self.allowed else "refused"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.host or '?'}:{self.port} {verdict}, {self.sent} bytes out, {self.received} in{why}"


@functools.cache
def registries() -> frozenset[Destination]:
    """Where packages of well-known languages are fetched from: hosts that take no uploads."""
    return frozenset(Destination(host) for host in _listed("downloads"))


@functools.cache
def taking_uploads() -> frozenset[str]:
    """Hosts of well-known registries that `registries` leaves out, because one can publish there, too."""
    return frozenset(_listed("also_takes_uploads"))


def _listed(table: str) -> Iterable[str]:
    import tomllib  # noqa: PLC0415 - with the next one 10 ms, for a list that few runs need
    from importlib.resources import files  # noqa: PLC0415 - the same

    hosts: dict[str, list[str]] = tomllib.loads((files("agent_runtime") / "registries.toml").read_text("utf-8"))[table]
    return [host for each in hosts.values() for host in each]
