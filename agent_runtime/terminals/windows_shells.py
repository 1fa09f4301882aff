r"""Make the shells of Windows run a command and report its end, and read what ConPTY makes of it. Pure.

A command goes into a file that the shell runs in its own session: no quoting, line editing or half-typed line can come
in between, and whatever is left open in it ends with the file. The file first says that the command begins; what
the terminal shows before that is the echo of our own line. Behind it a second file says how it ended and where the
shell stands. Both are escape sequences with a random nonce, as for bash (see `bash`), which ConPTY passes through.

Exit codes are those of the last program of a pipe: these shells do not keep the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from agent_runtime.terminals.bash import Marker, mark, parse_mark, possible_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One shell.

    Attributes:
        argv: how it is started.
        suffix: of the files that it runs.
        encoding: of these files.
        newline: of these files.
        line: what is typed; `{command}` and `{end}` are the paths of the two files, `{nonce}` the nonce.
        apostrophe: how an apostrophe is written in `line`.
        begin: what a command's file begins with; `{mark}` is the text to write.
        after: what it ends with.
        end: the second file.
        setup: a command that makes a new shell ready.
    """

    argv: tuple[str, ...]
    suffix: str
    encoding: str
    newline: str
    line: str
    apostrophe: str
    begin: str
    after: str = ""
    end: str
    setup: str

    def typed(self, command: PurePath, end: PurePath, nonce: str) -> str:
        """The line that runs a command's file."""
        command_path, end_path = (path.as_posix().replace("'", self.apostrophe) for path in (command, end))
        return self.line.format(command=command_path, end=end_path, nonce=nonce) + "\r"

    def script(self, command: str, nonce: str) -> bytes:
        """The file of a command."""
        return self._file(self.begin.format(mark=f"\x1b]7770;{nonce};begin\x07") + command + "\n" + self.after)

    def ending(self) -> bytes:
        """The file that says how a command ended."""
        return self._file(self.end)

    def _file(self, text: str) -> bytes:
        return text.replace("\r\n", "\n").replace("\n", self.newline).encode(self.encoding, errors="replace")


DIALECTS = {
    "powershell": Dialect(
        argv=("powershell.exe", "-NoLogo", "-NoProfile", "-ExecutionPolicy", "Bypass"),
        suffix=".ps1",
        encoding="utf-8-sig",  # without the mark, Windows PowerShell takes a file for the system's own code page
        newline="\r\n",
        line="$__cp_ok = $false; $global:LASTEXITCODE = 0; "
        "try {{ . '{command}' }} catch {{ $_ | Out-Default }} finally {{ . '{end}' {nonce} }}",
        apostrophe="''",
        begin="[Console]::Write('{mark}')\n",
        after="$__cp_ok = $?\n",
        end="$__cp_code = if ($__cp_ok) { 0 } elseif ($LASTEXITCODE) { $LASTEXITCODE } else { 1 }\n"
        '[Console]::Write("$([char]27)]7770;$($args[0]);$__cp_code;$PID;$($PWD.ProviderPath)$([char]7)")\n',
        setup="Remove-Module PSReadLine -ErrorAction SilentlyContinue\n"
        "$ProgressPreference = 'SilentlyContinue'; $env:PAGER = 'cat'; $env:NO_COLOR = '1'; $env:CI = 'true'\n"
        "[Console]::OutputEncoding = [Text.Encoding]::UTF8; function global:prompt { ' ' }",
    ),
    "cmd": Dialect(
        argv=("cmd.exe", "/d", "/q"),
        suffix=".cmd",
        encoding="utf-8",
        newline="\r\n",
        line='call "{command}" & call "{end}" {nonce}',
        apostrophe="'",
        # `set /p` writes without a new line but leaves an error code, and `(call )` takes it away.
        begin='@echo off\n<nul set /p "={mark}"\n(call )\n',
        end='@<nul set /p "=\x1b]7770;%~1;%ERRORLEVEL%;0;%CD%\x07"\n',
        setup="chcp 65001 >nul\nset NO_COLOR=1\nset CI=true",
    ),
    "bash": Dialect(
        argv=("bash", "--noprofile", "--norc", "--noediting", "-i"),
        suffix=".sh",
        encoding="utf-8",
        newline="\n",
        # Ctrl+C ends the whole line, but not what stands before the prompt.
        line="PROMPT_COMMAND=\". '{end}' {nonce}\"; . '{command}'",
        apostrophe="'\\''",
        begin="builtin printf '%s' '{mark}'\n",
        end='builtin printf \'\\e]7770;%s;%s;%s;%s\\a\' "$1" "$?" "$$" "$PWD"\n',
        setup="set +o history +H; unset HISTFILE; PS1= PS2=; export PAGER=cat GIT_PAGER=cat NO_COLOR=1 CI=true",
    ),
}
"""By the name that `execute` knows them by, the usual one first."""


_LAST_WORDS = 2_000
"""Characters before a command begins that are looked through for its beginning, and told when it never comes."""


class Parted:
    """Parts what a terminal gives while a command runs: what comes before it, its output, and how it ended.

    Attributes:
        begun: whether the command has begun.
        marker: how it ended, or None.
    """

    def __init__(self, nonce: str) -> None:
        self._begin = f"\x1b]7770;{nonce};begin\x07"
        self._mark = mark(nonce).decode()
        self._rest = ""
        self.begun = False
        self.marker: Marker | None = None

    def feed(self, text: str) -> str:
        """Take the next piece; the output in it, without what may be the start of a marker."""
        text = self._rest + text
        self._rest = ""
        if not self.begun:
            at = text.find(self._begin)
            if at < 0:
                self._rest = text[-_LAST_WORDS:]
                return ""
            self.begun = True
            text = text[at + len(self._begin) :]
        start = text.find(self._mark)
        end = text.find("\x07", start) if start >= 0 else -1
        if end >= 0:
            self.marker = parse_mark(text[start + len(self._mark) : end].encode())
            return text[:start]
        cut = start if start >= 0 else possible_start(text, self._mark)
        self._rest = text[cut:]
        return text[:cut]

    def unbegun(self) -> str:
        """What was said instead of beginning: an error of the shell about the file."""
        return "" if self.begun else self._rest


_CURSOR = re.compile(r"\x1b\[(\d*)(?:;(\d*))?H|\x1b\[(\d*)X|\r?\n")
_CUT = re.compile(r"\x1b(?:\[[0-?]*)?\Z|\r\Z")


class Unpainted:
    """Turns a screen that ConPTY paints back into lines: it puts the cursor where a program has begun a new line."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._row = 1
        self._rest = ""

    def feed(self, text: str) -> str:
        """Take the next piece; the same with new lines in the place of cursor positions."""
        text = self._rest + text
        cut = _CUT.search(text)
        self._rest = cut[0] if cut else ""
        return _CURSOR.sub(self._line, text[: len(text) - len(self._rest)])

    def _line(self, match: re.Match[str]) -> str:
        if match[0].endswith("\n"):
            self._row = min(self._row + 1, self._rows)
            return "\n"
        if match[3] is not None:  # blanks that leave the cursor where it is
            return ""
        row, column = int(match[1] or 1), int(match[2] or 1)
        down, self._row = row - self._row, row
        # Upwards it paints again what was there.
        return ("\n" * down if down > 0 else "") + f"\x1b[{column}G"
