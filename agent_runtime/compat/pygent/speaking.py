"""A provider in front of an agent's model: it sends the agent's own system message and tools, and lets `stop` end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from agent_runtime.compat.pygent.growing import Growing
from agent_runtime.compat.pygent.tools import ENDING, Tools, registered_name
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    Provider,
    ReplyEnd,
    ReplyStart,
    Request,
    TextChunk,
    ToolCalling,
)

END_ID = "pygent_end"
"""The id of the call that is added to a reply that stops: the runtime's own, which is hidden from the model."""
_FINISH = "finish"


class SpeakingProvider:
    """Asks an agent's model in the agent's own words."""

    def __init__(self, model: Callable[[], Provider], tools: Tools, system: Callable[[], str]) -> None:
        """Speak for an agent.

        Args:
            model: gives its model.
            tools: what it may call.
            system: gives its system message.
        """
        self._model, self._tools, self._system = model, tools, system
        self._as_told = Growing(self._told)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model().model

    @property
    def sees_images(self) -> bool:
        """Whether the model sees."""
        return self._model().sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        """Always by tool calls."""
        return "preferred"

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`."""
        messages = self._as_told(request.messages)
        asked = Request(system=self._system(), messages=tuple(messages), tools=self._tools.declared())
        said, calls, stops = list[str](), 0, False
        async with aclosing(self._model().reply(asked)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case TextChunk(text=text):
                        said.append(text)
                        yield chunk
                    case CallChunk(index=index, name=name):
                        calls = max(calls, index + 1)
                        stops = stops or (name in ENDING and name in self._tools.functions)
                        own_id = "" if chunk.id == END_ID else chunk.id  # the transport gives it another one
                        yield replace(chunk, id=own_id, name=registered_name(name)) if name else chunk
                    case ReplyEnd(stop=stop) if stops and stop == "stop":
                        summary = json.dumps({"summary": "".join(said).strip() or "Stopped."})
                        yield CallChunk(index=calls, id=END_ID, name=_FINISH, arguments=summary)
                        yield chunk
                    case ReplyStart():
                        said, calls, stops = [], 0, False
                        yield chunk
                    case _:
                        yield chunk

    async def close(self) -> None:
        """Leave the model open: the agent closes it."""

    def name_of(self, registered: str) -> str:
        """The name of a tool as the model knows it."""
        return next((name for name in self._tools.functions if registered_name(name) == registered), registered)

    def _told(self, message: Message) -> Message:
        """A message with the names that the model knows, and without the call that was added."""
        requests = (each for each in message.requests if each.id != END_ID)
        return replace(
            message,
            requests=tuple(replace(each, name=self.name_of(each.name)) for each in requests),
            answers=tuple(each for each in message.answers if each.id != END_ID),
        )
