"""The server's name in the first message of a TLS connection. Pure.

Read strictly after RFC 8446 (sections 4.1.2, 4.2, 5.1) and RFC 6066 (section 3): what a server could understand in two
ways is refused.
"""

from __future__ import annotations

import re

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
                return _name(body)

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


class _Reader:
    """Takes a message apart, from its beginning."""

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


def _name(body: bytes) -> str:
    """The server's name that a ClientHello gives in its extensions."""
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
