"""Interface of a transport: how a model asks for calls, sends contents and finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agent_runtime.core.calls import CallTool, Plain
from agent_runtime.core.errors import FormatCode
from agent_runtime.core.events import Streamed
from agent_runtime.core.policy import RunLimits
from agent_runtime.providers.protocol import StopReason
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.tool import Tool

Show = Callable[[str], None]
"""Takes what a step shows beside the results of its calls, in order with them."""


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
        """The contents that it brings for its calls."""
        ...

    @property
    def completion(self) -> str | None:
        """The text for the user, if the task is finished."""
        ...

    @property
    def prose(self) -> str:
        """All other text."""
        ...

    async def run(self, call: CallTool, show: Show) -> None:
        """Make its calls.

        Raises:
            FormatError: it does not fit the tools; nothing ran.
            Interrupt: it failed; the text is the next message.
            StepSuspended: a call waits for a person.
            SandboxError: the machine failed, not the model.
        """
        ...

    async def resume(self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, show: Show) -> None:
        """Go on at the call that waited, then like `run`.

        Args:
            state: what `TransportLeg.state` gave when the step was paused.
            calls: what `StepSuspended` brought then.
            call: answers its calls, the one that waited first.
            show: takes what it shows.
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

    def feed(self, chunk: str) -> Sequence[Streamed]:
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

    def recall(self, replies: Sequence[str]) -> Sequence[ReplyStep | None]:
        """Read the run's earlier replies again, for what later ones refer to; None for one that was not understood."""
        ...

    def reader(self) -> ReplyReader:
        """Begin to read the next reply."""
        ...

    def read(self, text: str, stop: StopReason) -> ReplyStep:
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

    def words(self, reply: str) -> str:
        """What a reply that was to be plain text says, without calls and marks that stand in it anyway."""
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
