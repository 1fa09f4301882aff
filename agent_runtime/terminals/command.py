"""One command of a terminal: its state, its report, and the lines by which bash runs it and reports its end.

A command is sent to bash quoted, in pieces (`pieces`), is parsed before it is run (`check`), and ends with a marker
that holds a nonce (`mark`), so that no output of programs is taken for one.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import AnyStr, Literal

from agent_runtime.terminals.output import Output

Status = Literal["completed", "running", "waiting for input", "incomplete", "restarted", "killed", "stopped"]
"""`waiting for input`: it runs, and goes on once something is typed; `incomplete`: nothing was run; `restarted`: the
shell itself ended; `killed`: it was ended with everything else, for going over a limit; `stopped`: broken off. See the
note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReport:
    """How a command stands.

    Attributes:
        number: counts the terminal's commands from 1.
        status: see `Status`.
        exit_code: None while it runs or when it was never run.
        pipe: exit codes of the stages of its last pipeline.
        ok: it ended, and every stage of its last pipe succeeded.
        output: what is to be shown of the output: new text, or all of it.
        cwd: the shell's working directory.
        seconds: since it started, until it ended.
        note: what else the reader should know, or empty.
        log: path, in the agent's eyes, of the file that has the whole output, where `output` leaves some of it out.
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
    """A command under way; see `CommandReport`.

    Attributes:
        launched: whether the shell has it.
        stop_reason: why it is being broken off, or empty.
    """

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
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    def has_progressed(self, since: int) -> bool:
        """Whether it ended, or wrote more than `since` bytes."""
        return not self.running or self.output.bytes > since

    def add(self, note: str) -> None:
        """Note something else that the reader should know; nothing for an empty text."""
        self.note = "; ".join(each for each in (self.note, note) if each)

    def settle(self, status: Status) -> None:
        """Note how it ended."""
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
        """How it stands, with this of its output to be shown.

        Args:
            output: what is shown of it.
            cwd: the shell's working directory.
            late: what was written since earlier commands ended.
            waits: whether it waits for input, if it runs.
        """
        log_error = self.output.log_error
        notes = [self.note, f"no log of the whole output: {log_error}" if log_error else "", late]
        return CommandReport(
            number=self.number,
            command=self.text,
            status="waiting for input" if waits and self.running else self.status,
            exit_code=self.exit_code,
            ok=self.ok,
            output=output,
            pipe=self.pipe,
            cwd=cwd,
            seconds=time.monotonic() - self.started if self.running else self.seconds,
            note="; ".join(note for note in notes if note),
            log=self.output.log,
        )


ARGV = ("bash", "--noprofile", "--norc", "--noediting", "-i")
_LONGEST_PIECE = 3_000
"""Bytes. A terminal in canonical mode cuts a line at 4,095 bytes: `N_TTY_BUF_SIZE` in Linux's n_tty.c."""

# It has a command parsed and returns before any of it, even of one that closes the brace itself. The colon makes a body
# of a command that is only a comment. It is nowhere run: a fork bomb is a function of that name. What bash says is in
# English, as `_UNFINISHED` is, whatever language the session has.
_CHECK = r"""__cp_check() { builtin local LC_ALL=C; eval "\\builtin return; { :"$'\n'"$__cp_text"$'\n}'; }"""
# `__cp_end` runs behind the command, in the same eval, because eval itself overwrites PIPESTATUS. Under `set -e` it
# returns 0: the exit code was recorded, and a `test && command` that went another way must not end the shell.
_SETUP = r"""
set +o history +H; unset HISTFILE MAILCHECK TMOUT; PS1= PS2= PS0=
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
# Only what this bash says of the text itself: under `set -v` and `set -x` it repeats the command, a trap may be open,
# and jobs in the background write there, too. It has another name after `BASH_ARGV0=...`.
_UNFINISHED = re.compile(
    r"^[^\s:]+: (?:eval: line \d+: )?(?P<reason>(?:unexpected EOF while looking|syntax error: unexpected end of file"
    r"|syntax error near unexpected token `}'|warning: here-document .*delimited by end-of-file).*)$",
    re.MULTILINE,
)


@dataclass(slots=True, kw_only=True)
class ShellStart:
    """How shells start; what changes counts for those that start later.

    Attributes:
        directory: where, below the workspace; empty for that itself.
        python_path: a directory in which Python looks for modules first, absolute in the shell's eyes; empty for none.
    """

    directory: str = ""
    python_path: str = ""


def setup(nonce: str, *, start: ShellStart) -> bytes:
    """What a new bash is sent first; a directory that is gone leaves it where it is."""
    place = f"cd -- {''.join(pieces(start.directory))} 2>/dev/null || :\n" if start.directory else ""
    if start.python_path:
        place += f'export PYTHONPATH={"".join(pieces(start.python_path))}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    return f"{_CHECK}{_SETUP}{place}__cp_nonce={nonce}\n".encode()


def pieces(command: str) -> list[str]:
    """`command` quoted for bash, cut so that each piece fits a terminal's line."""
    quoted: list[str] = [""]
    size = 0
    for character in command:
        token = _quoted(character)
        size += len(token.encode(errors="replace"))
        if size > _LONGEST_PIECE:
            quoted.append("")
            size = len(token)
        quoted[-1] += token
    return [f"$'{piece}'" for piece in quoted]


