"""The proxy of one sandbox: takes connections from inside, and lets them out to listed hosts.

`Egress` listens inside the sandbox's network and serves from outside it: code in the sandbox finds an open port on its
loopback, and has no process to stop, no file to replace and no socket of another sandbox to look for. A `Tunnel` reads
one CONNECT request (RFC 9110, section 9.3.6), checks the host, its addresses and the server's name in the first TLS
message, and passes bytes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Literal

import h11

from agent_runtime.core.errors import SandboxError
from agent_runtime.core.values import Connection, Destination, Network, upload_hosts

log = logging.getLogger(__name__)

PORT = 3128
"""The same in every sandbox: each has a network of its own, and this is taken before anything else runs there."""

_ADDRESS = f"http://127.0.0.1:{PORT}"

_OWN = "localhost,127.0.0.1,::1"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port; raises OSError when there are none."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Ask the host's resolver for the addresses of a host.

    Raises:
        OSError: the name is not known, or the resolver does not answer.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


# https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry: everything there that
# is not globally reachable. A table of ours, because what `ipaddress` calls global differs between versions of Python.
_REFUSED_IPV4 = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "carrier-grade NAT",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's host",  # Azure's, though the address is a public one
    "169.254.0.0/16": "link-local",  # and with it most clouds' metadata services
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved for protocols",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "a relay",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}

_REFUSED_IPV6 = {
    "2001::/23": "reserved for protocols",  # Teredo and ORCHID among them
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
}

_GLOBAL_IPV6 = ip_network("2000::/3")
"""All of IPv6 that is given out; loopback, private (`fd00:ec2::254`), link-local and multicast lie outside."""

_MAPPED, _NAT64 = ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96")
"""An IPv4 address in another notation (RFC 4291, RFC 6052); it is judged as that IPv4 address."""

_IPV4 = {ip_network(block): kind for block, kind in _REFUSED_IPV4.items()}

_IPV6 = {ip_network(block): kind for block, kind in _REFUSED_IPV6.items()}


def refusal(address: str) -> str | None:
    """Return why an address must not be connected to; None for one of the public Internet."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "no address"
    if isinstance(parsed, IPv6Address) and (parsed in _MAPPED or parsed in _NAT64):
        parsed = IPv4Address(int(parsed) & 0xFFFFFFFF)
    if isinstance(parsed, IPv4Address):
        return next((kind for block, kind in _IPV4.items() if parsed in block), None)
    if parsed not in _GLOBAL_IPV6:
        return "not public"
    return next((kind for block, kind in _IPV6.items() if parsed in block), None)


