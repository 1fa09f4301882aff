"""Finds fence lines in text that arrives in chunks; knows nothing of blocks. Pure, linear time."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MIN_LENGTH = 3
_MAX_INDENT = 3
_FILENAME = re.compile(r"""(?:^|\s)filename=(?:"([^"]*)"|'([^']*)'|(\S+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceLine:
    """A line that opens or closes a fence, decided once the whole line is known.

    Attributes:
        text: the line verbatim, with its newline unless the text ended without one.
        char: a backtick or a tilde.
        length: how many of them.
        info: the info string without surrounding blanks; empty for a bare fence.
        line: 1-based line number in the text.
    """

    text: str
    char: str
    length: int
    info: str
    line: int

    @property
    def word(self) -> str:
        """The first word of the info string, in lower case; it decides what the block is."""
        return self.info.split(maxsplit=1)[0].lower() if self.info else ""

    @property
    def filename(self) -> str | None:
        """The value of ``filename=`` (bare or in quotes), else None."""
        match = _FILENAME.search(self.info)
        return next((value for value in match.groups() if value), None) if match else None


Token = str | FenceLine
"""A run of ordinary text, or one fence line. Together they are the text, BOM dropped and CRLF read as LF."""


class FenceScanner:
    """Cuts a stream of chunks into ordinary text and fence lines.

    A fence line has at most 3 spaces, then 3 or more backticks or tildes, then an info string, which for backticks
    holds no backtick (CommonMark 0.31, section 4.5; blanks after a bare fence do not count). Ordinary text is passed
    on at once: what is held back is the prefix of a line that may yet be a fence, and a carriage return that may
    be half of a CRLF.
    """

    def __init__(self) -> None:
        self._started = False
        self._carriage_return = False
        self._line = 1
        self._in_text = False
        self._clear()

    def feed(self, chunk: str) -> list[Token]:
        """Take the next chunk, of any length, and return what it settles."""
        if self._in_text and not self._carriage_return and "\n" not in chunk and "\r" not in chunk:
            return [chunk] if chunk else []  # The hot path: the middle of an ordinary line.
        if chunk and not self._started:
            self._started = True
            chunk = chunk.removeprefix("\ufeff")
        # CRLF is read as LF, also where a chunk border cuts the pair.
        if self._carriage_return and chunk:
            chunk = "\r" + chunk
            self._carriage_return = False
        if chunk.endswith("\r"):
            chunk = chunk[:-1]
            self._carriage_return = True
        return self._scan(chunk.replace("\r\n", "\n"))

    def close(self) -> list[Token]:
        """Say that the text is over, and return what was held back."""
        tokens = self._scan("\r") if self._carriage_return else []
        self._carriage_return = False
        if self._held:
            tokens.append(self._held_line())
        return tokens

    def _scan(self, chunk: str) -> list[Token]:
        tokens: list[Token] = []
        texts: list[str] = []
        position = 0
        while position < len(chunk):
            end = chunk.find("\n", position) + 1
            piece = chunk[position : end or len(chunk)]
            position += len(piece)
            if self._in_text or (not self._held and piece[0] not in " `~"):
                texts.append(piece)
                self._in_text = not end
            elif self._is_text(piece):
                texts += [*self._held, piece]
                self._clear()
                self._in_text = not end
            else:
                self._held.append(piece)
                if end:
                    _flush(texts, tokens)
                    tokens.append(self._held_line())
            self._line += bool(end)
        _flush(texts, tokens)
        return tokens

    def _clear(self) -> None:
        """Forget the held line; the next piece begins a new one."""
        self._held: list[str] = []
        self._indent = 0
        self._char = ""
        self._length = 0
        self._in_info = False

    def _is_text(self, piece: str) -> bool:
        """Read on in a line that may be a fence; True as soon as it cannot be one."""
        rest = piece
        if not self._char:
            rest = piece.lstrip(" ")
            self._indent += len(piece) - len(rest)
            if self._indent > _MAX_INDENT or rest[:1] not in ("", "`", "~"):
                return True
            self._char = rest[:1]
        if self._char and not self._in_info:
            run = len(rest)
            rest = rest.lstrip(self._char)
            self._length += run - len(rest)
            if not rest:
                return False
            if self._length < _MIN_LENGTH:
                return True
            self._in_info = True
        return self._char == "`" and "`" in rest

    def _held_line(self) -> Token:
        """End the held line: a fence if it got as far as one, else text."""
        text = "".join(self._held)
        char, length = self._char, self._length
        self._clear()
        if length < _MIN_LENGTH:
            return text
        info = text.strip()[length:].strip()
        return FenceLine(text=text, char=char, length=length, info=info, line=self._line)


def _flush(texts: list[str], tokens: list[Token]) -> None:
    """Move the gathered text into the tokens, as one run."""
    if texts:
        tokens.append("".join(texts))
        texts.clear()
