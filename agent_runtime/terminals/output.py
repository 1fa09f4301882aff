"""The output of a command: from a terminal's bytes to the text that a person would have read, and to log files.

`Output` takes the bytes and gives what is new or all of it, cut in the middle where it is long (`Capture`). `Screen`
carries out what control sequences do to lines; a program that takes the whole screen is followed by `FullScreen`. What
is too long to be shown goes to a log of `Spool` as well, within a quota.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agent_runtime.core.text import replace_binary
from agent_runtime.sandbox.protocol import Sandbox, Temporary

if TYPE_CHECKING:
    from agent_runtime.terminals.full_screen import FullScreen


COMMAND_BYTES = 128 * 1024**2
"""Output of one command; more stops the command."""
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
            return replace_binary(self.kept())
        missing = self.characters - len(self._head) - len(self._tail)
        first = self._head_lines + 1
        last = self.lines - self._tail.count("\n") + 1
        where = f"; all of it: {whole}" if whole else ""
        left_out = f"[… {missing:,} characters left out, lines {first:,}-{last:,}{where} …]"
        return f"{replace_binary(self._head)}\n{left_out}\n{replace_binary(self._tail)}"


COLUMNS, ROWS = 120, 40
"""What programs are told. Nothing is wrapped at it: a line is as long as the program makes it."""
_HOLD = 4_096
_LONGEST_SEQUENCE = 4_096
# What plain output has none of. To look for each in turn takes half as long as one `translate` that deletes them all.
_SPECIAL = (0x1B, 0x0D, 0x08, *(each for each in (*range(32), 127) if each not in b"\t\n\x1b\r\b"))
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
"""Cursor and erase commands that make up a screen, each with the most parameters it has (ECMA-48)."""
_C1 = re.compile(r"[\x80-\x9f]")
"""A second way to write the same sequences; nobody uses it in UTF-8, but pyte obeys it."""
_SILENT = frozenset("\x05\x07\x0e\x0f\x11\x13\x1b")


class Screen:
    """Takes a terminal's bytes in pieces of any size, gives the lines that are settled.

    Lines are given as they were last shown: carriage returns and backspaces overwrite, colours and titles are removed.

    Attributes:
        line: the last line as it stands now, not settled yet: a prompt, a progress bar.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._column = 0
        self._cut = ""
        self._full: FullScreen | None = None
        self.line = ""

    @property
    def full_screen(self) -> str | None:
        """What a program that took the whole screen shows now, or None when none did."""
        return None if self._full is None else self._full.text

    def feed(self, data: bytes) -> str:
        """The text that `data` settles; invalid UTF-8 comes as U+FFFD."""
        text = self._decoder.decode(data)
        at_end = not self._cut and self._full is None and self._column == len(self.line)
        if at_end and not any(map(data.__contains__, _SPECIAL)):
            text = self.line + text
            end = text.rfind("\n") + 1
            if len(text) - end > _HOLD:
                end = len(text)
            self.line = text[end:]
            self._column = len(self.line)
            return text[:end]
        settled: list[str] = []
        self._feed_tokens(self._cut + text, settled.append)
        return "".join(settled)

    def flush(self) -> str:
        """Settle the last line as it stands, without an end of line, and give it."""
        line, self.line, self._column = self.line, "", 0
        return line

    def _feed_tokens(self, text: str, settle: Callable[[str], None]) -> None:
        self._cut = ""
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
                case "cut" if len(match["cut"]) <= _LONGEST_SEQUENCE:
                    self._cut = match["cut"]
                case _:
                    pass

    def _write(self, text: str, settle: Callable[[str], None]) -> None:
        if self._column == len(self.line):
            self.line += text
        else:
            # Blanks stand where the cursor went past the end of the line.
            before = self.line[: self._column].ljust(self._column)
            self.line = before + text + self.line[self._column + len(text) :]
        self._column += len(text)
        if len(self.line) > _HOLD:
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
            case _ if character in _SILENT:
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
                self._column = min(self._column + max(1, number), _HOLD)
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
        """Feed the emulator up to the end of full screen, if `text` has it; where to go on."""
        assert self._full is not None  # noqa: S101 - the caller asked
        shown: list[str] = []
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                position += 1
                continue
            position = match.end()
            if match["final"] == "l" and _FULL_SCREEN_MODES & _modes(match["params"]):
                self._full = None
                return position
            if match["cut"] is not None and len(match["cut"]) <= _LONGEST_SEQUENCE:
                self._cut = match["cut"]
            else:
                shown.append(_emulable(match))
        self._full.feed("".join(shown))
        return position


def _emulable(match: re.Match[str]) -> str:
    """A token as pyte can take it, or nothing: pyte raises on sequences that it half knows."""
    if (final := match["final"]) is not None:
        most = _EMULATED.get(final)
        if most is None or re.fullmatch(r"[0-9;]*", match["params"]) is None:
            return ""
        params = ";".join(match["params"].split(";")[:most])
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
"""Logs of one job; the oldest go when new ones need the room."""
_LOGS = "/logs"


class Spool:
    """A directory of logs that never holds much more than its quota."""

    def __init__(self, directory: Path, *, seen_as: str | None = None, total_bytes: int = TOTAL_BYTES) -> None:
        """Keep logs in `directory`, which the agent knows as `seen_as`."""
        self._directory = directory
        self._seen_as = seen_as or str(directory)
        self._total_bytes = total_bytes

    def open(self, name: str) -> tuple[str, BinaryIO]:
        """A new file for one command's output, which the caller closes; older logs make room first.

        Returns:
            Its path in the agent's eyes, and the file.

        Raises:
            OSError: the directory cannot be written.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        logs = sorted(self._directory.glob("*.log"), key=lambda log: log.stat().st_mtime_ns)
        used = sum(log.stat().st_size for log in logs)
        for log in logs:
            if used + COMMAND_BYTES <= self._total_bytes:
                break
            used -= log.stat().st_size
            log.unlink()
        # Terminals come and go, and each counts its commands from 1.
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
        free = next(each for each in names if not (self._directory / f"{each}.log").exists())
        return f"{self._seen_as}/{free}.log", (self._directory / f"{free}.log").open("xb", buffering=0)


class OutputLogs:
    """The directory for the logs of one runtime: one that was given, or a private one that goes with this object.

    Attributes:
        directory: where it is on this machine.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._private: Temporary | None = None
        if directory is None:
            self._private = Temporary("codepilot-logs-")
            directory = self._private.path
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)

    def seen_in(self, sandbox: Sandbox) -> dict[str, Path]:
        """It by its path in the agent's eyes: a name that tells nothing of the host, where the sandbox has its own."""
        return {_LOGS if sandbox.apart else str(self.directory): self.directory}

    def close(self) -> None:
        """Remove it if it is private; idempotent."""
        if self._private is not None:
            self._private.close()
