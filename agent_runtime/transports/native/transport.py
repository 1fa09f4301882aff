"""The transport of native tool calls: tools are declared to the service, and each call is answered by its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_runtime.core.calls import Plain, ToolRequest
from agent_runtime.core.errors import FormatError, ResumeCode, ResumeError, SettingsError
from agent_runtime.core.events import Replied
from agent_runtime.core.policy import RunLimits
from agent_runtime.interpreter import Interpreter, InterpreterLimits, InterpreterState, require_readable
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.context import ContextTools
from agent_runtime.tools.index import IndexTools
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.schema import tool_schema
from agent_runtime.tools.tool import Tool
from agent_runtime.transports.native.guide import (
    NO_ACTION,
    SCRIPT,
    finish_schema,
    guide,
    script_schema,
    unfit,
    unreadable,
)
from agent_runtime.transports.native.reading import NAME, NAME_CHARS, NativeReader
from agent_runtime.transports.native.step import TRANSPORT, NativeStep
from agent_runtime.transports.native.writing import adapted

_SELDOM = frozenset({*IndexTools.value_types, *ContextTools.value_types, "send_input", "terminate_terminal"})
"""Built-in tools that only scripts call: a line for each takes half the characters of a schema."""


class NativeTransport:
    """The service's own tool calls, and two tools of ours: `script` runs control code, `finish` ends the task."""

    guide = staticmethod(guide)

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """The declarations for the service; a registered tool goes before one of ours of the same name.

        Raises:
            SettingsError: a registered tool has a name that services refuse.
        """
        each = [tools.get(name) for name in tools.names]
        seldom = [] if SCRIPT in tools else [tool for tool in each if tool.name in _SELDOM and not tool.foreign]
        own = [script_schema("\n".join(tool.line for tool in seldom)), finish_schema()]
        declared = [tool_schema(tool) for tool in each if tool not in seldom]
        if wrong := next((tool.name for tool in declared if not NAME.fullmatch(tool.name)), None):
            raise SettingsError(
                f"tool {wrong!r}: with the transport `tools` a name has at most {NAME_CHARS} characters, all of them "
                "ASCII letters, digits and underscores. Register it under another name, or use the transport `blocks`."
            )
        return (*declared, *(schema for schema in own if schema.name not in tools))

    def words(self, reply: str) -> str:
        """The reply: its calls stand beside it."""
        return reply

    def adapt(self, tool: Tool) -> Tool:
        """A tool with its contents as arguments."""
        return adapted(tool)

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> NativeLeg:
        """Begin a leg of a run; see `Transport.open`."""
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=tools.names, stubs=tools.stubs, limits=bounds, enclose=enclose)
        return NativeLeg(tools, interpreter, limits.max_calls_per_step)

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that a step of this transport was suspended, and that its script can be gone on with.

        Raises:
            ResumeError: it was another transport's, or another version of the interpreter suspended its script.
        """
        if calls.get("transport") != TRANSPORT:
            raise ResumeError(ResumeCode.TRANSPORT, found="blocks", now=TRANSPORT)
        if calls["script"] is not None:
            require_readable(InterpreterState.from_plain(calls["script"]))

    def reset(self) -> None:
        """Nothing is kept of earlier runs."""


class NativeLeg:
    """Reads replies with native tool calls."""

    no_action, no_output, prose_finishes = NO_ACTION, "", True
    unfit, unreadable = staticmethod(unfit), staticmethod(unreadable)

    def __init__(self, tools: Registry, interpreter: Interpreter, max_calls: int) -> None:
        """Read replies.

        Args:
            tools: what can be called.
            interpreter: runs scripts.
            max_calls: how many calls one reply may make.
        """
        self._tools = tools
        self._interpreter = interpreter
        self._max_calls = max_calls

    def recall(self, replies: Sequence[Replied]) -> list[NativeStep | None]:
        """Read earlier replies again; see `TransportLeg.recall`."""
        taken = list[NativeStep | None]()
        for reply in replies:
            try:
                taken.append(self.read(reply.text, "stop", reply.requests))
            except FormatError:  # it was not acted on
                taken.append(None)
        scripted = False
        for step in filter(None, taken):
            step.scripted = scripted
            scripted = scripted or any(each.name == SCRIPT for each in step.requests)
        return taken

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> NativeStep:
        """Read a whole reply at once.

        Raises:
            FormatError: as for `ReplyReader.finish`.
        """
        reader = self.reader()
        reader.feed(TextChunk(text=text))
        for index, each in enumerate(requests):
            reader.feed(CallChunk(index=index, id=each.id, name=each.name, arguments=each.arguments))
        return reader.finish(stop)

    def reader(self) -> NativeReader:
        """Begin to read the next reply."""
        return NativeReader(self._accept)

    def state(self) -> dict[str, Plain]:
        """Where a step stands is told by its suspension alone."""
        return {}

    async def close(self) -> None:
        """End the interpreter; idempotent."""
        await self._interpreter.close()

    def _accept(self, text: str, requests: Sequence[ToolRequest]) -> NativeStep:
        return NativeStep(
            prose=text,
            requests=tuple(requests),
            tools=self._tools,
            interpreter=self._interpreter,
            max_calls=self._max_calls,
        )
