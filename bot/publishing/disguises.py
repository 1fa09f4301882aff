"""The forms in which a secret leaves: as it is, and as one line of a shell writes it. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from urllib.parse import quote


def plain_forms(secret: str) -> Iterator[str]:
    """The secret, turned round, in either case, in hexadecimal, in an address, and in base64."""
    raw = secret.encode()
    yield from {secret, secret.upper(), secret.lower()}
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    yield quote(secret, safe="")
    yield "".join(f"%{byte:02x}" for byte in raw)
    yield "".join(f"%{byte:02X}" for byte in raw)
    yield from _base64(raw)


def disguises(secret: str) -> Iterator[str]:
    """The secret in base32, in base64 twice, and in base64 of UTF-16, in which PowerShell takes commands."""
    raw = secret.encode()
    yield from _base32(raw)
    for inner in _base64(raw):
        yield from _base64(inner.encode())
    # Big-endian is the same bytes, one later.
    yield from _base64(secret.encode("utf-16-le"))


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that depend on the secret alone, wherever in a group of three bytes it begins."""
    found = set[str]()
    for skipped in range(3):
        shifted = bytes(skipped) + raw
        first, last = -(-skipped * 8 // 6), len(shifted) * 8 // 6
        found.add(base64.b64encode(shifted).decode()[first:last])
        found.add(base64.urlsafe_b64encode(shifted).decode()[first:last])
    yield from found


def _base32(raw: bytes) -> Iterator[str]:
    """The same for groups of five bytes."""
    for skipped in range(5):
        shifted = bytes(skipped) + raw
        first, last = -(-skipped * 8 // 5), len(shifted) * 8 // 5
        form = base64.b32encode(shifted).decode()[first:last]
        yield form
        yield form.lower()
