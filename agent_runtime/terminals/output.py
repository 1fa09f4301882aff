"""Conversion of terminal bytes to readable text, and log files for long output."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agent_runtime.core.text import replace_binary
from agent_runtime.sandbox.protocol import PrivateDirectory, Sandbox

if TYPE_CHECKING:
    from agent_runtime.terminals.full_screen import FullScreen


COMMAND_BYTES = 128 * 1024**2
"""Output of one command; more stops it."""
CAPTURE_CHARS = 5_000
"""Characters of head and of tail."""


class Output:
    """Bounded text of a command's output.

    Attributes:
        log: path of the full log for the agent, or None.
        log_error: reason for a missing log, or None.
    """

    def __init__(self, *, spool: Spool | None = None, name: str = "", quota: int = COMMAND_BYTES) -> None:
        self._screen = Screen()
        self._capture = Capture()
        self._new = Capture()
        self._spool = spool
        self._name = name
        self.quota = quota
        self._file: BinaryIO | None = None
        self.bytes = 0
        self.log: str | None = None
        self.log_error: str | None = None

    @property
    def is_over_quota(self) -> bool:
        """Whether the command wrote more than its quota."""
        return self.bytes > self.quota

    @property
    def has_new(self) -> bool:
        """Whether there is output since `take_new`."""
        return bool(self._new.characters or self._screen.line or self._screen.full_screen)

    def feed(self, data: bytes) -> None:
        """Add terminal bytes."""
        self.bytes += len(data)
        self._append(self._screen.feed(data))

    def take_new(self) -> str:
        """Return the output since the last call, with any full-screen program's screen."""
        self._append(self._screen.flush())
        text = self._new.render(log=self.log)
        self._new = Capture()
        screen = self._screen.full_screen
        return text if screen is None else f"{text}[full-screen program; its screen:]\n{screen}"

    def render_all(self) -> str:
        """Return all output, truncated in the middle."""
        self._append(self._screen.flush())
        self._new = Capture()
        return self._capture.render(log=self.log)

    def close(self) -> None:
        """Flush the last line and close the log."""
        self._append(self._screen.flush())
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, text: str) -> None:
        if not text:
            return
        if self._capture.characters + len(text) > 2 * CAPTURE_CHARS:  # the whole will be cut
            self._write_log(text)
        lines = text.count("\n")
        self._capture.add(text, lines)
        self._new.add(text, lines)

    def _write_log(self, text: str) -> None:
        if self._spool is None or self.log_error is not None or self.is_over_quota:
            return
        try:
            if self._file is None:
                if self.log is not None:
                    return
                self.log, self._file = self._spool.open(self._name)
                self._file.write(self._capture.head_and_tail().encode())
            self._file.write(text.encode())
        except OSError as error:
            # A full disk must not end the command; `log_error` reports it.
            self.log, self.log_error = None, str(error)


class Capture:
    """Head and tail of a text.

    Attributes:
        characters: total length.
        lines: total line ends.
    """

    def __init__(self, limit: int = CAPTURE_CHARS) -> None:
        self._limit = limit
        self._head = ""
        self._tail = ""
        self._head_lines = 0
        self.characters = 0
        self.lines = 0

    @property
    def is_truncated(self) -> bool:
        """Whether the middle is missing."""
        return self.characters > 2 * self._limit

    def add(self, text: str, lines: int) -> None:
        """Append text with `lines` line ends."""
        self.characters += len(text)
        self.lines += lines
        room = self._limit - len(self._head)
        if room > 0:
            self._head += text[:room]
            self._head_lines = self._head.count("\n")
            text = text[room:]
        if text:
            self._tail = (self._tail + text[-self._limit :])[-self._limit :]

    def head_and_tail(self) -> str:
        """Return head and tail, without a note of the gap."""
        return self._head + self._tail

    def render(self, *, log: str | None = None) -> str:
        """Return the text without binary data; a note counts the gap and names the log."""
        if not self.is_truncated:
            return replace_binary(self.head_and_tail())
        missing = self.characters - len(self._head) - len(self._tail)
        first = self._head_lines + 1
        last = self.lines - self._tail.count("\n") + 1
        log_note = f"; all of it: {log}" if log else ""
        gap = f"[… {missing:,} characters left out, lines {first:,}-{last:,}{log_note} …]"
        return f"{replace_binary(self._head)}\n{gap}\n{replace_binary(self._tail)}"


