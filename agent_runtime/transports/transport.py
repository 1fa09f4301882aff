"""Base class of the transports, and the state of one reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from agent_runtime.core.errors import FormatCode, ResumeCode, ResumeError
from agent_runtime.core.events import Streamed
from agent_runtime.core.values import CallTool, ToolAnswer, ToolRequest, TransportName, Usage
from agent_runtime.interpreter.interpreter import Interpreter, require_readable
from agent_runtime.interpreter.source import InterpreterLimits, InterpreterState
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import CallChunk, Piece, ReplyEnd, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.tool import Registry, Tool


@dataclass(slots=True, kw_only=True)
class ReplyState:
    """State of one reply: its parts once it is parsed, and the answers of its calls so far."""

    requests: tuple[ToolRequest, ...] = ()
    """Native tool calls, from `ReplyEnd` on."""
    prose: str = ""
    has_calls: bool = False
    contents: tuple[str, ...] = ()
    """Compared with those of other steps, to find repetitions."""
    completion: str | None = None
    answers: list[ToolAnswer] = field(default_factory=list)
    """One for each native tool call that has run."""


ReplyT = TypeVar("ReplyT", bound=ReplyState)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedCalls:
    """Plain state of calls of which one waits for a person."""

    calls: Mapping[str, Any]
    """`transport` is the transport's name (not for `blocks`), `script` the interpreter's state."""
    contents: Mapping[str, Any] = field(default_factory=dict)


class StepSuspended(Exception):  # noqa: N818 - not an error: an answer resumes the step
    def __init__(self, state: SuspendedCalls) -> None:
        super().__init__("the step waits at a tool call")
        self.state = state


class Transport(ABC, Generic[ReplyT]):
    """Syntax in which a model requests calls, sends contents and finishes."""

    name: ClassVar[TransportName]
    uses_tool_calls: ClassVar[bool] = False
    """Whether the model service must support tool calls."""
    prose_finishes: ClassVar[bool] = False
    """Whether a reply of prose alone finishes a task."""
    no_action: ClassVar[str]
    """Message to the model after a reply that neither acts nor finishes."""
    no_output: ClassVar[str] = ""
    """Message to the model after a step without output."""
    correction: ClassVar[str]
    """Instruction to the model after a completion that does not match the output schema."""

    @abstractmethod
    def render_guide(self, tools: str, *, chat: bool) -> str:
        """Return the system prompt section about replies and `tools`; with `chat`, prose alone is an answer."""

    def declare_tools(self, tools: Registry) -> tuple[ToolSchema, ...]:  # noqa: ARG002 - for transports that declare them
        """Return the tool schemas for the model service; empty if the guide declares the tools."""
        return ()

    def adapt_tool(self, tool: Tool) -> Tool:
        """Return a built-in tool as the model calls it."""
        return tool

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> Self:
        """Begin a segment of a run, without starting a program.

        `enclose` maps a program that runs model code to one that runs it in a sandbox.
        """
        self._tools, self._max_calls = tools, limits.max_calls_per_step
        bounds = InterpreterLimits(calls=self._max_calls)
        self._interpreter = Interpreter(
            tools=tools.names,
            stubs=tools.stubs,
            limits=bounds,
            enclose=enclose,
            missing=tools.missing,
            describe=tools.describe,
        )
        return self

    async def close(self) -> None:
        await self._interpreter.close()

    @abstractmethod
    def start_reply(self) -> ReplyT: ...

    @abstractmethod
    def feed_reply(self, reply: ReplyT, chunk: Piece) -> Sequence[Streamed]:
        """Add a chunk and return text to show at once; a completion waits for the calls."""

    @abstractmethod
    def parse_reply(self, reply: ReplyT, stop: StopReason) -> None:
        """Validate a whole reply and set its parts; later ones of the segment may refer to it.

        Raises:
            FormatError: none of it may run.
        """

    def read_reply(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> ReplyT:
        """Parse a recorded reply; see `parse_reply`."""
        reply = self.start_reply()
        self.feed_reply(reply, TextChunk(text=text))
        for index, request in enumerate(requests):
            call = CallChunk(index=index, id=request.id, name=request.name, arguments=request.arguments)
            self.feed_reply(reply, call)
        self.feed_reply(reply, ReplyEnd(stop=stop, usage=Usage()))
        self.parse_reply(reply, stop)
        return reply

    @abstractmethod
    async def run_calls(
        self,
        reply: ReplyT,
        *,
        call: CallTool,
        show: Callable[[str], None],
        answer: Callable[[ToolRequest, str], ToolAnswer],
        suspended: SuspendedCalls | None = None,
    ) -> None:
        """Run a reply's calls, or the rest from the `suspended` one on.

        `show` adds text to the step's output; `answer` moves it into the answer of a native call, after its failure.

        Raises:
            FormatError: nothing ran.
            Interrupt: the text follows the step's output.
            StepSuspended: a call waits for a person.
        """

    def store_unreached(self) -> str:
        """Store contents that a failed step did not use; return a note for the model."""
        return ""

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Raise ResumeError if `run_calls` cannot continue from `SuspendedCalls.calls`."""
        if (name := calls.get("transport", "blocks")) != self.name:
            raise ResumeError(ResumeCode.TRANSPORT, found=name, now=self.name)
        if (script := calls.get("script", calls)) is not None:
            require_readable(InterpreterState.from_plain(script))

    @abstractmethod
    def explain_format_errors(self, code: FormatCode, count: int) -> str:
        """Return why a run ended after `count` unreadable replies."""

    def extract_prose(self, reply: str) -> str:
        """Return the prose of a reply that should be nothing else."""
        return reply

    def reset(self) -> None: ...


@cache
def read_guide(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
