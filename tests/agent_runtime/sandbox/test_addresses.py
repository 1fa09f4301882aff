from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.sandbox.egress import refusal

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
def test_what_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert refusal(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    assert refusal(address) is None


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_passes(address: object) -> None:
    parsed = ip_address(str(address))
    if parsed.is_private or parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_reserved:
        assert refusal(str(parsed)) or str(parsed).startswith(("64:ff9b::", "::ffff:"))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_in_ipv6_clothes(address: object) -> None:
    assert refusal(f"::ffff:{address}") == refusal(str(address))
    assert refusal(f"64:ff9b::{address}") == refusal(str(address))
