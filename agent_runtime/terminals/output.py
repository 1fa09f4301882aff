"""The output of one command on its way from the terminal to the reader."""

from __future__ import annotations

from typing import BinaryIO

from agent_runtime.core.binary import without_binary
from agent_runtime.terminals.screen import Screen
from agent_runtime.terminals.spool import COMMAND_BYTES, Spool

LIMIT = 5_000
"""Characters of head and of tail."""


class Output:
    """Bytes to text, kept twice in bounded memory: all of it, and what was not shown yet.

    Long output goes to a log as well, where there is a spool.

    Attributes:
        bytes: how many came.
        quota: how many may come.
        log: path of the file that has all of it in the agent's eyes, or None.
        log_error: why there is no log although there should be one, or None.
    """

    def __init__(self, *, spool: Spool | None = None, name: str = "", quota: int = COMMAND_BYTES) -> None:
        self._screen = Screen()
        self._whole = Capture()
        self._unseen = Capture()
        self._spool = spool
        self._name = name
        self.quota = quota
        self._file: BinaryIO | None = None
        self.bytes = 0
        self.log: str | None = None
        self.log_error: str | None = None

    @property
    def over_quota(self) -> bool:
        """Whether more came than one command may write."""
        return self.bytes > self.quota

    @property
    def fresh(self) -> bool:
        """Whether something came since `take`."""
        return bool(self._unseen.characters or self._screen.line or self._screen.full_screen)

    def feed(self, data: bytes) -> None:
        """Take what the terminal gave; beyond the quota only the end is kept up to date."""
        self.bytes += len(data)
        self._settle(self._screen.feed(data))

    def take(self) -> str:
        """What came since the last `take`, as it is to be shown; a full-screen program's screen as it is now."""
        self._settle(self._screen.flush())
        text = self._unseen.render(whole=self.log)
        self._unseen = Capture()
        screen = self._screen.full_screen
        return text if screen is None else f"{text}[full-screen program; its screen:]\n{screen}"

    def whole(self) -> str:
        """All of it, as it is to be shown."""
        self._settle(self._screen.flush())
        self._unseen = Capture()
        return self._whole.render(whole=self.log)

    def close(self) -> None:
        """Nothing more will come: settle the last line and close the log."""
        self._settle(self._screen.flush())
        if self._file is not None:
            self._file.close()
            self._file = None

    def _settle(self, text: str) -> None:
        if not text:
            return
        if self._whole.characters + len(text) > 2 * LIMIT:  # the whole will be cut
            self._write_log(text)
        lines = text.count("\n")
        self._whole.add(text, lines)
        self._unseen.add(text, lines)

    def _write_log(self, text: str) -> None:
        if self._spool is None or self.log_error is not None or self.over_quota:
            return
        try:
            if self._file is None:
                if self.log is not None:
                    return
                self.log, self._file = self._spool.open(self._name)
                self._file.write(self._whole.kept().encode())
            self._file.write(text.encode())
        except OSError as error:
            # A full disk must not end the command: the reader is told instead.
            self.log, self.log_error = None, str(error)


class Capture:
    """What is kept of a text that comes in pieces.

    Attributes:
        characters: length of the whole.
        lines: ends of line in the whole.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._head = ""
        self._tail = ""
        self._head_lines = 0
        self.characters = 0
        self.lines = 0

    @property
    def cut(self) -> bool:
        """Whether something is missing between head and tail."""
        return self.characters > 2 * self._limit

    def add(self, text: str, lines: int) -> None:
        """Take the next piece, which has that many ends of line."""
        self.characters += len(text)
        self.lines += lines
        room = self._limit - len(self._head)
        if room > 0:
            self._head += text[:room]
            self._head_lines = self._head.count("\n")
            text = text[room:]
        if text:
            self._tail = (self._tail + text[-self._limit :])[-self._limit :]

    def kept(self) -> str:
        """Head and tail, without a word about what is missing; the whole unless `cut`."""
        return self._head + self._tail

    def render(self, *, whole: str | None = None) -> str:
        """The text, or its head and tail with a line between that counts what is missing and names the `whole`.

        Binary data is left out of either.
        """
        if not self.cut:
            return without_binary(self.kept())
        missing = self.characters - len(self._head) - len(self._tail)
        first = self._head_lines + 1
        last = self.lines - self._tail.count("\n") + 1
        where = f"; all of it: {whole}" if whole else ""
        left_out = f"[… {missing:,} characters left out, lines {first:,}-{last:,}{where} …]"
        return f"{without_binary(self._head)}\n{left_out}\n{without_binary(self._tail)}"
