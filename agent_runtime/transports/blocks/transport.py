"""The transport of control blocks: a reply is prose, Python that calls tools, payloads and a completion."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_runtime.core.calls import CallTool, Plain, ToolAnswer, ToolRequest
from agent_runtime.core.errors import FormatError, LimitError, ResumeCode, ResumeError
from agent_runtime.core.events import Replied, Streamed
from agent_runtime.core.policy import RunLimits
from agent_runtime.interpreter import Interpreter, InterpreterLimits, InterpreterState, Suspended, require_readable
from agent_runtime.providers.protocol import CallChunk, StopReason, TextChunk, ToolSchema
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.tool import Tool
from agent_runtime.transports.blocks.binding import PayloadBinder
from agent_runtime.transports.blocks.format_errors import unreadable
from agent_runtime.transports.blocks.guide import NO_ACTION, NO_OUTPUT, guide, unfit
from agent_runtime.transports.blocks.payload_plan import WRITE
from agent_runtime.transports.blocks.payloads import Payloads
from agent_runtime.transports.blocks.reply import CompletionText, ProseText, Reply, ReplyEvent, ReplyParser
from agent_runtime.transports.protocol import StepOutput, StepSuspended

_CONTROL = re.compile(r"^ {0,3}(?:```|~~~)+codepilot\b.*", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ {0,3}```(?:completion|markdown|text)?[ \t]*$", re.MULTILINE)


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
    def answers(self) -> tuple[ToolAnswer, ...]:
        """None: a block asks by itself."""
        return ()

    @property
    def completion(self) -> str | None:
        """The text for the user."""
        return self.reply.completion

    @property
    def prose(self) -> str:
        """All other text."""
        return self.reply.prose

    async def run(self, call: CallTool, output: StepOutput) -> None:
        """Run the control block; see `ReplyStep.run`.

        Raises:
            LimitError: it took fewer payloads than the reply brings.
        """
        control = self.reply.control or ""
        self.binder.begin_step(Payloads(self.reply.payloads), control)
        await self._see(self.interpreter.run(control, call=call, show=output.printed))

    async def resume(
        self, state: Mapping[str, Any], calls: Mapping[str, Any], call: CallTool, output: StepOutput
    ) -> None:
        """Go on in the middle of the block; see `ReplyStep.resume`.

        Raises:
            LimitError: as for `run`.
        """
        self.binder.resume(Payloads(self.reply.payloads), self.reply.control or "", state)
        await self._see(self.interpreter.resume(InterpreterState.from_plain(calls), call=call, show=output.printed))

    def end(self, *, ok: bool) -> str:
        """Keep the contents that a block which failed did not come to write."""
        return "" if ok else self.binder.keep_unreached()

    async def _see(self, block: Awaitable[None]) -> None:
        try:
            await block
        except Suspended as stop:
            raise StepSuspended(stop.state.to_plain()) from None
        if left := self.binder.left():
            raise LimitError(
                f"{left} payload{'s were' if left > 1 else ' was'} left over: the block made fewer writes than the "
                "reply brings contents."
            )


class BlockTransport:
    """Control blocks, and the contents that their writes did not come to write."""

    guide = staticmethod(guide)

    def __init__(self) -> None:
        self._binder = PayloadBinder()

    def schemas(self, tools: Registry) -> tuple[ToolSchema, ...]:  # noqa: ARG002 - the interface of all transports
        """None: the guide declares the tools."""
        return ()

    def words(self, reply: str) -> str:
        """What stands before a control block, without the fences of a completion."""
        return _FENCE.sub("", _CONTROL.sub("", reply))

    def adapt(self, tool: Tool) -> Tool:
        """A tool as control code calls it."""
        return self._binder.adapt(tool)

    def open(self, tools: Registry, limits: RunLimits, enclose: Callable[[Path], Path] | None = None) -> BlockLeg:
        """Begin a leg of a run; see `Transport.open`."""
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=tools.names, stubs=tools.stubs, limits=bounds, enclose=enclose)
        # Somebody else's write_file takes what it writes as an argument.
        payloads = WRITE not in tools or not tools.get(WRITE).foreign
        return BlockLeg(self._binder, interpreter, payloads=payloads)

    def require_resumable(self, calls: Mapping[str, Any]) -> None:
        """Make sure that the interpreter that is installed can go on with a block.

        Raises:
            ResumeError: another version took it, or it cannot be read; or it was suspended with another transport.
        """
        if "transport" in calls:
            raise ResumeError(ResumeCode.TRANSPORT, found=calls["transport"], now="blocks")
        require_readable(InterpreterState.from_plain(calls))

    def reset(self) -> None:
        """Forget the contents that were kept."""
        self._binder.reset()


class BlockLeg:
    """Reads replies with control blocks, and remembers which names write that earlier blocks have defined."""

    no_action, no_output, prose_finishes = NO_ACTION, NO_OUTPUT, False
    unfit, unreadable = staticmethod(unfit), staticmethod(unreadable)

    def __init__(self, binder: PayloadBinder, interpreter: Interpreter, *, payloads: bool = True) -> None:
        """Read replies.

        Args:
            binder: gives writes their payloads; the one that the tools were adapted by.
            interpreter: runs control blocks.
            payloads: whether writes take payloads.
        """
        self._binder = binder
        self._interpreter = interpreter
        self._payloads = payloads
        self._writers: frozenset[str] = frozenset()

    def recall(self, replies: Sequence[Replied]) -> list[BlockStep | None]:
        """Read earlier replies again; see `TransportLeg.recall`."""
        self._writers = frozenset()
        taken = list[BlockStep | None]()
        for reply in replies:
            try:
                taken.append(self.read(reply.text, "stop"))
            except FormatError:  # it was not acted on
                taken.append(None)
        return taken

    def read(
        self,
        text: str,
        stop: StopReason,
        requests: Sequence[ToolRequest] = (),  # noqa: ARG002 - the interface of all transports
    ) -> BlockStep:
        """Read a whole reply at once.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        reader = self.reader()
        reader.feed(TextChunk(text=text))
        return reader.finish(stop)

    def reader(self) -> BlockReader:
        """Begin to read the next reply."""
        return BlockReader(self, ReplyParser(known_writers=self._writers, payloads=self._payloads))

    def accept(self, reply: Reply) -> BlockStep:
        """The step of a reply that follows the protocol."""
        self._writers |= reply.writers
        return BlockStep(reply=reply, binder=self._binder, interpreter=self._interpreter)

    def state(self) -> dict[str, Plain]:
        """Which payloads were taken, and which contents are kept."""
        return self._binder.state()

    async def close(self) -> None:
        """End the interpreter; idempotent."""
        await self._interpreter.close()


class BlockReader:
    """Reads one reply with a control block."""

    def __init__(self, leg: BlockLeg, parser: ReplyParser) -> None:
        self._leg = leg
        self._parser = parser

    @property
    def requests(self) -> tuple[ToolRequest, ...]:
        """None: a control block is text."""
        return ()

    def feed(self, chunk: TextChunk | CallChunk) -> list[Streamed]:
        """Take the next chunk; gives its prose, and the completion of a reply without a control block."""
        return self._streamed(self._parser.feed(chunk.text)) if isinstance(chunk, TextChunk) else []

    def flush(self) -> list[Streamed]:
        """The reply is over; gives the text that was held back."""
        return self._streamed(self._parser.flush())

    def finish(self, stop: StopReason) -> BlockStep:
        """Judge the whole reply.

        Raises:
            FormatError: it does not follow the protocol; nothing of it may run.
        """
        return self._leg.accept(self._parser.finish(stop))

    def _streamed(self, events: Sequence[ReplyEvent]) -> list[Streamed]:
        shown = ProseText if self._parser.acts else ProseText | CompletionText
        return [
            Streamed(text=event.text, completion=isinstance(event, CompletionText))
            for event in events
            if isinstance(event, shown)
        ]
