"""The transport of control blocks: a reply is prose, Python that calls tools, payloads and a completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_runtime import prompts
from agent_runtime.core.calls import CallTool, Plain
from agent_runtime.core.errors import FormatError, LimitError
from agent_runtime.core.events import Streamed
from agent_runtime.interpreter import Interpreter, InterpreterState
from agent_runtime.providers.protocol import StopReason
from agent_runtime.transports.blocks.binding import PayloadBinder
from agent_runtime.transports.blocks.format_errors import unreadable
from agent_runtime.transports.blocks.payloads import Payloads
from agent_runtime.transports.blocks.reply import CompletionText, ProseText, Reply, ReplyEvent, ReplyParser
from agent_runtime.transports.protocol import Show


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStep:
    """The control block of one reply, its payloads, and its completion."""

    reply: Reply
    binder: PayloadBinder
    interpreter: Interpreter

    @property
    def acts(self) -> bool:
        """Whether there is a control block."""
        return self.reply.control is not None

    @property
    def contents(self) -> tuple[str, ...]:
        """The payloads' texts."""
        return tuple(payload.text for payload in self.reply.payloads)

    @property
    def completion(self) -> str | None:
        """The text for the user."""
        return self.reply.completion

    @property
    def prose(self) -> str:
        """All other text."""
        return self.reply.prose

    async def run(self, call: CallTool, show: Show) -> None:
        """Run the control block; see `ReplyStep.run`.

        Raises:
            LimitError: it took fewer payloads than the reply brings.
        """
        control = self.reply.control or ""
        self.binder.begin_step(Payloads(self.reply.payloads), control)
        await self.interpreter.run(control, call=call, show=show)
        self._require_none_left()

    async def resume(
        self, state: Mapping[str, Any], interpreter: Mapping[str, Any], call: CallTool, show: Show
    ) -> None:
        """Go on in the middle of the block; see `ReplyStep.resume`.

        Raises:
            LimitError: as for `run`.
        """
        self.binder.resume(Payloads(self.reply.payloads), self.reply.control or "", state)
        await self.interpreter.resume(InterpreterState.from_plain(interpreter), call=call, show=show)
        self._require_none_left()

    def end(self, *, ok: bool) -> str:
        """Keep the contents that a block which failed did not come to write."""
        return "" if ok else self.binder.keep_unreached()

    def _require_none_left(self) -> None:
        if left := self.binder.left():
            raise LimitError(
                f"{left} payload{'s were' if left > 1 else ' was'} left over: the block made fewer writes than the "
                "reply brings contents."
            )


class BlockTransport:
    """Reads replies with control blocks, and remembers which names write that earlier blocks have defined."""

    no_action = prompts.NO_ACTION

    def __init__(self, binder: PayloadBinder, interpreter: Interpreter) -> None:
        """Read replies.

        Args:
            binder: gives writes their payloads; the one that the tools were adapted by.
            interpreter: runs control blocks.
        """
        self._binder = binder
        self._interpreter = interpreter
        self._writers: frozenset[str] = frozenset()

    def recall(self, replies: Sequence[str]) -> list[BlockStep | None]:
        """Read earlier replies again; see `Transport.recall`."""
        self._writers = frozenset()
        return [self._recalled(text) for text in replies]

    def _recalled(self, text: str) -> BlockStep | None:
        reader = self.reader()
        reader.feed(text)
        try:
            return reader.finish("stop")
        except FormatError:  # it was not acted on
            return None

    def reader(self) -> BlockReader:
        """Begin to read the next reply."""
        return BlockReader(self, ReplyParser(known_writers=self._writers))

    def accept(self, reply: Reply) -> BlockStep:
        """The step of a reply that follows the protocol."""
        self._writers |= reply.writers
        return BlockStep(reply=reply, binder=self._binder, interpreter=self._interpreter)

    def state(self) -> dict[str, Plain]:
        """Which payloads were taken, and which contents are kept."""
        return self._binder.state()

    unreadable = staticmethod(unreadable)


class BlockReader:
    """Reads one reply with a control block."""

    def __init__(self, transport: BlockTransport, parser: ReplyParser) -> None:
        self._transport = transport
        self._parser = parser

    def feed(self, chunk: str) -> list[Streamed]:
        """Take the next chunk; gives its prose and completion."""
        return _streamed(self._parser.feed(chunk))

    def flush(self) -> list[Streamed]:
        """The reply is over; gives the text that was held back."""
        return _streamed(self._parser.flush())

    def finish(self, stop: StopReason) -> BlockStep:
        """Judge the whole reply.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        return self._transport.accept(self._parser.finish(stop))


def _streamed(events: Sequence[ReplyEvent]) -> list[Streamed]:
    return [
        Streamed(text=event.text, completion=isinstance(event, CompletionText))
        for event in events
        if isinstance(event, ProseText | CompletionText)
    ]
