"""Find the results of steps that are out of date: shown again whole since, or far behind. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.context.estimate import estimate
from agent_runtime.core.calls import with_answers
from agent_runtime.core.events import Observed, Recorded, Replied, Shrunk, Summarised, ToolReturned

_COMMAND = re.compile(r"\[terminal:(?P<terminal>[^\]\s]+):cmd(?P<number>\d+)\]")
"""How the result of a terminal's command begins; see `agent_runtime.tools.shell`."""
_COVERED = 0.9
"""The share of a step's results that must be shown again later for the step's results to be superseded."""
_WORTH = 300
"""Tokens that results must have for it to matter whether they are kept."""
_EDGE_CHARS = 200
_FAR_BEHIND = 20
"""Replies since, after which results are seldom looked at again."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """What one step showed.

    Attributes:
        position: of its `Observed` in the log.
        reply: number of the reply that it followed, counted over the whole log.
        chars: how much it showed.
        covered: how much of that was shown again later.
    """

    position: int
    reply: int
    chars: int
    covered: int = 0

    @property
    def is_superseded(self) -> bool:
        """Whether (nearly) all of it was shown again later."""
        return self.covered >= _COVERED * self.chars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What one call showed of a command's output, with the lines around it."""

    step: _Step
    command: str
    text: str

    def is_told_by(self, lines: frozenset[str]) -> bool:
        """Whether (nearly) all of it is in `lines`; of a long output, the shown head and tail move as it grows."""
        told = sum(len(line) + 1 for line in self.text.split("\n") if line in lines)
        return told >= _COVERED * len(self.text)


class Results:
    """The results in a growing log that are worth leaving out some day; each event is looked at once."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._taken = 0
        self._replies = 0
        self._steps: dict[int, _Step] = {}
        self._returned: list[ToolReturned] = []
        self._pieces: dict[str, list[_Piece]] = {}

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log; a shorter one is a new one."""
        if len(events) < self._taken:
            self._forget()
        for event in events[self._taken :]:
            match event:
                case Replied():
                    self._replies += 1
                    self._returned = []
                case ToolReturned():
                    self._returned.append(event)
                case Observed():
                    self._observed(event)
                case Shrunk():
                    for position in event.outputs:
                        self._steps.pop(position, None)
                case Summarised():
                    self._steps = {at: step for at, step in self._steps.items() if at >= event.upto}
                case _:
                    pass
            self._taken += 1

    def superseded(self) -> list[int]:
        """Positions of `Observed` events that hold little but output which was shown again later."""
        return [step.position for step in self._steps.values() if step.is_superseded]

    def far_behind(self) -> list[int]:
        """Positions of `Observed` events that are many steps old, superseded ones left out."""
        last = self._replies - _FAR_BEHIND
        return [step.position for step in self._steps.values() if step.reply <= last and not step.is_superseded]

    def _observed(self, event: Observed) -> None:
        told = with_answers(event.text, event.answers)
        step = _Step(position=self._taken, reply=self._replies, chars=len(told))
        if estimate(told) >= _WORTH:
            self._steps[step.position] = step
        for call in self._returned:
            command = _COMMAND.match(call.text)
            # The result as the model read it, whose middle the record may lack; nothing when it was not shown.
            start = told.find(call.text[:_EDGE_CHARS])
            end = told.find(call.text[-_EDGE_CHARS:], start) if start >= 0 else -1
            text = told[start : end + min(len(call.text), _EDGE_CHARS)] if end >= 0 else ""
            if command is not None and text:
                piece = _Piece(step=step, command=command["number"], text=text)
                self._showed(command["terminal"], piece, whole=call.tool == "read_output")
        self._returned = []

    def _showed(self, terminal: str, piece: _Piece, *, whole: bool) -> None:
        """Take in what was shown of a command; if that may be the whole of it, what came before has had its day."""
        # Only a terminal's last command can be read again, so nothing needs to be known of those before it.
        earlier = [each for each in self._pieces.get(terminal, ()) if each.command == piece.command]
        lines = frozenset(piece.text.split("\n")) if whole and earlier else frozenset()
        kept = []
        for each in earlier:
            if each.step is not piece.step and each.is_told_by(lines):
                each.step.covered += len(each.text)
            else:
                kept.append(each)
        self._pieces[terminal] = [*kept, piece]
