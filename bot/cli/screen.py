"""Display runs at a terminal, and read the user's answers.

`ChatScreen` prints a run's events; model and program text passes through `escape_invisible`. The last functions print
the reports of `codepilot replay`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent, wrap
from typing import Literal, get_args

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from agent_runtime import (
    Comparison,
    Event,
    Faulted,
    FileSession,
    ModelAwaited,
    Outcome,
    PendingCall,
    Refused,
    Replayed,
    SettingsError,
    Started,
    Status,
    StepStarted,
    Streamed,
    StreamReset,
    Summarised,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
    Usage,
)

Permissions = Literal["auto", "ask", "all", "none"]
"""Approval modes: the agent file's own rules, the user's approval of each write and command, allow all, deny all."""
PERMISSIONS = get_args(Permissions)
TOOLCHAINS = (
    "auto: commands find the toolchains of the directory and yours. none: only the system's. Directories, "
    "separated by colons: these, too."
)


class Word(StrEnum):
    HELP = "help"
    COST = "cost"
    MODEL = "model"
    RESET = "reset"
    QUIT = "quit"


_WORDS = {
    **{word.value: word for word in Word},
    "?": Word.HELP,
    "tokens": Word.COST,
    "clear": Word.RESET,
    "exit": Word.QUIT,
}
HELP = """\
Write what the agent should do. These are for the program, and cost nothing:
  /cost    what this session has used
  /model   the model and those that are known; /model NAME or PROVIDER/NAME switches
  /reset   delete the conversation and start again
  /quit    leave; Ctrl+D, or Ctrl+C twice, does the same
