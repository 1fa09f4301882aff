"""Interface of a transport: how a model asks for calls, sends contents and finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent_runtime.core.errors import FormatCode
from agent_runtime.core.events import Replied, Streamed
from agent_runtime.core.values import CallTool, Image, Plain, ToolAnswer, ToolRequest
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.tool import Registry, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a part of a step has shown."""

    text: str
    images: tuple[Image, ...] = ()


class StepOutput(Protocol):
    """Collects what a step shows, within its bound; the results of calls come to it by themselves."""

    def printed(self, text: str) -> None:
        """Add what code has printed."""
        ...

    def result(self, text: str, *, call: str = "") -> None:
        """Add what came of something else than a call, e.g. a refusal.

        Args:
            text: as the model reads it.
            call: what it came of, in a few words.
        """
        ...

    def take(self) -> Shown:
        """Take out what was shown since the last time."""
        ...


class StepSuspended(Exception):  # noqa: N818 - not an error: the step goes on once somebody has answered
    """A step waits at a call.

    Attributes:
        calls: where its calls stand, for `ReplyStep.resume`.
    """

    def __init__(self, calls: dict[str, Plain]) -> None:
        super().__init__("the step waits at a tool call")
        self.calls = calls


class ReplyStep(Protocol):
    """What one accepted reply asks for."""

    @property
    def acts(self) -> bool:
        """Whether it asks for calls."""
        ...

    @property
    def contents(self) -> tuple[str, ...]:
        """What it brings for its calls: their contents, or all that they are asked with."""
        ...

    @property
    def answers(self) -> tuple[ToolAnswer, ...]:
        """The answers to the reply's requests, as far as it has run."""
        ...

    @property
    def completion(self) -> str | None:
        """The text for the user, if the task is finished."""
        ...

    @property
    def prose(self) -> str:
        """All other text."""
        ...

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Make its calls.

        Raises:
            FormatError: it does not fit the tools; nothing ran.
            Interrupt: it failed; the text is the next message, behind its answers.
            StepSuspended: a call waits for a person.
            SandboxError: the machine failed, not the model.
        """
        ...

    async def resume(
        self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, output: StepOutput
    ) -> None:
        """Go on at the call that waited, then like `run`.

        Args:
            state: what `TransportLeg.state` gave when the step was paused.
            calls: what `StepSuspended` brought then.
            call: answers its calls, the one that waited first.
            output: takes what it shows.
        """
        ...

    def end(self, *, ok: bool) -> str:
        """End it, and tell what the model should know beside its results; empty for nothing.

        Args:
            ok: whether it ran to its end without an error.
        """
        ...


class ReplyReader(Protocol):
    """Reads one reply as it arrives."""

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """The calls that it asks for by the service's own tool calls, as far as it has come."""
        ...

    def feed(self, chunk: TextChunk | CallChunk) -> Sequence[Streamed]:
        """Take the next chunk; gives the text that people are shown at once.

        The completion of a reply that makes calls is not among it: the calls have yet to prove it.
        """
        ...

    def flush(self) -> Sequence[Streamed]:
        """The reply is over; gives the text that was held back."""
        ...

    def finish(self, stop: StopReason) -> ReplyStep:
        """Judge the whole reply.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        ...


class TransportLeg(Protocol):
    """Reads the replies of one leg of a run."""

    @property
    def no_action(self) -> str:
        """The message to the model about a reply that neither acts nor finishes."""
        ...

    @property
    def no_output(self) -> str:
        """The message to the model about a step that showed nothing."""
        ...

    @property
    def prose_finishes(self) -> bool:
        """Whether a reply of prose alone finishes a task; in conversation it is an answer while nothing was done."""
        ...

    def unfit(self, problems: str, left: int) -> str:
        """The message to the model about a completion that does not match the task's output schema.

        Args:
            problems: what is wrong with it, one line each.
            left: how many more completions are looked at after this.
        """
        ...

    def unreadable(self, code: FormatCode, count: int) -> str:
        """What a person is told when so many replies in a row were not understood.

        Args:
            code: what is wrong with the last one.
            count: how many.
        """
        ...

    def recall(self, replies: Sequence[Replied]) -> Sequence[ReplyStep | None]:
        """Read the run's earlier replies again, for what later ones refer to; None for one that was not understood."""
        ...

    def reader(self) -> ReplyReader:
        """Begin to read the next reply."""
        ...

    def read(self, text: str, stop: StopReason, requests: Sequence[ToolRequest] = ()) -> ReplyStep:
        """Read a whole reply at once.

        Raises:
            FormatError: as for `ReplyReader.finish`.
        """
        ...

    def state(self) -> dict[str, Plain]:
        """Where the present step stands, to be gone on with by `ReplyStep.resume`."""
        ...

    async def close(self) -> None:
        """Give back what running its steps took; idempotent."""
        ...


class Transport(Protocol):
    """How the model of one runtime asks for calls, sends contents and finishes."""

    def guide(self, tools: str, *, chat: bool) -> str:
        """The part of the system prompt that says how to reply and which tools there are.

        Args:
            tools: their declarations.
            chat: whether a reply that neither acts nor finishes is an answer.
        """
        ...

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:
        """The tools as they are declared to the service; none where the guide declares them.

        Raises:
            SettingsError: one of them cannot be declared to a service.
        """
        ...

    def words(self, reply: str) -> str:
        """What a reply that was to be plain text says, without calls and marks that are in it anyway."""
        ...

    def adapt(self, tool: Tool) -> Tool:
        """A built-in tool as the model calls it."""
        ...

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> TransportLeg:
        """Begin a leg of a run; no program is started yet.

        Args:
            tools: what the model may call.
            limits: bounds of the run.
            enclose: given a program that runs what the model wrote, the one to start in its place, in a sandbox.
        """
        ...

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that `ReplyStep.resume` can go on from what a `StepSuspended` brought.

        Raises:
            ResumeError: it cannot, e.g. because another version suspended the step.
        """
        ...

    def reset(self) -> None:
        """Forget what is kept of earlier runs."""
        ...
