from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.sandbox.egress import ConnectRequest, RequestError

GOOD = b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\nUser-Agent: pip\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        GOOD,
        b"CONNECT PyPI.org:443 HTTP/1.1\r\nHost: pypi.ORG\r\nProxy-Connection: Keep-Alive\r\n\r\n",
        b"CONNECT pypi.org:443 HTTP/1.0\r\n\r\n",  # Python's http.client before 3.12
    ],
)
def test_a_tunnel_is_asked_for(head: bytes) -> None:
    request = ConnectRequest()
    assert request.feed(head) == ("pypi.org", 443)
    assert request.rest == b""
    assert request.accepted().startswith(b"HTTP/1.1 200 ")


@given(st.lists(st.integers(1, len(GOOD) - 1), max_size=10).map(sorted))
def test_it_does_not_matter_how_a_head_is_cut(cuts: list[int]) -> None:
    request, answers = ConnectRequest(), []
    for start, end in zip((0, *cuts), (*cuts, len(GOOD)), strict=True):
        if start < end:
            answers.append(request.feed(GOOD[start:end]))
    assert answers[-1] == ("pypi.org", 443)
    assert set(answers[:-1]) <= {None}


def test_what_follows_the_head_belongs_to_the_tunnel() -> None:
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
    assert request.refused(error).startswith(b"HTTP/1.1 %d " % status)
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
        answer = request.refused(error)
    assert answer.startswith(b"HTTP/1.1 4")


def _ask(request: ConnectRequest, data: bytes) -> tuple[str, int] | None:
    """All that a client says, and its end."""
    return request.feed(data) or request.feed(b"")