COLUMNS, ROWS = 120, 40
"""Size reported to programs; lines are not wrapped at it."""
_MAX_LINE = 4_096
_MAX_SEQUENCE = 4_096
# Bytes absent from plain output. Searching for each in turn takes half as long as one `translate` that deletes all.
_SPECIAL = (0x1B, 0x0D, 0x08, *(byte for byte in (*range(32), 127) if byte not in b"\t\n\x1b\r\b"))
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f]+)"
    r"|(?P<csi>\x1b\[(?P<params>[0-?]*)[ -/]*(?P<final>[@-~]))"
    r"|(?P<string>\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\))"
    r"|(?P<cut>\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z)"
    r"|(?P<escape>\x1b[ -/]*[0-~])"
    r"|(?P<control>[\x00-\x08\x0a-\x1f\x7f])"
)
_FULL_SCREEN_MODES = frozenset({"?47", "?1047", "?1049"})
_EMULATED = {**dict.fromkeys("@ABCDEFGJKLMPXade", 1), **dict.fromkeys("Hfr", 2)}
"""Cursor and erase commands, with their most parameters (ECMA-48)."""
_C1 = re.compile(r"[\x80-\x9f]")
"""8-bit control codes, unused in UTF-8, but pyte obeys them."""
_IGNORED = frozenset("\x05\x07\x0e\x0f\x11\x13\x1b")


