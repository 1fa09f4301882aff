"""Restrict the addresses of a listed name to those of the public Internet. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

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
    """What is wrong with connecting to an address, in a few words; None when it is a public one."""
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