class Egress:
    """The way out of one sandbox, and of those that are started in its place; its bounds are for all of them together.

    It runs in the event loop that `serve` is called in. Without it, or when it has ended, programs inside get
    "connection refused": there is no other way out that it would have to close.

    Attributes:
        environment: variables that make programs inside use it.
    """

    environment: Mapping[str, str] = {
        **{name: _ADDRESS for stem in ("http_proxy", "https_proxy", "all_proxy") for name in (stem, stem.upper())},
        # Servers that a test starts inside are no business of the proxy's.
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _OWN),
    }

    def __init__(
        self,
        network: Network,
        *,
        told: Callable[[Connection], None],
        lost: Callable[[str], None],
        resolve: Resolve = resolve,
        refusal: Callable[[str], str | None] = refusal,
    ) -> None:
        """Prepare; nothing is opened before `serve`.

        Args:
            network: the hosts and the bounds.
            told: called with each connection once it is over or was refused.
            lost: called with the reason when the network goes away while it is served.
            resolve: turns names into addresses; for tests.
            refusal: returns why an address is refused, or None; for tests, whose servers live on the loopback.
        """
        budget = TransferBudget(total=network.limits.total_bytes, left=network.limits.total_bytes)
        self._rules = ProxyRules(network=network, budget=budget, resolve=resolve, refusal=refusal)
        self._told = told
        self._lost = lost
        self._made = 0
        self._opening = asyncio.Lock()
        self._served: tuple[int, int] | None = None
        self._work: asyncio.Task[None] | None = None

    async def serve(self, namespace: int) -> None:
        """Take connections from a sandbox; idempotent, and it stops serving the one before.

        Call it before anything but the sandbox's first process runs inside.

        Args:
            namespace: an open descriptor of the sandbox's network namespace.

        Raises:
            SandboxError: the namespace cannot be entered.
        """
        async with self._opening:
            status = os.fstat(namespace)
            wanted = (status.st_dev, status.st_ino)
            if self._served == wanted:
                return
            await self.close()
            opening = asyncio.ensure_future(asyncio.to_thread(listen_inside, namespace))
            try:
                listener = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_discard)
                raise
            self._served = wanted
            self._work = asyncio.create_task(self._serve(listener))
            # Not the task itself: one that is cancelled before it begins does nothing.
            self._work.add_done_callback(lambda _: listener.close())

    async def close(self) -> None:
        """End all connections and take no more; idempotent. `serve` can start again, within what is left."""
        work, self._work, self._served = self._work, None, None
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def _serve(self, listener: socket.socket) -> None:
        """Take connections until there were too many, or until something breaks; say so then."""
        most = self._rules.network.limits.connections
        try:
            async with asyncio.TaskGroup() as tunnels:
                await self._accept(listener, tunnels)
                listener.close()
                self._lost(f"{most} connections were made, and a sandbox may make no more")
        except ExceptionGroup as group:
            # On any error the network is gone, and the run's report must say so.
            log.exception("the proxy of a sandbox broke")
            self._lost(f"the proxy broke: {group.exceptions[0]!r}")

    async def _accept(self, listener: socket.socket, tunnels: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(self._rules.network.limits.at_once)
        while self._made < self._rules.network.limits.connections:
            await slots.acquire()
            self._made += 1
            try:
                connection = await _next(listener)
            except ConnectionAbortedError:  # it was given up before it was taken
                slots.release()
                continue

            def over(_task: object, connection: socket.socket = connection) -> None:
                connection.close()
                slots.release()

            tunnels.create_task(self._see_through(connection)).add_done_callback(over)

    async def _see_through(self, connection: socket.socket) -> None:
        try:
            client = await asyncio.open_connection(sock=connection)
        except OSError:  # gone already
            return
        tunnel = Tunnel(self._rules, client)
        try:
            await tunnel.serve()
            await close(client[1])
        finally:
            client[1].transport.abort()
            self._told(tunnel.record)


async def _next(listener: socket.socket) -> socket.socket:
    """Accept the next connection; the event loop's own `sock_accept` loses one that comes while it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            came = asyncio.Event()
            loop.add_reader(listener, came.set)
            try:
                await came.wait()
            finally:
                loop.remove_reader(listener)
        else:
            connection.settimeout(0)
            return connection


def _discard(opening: asyncio.Future[socket.socket]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


_PROGRAM = Path(__file__).with_name("enter_namespace.py")

_HELPER_SECONDS = 20.0


def listen_inside(namespace: int) -> socket.socket:
    """Listen on `PORT` of the loopback of another network namespace; takes some 20 ms.

    Args:
        namespace: an open descriptor of it (`/proc/[pid]/ns/net`).

    Raises:
        SandboxError: the kernel refuses; the text has its words.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        numbers = [namespace, theirs.fileno()]
        argv = [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, numbers), str(PORT)]
        try:
            done = subprocess.run(
                argv,
                env={},
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_HELPER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"The sandbox's network cannot be opened: {error}") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(
                f"The sandbox's network cannot be opened: {said or 'its helper gave no reason'}. Run without a "
                "network, or let this user enter the namespaces that it creates (setns)."
            )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=descriptors[0])
    listener.settimeout(0)
    return listener


_CHUNK = 1 << 16

_ADDRESSES = 4
"""Of a host with many, this many are tried."""

_FLUSH_SECONDS = 1.0

