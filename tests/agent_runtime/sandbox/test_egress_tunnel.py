from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_runtime.core.values import Connection, Network, NetworkLimits
from agent_runtime.sandbox import egress
from agent_runtime.sandbox.egress import ProxyRules, TransferBudget, Tunnel, close
from tests.agent_runtime.sandbox.test_egress import made_hello, real_hello, records, server_name
from tests.tls_hosts import LOOPBACK, authority
from tests.waiting import eventually

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUICK = NetworkLimits(handshake_seconds=0.5, idle_seconds=0.5)

UNLISTED = "is not on the list of hosts that this sandbox may reach"


@dataclass
class Proxy:
    """A proxy on the loopback with its connections and resolved names."""

    port: int
    connections: list[Connection] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)

    async def connect(self, target: str, first: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """Request a tunnel; return both streams and the status line."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode() + first)
        head = await reader.readuntil(b"\r\n\r\n")
        return reader, writer, head.partition(b"\r\n")[0].decode()

    async def refusal(self, target: str) -> str:
        """Return the status line of a refused request."""
        _, writer, line = await self.connect(target)
        await close(writer)
        assert not line.startswith("HTTP/1.1 200")
        return line

    async def last(self) -> Connection:
        """Return the record of the last connection."""
        await eventually(lambda: self.connections)
        return self.connections[-1]


def on_loopback(address: str) -> str | None:
    """The real policy, except for the test server's address."""
    return None if address == LOOPBACK else egress.refusal_reason(address)


@asynccontextmanager
async def proxy(
    network: Network,
    *,
    leads_to: Callable[[str], list[str]] = lambda _: [LOOPBACK],
    refusal: Callable[[str], str | None] = on_loopback,
) -> AsyncIterator[Proxy]:
    async def resolve(host: str, port: int) -> list[str]:
        running.lookups.append(host)
        if not (found := leads_to(host)):
            raise OSError(-2, "Name or service not known")
        return found

    budget = TransferBudget(total=network.limits.total_bytes, remaining=network.limits.total_bytes)
    rules = ProxyRules(network=network, budget=budget, resolve=resolve, refusal=refusal)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel = Tunnel(rules, (reader, writer))
        try:
            await tunnel.serve()
            await close(writer)
        finally:
            running.connections.append(tunnel.record)

    async with asyncio.timeout(20), _server(serve) as port:
        running = Proxy(port=port)
        yield running


@asynccontextmanager
async def _server(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        await close(writer)

    server = await asyncio.start_server(handle, LOOPBACK, 0, ssl=context)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        server.close()
        if tasks:
            _, waiting = await asyncio.wait(tasks, timeout=5)
            for task in waiting:
                task.cancel()


@asynccontextmanager
async def listed(
    handler: Handler, context: ssl.SSLContext | None = None, limits: NetworkLimits | None = None
) -> AsyncIterator[tuple[Proxy, str]]:
    """Start an allowed host and a proxy; return the proxy and the target."""
    async with _server(handler, context) as port:
        target = f"a.example:{port}"
        network = Network(allowed=Network.of(target).allowed, limits=limits or NetworkLimits())
        async with proxy(network) as running:
            yield running, target


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_a_listed_host_is_reached_over_tls(tmp_path: Path) -> None:
    ours = authority(tmp_path, "a.example")
    async with listed(echo, ours.server) as (running, target):
        reader, writer, line = await running.connect(target)
        assert line == "HTTP/1.1 200 Connection established"
        trusted = ssl.create_default_context(cafile=ours.pem)
        await writer.start_tls(trusted, server_hostname="a.example")
        writer.write(b"x" * 3_000_000)
        assert await reader.readexactly(3_000_000) == b"x" * 3_000_000
        await close(writer)
        done = await running.last()
        assert done.allowed
        assert done.sent_bytes > 3_000_000
        assert done.received_bytes > 3_000_000
        assert running.lookups == ["a.example"]


async def test_half_a_connection_may_end_before_the_other(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.write(b"all of it")

    async with listed(answer) as (running, target):
        reader, writer, _ = await running.connect(target, real_hello("a.example"))
        writer.write_eof()
        assert await reader.read(-1) == b"all of it"
        await close(writer)
        assert (await running.last()).reason == ""


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("b.example:443", f"HTTP/1.1 403 b.example {UNLISTED}"),
        ("a.example:22", f"HTTP/1.1 403 a.example:22 {UNLISTED}"),
        ("sub.a.example:443", f"HTTP/1.1 403 sub.a.example {UNLISTED}"),
        ("a.example.:443", f"HTTP/1.1 403 this {UNLISTED}"),
        ("93.184.216.34:443", f"HTTP/1.1 403 this {UNLISTED}"),
        ("169.254.169.254:80", f"HTTP/1.1 403 this {UNLISTED}"),
        ("[::1]:443", "HTTP/1.1 403 hosts can be reached by name only"),
        (
            "registry.npmjs.org:443",
            f"HTTP/1.1 403 registry.npmjs.org takes uploads, so `registries` leaves it out: it {UNLISTED}",
        ),
    ],
)
async def test_any_other_host_or_port_is_refused_without_asking_for_its_address(target: str, line: str) -> None:
    async with proxy(Network.of("a.example")) as running:
        assert await running.refusal(target) == line
        assert running.lookups == []
        assert not (await running.last()).allowed


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:169.254.169.254", "fd00:ec2::254", "100.64.0.1"],
)
async def test_a_listed_name_that_leads_inside_is_refused(address: str) -> None:
    found = {"a.example": [address], "b.example": ["192.0.2.1", address], "c.example": [address, "192.0.2.1"]}
    leads_to = found.__getitem__
    async with proxy(
        Network.of(*found), leads_to=leads_to, refusal=lambda a: egress.refusal_reason(a) if a == address else None
    ) as running:
        for name in found:
            assert f"403 the name {name} leads to {address} (" in await running.refusal(f"{name}:443")


