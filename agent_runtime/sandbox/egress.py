"""The proxy of one sandbox: lets connections out to listed hosts.

`Egress` listens on the sandbox's loopback from a process outside. A `Tunnel` reads one CONNECT request (RFC 9110,
section 9.3.6), checks the host, its addresses and the TLS server name, and forwards bytes.
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
"""Bound in each sandbox's own network before its programs start."""

_ADDRESS = f"http://127.0.0.1:{PORT}"

_NO_PROXY_HOSTS = "localhost,127.0.0.1,::1"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to addresses; raises OSError if there are none."""


async def resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    results = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in results))


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
"""Allocated IPv6 space, without loopback, private, link-local and multicast addresses."""

_MAPPED, _NAT64 = ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96")
"""An IPv4 address in another notation (RFC 4291, RFC 6052); it is judged as that IPv4 address."""

_IPV4 = {ip_network(block): kind for block, kind in _REFUSED_IPV4.items()}

_IPV6 = {ip_network(block): kind for block, kind in _REFUSED_IPV6.items()}


def refusal_reason(address: str) -> str | None:
    """Return the reason to refuse an address, None for a public one."""
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
    """The network of a sandbox and of its replacements, with shared limits.

    Runs in the event loop of `serve`. Without it, programs get "connection refused".
    """

    environment: Mapping[str, str] = {
        **{name: _ADDRESS for stem in ("http_proxy", "https_proxy", "all_proxy") for name in (stem, stem.upper())},
        # Servers that a test starts inside are no business of the proxy's.
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _NO_PROXY_HOSTS),
    }

    def __init__(
        self,
        network: Network,
        *,
        on_connection: Callable[[Connection], None],
        on_lost: Callable[[str], None],
        resolve: Resolve = resolve,
        refusal: Callable[[str], str | None] = refusal_reason,
    ) -> None:
        budget = TransferBudget(total=network.limits.total_bytes, remaining=network.limits.total_bytes)
        self._rules = ProxyRules(network=network, budget=budget, resolve=resolve, refusal=refusal)
        self._on_connection = on_connection
        self._on_lost = on_lost
        self._accepted = 0
        self._serve_lock = asyncio.Lock()
        self._namespace: tuple[int, int] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def serve(self, namespace: int) -> None:
        """Accept connections from a network namespace instead of its predecessor; idempotent.

        Call it while only the sandbox's first process runs.
        """
        async with self._serve_lock:
            status = os.fstat(namespace)
            identity = (status.st_dev, status.st_ino)
            if self._namespace == identity:
                return
            await self.close()
            opening = asyncio.ensure_future(asyncio.to_thread(listen_in_namespace, namespace))
            try:
                listener = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_discard)
                raise
            self._namespace = identity
            self._serving = asyncio.create_task(self._serve(listener))
            # Not the task itself: one that is cancelled before it begins does nothing.
            self._serving.add_done_callback(lambda _: listener.close())

    async def close(self) -> None:
        """End all connections; idempotent. `serve` can start again within the remaining budget."""
        work, self._serving, self._namespace = self._serving, None, None
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def _serve(self, listener: socket.socket) -> None:
        """Accept connections up to the limit or an error, then report the loss."""
        limit = self._rules.network.limits.connections
        try:
            async with asyncio.TaskGroup() as tunnels:
                await self._accept(listener, tunnels)
                listener.close()
                self._on_lost(f"{limit} connections were made, and a sandbox may make no more")
        except ExceptionGroup as group:
            # On any error the network is gone, and the run's report must say so.
            log.exception("the proxy of a sandbox broke")
            self._on_lost(f"the proxy broke: {group.exceptions[0]!r}")

    async def _accept(self, listener: socket.socket, tunnels: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(self._rules.network.limits.at_once)
        while self._accepted < self._rules.network.limits.connections:
            await slots.acquire()
            self._accepted += 1
            try:
                connection = await _accept_next(listener)
            except ConnectionAbortedError:  # it was given up before it was taken
                slots.release()
                continue

            def over(_task: object, connection: socket.socket = connection) -> None:
                connection.close()
                slots.release()

            tunnels.create_task(self._serve_tunnel(connection)).add_done_callback(over)

    async def _serve_tunnel(self, connection: socket.socket) -> None:
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
            self._on_connection(tunnel.record)


async def _accept_next(listener: socket.socket) -> socket.socket:
    """Accept the next connection. On cancellation, the event loop's `sock_accept` may lose one."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            is_ready = asyncio.Event()
            loop.add_reader(listener, is_ready.set)
            try:
                await is_ready.wait()
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