class Screen:
    """Converts terminal bytes to final lines without colours.

    Attributes:
        line: current line, e.g. a prompt.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._column = 0
        self._partial = ""
        self._full: FullScreen | None = None
        self.line = ""

    @property
    def full_screen(self) -> str | None:
        """Screen of a full-screen program, or None."""
        return None if self._full is None else self._full.text

    def feed(self, data: bytes) -> str:
        """Return the text completed by `data`; invalid UTF-8 becomes U+FFFD."""
        text = self._decoder.decode(data)
        at_end = not self._partial and self._full is None and self._column == len(self.line)
        if at_end and not any(map(data.__contains__, _SPECIAL)):
            text = self.line + text
            end = text.rfind("\n") + 1
            if len(text) - end > _MAX_LINE:
                end = len(text)
            self.line = text[end:]
            self._column = len(self.line)
            return text[:end]
        settled: list[str] = []
        self._feed_tokens(self._partial + text, settled.append)
        return "".join(settled)

    def flush(self) -> str:
        """Return the current line and clear it."""
        line, self.line, self._column = self.line, "", 0
        return line

    def _feed_tokens(self, text: str, settle: Callable[[str], None]) -> None:
        self._partial = ""
        position = 0
        while position < len(text):
            if self._full is not None:
                position = self._feed_full(text, position)
                continue
            match = _TOKEN.match(text, position)
            if match is None:  # a lone escape before something that continues no sequence
                position += 1
                continue
            position = match.end()
            match match.lastgroup:
                case "text":
                    self._write(match["text"], settle)
                case "control":
                    self._control(match["control"], settle)
                case "final" | "csi":
                    self._command(match["params"], match["final"])
                case "cut" if len(match["cut"]) <= _MAX_SEQUENCE:
                    self._partial = match["cut"]
                case _:
                    pass

    def _write(self, text: str, settle: Callable[[str], None]) -> None:
        if self._column == len(self.line):
            self.line += text
        else:
            # Fill with blanks where the cursor is past the end of the line.
            before = self.line[: self._column].ljust(self._column)
            self.line = before + text + self.line[self._column + len(text) :]
        self._column += len(text)
        if len(self.line) > _MAX_LINE:
            settle(self.flush())

    def _control(self, character: str, settle: Callable[[str], None]) -> None:
        match character:
            case "\n":
                settle(self.flush() + "\n")
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\x0b" | "\x0c":
                settle(self.flush() + character)
            case _ if character in _IGNORED:
                pass
            case _:
                self._write("\N{REPLACEMENT CHARACTER}", settle)

    def _command(self, params: str, final: str) -> None:
        number = int(params) if params.isdecimal() and len(params) < 5 else 0  # noqa: PLR2004 - no line has more columns
        match final:
            case "K" if number == 0:
                self.line = self.line[: self._column]
            case "K":
                self.line = "" if number == 2 else " " * self._column + self.line[self._column :]  # noqa: PLR2004 - ECMA-48
            case "G":
                self._column = max(1, number) - 1
            case "C":
                self._column = min(self._column + max(1, number), _MAX_LINE)
            case "D":
                self._column = max(0, self._column - max(1, number))
            case "P":
                self.line = self.line[: self._column] + self.line[self._column + max(1, number) :]
            case "h" if _FULL_SCREEN_MODES & _modes(params):
                from agent_runtime.terminals.full_screen import FullScreen  # noqa: PLC0415 - few need pyte

                self._full = FullScreen(COLUMNS, ROWS)
            case _:
                pass

    def _feed_full(self, text: str, position: int) -> int:
        """Feed the emulator until full-screen mode ends; return the next position."""
        assert self._full is not None  # noqa: S101 - the caller checked
        tokens: list[str] = []
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                position += 1
                continue
            position = match.end()
            if match["final"] == "l" and _FULL_SCREEN_MODES & _modes(match["params"]):
                self._full = None
                return position
            if match["cut"] is not None and len(match["cut"]) <= _MAX_SEQUENCE:
                self._partial = match["cut"]
            else:
                tokens.append(_to_emulator(match))
        self._full.feed("".join(tokens))
        return position


def _to_emulator(match: re.Match[str]) -> str:
    """Filter a token: pyte raises on sequences that it half knows."""
    if (final := match["final"]) is not None:
        max_params = _EMULATED.get(final)
        if max_params is None or re.fullmatch(r"[0-9;]*", match["params"]) is None:
            return ""
        params = ";".join(match["params"].split(";")[:max_params])
        if final in "JK" and params not in {"", "0", "1", "2"}:
            return ""
        return f"\x1b[{params}{final}"
    if match["control"] is not None:
        return match["control"] if match["control"] in "\n\r\b" else ""
    if match["escape"] is not None:
        return match["escape"] if match["escape"][1:] in {"7", "8", "D", "E", "M"} else ""
    return _C1.sub("", match["text"] or "")


def _modes(params: str) -> set[str]:
    if not params.startswith("?"):
        return set()
    return {f"?{number}" for number in params[1:].split(";")}


TOTAL_BYTES = 512 * 1024**2
"""Logs of one job; new ones replace the oldest."""
_AGENT_LOGS = "/logs"


class Spool:
    """A log directory with a quota."""

    def __init__(self, directory: Path, *, agent_path: str | None = None, total_bytes: int = TOTAL_BYTES) -> None:
        """Store logs in `directory`, which the agent sees as `agent_path`."""
        self._directory = directory
        self._agent_path = agent_path or str(directory)
        self._total_bytes = total_bytes

    def open(self, name: str) -> tuple[str, BinaryIO]:
        """Open a log, removing old ones to make room; return its path for the agent and the file.

        Raises:
            OSError: the directory is not writable.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        logs = sorted(self._directory.glob("*.log"), key=lambda log: log.stat().st_mtime_ns)
        used = sum(log.stat().st_size for log in logs)
        for log in logs:
            if used + COMMAND_BYTES <= self._total_bytes:
                break
            used -= log.stat().st_size
            log.unlink()
        # Each terminal counts its commands from 1, so names can repeat.
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
        free = next(candidate for candidate in names if not (self._directory / f"{candidate}.log").exists())
        return f"{self._agent_path}/{free}.log", (self._directory / f"{free}.log").open("xb", buffering=0)


class OutputLogs:
    """Log directory of one runtime; a private one is removed on close."""

    def __init__(self, directory: Path | None = None) -> None:
        self._private: PrivateDirectory | None = None
        if directory is None:
            self._private = PrivateDirectory("codepilot-logs-")
            directory = self._private.path
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)

    def agent_paths(self, sandbox: Sandbox) -> dict[str, Path]:
        """Map the agent's path of the directory to it."""
        return {_AGENT_LOGS if sandbox.is_isolated else str(self.directory): self.directory}

    def close(self) -> None:
        """Remove a private directory; idempotent."""
        if self._private is not None:
            self._private.close()
