"""The calls of one turn of an agent, matched with what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import llm

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.events import Event, Observed, Replied, ToolReturned
from agent_runtime.run.step import shortened

Made = tuple[llm.ToolCall, llm.ToolResult]


class Turn:
    """Collects the calls that a model asks for, from the events of a run.

    Attributes:
        texts: what the model has said beside its calls.
        made: the calls that were made or declined, each with its result, as far as known; those of one leg of a run.
        declined: whether the call that returns next was declined.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.made: list[Made] = []
        self.declined = False
        self._open: list[llm.ToolCall] = []
        self._earlier = 0

    @property
    def pending(self) -> list[llm.ToolCall]:
        """The calls of the newest reply that nothing came of yet."""
        return [*self._open]

    def begin(self) -> None:
        """Begin with a leg of a run; calls that wait stay."""
        self.texts, self.made, self._earlier = [], [], 0

    def asked(self, tool: str, args: Mapping[str, object]) -> llm.ToolCall | None:
        """The open call that is made with these arguments, maybe shortened, or else the next one of the tool."""
        calls = [each for each in self._open if each.name == tool]
        alike = (each for each in calls if args in (each.arguments, shortened(each.arguments)))
        return next(alike, calls[0] if calls else None)

    def take(self, event: Event) -> Made | None:
        """Take an event; gives the call that was made, if it reports one."""
        match event:
            case Replied(text=text, requests=requests):
                if text.strip():
                    self.texts.append(text)
                self._open, self._earlier = [call_of(each) for each in requests], len(self.made)
            case ToolReturned(tool=tool, args=args, text=text, ok=ok):
                call = self.asked(tool, args)
                if call is not None:
                    self._open.remove(call)
                declined, self.declined = self.declined, False
                call = call or llm.ToolCall(name=tool, arguments={**args})
                told = text if ok else f"Cancelled: {text}" if declined else f"Error: {text}"
                error = llm.CancelToolCall(text) if declined else None
                made = llm.ToolResult(name=call.name, output=told, tool_call_id=call.tool_call_id, exception=error)
                self.made.append((call, made))
                return None if declined else self.made[-1]
            case Observed(answers=answers):
                texts = {each.id: each.text if each.ok else f"Error: {each.text}" for each in answers}
                for call, result in self.made[self._earlier :]:
                    if result.exception is None:  # the record of a call leaves the middle of a long text out
                        result.output = texts.get(call.tool_call_id or "", result.output)
                for call in self._open:  # could not be made at all, e.g. of a tool that there is not
                    told = texts.get(call.tool_call_id or "", "")
                    self.made.append((call, llm.ToolResult(call.name, told, tool_call_id=call.tool_call_id)))
                self._open = []
                places = {each.id: number for number, each in enumerate(answers)}
                leg = self.made[self._earlier :]
                self.made[self._earlier :] = sorted(leg, key=lambda each: places.get(each[0].tool_call_id or "", 0))
            case _:
                pass
        return None


def call_of(request: ToolRequest) -> llm.ToolCall:
    """A call as `llm` has it; arguments that are no JSON object are none."""
    arguments: Any = {}
    with suppress(ValueError):  # the model is told so, as the answer
        arguments = json.loads(request.arguments or "{}")
    return llm.ToolCall(request.name, arguments if isinstance(arguments, dict) else {}, request.id)