_ACCESS_DENIED = bytes([21, 3, 3, 0, 2, 2, 49])
"""A fatal TLS alert (RFC 8446, section 6): after the proxy's answer, the only thing that the program can be told."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """The rules for every tunnel of one sandbox.

    Attributes:
        network: the hosts and the bounds.
        budget: shared by all tunnels.
        resolve: turns names into addresses.
        refusal: returns why an address is refused, or None.
    """

    network: Network
    budget: TransferBudget
    resolve: Resolve
    refusal: Callable[[str], str | None]


@dataclass(slots=True)
class TransferBudget:
    """The bytes that may still pass, over all connections."""

    total: int
    left: int

    def take(self, size: int) -> None:
        """Count bytes that are about to pass.

        Raises:
            TunnelClosedError: they are more than are left.
        """
        if size > self.left:
            self.left = 0
            raise TunnelClosedError(self.spent())
        self.left -= size

    def spent(self) -> str:
        """Return the error's text for an exhausted budget."""
        return f"the limit of {self.total} bytes is used up"


class TunnelClosedError(Exception):
    """An open tunnel was closed by the proxy; the text says why."""


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
        """The connection as it is reported."""
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
            raise RequestError(403, f"{_describe(target)} is not on the list of hosts that this sandbox may reach")

    async def _connected(self) -> Streams:
        """Connect to the host, whose name is looked up once.

        Raises:
            RequestError: the name cannot be resolved, or leads to an address that is refused.
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
        """Read the first bytes of the tunnel, which must greet the requested host.

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


def _describe(target: tuple[str, int]) -> str:
    host, port = target
    if host in upload_hosts():
        return f"{host} takes uploads, so `registries` leaves it out: it"
    try:
        return str(Destination(host, port))
    except ValueError:  # no name that could ever be on a list
        return "this"


_LARGEST_HEAD = 8 * 1024

_TARGET = re.compile(rb"(?P<host>[A-Za-z0-9.-]{1,253}):(?P<port>[0-9]{1,5})")

_BODY = frozenset({b"content-length", b"transfer-encoding"})


