from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime import Network
from agent_runtime.sandbox import egress as egress_module
from agent_runtime.sandbox.egress import ClientHello, ConnectRequest, Egress, HelloError, RequestError, refusal_reason

REFUSED = [
    "0.0.0.1", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::808:808", "100::1",
    "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254",
    "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "::ffff:0:127.0.0.1", "example.org", "", "127.1", "0x7f.1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "151.101.0.223", "172.32.0.1", "100.128.0.1", "2a04:4e42::223", "2606:4700::1111",
          "::ffff:8.8.8.8", "64:ff9b::808:808"]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED)
def test_non_public_addresses_are_refused(address: str) -> None:
    assert refusal_reason(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    assert refusal_reason(address) is None


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_passes(address: object) -> None:
    parsed = ip_address(str(address))
    if parsed.is_private or parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_reserved:
        assert refusal_reason(str(parsed)) or str(parsed).startswith(("64:ff9b::", "::ffff:"))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_in_ipv6_clothes(address: object) -> None:
    assert refusal_reason(f"::ffff:{address}") == refusal_reason(str(address))
    assert refusal_reason(f"64:ff9b::{address}") == refusal_reason(str(address))


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9](\.[a-z][a-z0-9]{1,20}){1,4}", fullmatch=True)


def real_hello(name: str | None, *, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return the ClientHello of Python's TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = most
    context.set_alpn_protocols(["h2", "http/1.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def records(message: bytes, *sizes: int) -> bytes:
    """Split a handshake message into TLS records of these sizes, and one for the rest."""
    cut, found = 0, b""
    for size in (*sizes, len(message)):
        part, cut = message[cut : cut + size], cut + size
        found += bytes([22, 3, 1]) + len(part).to_bytes(2) + part if part else b""
    return found


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2) + len(data).to_bytes(2) + data


def server_name(name: bytes, kind: int = 0) -> bytes:
    entry = bytes([kind]) + len(name).to_bytes(2) + name
    return extension(0, len(entry).to_bytes(2) + entry)


def made_hello(*extensions: bytes, tail: bytes = b"", suites: bytes = b"\x13\x01") -> bytes:
    """Build a ClientHello as a handshake message."""
    inner = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\x00" + len(suites).to_bytes(2) + suites + b"\x01\x00"
    body += len(inner).to_bytes(2) + inner + tail
    return b"\x01" + len(body).to_bytes(3) + body


def name_in(data: bytes, *cuts: int) -> str | None:
    hello, name = ClientHello(), None
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        assert name is None
        name = hello.feed(data[start:end])
    return name


@settings(max_examples=30, deadline=None)
@given(NAMES, st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]))
def test_the_name_of_a_real_hello_is_read(name: str, most: ssl.TLSVersion) -> None:
    assert name_in(real_hello(name, most=most)) == name


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_it_does_not_matter_how_a_hello_is_cut(data: st.DataObject) -> None:
    message = real_hello("pypi.org")[5:]
    cut = records(message, *data.draw(st.lists(st.integers(1, len(message)), max_size=20)))
    pieces = data.draw(st.lists(st.integers(0, len(cut) - 1), max_size=20).map(sorted))
    assert name_in(cut, *pieces) == "pypi.org"
    assert ClientHello().feed(cut[:-1]) is None


def test_a_hello_that_comes_byte_by_byte_is_read() -> None:
    hello = ClientHello()
    answers = [hello.feed(bytes([byte])) for byte in records(real_hello("PyPI.org".lower())[5:], *[1] * 400)]
    assert answers[-1] == "pypi.org"
    assert set(answers[:-1]) == {None}