The slash may be left out. Ctrl+C stops what the agent does, and clears a line."""
_COMMAND = re.compile(r"/([a-z?]+)", re.IGNORECASE)
_MODEL = re.compile(r"/model\s+(\S.*)", re.IGNORECASE)


def read_word(line: str) -> Word | None:
    """Read a line as a command, with or without a slash; None for a line to the agent.

    Raises:
        SettingsError: the line is a single word with a slash, and no command.
    """
    said = line.strip()
    if _MODEL.fullmatch(said):
        return Word.MODEL
    command = _COMMAND.fullmatch(said)
    found = _WORDS.get((command[1] if command else said).lower())
    if command and found is None:
        raise SettingsError(f"There is no command {said}. `/help` lists them.")
    return found


def model_in(line: str) -> str:
    named = _MODEL.fullmatch(line.strip())
    return named[1] if named else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """The user's answer to a pending call.

    Attributes:
        note: the reason of a refusal, or the answer to a question.
        always: whether this very call needs no approval from now on.
        answers: whether it answers a question.
    """

    approved: bool
    note: str = ""
    always: bool = False
    answers: bool = False


def check_fit(reply: ChatAnswer, call: PendingCall) -> None:
    """Refuse an answer to a question as an approval, and the reverse.

    Raises:
        SettingsError: the answer does not fit.
    """
    if reply.answers and call.kind != "question":
        raise SettingsError(
            f"No question is waiting; {call.tool} waits for approval, and --answer does not approve: use --approve "
            "or --deny."
        )
    if reply.approved and not reply.answers and call.kind == "question":
        raise SettingsError("A question is waiting, and --approve does not answer it: use --answer TEXT, or --deny.")


def read_answer(line: str) -> ChatAnswer | None:
    """Read `y` (once), `a` (always) or `n` with an optional reason; None for anything else."""
    said, _, note = line.strip().partition(" ")
    match said.lower():
        case "y" | "yes" if not note:
            return ChatAnswer(approved=True)
        case "a" | "always" if not note:
            return ChatAnswer(approved=True, always=True)
        case "n" | "no":
            return ChatAnswer(approved=False, note=note.strip())
        case _:
            return None


@dataclass(slots=True)
class ApprovedCalls:
    _calls: set[str] = field(default_factory=set)

    def add(self, call: PendingCall) -> None:
        if (scope := scope_of(call)) is not None:
            self._calls.add(scope)

    def __contains__(self, call: object) -> bool:
        return isinstance(call, PendingCall) and scope_of(call) in self._calls


def scope_of(call: PendingCall) -> str | None:
    """Return the calls that "always" approves; None if unlimited, as for a patch.

    Two commands are the same when every character is, in whichever directory.
    """
    match call.tool, call.args:
        case "execute", {"command": str(command)}:
            return f"the command `{command}`"
        case "write_file", {"path": str(path)} if path:
            return f"every write to {path!r}"
        case "write_file", _:
            return None
        case tool, args:
            return f"{tool} with {json.dumps(args, sort_keys=True, ensure_ascii=False)}"


_WRITTEN = re.compile(r"^\[write_file\] ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") ", re.MULTILINE)
_FAILURE_LINES = 6
_NAMED_FILES = 5
_GOOD = frozenset({Status.FINISHED, Status.ANSWERED})
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class ChatScreen:
    """Printer of a run.

    The model's words appear as they come, except the completion, which describes unfinished work while it is streamed
    and follows at the end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: Literal["", "text", "call"] = ""
        """The text of the unfinished line."""
        self._failed = False
        """Whether a call of this step failed."""
        self._has_shown_failure = False
        """Whether the reply's failure has been printed."""
        self._prose: list[str] = []
        """The prose of this step, the summary where a reply without calls ends the task."""
        self._files: dict[str, None] = {}

    def on_event(self, event: Event) -> None:
        match event:
            case Started():
                self._files.clear()
            case StepStarted():
                self._failed, self._prose = False, []
            case Streamed(text=text, completion=False):
                self._prose.append(text)
                if self._open == "call":
                    self._end_line()
                self._print(text, style="", end="")
                self._open = "" if text.endswith("\n") else "text"
            case ToolCalled(tool="ask_user") | ToolReturned(tool="ask_user", ok=True) | Streamed():
                pass
            case ToolCalled(label=label):
                self._end_line()
                self._print(f"● {label}", style="dim", end="")
                self._open = "call"
            case ToolReturned():
                self._returned(event)
            case Faulted() if self._failed:
                pass
            case _:
                known, self._has_shown_failure = self._has_shown_failure, isinstance(event, ModelAwaited)
                if not (known and isinstance(event, StreamReset)) and (notice := _notice(event)) is not None:
                    self.say(notice[0], style=notice[1])

    def say(self, text: str, *, style: str = "") -> None:
        self._end_line()
        self._print(text, style=style)

    def show_facts(self, *facts: str) -> None:
        """Print short facts, as many to a line as fit."""
        # `wrap` breaks no line at a hard space.
        text = "\N{NO-BREAK SPACE}· ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts if fact)
        lines = wrap(text, self._console.width, break_long_words=False, break_on_hyphens=False)
        self.say("\n".join(lines).replace("\N{NO-BREAK SPACE}", " "), style="dim")

    def show_call(self, call: PendingCall) -> None:
        self._end_line()
        if call.kind == "question":
            self._print(f"\n? {call.reason}", style="bold")
            return
        self._print(f"\n{call.tool} requires approval ({format_one_line(call.reason)})", style="bold")
        # Whole: it says itself what it leaves out.
        for line in call.preview.splitlines():
            self._print(f"  {line}", style=_DIFF_STYLES.get(line[:1], ""))

    def show_choices(self, call: PendingCall) -> None:
        scope = scope_of(call)
        always = f" · a = always, for {scope}" if scope is not None else ""
        self.say(f"y = yes, once{always} · n [why] = no", style="dim")

    def show_end(self, outcome: Outcome) -> None:
        self._end_line()
        is_shown = "".join(self._prose).rstrip().endswith(outcome.summary or "")
        if outcome.status is Status.FINISHED and not is_shown and outcome.summary and self._console.is_terminal:
            self._console.print()
            self._console.print(Markdown(escape_invisible(outcome.summary), hyperlinks=False))
            self._console.print()
        if outcome.status not in _GOOD and outcome.reason:
            self._print(outcome.reason, style="yellow")
        self._print(format_footer(outcome, tuple(self._files)), style="dim")

    def _returned(self, event: ToolReturned) -> None:
        self._failed = self._failed or not event.ok
        mark, style = ("✓", "green") if event.ok else ("✗", "red")
        if self._open != "call":
            self._end_line()
            self._print(f"  {event.label}", style="dim", end="")
        self._print(f" {mark}", style=style, end="")
        self._print(f" {event.seconds:.1f} s", style="dim")
        self._open = ""
        if event.ok and event.tool == "write_file":
            self._files |= dict.fromkeys(ast.literal_eval(name) for name in _WRITTEN.findall(event.text))
        if not event.ok:
            self._print(indent(_last_lines(event.text, _FAILURE_LINES), "  "), style="red")

    def _end_line(self) -> None:
        if self._open:
            self._console.print()
        self._open = ""

    def _print(self, text: str, *, style: str, end: str = "\n") -> None:
        # Soft: a long line that is selected must come back in one piece.
        self._console.print(Text(escape_invisible(text), style=style), end=end, soft_wrap=True, highlight=False)