def listen_in_namespace(namespace: int) -> socket.socket:
    """Listen on `PORT` of the loopback in another network namespace; takes 20 ms."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        numbers = [namespace, theirs.fileno()]
        argv = [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, numbers), str(PORT)]
        try:
            result = subprocess.run(
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
        if result.returncode != 0:
            reason = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(
                f"The sandbox's network cannot be opened: {reason or 'its helper gave no reason'}. Run without a "
                "network, or let this user enter the namespaces that it creates (setns)."
            )
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    listener = socket.socket(fileno=descriptors[0])
    listener.settimeout(0)
    return listener


_CHUNK = 1 << 16

_MAX_ADDRESSES = 4
"""Attempts per host."""

_FLUSH_SECONDS = 1.0

_ACCESS_DENIED = bytes([21, 3, 3, 0, 2, 2, 49])
"""Fatal TLS alert (RFC 8446, section 6), the only possible message after the proxy's answer."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    network: Network
    budget: TransferBudget
    resolve: Resolve
    refusal: Callable[[str], str | None]


@dataclass(slots=True)
class TransferBudget:
    total: int
    remaining: int

    def take(self, size: int) -> None:
        if size > self.remaining:
            self.remaining = 0
            raise TunnelClosedError(self.exhausted_message())
        self.remaining -= size

    def exhausted_message(self) -> str:
        return f"the limit of {self.total} bytes is used up"


class TunnelClosedError(Exception):
    """The proxy closed an open tunnel."""


