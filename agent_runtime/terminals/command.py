"""One command of a terminal, from its start to what is reported of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

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
        ended = self.status != "running"
        return CommandReport(
            number=self.number,
            command=self.text,
            status="waiting for input" if waits and not ended else self.status,
            exit_code=self.exit_code,
            ok=self.ok,
            output=output,
            pipe=self.pipe,
            cwd=cwd,
            seconds=self.seconds if ended else time.monotonic() - self.started,
            note="; ".join(note for note in notes if note),
            log=self.output.log,
        )
