"""Show a run to a person in the terminal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from textwrap import indent
from typing import Literal

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from agent_runtime import (
    Event,
    Faulted,
    ModelAwaited,
    Outcome,
    PendingCall,
    Refused,
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
from bot.apps.chat.answers import scope_of
from bot.apps.chat.visible import visible

_WRITTEN = re.compile(r"^\[write_file\] ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\") ", re.MULTILINE)
_FAILURE_LINES = 6
_NAMED_FILES = 5
_GOOD = frozenset({Status.FINISHED, Status.ANSWERED})
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class ChatScreen:
    """Prints a run as it happens; knows how every event looks.

    The model's words appear as they come, but for the completion: it speaks of work that is not done yet while it is
    streamed, and stands at the end instead. Where there is no terminal there is no colour.
    """

    def __init__(self, console: Console) -> None:
        """Print to `console`, which knows whether it is a terminal."""
        self._console = console
        self._open: Literal["", "text", "call"] = ""
        """What the current line holds that is not ended yet."""
        self._failed = False
        """Whether a call of this step failed, and with it most likely the control block."""
        self._told_why = False
        """Whether it has been said why the reply under way broke off."""
        self._said: list[str] = []
        """The prose of this step, which is the summary where a reply without calls ends the task."""
        self._files: dict[str, None] = {}

    def on_event(self, event: Event) -> None:
        """Show one event of a run."""
        match event:
            case Started():
                self._files.clear()
            case StepStarted():
                self._failed, self._said = False, []
            case Streamed(text=text, completion=False):
                self._said.append(text)
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
                known, self._told_why = self._told_why, isinstance(event, ModelAwaited)
                if not (known and isinstance(event, StreamReset)) and (notice := _notice(event)) is not None:
                    self.say(notice[0], style=notice[1])

    def say(self, text: str, *, style: str = "") -> None:
        """Whole lines of our own."""
        self._end_line()
        self._print(text, style=style)

    def waiting(self, call: PendingCall) -> None:
        """Show a call that waits for somebody, whole."""
        self._end_line()
        if call.kind == "question":
            self._print(f"\n? {call.reason}", style="bold")
            return
        self._print(f"\n{call.tool} requires approval ({call.reason})", style="bold")
        # Whole: it says itself what it leaves out.
        for line in call.preview.splitlines():
            self._print(f"  {line}", style=_DIFF_STYLES.get(line[:1], ""))

    def choices(self, call: PendingCall) -> None:
        """Say what can be answered to a call that waits."""
        scope = scope_of(call)
        always = f" · a = always, for {scope}" if scope is not None else ""
        self.say(f"y = yes, once{always} · n [why] = no", style="dim")

    def ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and what it used."""
        self._end_line()
        is_shown = "".join(self._said).rstrip().endswith(outcome.summary or "")
        if outcome.status is Status.FINISHED and not is_shown and outcome.summary and self._console.is_terminal:
            self._console.print()
            self._console.print(Markdown(visible(outcome.summary), hyperlinks=False))
            self._console.print()
        if outcome.status not in _GOOD and outcome.reason:
            self._print(outcome.reason, style="yellow")
        self._print(footer(outcome, tuple(self._files)), style="dim")

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
        self._console.print(Text(visible(text), style=style), end=end, soft_wrap=True, highlight=False)


def _notice(event: Event) -> tuple[str, str] | None:
    """What is said of an event in one line, and in which style; None for what goes without saying."""
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


def footer(outcome: Outcome, files: Iterable[str] = ()) -> str:
    """How a run ended and what it used, on one line."""
    named = list(files)
    steps = "1 step" if outcome.steps == 1 else f"{outcome.steps} steps"
    parts = [str(outcome.status).replace("_", " "), steps, spent(outcome.usage), f"{outcome.seconds:.1f} s"]
    if named:
        more = f" and {len(named) - _NAMED_FILES} more" if len(named) > _NAMED_FILES else ""
        count = "1 file" if len(named) == 1 else f"{len(named)} files"
        parts.append(f"{count} changed: {', '.join(named[:_NAMED_FILES])}{more}")
    return " · ".join(parts)


def spent(usage: Usage) -> str:
    """Tokens and money; an unknown price is said, not taken for nothing."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    cost = "price unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return f"{usage.total_tokens:,} tokens{cached} · {cost}"


def _last_lines(text: str, count: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:])