def _notice(event: Event) -> tuple[str, str] | None:
    told: tuple[str, str] | None = None
    match event:
        case ToolProgressed(text=text):
            told = f"  {text}", "dim"
        case StreamReset():
            told = "(the reply broke off; trying again)", "yellow"
        case ModelAwaited(reason=reason, seconds=seconds):
            told = f"(no reply: {reason}; trying again in {seconds:.0f} s)", "yellow"
        case Refused(error=error):
            told = f"✗ not allowed: {error}", "yellow"
        case Faulted(error=error):
            told = f"✗ {_last_lines(error, 1)}", "yellow"
        case Summarised():
            told = "(the oldest part of the conversation was summarised)", "dim"
        case _:
            pass
    return told


def format_footer(outcome: Outcome, files: Iterable[str] = ()) -> str:
    named = list(files)
    steps = "1 step" if outcome.steps == 1 else f"{outcome.steps} steps"
    parts = [str(outcome.status).replace("_", " "), steps, format_usage(outcome.usage), f"{outcome.seconds:.1f} s"]
    if named:
        more = f" and {len(named) - _NAMED_FILES} more" if len(named) > _NAMED_FILES else ""
        count = "1 file" if len(named) == 1 else f"{len(named)} files"
        parts.append(f"{count} changed: {', '.join(named[:_NAMED_FILES])}{more}")
    return " · ".join(parts)


def format_usage(usage: Usage) -> str:
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    cost = "price unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return f"{usage.total_tokens:,} tokens{cached} · {cost}"


def _last_lines(text: str, count: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:])


_HARMLESS = frozenset("\n\t\u00a0\u200d")
"""Not printable by Python's count, and harmless: line break, tab, the hard space, the joiner inside an emoji."""


def format_one_line(text: str) -> str:
    """Return a text on one line with every character visible."""
    return escape_invisible(text).replace("\n", "\\n").replace("\t", "\\t")


def escape_invisible(text: str) -> str:
    """Escape control codes, bidirectional overrides and invisible characters as Python does.

    Nothing is left out: a user approves the text they see.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode() for c in text)


_ANOTHER_START = "note: the directory has changed since the recording, so a difference may come from the directory."


def replay_report(replay: Replayed) -> str:
    lines = [] if replay.same_start else [_ANOTHER_START]
    total = replay.requests + replay.remaining
    lines.append(f"{replay.requests} of {total} requests were made as recorded.")
    if replay.difference is not None:
        lines += ["", replay.difference]
    elif replay.is_same:
        lines.append("Every run ended as in the recording.")
    else:
        lines += [f"then: {_ends(replay.recorded)}", f"now:  {_ends(replay.outcomes)}"]
    return "\n".join(lines)


def comparison_report(comparison: Comparison) -> str:
    summaries = f"; {comparison.summaries} for a summary were not" if comparison.summaries else ""
    requests, differences = _count(comparison.requests, "request"), _count(len(comparison.differences), "difference")
    head = f"{requests} compared{summaries}. {differences}."
    return "\n\n".join([head, *comparison.differences])


def _ends(outcomes: tuple[Outcome, ...]) -> str:
    return ", ".join(f"{outcome.status} ({outcome})" for outcome in outcomes) or "no run ended"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def list_sessions() -> None:
    sessions = FileSession(session_id="_").list_sessions()
    for each in sessions:
        when = datetime.fromtimestamp(each["updated_at"], tz=UTC).astimezone()
        name = format_one_line(each["session_id"])
        sys.stdout.write(f"{name:30} {each['messages']:5} messages  {when:%Y-%m-%d %H:%M}\n")
    if not sessions:
        sys.stdout.write("No saved sessions.\n")
