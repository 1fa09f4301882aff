"""Pictures for tests: real ones, as small as they come or as large as need be."""

from __future__ import annotations

import struct
import zlib


def png(side: int = 1, *, padding: int = 0) -> bytes:
    """A grey square, `side` pixels wide, that `padding` bytes of text make larger."""
    row = b"\0" + b"\x80" * side
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)),
        *([(b"tEXt", b"k\0" + b"x" * padding)] if padding else []),
        (b"IDAT", zlib.compress(row * side)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