class RequestError(Exception):
    """A request that is refused.

    Attributes:
        status: the HTTP status to refuse it with.
        reason: why, in a few words of ASCII.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class ConnectRequest:
    """Takes a request's bytes as they come. One connection carries one request.

    Attributes:
        rest: what came after the head; it belongs to the tunnel.
    """

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self.rest = b""

    def feed(self, data: bytes) -> tuple[str, int] | None:
        """Take more bytes, none at their end; the host in lower case and the port, or None while the head is not whole.

        Raises:
            RequestError: it asks for anything but a tunnel.
        """
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestError(400, "this is not an HTTP request that the proxy supports") from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise RequestError(400, "the request ended before its head did")
        self.rest = self._http.trailing_data[0]
        if event.method != b"CONNECT":
            raise RequestError(405, "plain HTTP is not allowed in this sandbox; use https")
        target = _TARGET.fullmatch(event.target)
        if target is None:
            raise RequestError(403, "hosts can be reached by name only")
        headers = dict(event.headers)
        if _BODY & headers.keys():
            raise RequestError(400, "a CONNECT request has no body")
        # A second opinion on where to is one too many.
        if headers.get(b"host", event.target).lower() not in {event.target.lower(), target["host"].lower()}:
            raise RequestError(400, "the Host header names another host than the request")
        return target["host"].decode("ascii").lower(), int(target["port"])

    def accepted(self) -> bytes:
        """Return the answer to an accepted request."""
        return self._http.send(h11.Response(status_code=200, reason=b"Connection established", headers=[])) or b""

    @staticmethod
    def refused(error: RequestError) -> bytes:
        """Return the answer to a refused request. Most programs show the status line, so the reason is there."""
        http = h11.Connection(h11.SERVER)  # one that has seen nothing: ours may have come to its end
        text = f"{error.reason}\n".encode("ascii", "replace")
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), ("Connection", "close")]
        response = h11.Response(status_code=error.status, reason=text.strip(), headers=headers)
        parts = (response, h11.Data(data=text), h11.EndOfMessage())
        return b"".join(http.send(part) or b"" for part in parts)


_HANDSHAKE, _CLIENT_HELLO = 22, 1

_LARGEST_RECORD, _LARGEST_HELLO = 1 << 14, 1 << 14

_SERVER_NAME, _HOST_NAME = 0, 0

_HIDDEN_NAMES = frozenset({0xFE0D, 0xFFCE, *range(0xFE08, 0xFE0D)})
"""Encrypted Client Hello (RFC 9849) and its drafts: the name outside is not the one that counts."""

# Labels as RFC 1035 (section 2.3.4) bounds them: OpenSSL takes others, and some servers fail over them.
_NAME = re.compile(rb"(?=.{1,253}\Z)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.?")


class HelloError(Exception):
    """It is no TLS ClientHello that names its server; the text says what is wrong."""


class ClientHello:
    """Takes a client's first bytes as they come; `feed` tells the name once the message is whole."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> str | None:
        """Take more bytes; the name in lower case, or None while the message is not whole.

        Raises:
            HelloError: it cannot become a message that names its server.
        """
        self._pending += data
        while True:
            # A type and the major part of a version, the same since SSL 3.
            if not bytes([_HANDSHAKE, 3]).startswith(self._pending[:2]):
                raise HelloError("not TLS")
            if len(self._pending) < 5:  # noqa: PLR2004 - type, version, length
                return None
            size = int.from_bytes(self._pending[3:5])
            if not 1 <= size <= _LARGEST_RECORD:
                raise HelloError(f"a TLS record of {size} bytes")
            if len(self._pending) < 5 + size:
                return None
            self._message += self._pending[5 : 5 + size]
            del self._pending[: 5 + size]
            if (body := self._whole()) is not None:
                return _server_name(body)

    def _whole(self) -> bytes | None:
        """The message without its head, once all of it is there."""
        if self._message[:1] != bytes([_CLIENT_HELLO]):
            raise HelloError("the first TLS message is no ClientHello")
        if len(self._message) < 4:  # noqa: PLR2004 - type, length
            return None
        size = int.from_bytes(self._message[1:4])
        if size > _LARGEST_HELLO:
            raise HelloError(f"a TLS ClientHello of {size} bytes")
        if len(self._message) > 4 + size:
            raise HelloError("more in one TLS record than a ClientHello")
        return bytes(self._message[4:]) if len(self._message) == 4 + size else None


def _server_name(body: bytes) -> str:
    """Return the server's name in the extensions of a ClientHello.

    It is read strictly after RFC 8446 (sections 4.1.2, 4.2, 5.1) and RFC 6066 (section 3): a message that a server
    could understand in two ways is refused.
    """
    reader = _Reader(body)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    inner = _Reader(reader.vector(2) if reader else b"")
    reader.end()
    extensions: dict[int, bytes] = {}
    while inner:
        kind = inner.number(2)
        if kind in extensions:
            raise HelloError(f"a TLS ClientHello with extension {kind} twice")
        extensions[kind] = inner.vector(2)
    if hidden := _HIDDEN_NAMES & extensions.keys():
        raise HelloError(f"a TLS ClientHello that hides its server's name (extension {min(hidden):#06x})")
    if _SERVER_NAME not in extensions:
        raise HelloError("a TLS ClientHello without its server's name (SNI)")
    outer = _Reader(extensions[_SERVER_NAME])
    names = _Reader(outer.vector(2))
    outer.end()
    kind, name = names.number(1), names.vector(2)
    names.end()
    if kind != _HOST_NAME or not _NAME.fullmatch(name):
        raise HelloError("a TLS ClientHello whose server's name is no host name")
    return name.decode("ascii").lower()


class _Reader:
    """A reader of binary fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether something is left."""
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise HelloError("a TLS ClientHello whose lengths do not fit")
        self._at += size
        return taken

    def number(self, size: int) -> int:
        """The next `size` bytes as a number."""
        return int.from_bytes(self.take(size))

    def vector(self, length: int) -> bytes:
        """What follows a length of `length` bytes."""
        return self.take(self.number(length))

    def end(self) -> None:
        """Nothing may be left."""
        if self:
            raise HelloError("a TLS ClientHello whose lengths do not fit")
