"""Read a reply with native tool calls as it arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.errors import FormatError
from agent_runtime.core.events import Streamed
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk
from agent_runtime.providers.taped_values import whole_calls
from agent_runtime.transports.native.guide import CUT_OFF, NO_ACTION
from agent_runtime.transports.native.step import NativeStep

NAME_CHARS = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS}}}")
"""What every service takes back as the id of a call and as the name of a tool."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class NativeReader:
    """Reads one reply. Only its prose is streamed: calls are told when they are made, a summary when it counts."""

    def __init__(self, accept: Callable[[str, Sequence[ToolRequest]], NativeStep]) -> None:
        """Begin.

        Args:
            accept: makes the step of a reply, from its text and its calls.
        """
        self._accept = accept
        self._text: list[str] = []
        self._pieces: list[CallChunk] = []

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """The calls so far; ids and names that not every service would take back are replaced."""
        taken: dict[str, ToolRequest] = {}
        for number, call in enumerate(whole_calls(self._pieces), start=1):
            name = call.id if NAME.fullmatch(call.id) and call.id not in taken else f"call_{number}"
            while name in taken:
                name += "_"
            tool = _OTHER.sub("_", call.name)[:NAME_CHARS] or "_"
            taken[name] = ToolRequest(id=name, name=tool, arguments=call.arguments)
        return tuple(taken.values())

    def feed(self, chunk: TextChunk | CallChunk) -> list[Streamed]:
        """Take the next chunk; gives its prose."""
        if isinstance(chunk, TextChunk):
            self._text.append(chunk.text)
            return [Streamed(text=chunk.text)]
        self._pieces.append(chunk)
        return []

    def flush(self) -> list[Streamed]:
        """Nothing is held back."""
        return []

    def finish(self, stop: StopReason) -> NativeStep:
        """Judge the whole reply.

        Raises:
            FormatError: it was cut off, or is empty; none of its calls may be made.
        """
        if stop == "length":
            raise FormatError("truncated", CUT_OFF)
        text, requests = "".join(self._text), self.requests
        if not text.strip() and not requests:
            raise FormatError("empty", NO_ACTION)
        return self._accept(text, requests)