def test_bytes_after_the_hello_belong_to_the_tunnel() -> None:
    assert name_in(real_hello("pypi.org") + b"\x17\x03\x03\x00\x01x") == "pypi.org"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "not TLS"),
        (b"SSH-2.0-OpenSSH_9", "not TLS"),
        (b"\x80\x2e\x01\x03\x01", "not TLS"),
        (b"\x16\x02\x00\x00\x05", "not TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "not TLS"),
        (b"\x16\x03\x01\x00\x00", "record of 0"),
        (b"\x16\x03\x01\x40\x01", "record of 16385"),
        (records(b"\x02" + bytes(3)), "no ClientHello"),
        (records(b"\x01\x00\x40\x01"), "of 16385 bytes"),
        (records(made_hello(server_name(b"a.example")) + b"\x01"), "more in one"),
        (records(made_hello()), "without its server's name"),
        (records(b"\x01\x00\x00\x26" + b"\x03\x03" + bytes(32) + b"\x00\x00\x00\x00"), "without its server's name"),
        (records(made_hello(server_name(b"a.example"), server_name(b"b.example"))), "extension 0 twice"),
        (records(made_hello(server_name(b"a.example"), extension(0xFE0D, b"x"))), "hides its server's name"),
        (records(made_hello(server_name(b"a.example"), extension(0xFFCE, b"x"))), "hides its server's name"),
        (records(made_hello(server_name(b"a.example"), tail=b"x")), "lengths do not fit"),
        (records(made_hello(b"\x00\x00\x00\xff")), "lengths do not fit"),
        (records(made_hello(server_name(b"a.example", kind=1))), "no host name"),
        (records(made_hello(server_name(b""))), "no host name"),
        (records(made_hello(server_name(b"a.example\0.evil.example"))), "no host name"),
        (records(made_hello(server_name("ä.example".encode()))), "no host name"),
        (records(made_hello(server_name(b"a" * 254))), "no host name"),
        (records(made_hello(server_name(b"a" * 64 + b".example"))), "no host name"),
        (records(made_hello(server_name(b".".join([b"a" * 63] * 4)))), "no host name"),
        (records(made_hello(server_name(b"a..example"))), "no host name"),
        (records(made_hello(extension(0, b"\x00\x00"))), "lengths do not fit"),
        (records(made_hello(extension(0, b"\x00\x0c\x00\x00\x09a.example\x00"))), "lengths do not fit"),
        (records(made_hello(extension(0, b"\x00\x12\x00\x00\x09a.example\x00\x00\x03b.c"))), "lengths do not fit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_ambiguous_hello_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(HelloError, match=why):
        ClientHello().feed(data)


def test_a_real_hello_without_a_name_is_refused() -> None:
    with pytest.raises(HelloError, match="without its server's name"):
        ClientHello().feed(real_hello(None))


@given(st.binary(max_size=300))
def test_noise_is_refused_or_waited_out(data: bytes) -> None:
    for start in (b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c"):
        try:
            name = ClientHello().feed(start + data)
        except HelloError:
            continue
        assert name is None or name.isascii()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_openssl_reads_the_same_name_in_an_accepted_hello(data: st.DataObject) -> None:
    """OpenSSL, the TLS of most servers, must read the same name."""
    hello = bytearray(real_hello("a.example"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(5, len(hello) - 1))
        hello[at] = data.draw(st.integers(0, 255))
    try:
        ours = ClientHello().feed(bytes(hello))
    except HelloError:
        return
    theirs = _openssl_name(bytes(hello))
    assert ours is None or theirs in {ours, "", None} or theirs.lower() == ours


def test_the_name_matches_that_of_openssl() -> None:
    assert _openssl_name(real_hello("a.example")) == "a.example"


def _openssl_name(hello: bytes) -> str | None:
    """Return the name that OpenSSL reads in a hello; None if it refuses it earlier."""
    seen: list[str | None] = []

    def note(_: object, name: str | None, __: object) -> int:
        seen.append(name or "")
        return int(ssl.ALERT_DESCRIPTION_ACCESS_DENIED)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_servername_callback(note)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(hello)
    with pytest.raises(ssl.SSLError):
        context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return seen[0] if seen else None


_PROGRAM = """
import asyncio, sys, tempfile
from pathlib import Path
sys.path[:0] = sys.argv[1:]
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.egress import listen_in_namespace
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.terminals.sandbox_init import SandboxInit, build_argv

async def main(place):
    keeper = SandboxInit(Bubblewrap(SandboxSettings()).launch(build_argv(["bash"]), workspace=Path(place), first=True))
    await keeper.wait_ready()
    with listen_in_namespace(keeper.network) as listener:
        print(listener.getsockname(), listener.gettimeout())
    await keeper.close()

with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(place))
"""


def test_an_ordinary_user_can_open_the_network_of_a_sandbox_of_theirs() -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
    root = Path(__file__).parents[3]
    if python is None or subprocess.run([*user, "ls", str(root)], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python of the system, or the source cannot be read by other users")
    packages = [path for path in sys.path if "site-packages" in path]
    done = subprocess.run(
        [*user, python, "-c", _PROGRAM, str(root), *packages], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "('127.0.0.1', 3128) 0.0\n", done.stderr


GOOD = b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\nUser-Agent: pip\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        GOOD,
        b"CONNECT PyPI.org:443 HTTP/1.1\r\nHost: pypi.ORG\r\nProxy-Connection: Keep-Alive\r\n\r\n",
        b"CONNECT pypi.org:443 HTTP/1.0\r\n\r\n",  # Python's http.client before 3.12
    ],
)
def test_a_connect_request_is_accepted(head: bytes) -> None:
    request = ConnectRequest()
    assert request.feed(head) == ("pypi.org", 443)
    assert request.rest == b""
    assert request.accept().startswith(b"HTTP/1.1 200 ")


@given(st.lists(st.integers(1, len(GOOD) - 1), max_size=10).map(sorted))
def test_it_does_not_matter_how_a_head_is_cut(cuts: list[int]) -> None:
    request, answers = ConnectRequest(), []
    for start, end in zip((0, *cuts), (*cuts, len(GOOD)), strict=True):
        if start < end:
            answers.append(request.feed(GOOD[start:end]))
    assert answers[-1] == ("pypi.org", 443)
    assert set(answers[:-1]) <= {None}


def test_bytes_after_the_head_belong_to_the_tunnel() -> None:
    request = ConnectRequest()
    assert request.feed(GOOD + b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n") == ("pypi.org", 443)
    assert request.rest == b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET http://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: pypi.org:443\r\n\r\n", 405),
        (b"PUT https://pypi.org/ HTTP/1.1\r\nHost: pypi.org\r\nContent-Length: 1\r\n\r\nx", 405),
        (b"connect pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 405),
        (b"CONNECT pypi.org HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 403),
        (b"CONNECT pypi.org:https HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 403),
        (b"CONNECT http://pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 403),
        (b"CONNECT user@pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 403),
        (b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n", 403),
        (b"CONNECT pypi.org:443@evil.example:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 403),
        (b"CONNECT pypi.org%2eevil.example:443 HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nHost: evil.example\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost : pypi.org\r\n\r\n", 400),
        (b"CONNECT pypi.org:443\r\nHost: pypi.org\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 evil.example:443 HTTP/1.1\r\nHost: pypi.org\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nX: a\0b\r\n\r\n", 400),
        (b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org\r\nX: " + b"a" * 9000, 400),
        (b"\x05\x01\x00", 400),  # SOCKS; it never comes to an end of a line
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400),
    ],
)
def test_anything_else_is_refused(data: bytes, status: int) -> None:
    request = ConnectRequest()
    with pytest.raises(RequestError) as caught:
        _ask(request, data)
    error = caught.value
    assert error.status == status
    assert request.refuse(error).startswith(b"HTTP/1.1 %d " % status)
    assert error.reason.isascii()
    assert error.reason.isprintable()


def test_a_head_without_an_end_is_not_waited_for() -> None:
    request = ConnectRequest()
    assert request.feed(GOOD[:-2] + b"X: " + b"a" * 4000) is None
    with pytest.raises(RequestError, match="not an HTTP request"):
        request.feed(b"a" * 5000)


@given(st.lists(st.binary(max_size=50), max_size=5), st.sampled_from([b"", b"CONNECT ", b"CONNECT a.b:1 HTTP/1.1\r\n"]))
def test_noise_is_refused_and_answered(pieces: list[bytes], start: bytes) -> None:
    request = ConnectRequest()
    try:
        for piece in [*filter(None, [start, *pieces]), b""]:
            assert request.feed(piece) is None
        pytest.fail("not refused at its end")
    except RequestError as error:
        answer = request.refuse(error)
    assert answer.startswith(b"HTTP/1.1 4")


def _ask(request: ConnectRequest, data: bytes) -> tuple[str, int] | None:
    """Send a client's complete input."""
    return request.feed(data) or request.feed(b"")


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    monkeypatch.setattr(egress_module, "listen_in_namespace", lambda _namespace: listener)
    return listener


@pytest.fixture
def namespace() -> Iterator[int]:
    with Path("/proc/self/ns/net").open() as entry:
        yield entry.fileno()


@asynccontextmanager
async def serving(namespace: int) -> AsyncIterator[None]:
    egress = Egress(Network.of("a.example"), on_connection=lambda _: None, on_lost=lambda _: None)
    await egress.serve(namespace)
    yield
    await egress.close()


async def test_a_proxy_that_is_closed_before_it_has_begun_listens_no_more(
    namespace: int, listener: socket.socket
) -> None:
    async with serving(namespace):
        pass
    assert listener.fileno() < 0


@pytest.mark.parametrize("turns", range(6))
async def test_a_proxy_that_is_closed_while_a_connection_comes_closes_that(
    turns: int, namespace: int, listener: socket.socket
) -> None:
    async with serving(namespace):
        for _ in range(3):  # now it waits for connections
            await asyncio.sleep(0)
        client = socket.create_connection(listener.getsockname(), 10)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionResetError):  # it was never taken
        assert await asyncio.to_thread(client.recv, 1) == b""