class Tunnel:
    def __init__(self, rules: ProxyRules, client: Streams) -> None:
        self._rules = rules
        self._client = client
        self._host, self._port = "", 0
        self._is_open = False
        self._reason = "the proxy was closed"
        self._transferred: dict[Literal["sent_bytes", "received_bytes"], int] = {"sent_bytes": 0, "received_bytes": 0}

    async def serve(self) -> None:
        """Handle the connection to its end; errors of either side do not escape."""
        request = ConnectRequest()
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._check_request(request)
                upstream = await self._connect()
                stack.push_async_callback(close, upstream[1])
                self._client[1].write(request.accept())
                hello = await self._read_hello(request.rest)
                self._is_open = True
                await self._forward(upstream, hello)
                self._reason = ""
        except RequestError as error:
            self._reason = error.reason
            self._client[1].write(request.refuse(error))
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
        return Connection(
            host=self._host, port=self._port, allowed=self._is_open, reason=self._reason, **self._transferred
        )

    async def _check_request(self, request: ConnectRequest) -> None:
        async with asyncio.timeout(self._rules.network.limits.handshake_seconds):
            while (target := request.feed(await self._client[0].read(_CHUNK))) is None:
                pass
        self._host, self._port = target
        if self._rules.budget.remaining <= 0:
            raise RequestError(403, self._rules.budget.exhausted_message())
        if not any((destination.host, destination.port) == target for destination in self._rules.network.allowed):
            raise RequestError(403, f"{_describe(target)} is not on the list of hosts that this sandbox may reach")

    async def _connect(self) -> Streams:
        limit, host = self._rules.network.limits.handshake_seconds, self._host
        try:
            async with asyncio.timeout(limit):
                addresses = await self._rules.resolve(host, self._port)
        except (OSError, UnicodeError) as error:
            raise RequestError(502, f"the name {host} cannot be resolved") from error
        for address in addresses:
            if (kind := self._rules.refusal(address)) is not None:
                raise RequestError(403, f"the name {host} leads to {address} ({kind}), which is not a public address")
        for address in addresses[:_MAX_ADDRESSES]:
            with contextlib.suppress(OSError):  # the next one may answer
                async with asyncio.timeout(limit):
                    return await asyncio.open_connection(address, self._port)
        raise RequestError(502, f"{host} does not answer on port {self._port}")

    async def _read_hello(self, first: bytes) -> bytes:
        hello, received, data = ClientHello(), bytearray(first), first
        async with asyncio.timeout(self._rules.network.limits.handshake_seconds):
            while (name := hello.feed(data)) is None:
                data = await self._client[0].read(_CHUNK)
                if not data:
                    raise HelloError("it ended before a TLS ClientHello did")
                received += data
        if name != self._host:
            raise HelloError(f"the TLS ClientHello names {name}, and the request named {self._host}")
        return bytes(received)

    async def _forward(self, upstream: Streams, first: bytes) -> None:
        idle = self._rules.network.limits.idle_seconds
        clock = asyncio.get_running_loop().time

        async def pass_on(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            way: Literal["sent_bytes", "received_bytes"],
            data: bytes,
        ) -> None:
            while data or (data := await reader.read(_CHUNK)):
                self._rules.budget.take(len(data))
                self._transferred[way] += len(data)
                writer.write(data)
                await writer.drain()
                limit.reschedule(clock() + idle)
                data = b""
            writer.write_eof()

        try:
            async with asyncio.timeout(idle) as limit, asyncio.TaskGroup() as both:
                both.create_task(pass_on(self._client[0], upstream[1], "sent_bytes", first))
                both.create_task(pass_on(upstream[0], self._client[1], "received_bytes", b""))
        except ExceptionGroup as group:
            # Whichever direction fails first takes the other one down.
            raise group.exceptions[0] from None


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection after flushing for at most a second."""
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


_MAX_HEAD_BYTES = 8 * 1024

_TARGET = re.compile(rb"(?P<host>[A-Za-z0-9.-]{1,253}):(?P<port>[0-9]{1,5})")

_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class RequestError(Exception):
    """A refused request; `reason` is ASCII."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class ConnectRequest:
    """Incremental parser of one request; `rest` has the bytes after the head."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self.rest = b""

    def feed(self, data: bytes) -> tuple[str, int] | None:
        """Parse more bytes; return host and port once the head is complete."""
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
        if _BODY_HEADERS & headers.keys():
            raise RequestError(400, "a CONNECT request has no body")
        # A second opinion on where to is one too many.
        if headers.get(b"host", event.target).lower() not in {event.target.lower(), target["host"].lower()}:
            raise RequestError(400, "the Host header names another host than the request")
        return target["host"].decode("ascii").lower(), int(target["port"])

    def accept(self) -> bytes:
        return self._http.send(h11.Response(status_code=200, reason=b"Connection established", headers=[])) or b""

    @staticmethod
    def refuse(error: RequestError) -> bytes:
        """Return the answer to a refused request; most programs show the status line."""
        http = h11.Connection(h11.SERVER)  # one that has seen nothing: ours may have come to its end
        text = f"{error.reason}\n".encode("ascii", "replace")
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), ("Connection", "close")]
        response = h11.Response(status_code=error.status, reason=text.strip(), headers=headers)
        parts = (response, h11.Data(data=text), h11.EndOfMessage())
        return b"".join(http.send(part) or b"" for part in parts)


_HANDSHAKE, _CLIENT_HELLO = 22, 1

_MAX_RECORD_BYTES, _MAX_HELLO_BYTES = 1 << 14, 1 << 14

_SERVER_NAME, _HOST_NAME = 0, 0

_HIDDEN_NAMES = frozenset({0xFE0D, 0xFFCE, *range(0xFE08, 0xFE0D)})
"""Encrypted Client Hello (RFC 9849) and drafts, whose outer name does not count."""

# Labels as RFC 1035 (section 2.3.4) bounds them: OpenSSL takes others, and some servers fail over them.
_NAME = re.compile(rb"(?=.{1,253}\Z)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.?")


class HelloError(Exception):
    pass


class ClientHello:
    """Incremental parser of a client's first TLS message."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> str | None:
        """Parse more bytes; return the lower-case server name once complete."""
        self._pending += data
        while True:
            # A type and the major part of a version, the same since SSL 3.
            if not bytes([_HANDSHAKE, 3]).startswith(self._pending[:2]):
                raise HelloError("not TLS")
            if len(self._pending) < 5:  # noqa: PLR2004 - type, version, length
                return None
            size = int.from_bytes(self._pending[3:5])
            if not 1 <= size <= _MAX_RECORD_BYTES:
                raise HelloError(f"a TLS record of {size} bytes")
            if len(self._pending) < 5 + size:
                return None
            self._message += self._pending[5 : 5 + size]
            del self._pending[: 5 + size]
            if (body := self._take_message()) is not None:
                return _read_server_name(body)

    def _take_message(self) -> bytes | None:
        """Return the complete message without its head, else None."""
        if self._message[:1] != bytes([_CLIENT_HELLO]):
            raise HelloError("the first TLS message is no ClientHello")
        if len(self._message) < 4:  # noqa: PLR2004 - type, length
            return None
        size = int.from_bytes(self._message[1:4])
        if size > _MAX_HELLO_BYTES:
            raise HelloError(f"a TLS ClientHello of {size} bytes")
        if len(self._message) > 4 + size:
            raise HelloError("more in one TLS record than a ClientHello")
        return bytes(self._message[4:]) if len(self._message) == 4 + size else None


