"""Images of every kind that models see, byte by byte; only their heads are meant to be looked at."""

from __future__ import annotations

import struct
import zlib

from agent_runtime import Image


def png(width: int = 2, height: int = 2, *, shade: int = 0) -> bytes:
    """A whole PNG of one shade of grey."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + bytes([shade]) * width) * height
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def gif(width: int = 2, height: int = 2) -> bytes:
    """The head of a GIF."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def jpeg(width: int = 2, height: int = 2) -> bytes:
    """The head of a JPEG."""
    application = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\1\1\0\0\1\0\1\0\0"
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + application + frame + b"\xff\xd9"


def webp(width: int = 2, height: int = 2) -> bytes:
    """The head of a WebP without loss."""
    body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 5
    data = b"WEBPVP8L" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data)) + data


def picture(source: str = "issue #12 by @mona", *, shade: int = 0) -> Image:
    """A small image; each shade is another one."""
    return Image.of(source, png(shade=shade))
