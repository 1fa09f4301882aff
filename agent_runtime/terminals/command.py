"""Commands of a terminal and the lines by which bash runs them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import AnyStr, Literal

from agent_runtime.terminals.output import Output

Status = Literal["completed", "running", "waiting for input", "incomplete", "restarted", "killed", "stopped"]
"""`incomplete`: nothing was run; `restarted`: the shell ended; `killed`: by a limit; `stopped`: interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReport:
    """State of a command and its output.

    Attributes:
        pipe: exit codes of the last pipeline's stages.
        ok: ended, with every stage successful.
        output: new text, or all of it.
        log: agent's path of the whole output, if `output` is truncated.
    """

    number: int
    command: str
    status: Status
    exit_code: int | None
    pipe: tuple[int, ...]
    ok: bool
    output: str
    cwd: str
    seconds: float
    note: str
    log: str | None = None


@dataclass(slots=True, kw_only=True)
class TerminalCommand:
    """A command in progress; `stop_reason` is set during an interrupt."""

    number: int
    text: str
    output: Output
    launched: bool = False
    started: float = field(default_factory=time.monotonic)
    status: Status = "running"
    exit_code: int | None = None
    pipe: tuple[int, ...] = ()
    ok: bool = False
    seconds: float = 0.0
    note: str = ""
    stop_reason: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    def has_progressed(self, since: int) -> bool:
        """Whether it has ended or written more than `since` bytes."""
        return not self.is_running or self.output.bytes > since

    def add_note(self, note: str) -> None:
        """Append a note, unless it is empty."""
        self.note = "; ".join(text for text in (self.note, note) if text)

    def finish(self, status: Status) -> None:
        """Record the end of the command."""
        self.seconds = time.monotonic() - self.started
        self.output.close()
        self.status = status
        notes = [self.note] if self.note else []
        if self.stop_reason:
            self.status = "stopped"
            self.ok = False
            notes.append(self.stop_reason)
        if status == "restarted":
            notes.append("the shell itself ended; the next command gets a new one, without its variables and directory")
        self.note = "; ".join(notes)

    def report(self, output: str, *, cwd: str, late: str = "", waits: bool = False) -> CommandReport:
        """Build a report with `output`; `late` is output of background jobs."""
        log_error = self.output.log_error
        notes = [self.note, f"no log of the whole output: {log_error}" if log_error else "", late]
        return CommandReport(
            number=self.number,
            command=self.text,
            status="waiting for input" if waits and self.is_running else self.status,
            exit_code=self.exit_code,
            ok=self.ok,
            output=output,
            pipe=self.pipe,
            cwd=cwd,
            seconds=time.monotonic() - self.started if self.is_running else self.seconds,
            note="; ".join(note for note in notes if note),
            log=self.output.log,
        )


ARGV = ("bash", "--noprofile", "--norc", "--noediting", "-i")
_MAX_PIECE_BYTES = 3_000
"""Bytes. A terminal in canonical mode cuts a line at 4,095 bytes: `N_TTY_BUF_SIZE` in Linux's n_tty.c."""

# Parses a command and returns before running it, even if the command closes the brace. The colon makes a body of a
# comment; it is never run, as a fork bomb may be a function of that name. The locale makes bash's errors English.
_CHECK = r"""__cp_check() { builtin local LC_ALL=C; eval "\\builtin return; { :"$'\n'"$__cp_text"$'\n}'; }"""
# `__cp_end` runs after the command, in the same eval, because eval itself overwrites PIPESTATUS. Under `set -e` it
# returns 0, as a false `test && command` must not end the shell.
_SETUP = r"""
set +o history +H; unset HISTFILE MAILCHECK TMOUT; PS1= PS2= PS0=
if [[ -n ${VIRTUAL_ENV-} ]]; then PATH=$VIRTUAL_ENV/bin:$PATH; fi
export TERM=xterm NO_COLOR=1 PY_COLORS=0 GIT_TERMINAL_PROMPT=0
export CI="${CI-true}" PIP_PROGRESS_BAR="${PIP_PROGRESS_BAR-off}" npm_config_progress="${npm_config_progress-false}"
export PAGER="${PAGER-cat}" GIT_PAGER="${GIT_PAGER-cat}" MANPAGER="${MANPAGER-cat}"
__cp_begin() { __cp_pipe=; return "$1"; }
__cp_end() { local IFS=' '; __cp_pipe="$*"; if [[ $- == *e* ]]; then return 0; fi; return "$1"; }
__cp_prompt() {
  local s=$?; PS1= PS2= PS0=
  builtin printf '\e]7770;%s;%s;%s;%s\a' "$__cp_nonce" "${__cp_pipe:-$s}" "$$" "${PWD//[[:cntrl:]]/?}" >/dev/tty
}
__cp_keep() { [[ "${PROMPT_COMMAND[*]-}" == *__cp_prompt* ]] || PROMPT_COMMAND=__cp_prompt; }
readonly -f __cp_begin __cp_end __cp_prompt __cp_keep __cp_check
PROMPT_COMMAND=__cp_prompt
"""
_AFTER = r"$'\n{ __cp_end \"$?\" \"${PIPESTATUS[@]}\"; __cp_keep; } 2>/dev/null'"
# Matches only parser errors: under `set -v` and `set -x` bash repeats the command, and background jobs write there,
# too. Bash has another name after `BASH_ARGV0=...`.
_UNFINISHED = re.compile(
    r"^[^\s:]+: (?:eval: line \d+: )?(?P<reason>(?:unexpected EOF while looking|syntax error: unexpected end of file"
    r"|syntax error near unexpected token `}'|warning: here-document .*delimited by end-of-file).*)$",
    re.MULTILINE,
)