def remember(nonce: str, *, piece: str, first: bool) -> bytes:
    """The line that adds a piece to the command to run."""
    operator = "=" if first else "+="
    return f"__cp_nonce={nonce} __cp_text{operator}{piece}\n".encode(errors="replace")


def check(nonce: str, *, piece: str, first: bool) -> bytes:
    """The line that adds the last piece, and has bash parse the command without running it."""
    operator = "=" if first else "+="
    line = f"{_secret(nonce, f' __cp_text{operator}{piece};')} __cp_check 2>/dev/tty || [[ ok ]]\n"
    return line.encode(errors="replace")


def unfinished(said: str) -> str | None:
    """What is missing when what bash said to `check` means that the command stops in the middle, else None."""
    found = _UNFINISHED.search(said)
    if found is None:
        return None
    reason = found["reason"]
    # The brace is the one that closes ours.
    detail = "" if "`}'" in reason else f" ({reason})"
    return f"nothing was run: a quote, bracket, heredoc or compound command is not closed{detail}"


def run(nonce: str, *, last_exit_code: int) -> bytes:
    """The line that runs the remembered command, with `$?` as the command before left it.

    Bash first writes something that is not shown: before that, it has not read the line.
    """
    join = "&&" if last_exit_code == 0 else "||"
    begun = r" builtin printf '\e]7770;\a' >/dev/tty;"
    return f'{_secret(nonce, begun)} __cp_begin {last_exit_code} {join} eval "$__cp_text"{_AFTER}\n'.encode()


def _secret(nonce: str, more: str = "") -> str:
    """Set the nonce, and do more; under `set -a` bash would hand it to the programs, and under `set -x` print it.

    After an unclosed quote bash takes a brace that begins the next line for a word: the line begins with a redirection,
    which runs nothing.
    """
    return f"2>/dev/null; {{ __cp_nonce={nonce};{more} declare +x __cp_nonce __cp_text __cp_pipe; }} 2>/dev/null;"


def _quoted(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    if character < " " or character == "\x7f":
        return f"\\x{ord(character):02x}"
    return character


_SIGPIPE = 141
_CODE = re.compile(r"[0-9]{1,10}", re.ASCII)
LONGEST_MARK = 65_536
"""Bytes that a marker can have; what is longer is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What bash says at a prompt.

    Attributes:
        exit_code: `$?` after the command.
        pipe: exit codes of the stages of its last pipeline, in order; empty when the command was broken off.
        pid: the shell's process id as programs beside it see it.
        cwd: the working directory.
    """

    exit_code: int
    pipe: tuple[int, ...]
    pid: int
    cwd: str

    @property
    def ok(self) -> bool:
        """Whether the command and every stage of its last pipe succeeded.

        A stage that a later one stopped reading from (SIGPIPE, 141) did nothing wrong: `yes | head -1` is a success.
        """
        if self.pipe[:-1] and self.pipe[-1] == 0 and self.exit_code == _SIGPIPE:  # `set -o pipefail`
            return all(code in (0, _SIGPIPE) for code in self.pipe)
        return self.exit_code == 0 and all(code in (0, _SIGPIPE) for code in self.pipe[:-1])


def mark(nonce: str) -> bytes:
    """The bytes that the end of the command started with `nonce` begins with; they run up to a BEL.

    The nonce is random and never exported, so that no output is taken for a marker by accident. It is no defence
    against hostile code: a process of the shell's user can read the input of its terminal, as it can replace the tests
    that a command runs. Nothing outside the sandbox may rely on an exit code.
    """
    return f"\x1b]7770;{nonce};".encode()


def parse_mark(body: bytes) -> Marker:
    """What stands between `mark` and the BEL."""
    codes, pid, cwd = (*body.decode("utf-8", "replace").split(";", 2), "", "")[:3]
    numbers = [int(code) for code in codes.split() if _CODE.fullmatch(code)]
    return Marker(
        exit_code=numbers[0] if numbers else 1,
        pipe=tuple(numbers[1:]),
        pid=int(pid) if _CODE.fullmatch(pid) else 0,
        cwd=cwd,
    )


def possible_start(data: AnyStr, mark: AnyStr) -> int:
    """Where `data` ends in the beginning of `mark`, or its length."""
    escape = data.rfind(mark[:1], max(0, len(data) - len(mark)))
    return escape if escape >= 0 and mark.startswith(data[escape:]) else len(data)