def _read_server_name(body: bytes) -> str:
    """Return the server name of a ClientHello.

    Strict by RFC 8446 (sections 4.1.2, 4.2, 5.1) and RFC 6066 (section 3); ambiguous messages are refused.
    """
    reader = _FieldReader(body)
    reader.read(2 + 32)  # version, random
    reader.read_vector(1)  # session
    reader.read_vector(2)  # cipher suites
    reader.read_vector(1)  # compression methods
    inner = _FieldReader(reader.read_vector(2) if reader else b"")
    reader.expect_end()
    extensions: dict[int, bytes] = {}
    while inner:
        kind = inner.read_number(2)
        if kind in extensions:
            raise HelloError(f"a TLS ClientHello with extension {kind} twice")
        extensions[kind] = inner.read_vector(2)
    if encrypted := _HIDDEN_NAMES & extensions.keys():
        raise HelloError(f"a TLS ClientHello that hides its server's name (extension {min(encrypted):#06x})")
    if _SERVER_NAME not in extensions:
        raise HelloError("a TLS ClientHello without its server's name (SNI)")
    outer = _FieldReader(extensions[_SERVER_NAME])
    names = _FieldReader(outer.read_vector(2))
    outer.expect_end()
    kind, name = names.read_number(1), names.read_vector(2)
    names.expect_end()
    if kind != _HOST_NAME or not _NAME.fullmatch(name):
        raise HelloError("a TLS ClientHello whose server's name is no host name")
    return name.decode("ascii").lower()


class _FieldReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def read(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise HelloError("a TLS ClientHello whose lengths do not fit")
        self._at += size
        return data

    def read_number(self, size: int) -> int:
        return int.from_bytes(self.read(size))

    def read_vector(self, length: int) -> bytes:
        return self.read(self.read_number(length))

    def expect_end(self) -> None:
        if self:
            raise HelloError("a TLS ClientHello whose lengths do not fit")
