from __future__ import annotations

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.sandbox.egress import ClientHello, HelloError

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9](\.[a-z][a-z0-9]{1,20}){1,4}", fullmatch=True)


def real_hello(name: str | None, *, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What Python's own TLS client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = most
    context.set_alpn_protocols(["h2", "http/1.1"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def records(message: bytes, *sizes: int) -> bytes:
    """A handshake message in TLS records of these sizes, and one for the rest."""
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
    """A ClientHello of our own making, as a handshake message."""
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
def test_what_could_be_understood_in_two_ways_is_refused(data: bytes, why: str) -> None:
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
def test_openssl_never_reads_another_name_in_what_is_let_through(data: st.DataObject) -> None:
    """The judge is the TLS of most servers: whatever we take a name from, it must take the same name from."""
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


def test_openssl_is_asked_for_the_name() -> None:
    assert _openssl_name(real_hello("a.example")) == "a.example"


def _openssl_name(hello: bytes) -> str | None:
    """The name that OpenSSL takes from a hello; None when it refuses it before it comes so far."""
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
