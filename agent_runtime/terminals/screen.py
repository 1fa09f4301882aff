"""A terminal's bytes as the text that a person would have read. Pure.

Lines end up as they were last shown: carriage returns and backspaces overwrite, colours and titles vanish. A program
that takes the whole screen is followed by a terminal emulator for as long as it does.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime.terminals.full_screen import FullScreen

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