async def test_a_name_that_leads_elsewhere_the_second_time_is_looked_up_once_a_connection() -> None:
    """DNS rebinding: a public address first, then an internal one."""
    answers = [[LOOPBACK], ["10.0.0.1"], ["10.0.0.1"]]
    async with _server(echo) as port:
        target = f"a.example:{port}"
        async with proxy(Network.of(target), leads_to=lambda _: answers.pop(0)) as running:
            reader, writer, line = await running.connect(target, hello := real_hello("a.example"))
            assert "200" in line
            assert await reader.readexactly(len(hello)) == hello
            assert running.lookups == ["a.example"]
            await close(writer)
            assert "leads to 10.0.0.1 (private)" in await running.refusal(target)
            assert running.lookups == ["a.example"] * 2


async def test_an_unresolvable_name_is_reported() -> None:
    async with proxy(Network.of("a.example"), leads_to=lambda _: []) as running:
        assert await running.refusal("a.example:443") == "HTTP/1.1 502 the name a.example cannot be resolved"


async def test_a_host_that_does_not_answer_is_said_so() -> None:
    async with _server(echo) as port:
        pass
    async with proxy(Network.of(f"a.example:{port}")) as running:
        assert await running.refusal(f"a.example:{port}") == f"HTTP/1.1 502 a.example does not answer on port {port}"


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (real_hello("b.example"), "names b.example"),
        (real_hello(None), "without its server's name"),
        (b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", "not TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not TLS"),
        (records(made_hello(server_name(b"a.example"), b"\xfe\x0d\x00\x01x")), "hides its server's name"),
        (records(made_hello(server_name(b"A.example.")), 3), "names a.example."),
    ],
)
async def test_only_tls_to_the_very_host_passes(first: bytes, why: str) -> None:
    got = bytearray()

    async def note(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        got.extend(await reader.read(-1))

    async with listed(note) as (running, target):
        reader, writer, line = await running.connect(target)
        assert "200" in line
        writer.write(first)
        assert await reader.read(-1) == bytes([21, 3, 3, 0, 2, 2, 49])  # the alert "access denied"
        await close(writer)
        done = await running.last()
        assert (done.allowed, done.sent_bytes) == (False, 0)
        assert why in done.reason
    assert not got


async def test_a_hello_in_pieces_passes_whole() -> None:
    hello = records(real_hello("a.example")[5:], 1, 2, 3, 50)
    async with listed(echo) as (running, target):
        reader, writer, _ = await running.connect(target, hello[:3])
        for start in range(3, len(hello), 40):
            writer.write(hello[start : start + 40])
            await writer.drain()
        assert await reader.readexactly(len(hello)) == hello
        await close(writer)


async def test_no_more_bytes_pass_than_may() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for _ in range(100):
            writer.write(bytes(10_000))
            await writer.drain()

    async with listed(flood, limits=NetworkLimits(total_bytes=200_000)) as (running, target):
        reader, writer, _ = await running.connect(target, hello := real_hello("a.example"))
        received = len(await reader.read(-1))
        await close(writer)
        done = await running.last()
        assert done.received_bytes == received
        assert done.sent_bytes == len(hello)
        assert done.sent_bytes + done.received_bytes <= 200_000
        assert done.reason == "the limit of 200000 bytes is used up"
        assert "403 the limit of 200000 bytes is used up" in await running.refusal(target)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"CONNECT a.example",
        b"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n",
        b"CONNECT {target} HTTP/1.0\r\n\r\n\x16\x03",
    ],
)
async def test_a_slow_client_times_out_without_delaying_others(said: bytes) -> None:
    async with listed(echo, limits=QUICK) as (running, target):
        reader, writer = await asyncio.open_connection(LOOPBACK, running.port)
        writer.write(said.replace(b"{target}", target.encode()))
        other, its_writer, line = await running.connect(target, hello := real_hello("a.example"))
        assert "200" in line
        assert await other.readexactly(len(hello)) == hello
        await reader.read(-1)  # ends
        await close(writer)
        await other.read(-1)  # idle, it ends as well
        await close(its_writer)
        await eventually(lambda: len(running.connections) == 2)
        assert {each.reason for each in running.connections} == {"it was idle for too long"}


async def test_a_connection_that_moves_in_one_direction_is_not_idle() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for _ in range(14):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.1)

    async with listed(drip, limits=NetworkLimits(idle_seconds=1.0)) as (running, target):
        reader, writer, _ = await running.connect(target, real_hello("a.example"))
        assert await reader.read(-1) == b"." * 14
        await close(writer)
        assert (await running.last()).reason == ""


async def test_a_client_that_does_not_read_times_out() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()

    async with listed(flood, limits=QUICK) as (running, target):
        _, writer, _ = await running.connect(target, real_hello("a.example"))
        assert (await running.last()).reason == "it was idle for too long"
        await close(writer)


async def test_a_connection_that_breaks_is_no_fault() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with listed(reset) as (running, target):
        reader, writer, _ = await running.connect(target, real_hello("a.example"))
        with suppress(ConnectionError):
            await reader.read(-1)
        await close(writer)
        assert (await running.last()).allowed
