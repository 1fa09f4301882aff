from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.core.values import Connection, Destination, Network, NetworkLimits, registries, taking_uploads

HOSTS = ("a.example", "b.example", "c.example:8443", "pypi.org")


def test_without_a_word_nothing_can_be_reached() -> None:
    assert not Network()
    assert not Network.of()
    assert not Network.of("off")
    assert str(Network()) == "off"


def test_hosts_stand_for_themselves_and_https() -> None:
    network = Network.of("Example.org", " b.example:8443 ")
    assert network.allowed == {Destination("example.org", 443), Destination("b.example", 8443)}
    assert str(network) == "b.example:8443, example.org"


def test_registries_are_hosts_that_take_no_uploads() -> None:
    network = Network.of("registries", "a.example")
    assert Destination("files.pythonhosted.org") in network.allowed
    assert all(each.port == 443 for each in registries())
    assert not {each.host for each in registries()} & taking_uploads()
    assert "registry.npmjs.org" in taking_uploads()
    assert str(network) == "registries, a.example"
    assert Network.of(*str(network).split(",")) == network


@pytest.mark.parametrize(
    "word",
    [
        "127.0.0.1", "127.1", "0x7f.0x1", "1.2.3.4:443", "[::1]:443", "::1", "localhost", "*.example.org", "a.b/c",
        "https://example.org", "user@example.org", "example.org.", "exa mple.org", "example.org:0", "example.org:65536",
        "example.org:443:443", "-a.example", "a..example", "a.example:", "a.1", "bücher.example", "a\n.example",
        "a" * 64 + ".example",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"must name hosts"):
        Network.of(word)


def test_off_stands_alone() -> None:
    with pytest.raises(ValueError, match="not both"):
        Network.of("off", "a.example")


@given(st.sets(st.sampled_from(HOSTS)), st.sets(st.sampled_from((*HOSTS, "registries"))))
def test_narrowing_never_adds_anything(operator: set[str], wanted: set[str]) -> None:
    limits = NetworkLimits(total_bytes=7)
    most = Network(allowed=Network.of(*operator).allowed, limits=limits)
    narrowed = most.narrowed(Network.of(*wanted))
    assert narrowed.allowed <= most.allowed
    assert narrowed.allowed <= Network.of(*wanted).allowed
    assert narrowed.limits == limits
    assert narrowed.narrowed(Network.of(*wanted)) == narrowed


def test_a_connection_fits_on_a_line() -> None:
    assert str(Connection(host="a.example", port=443, allowed=True, sent=5, received=7)) == (
        "a.example:443 allowed, 5 bytes out, 7 in"
    )
    assert str(Connection(host="", port=0, allowed=False, reason="no")) == "?:0 refused, 0 bytes out, 0 in: no"
