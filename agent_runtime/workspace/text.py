"""A file's bytes as text, and back, so that everything an edit does not touch survives. Pure."""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from functools import cached_property

from agent_runtime.core.errors import ToolError

_BOMS = (  # the longer ones first: UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFFED = 8000  # bytes that git, too, looks at for a NUL
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MAX_CONTROL_SHARE = 0.1


def version_of(data: bytes) -> str:
    """A short tag of a file's content: 8 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:8]


@dataclass(frozen=True)
class Text:
    """A text file, its line endings as they are.

    Attributes:
        raw: the text without a byte order mark.
        encoding: Python's name of its encoding.
        bom: the byte order mark, or nothing.
    """

    raw: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their endings, numbered as ripgrep and git number them: only a newline ends one."""
        lines = split(self.raw)
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def count(self) -> int:
        """How many lines there are."""
        return self.raw.count("\n") + (not self.ends_with_newline)

    def first(self, count: int) -> tuple[str, ...]:
        """The first lines; of a large file this takes much less room than all of them."""
        if "lines" in self.__dict__ or count >= self.count:
            return self.lines[:count]
        lines = self.raw.split("\n", count)[:count]
        return tuple(lines) if self.newline == "\n" else tuple(line.removesuffix("\r") for line in lines)

    @cached_property
    def newline(self) -> str:
        """The line ending that most lines have."""
        crlf = self.raw.count("\r\n")
        return "\r\n" if crlf and crlf * 2 > self.raw.count("\n") else "\n"

    @cached_property
    def plain(self) -> str:
        """The text with newlines only, whose `split` gives the lines; takes a thirtieth of their room."""
        return self.raw if self.newline == "\n" else self.raw.replace("\r\n", "\n").removesuffix("\r")

    @property
    def ends_with_newline(self) -> bool:
        """Whether the last line is terminated; an empty text counts as if it were."""
        return not self.raw or self.raw.endswith("\n")

    def encode(self, raw: str) -> bytes:
        """The bytes of a new text in the same encoding, mark included.

        Raises:
            ToolError: the encoding has no such character.
        """
        try:
            return self.bom + raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = raw[error.start]
            raise ToolError(
                f"the file is {self.encoding} and cannot hold {bad!r} (U+{ord(bad):04X}); use other characters, or "
                "write the whole file with mode='w', which makes it UTF-8",
                kind="ValueError",
            ) from error

    @property
    def peculiarities(self) -> str:
        """What is unusual about the bytes, for a header; empty for plain UTF-8 with newlines."""
        notes = [] if self.encoding == "utf-8" else [self.encoding]
        if self.bom and self.encoding == "utf-8":
            notes.append("UTF-8 with byte order mark")
        if self.newline == "\r\n":
            notes.append("CRLF line endings")
        if not self.ends_with_newline:
            notes.append("no newline at the end")
        return ", ".join(notes)


def split(raw: str) -> list[str]:
    """Cut into lines at newlines only; a last newline ends the last line and begins none."""
    lines = raw.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def decode(data: bytes) -> Text | None:
    """Read a file's bytes as text: UTF-8, UTF-16 and UTF-32 with their marks, else Latin-1. None when it is binary."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return Text(data[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                continue
    if b"\0" in data[:_SNIFFED]:
        return None
    try:
        return Text(data.decode("utf-8"))
    except UnicodeDecodeError:
        sample = data[:_SNIFFED]
        controls = sum(1 for byte in sample if (byte < 0x20 and byte not in _TEXT_CONTROLS) or 0x7F <= byte < 0xA0)  # noqa: PLR2004 - the C0 and C1 ranges
        too_many = controls > len(sample) * _MAX_CONTROL_SHARE
        return None if too_many else Text(data.decode("latin-1"), "latin-1")
