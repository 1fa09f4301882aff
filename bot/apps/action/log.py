"""The run in the step's log: a group for each step of the agent, with what it said, called and saw."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from agent_runtime import Ended, Event, Refused, StepStarted, Streamed, StreamReset, ToolCalled, ToolReturned
from bot.apps.action import commands
from bot.publishing.text import one_line

_TITLE_CHARS = 100
_OUTPUT_CHARS = 20_000


class StepLog:
    """Writes the events of runs for people who read the log.

    Whatever the agent or a program wrote stands between two commands that stop the runner from carrying out what it
    finds there, with a token that is new each time.

    Args:
        say: takes lines for the step's output.
        redact: takes secrets out.
    """

    def __init__(self, say: Callable[[str], None], redact: Callable[[str], str]) -> None:
        self._say, self._redact = say, redact
        self._number = 0
        self._said = ""
        self._completing = False
        self._open = False

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case StepStarted(step=step):
                self._close()
                self._number, self._said = step, ""
            case Streamed(text=text, completion=completion):
                self._said += "\n\n" if completion and not self._completing and self._said else ""
                self._said, self._completing = self._said + text, completion
            case StreamReset():
                self._said = ""
            case ToolCalled(label=label):
                self._begin()
                self._quote(f"▸ {one_line(label, 500)}")
            case ToolReturned(text=text, ok=ok):
                self._quote(text if ok else f"✗ {text}")
            case Refused(error=error):
                self._begin()
                self._quote(error)
            case Ended():
                self._begin()
                self._close()
            case _:
                pass

    def _begin(self) -> None:
        """Open the step's group, whose title is what the agent says that it does."""
        if not self._open and self._number:
            said = one_line(self._redact(self._said), _TITLE_CHARS)
            self._say(commands.group(f"Step {self._number}{': ' if said else ''}{said}"))
            self._open = True
        if self._said.strip():
            self._quote(self._said)
        self._said = ""

    def _close(self) -> None:
        if not self._open and self._said.strip():
            self._begin()
        if self._open:
            self._say(commands.END_GROUP)
        self._open = False

    def _quote(self, text: str) -> None:
        shown = self._redact(text)
        if len(shown) > _OUTPUT_CHARS:
            half = _OUTPUT_CHARS // 2
            shown = f"{shown[:half]}\n… {len(shown) - 2 * half:,} characters left out …\n{shown[-half:]}"
        token = secrets.token_hex(16)
        while token in shown:
            token = secrets.token_hex(16)
        if shown.strip():
            self._say(commands.foreign(shown, token))