@dataclass(slots=True, kw_only=True)
class ShellStart:
    """Options for later shells.

    Attributes:
        directory: below the workspace.
        python_path: prefix of `PYTHONPATH`.
    """

    directory: str = ""
    python_path: str = ""


def setup_lines(nonce: str, *, start: ShellStart) -> bytes:
    """Return the first input of a new bash."""
    options = f"cd -- {''.join(quote_pieces(start.directory))} 2>/dev/null || :\n" if start.directory else ""
    if start.python_path:
        options += f'export PYTHONPATH={"".join(quote_pieces(start.python_path))}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    return f"{_CHECK}{_SETUP}{options}__cp_nonce={nonce}\n".encode()


def quote_pieces(command: str) -> list[str]:
    """Quote `command` for bash in pieces that fit a terminal's line."""
    quoted: list[str] = [""]
    size = 0
    for character in command:
        token = _quote(character)
        size += len(token.encode(errors="replace"))
        if size > _MAX_PIECE_BYTES:
            quoted.append("")
            size = len(token)
        quoted[-1] += token
    return [f"$'{piece}'" for piece in quoted]


def append_line(nonce: str, *, piece: str, first: bool) -> bytes:
    """Return the line that appends a piece."""
    operator = "=" if first else "+="
    return f"__cp_nonce={nonce} __cp_text{operator}{piece}\n".encode(errors="replace")


def check_line(nonce: str, *, piece: str, first: bool) -> bytes:
    """Return the line that completes and parses the command."""
    operator = "=" if first else "+="
    line = f"{_set_nonce(nonce, f' __cp_text{operator}{piece};')} __cp_check 2>/dev/tty || [[ ok ]]\n"
    return line.encode(errors="replace")


def incomplete_reason(output: str) -> str | None:
    """Return the error for an incomplete command, else None."""
    match = _UNFINISHED.search(output)
    if match is None:
        return None
    reason = match["reason"]
    # The reported brace is the one of `_CHECK`.
    detail = "" if "`}'" in reason else f" ({reason})"
    return f"nothing was run: a quote, bracket, heredoc or compound command is not closed{detail}"


def run_line(nonce: str, *, last_exit_code: int) -> bytes:
    """Return the line that runs the command with `$?` preserved.

    Bash first writes an invisible sequence, proof that it has read the line.
    """
    join = "&&" if last_exit_code == 0 else "||"
    acknowledge = r" builtin printf '\e]7770;\a' >/dev/tty;"
    return f'{_set_nonce(nonce, acknowledge)} __cp_begin {last_exit_code} {join} eval "$__cp_text"{_AFTER}\n'.encode()


def _set_nonce(nonce: str, more: str = "") -> str:
    """Set the nonce, hidden from programs (`set -a`) and traces (`set -x`).

    After an unclosed quote bash takes a line's first brace for a word, hence the redirection.
    """
    return f"2>/dev/null; {{ __cp_nonce={nonce};{more} declare +x __cp_nonce __cp_text __cp_pipe; }} 2>/dev/null;"


def _quote(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    if character < " " or character == "\x7f":
        return f"\\x{ord(character):02x}"
    return character


_SIGPIPE = 141
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
MAX_MARKER_BYTES = 65_536
"""Bytes of the longest marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Report of bash at a prompt.

    Attributes:
        pipe: exit codes of the last pipeline's stages; empty after an interrupt.
        pid: in the shell's namespace.
    """

    exit_code: int
    pipe: tuple[int, ...]
    pid: int
    cwd: str

    @property
    def ok(self) -> bool:
        """Whether every stage of the last pipeline succeeded or got SIGPIPE (141), as in `yes | head -1`."""
        if self.pipe[:-1] and self.pipe[-1] == 0 and self.exit_code == _SIGPIPE:  # `set -o pipefail`
            return all(code in (0, _SIGPIPE) for code in self.pipe)
        return self.exit_code == 0 and all(code in (0, _SIGPIPE) for code in self.pipe[:-1])


def marker_prefix(nonce: str) -> bytes:
    """Return the start of the marker for `nonce`; a BEL ends it.

    Hostile code can read the nonce, so nothing outside the sandbox may rely on an exit code.
    """
    return f"\x1b]7770;{nonce};".encode()


def parse_marker(body: bytes) -> Marker:
    """Parse a marker's body."""
    codes, pid, cwd = (*body.decode("utf-8", "replace").split(";", 2), "", "")[:3]
    numbers = [int(code) for code in codes.split() if _NUMBER.fullmatch(code)]
    return Marker(
        exit_code=numbers[0] if numbers else 1,
        pipe=tuple(numbers[1:]),
        pid=int(pid) if _NUMBER.fullmatch(pid) else 0,
        cwd=cwd,
    )


def find_partial(data: AnyStr, mark: AnyStr) -> int:
    """Return the index of an incomplete `mark` at the end of `data`, or its length."""
    escape = data.rfind(mark[:1], max(0, len(data) - len(mark)))
    return escape if escape >= 0 and mark.startswith(data[escape:]) else len(data)
