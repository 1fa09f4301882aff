"""Interface of a transport: how a model asks for calls, sends contents and finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agent_runtime.core.calls import CallTool, Plain
from agent_runtime.core.errors import FormatCode
from agent_runtime.core.events import Streamed
from agent_runtime.providers.protocol import StopReason

Show = Callable[[str], None]
"""Takes what a step shows beside the results of its calls, in order with them."""


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
            Suspended: a call waits for a person.
            SandboxError: the machine failed, not the model.
        """
        ...

    async def resume(
        self, state: Mapping[str, Any], interpreter: Mapping[str, Any], call: CallTool, show: Show
    ) -> None:
        """Go on at the call that waited, then like `run`.

        Args:
            state: what `Transport.state` gave when the step was paused.
            interpreter: what `Suspended` brought then.
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
        """Take the next chunk; gives the text that people are shown at once."""
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


class Transport(Protocol):
    """Reads the replies of one leg of a run."""

    @property
    def no_action(self) -> str:
        """What the model is told of a reply that neither acts nor finishes."""
        ...

    def recall(self, replies: Sequence[str]) -> Sequence[ReplyStep | None]:
        """Read the run's earlier replies again, for what later ones refer to; None for one that was not understood."""
        ...

    def reader(self) -> ReplyReader:
        """Begin to read the next reply."""
        ...

    def state(self) -> dict[str, Plain]:
        """Where the present step stands, to be gone on with by `ReplyStep.resume`."""
        ...

    def unreadable(self, code: FormatCode, count: int) -> str:
        """What a person is told when so many replies in a row were not understood.

        Args:
            code: what is wrong with the last one.
            count: how many.
        """
        ...
