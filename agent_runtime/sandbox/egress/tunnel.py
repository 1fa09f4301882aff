"""One connection through the proxy, from its request to its last byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_runtime.core.network import Connection, Destination, Network, taking_uploads
from agent_runtime.sandbox.egress.client_hello import ClientHello, HelloError
from agent_runtime.sandbox.egress.names import Resolve
from agent_runtime.sandbox.egress.request import ConnectRequest, RequestError

_CHUNK = 1 << 16
_ADDRESSES = 4
"""Of a host with many, this many are tried."""
_FLUSH_SECONDS = 1.0
_ACCESS_DENIED = bytes([21, 3, 3, 0, 2, 2, 49])
"""A fatal TLS alert (RFC 8446, section 6): after the proxy's answer, the only thing that the program can be told."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class TransferBudget:
    """How many bytes may still pass, over all connections."""

    total: int
    left: int

    def take(self, size: int) -> None:
        """Count bytes that are about to pass.

        Raises:
            BrokenOffError: they are more than are left.
        """
        if size > self.left:
            self.left = 0
            raise TunnelClosedError(self.spent())
        self.left -= size

    def spent(self) -> str:
        """What to say when nothing is left."""
        return f"the limit of {self.total} bytes is used up"


class TunnelClosedError(Exception):
    """A tunnel that stood was closed by us; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """What every tunnel of one sandbox keeps to.

    Attributes:
        network: where to, and the bounds.
        budget: shared by all tunnels.
        resolve: turns names into addresses.
        refusal: what is wrong with an address; None for nothing.
    """

    network: Network
    budget: TransferBudget
    resolve: Resolve
    refusal: Callable[[str], str | None]


class Tunnel:
    """A connection that a program inside has opened to the proxy."""

    def __init__(self, rules: ProxyRules, client: Streams) -> None:
        self._rules = rules
        self._client = client
        self._host, self._port = "", 0
        self._greeted = False
        self._reason = "the proxy was closed"
        self._passed: dict[Literal["sent", "received"], int] = {"sent": 0, "received": 0}

    async def serve(self) -> None:
        """See the connection through; whatever either side does, it ends without an exception."""
        request = ConnectRequest()
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._asked(request)
                upstream = await self._connected()
                stack.push_async_callback(close, upstream[1])
                self._client[1].write(request.accepted())
                hello = await self._hello(request.rest)
                self._greeted = True
                await self._pass_both(upstream, hello)
                self._reason = ""
        except RequestError as error:
            self._reason = error.reason
            self._client[1].write(request.refused(error))
        except HelloError as error:
            self._reason = str(error)
            self._client[1].write(_ACCESS_DENIED)
        except TunnelClosedError as error:
            self._reason = str(error)
        except TimeoutError:
            self._reason = "it was idle for too long"
        except OSError as error:
            self._reason = f"it broke: {error.strerror or error}"

    @property
    def record(self) -> Connection:
        """What came of it."""
        return Connection(host=self._host, port=self._port, allowed=self._greeted, reason=self._reason, **self._passed)

    async def _asked(self, request: ConnectRequest) -> None:
        """Read the request and decide on it.

        Raises:
            RequestError: it is refused.
        """
        async with asyncio.timeout(self._rules.network.limits.handshake_seconds):
            while (target := request.feed(await self._client[0].read(_CHUNK))) is None:
                pass
        self._host, self._port = target
        if self._rules.budget.left <= 0:
            raise RequestError(403, self._rules.budget.spent())
        if not any((each.host, each.port) == target for each in self._rules.network.allowed):
            raise RequestError(403, f"{_named(target)} is not on the list of hosts that this sandbox may reach")

    async def _connected(self) -> Streams:
        """Connect to the host, whose name is looked up once.

        Raises:
            RequestError: the name leads nowhere, or to where nobody may go.
        """
        limit, host = self._rules.network.limits.handshake_seconds, self._host
        try:
            async with asyncio.timeout(limit):
                addresses = await self._rules.resolve(host, self._port)
        except (OSError, UnicodeError) as error:
            raise RequestError(502, f"the name {host} cannot be resolved") from error
        for address in addresses:
            if (kind := self._rules.refusal(address)) is not None:
                raise RequestError(403, f"the name {host} leads to {address} ({kind}), which is not a public address")
        for address in addresses[:_ADDRESSES]:
            with contextlib.suppress(OSError):  # the next one may answer
                async with asyncio.timeout(limit):
                    return await asyncio.open_connection(address, self._port)
        raise RequestError(502, f"{host} does not answer on port {self._port}")

    async def _hello(self, first: bytes) -> bytes:
        """The first bytes of the tunnel, when they greet the very host that was asked for.

        Raises:
            HelloError: they do not.
        """
        hello, seen, data = ClientHello(), bytearray(first), first
        async with asyncio.timeout(self._rules.network.limits.handshake_seconds):
            while (name := hello.feed(data)) is None:
                data = await self._client[0].read(_CHUNK)
                if not data:
                    raise HelloError("it ended before a TLS ClientHello did")
                seen += data
        if name != self._host:
            raise HelloError(f"the TLS ClientHello names {name}, and the request named {self._host}")
        return bytes(seen)

    async def _pass_both(self, upstream: Streams, first: bytes) -> None:
        """Pass bytes on in both directions until both sides have ended, or neither says a word any more."""
        idle = self._rules.network.limits.idle_seconds
        clock = asyncio.get_running_loop().time

        async def pass_on(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Literal["sent", "received"], data: bytes
        ) -> None:
            while data or (data := await reader.read(_CHUNK)):
                self._rules.budget.take(len(data))
                self._passed[way] += len(data)
                writer.write(data)
                await writer.drain()
                limit.reschedule(clock() + idle)
                data = b""
            writer.write_eof()

        try:
            async with asyncio.timeout(idle) as limit, asyncio.TaskGroup() as both:
                both.create_task(pass_on(self._client[0], upstream[1], "sent", first))
                both.create_task(pass_on(upstream[0], self._client[1], "received", b""))
        except ExceptionGroup as group:
            # Whichever direction fails first takes the other one down.
            raise group.exceptions[0] from None


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; what was written has a second to leave."""
    writer.close()
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await writer.wait_closed()
    except OSError:  # TimeoutError is one
        pass
    finally:
        writer.transport.abort()


def _named(target: tuple[str, int]) -> str:
    host, port = target
    if host in taking_uploads():
        return f"{host} takes uploads, so `registries` leaves it out: it"
    try:
        return str(Destination(host, port))
    except ValueError:  # no name that could ever be on a list
        return "this"
