"""One run: ask the model, parse its reply, execute the control block, record what it showed; again.

The loop keeps no history of its own: what the model reads is derived from the session's events. Whatever the model
should know about a step that failed travels as an `Interrupt`, whose text is the next message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from agent_runtime import prompts
from agent_runtime.context.transcript import Transcript
from agent_runtime.errors import FormatError, ModelUnreachableError
from agent_runtime.events import (
    CompletionWithdrawn,
    Event,
    Observed,
    Recorded,
    Replied,
    StepStarted,
    Streamed,
    StreamReset,
)
from agent_runtime.interpreter import Interpreter
from agent_runtime.outcome import Outcome, Status, Usage
from agent_runtime.policy import RunLimits
from agent_runtime.providers.protocol import Provider, ReplyEnd, ReplyStart, Request, TextChunk
from agent_runtime.reply import CompletionText, ProseText, Reply, ReplyEvent, ReplyParser
from agent_runtime.sessions.protocol import Session
from agent_runtime.step import Calls, execute
from agent_runtime.tools.payloads import Payloads


class Files(Protocol):
    """What the tools that keep track of files are told of a step, and what they tell of it."""

    def changed_by_others(self) -> str:
        """What someone else did to files that the agent knows since its last step; empty for nothing."""
        ...

    def begin_step(self, payloads: Payloads, control: str) -> None:
        """Take over a reply's payloads and look at its control block, before that runs."""
        ...

    def end_step(self, *, ok: bool) -> str:
        """What the model should know beside the step's results; empty for nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Everything one run needs.

    Attributes:
        provider: the model.
        interpreter: runs control blocks.
        calls: answers their tool calls.
        files: is told of each step.
        session: the log that messages are derived from; holds at least the run's `Started`.
        record: appends an event to the session and tells watchers.
        emit: tells watchers only.
        system: the system prompt.
        status: the short text sent after the last message of a request, from the step's number.
        limits: bounds of the run.
        chat: whether a reply that neither acts nor finishes is an answer.
    """

    provider: Provider
    interpreter: Interpreter
    calls: Calls
    files: Files
    session: Session
    record: Callable[[Recorded], None]
    emit: Callable[[Event], None]
    system: str
    status: Callable[[int], str]
    limits: RunLimits
    chat: bool
    transcript: Transcript = field(default_factory=Transcript, init=False)

    async def run(self) -> Outcome:
        """Take steps until the task is finished or a limit is reached.

        Raises:
            ModelError: the model service failed for good.
            SandboxError: the machine failed.
        """
        limits, usage, errors_in_a_row, writers = self.limits, Usage(), 0, frozenset[str]()
        for step in range(1, limits.max_steps + 1):
            self.emit(StepStarted(step=step, max_steps=limits.max_steps))
            if changes := self.files.changed_by_others():
                self.record(Observed(step=step, text=changes, ok=True))
            parser, end = await self._ask(step, writers)
            usage += end.usage
            try:
                reply = parser.finish(end.stop)
                writers |= reply.writers
                status, summary = await self._act(step, reply)
                errors_in_a_row = 0
            except FormatError as error:
                errors_in_a_row += 1
                status, summary = None, None
                self.record(Observed(step=step, text=_format_error(error, errors_in_a_row, limits), ok=False))
                if errors_in_a_row >= limits.max_format_errors:
                    return Outcome(status=Status.FORMAT_ERRORS, reason=f"{error}", steps=step, usage=usage)
            if status:
                return Outcome(status=status, summary=summary, steps=step, usage=usage)
            if limits.max_cost_usd is not None and (usage.cost_usd or 0.0) >= limits.max_cost_usd:
                reason = f"The run has cost ${usage.cost_usd or 0.0:.2f}; its limit is ${limits.max_cost_usd:.2f}."
                return Outcome(status=Status.MAX_COST, reason=reason, steps=step, usage=usage)
        reason = f"The task was not finished within {limits.max_steps} steps."
        return Outcome(status=Status.MAX_STEPS, reason=reason, steps=limits.max_steps, usage=usage)

    async def _ask(self, step: int, writers: frozenset[str]) -> tuple[ReplyParser, ReplyEnd]:
        """Send the conversation and take in the reply, telling watchers of its text as it arrives."""
        history = self.transcript.messages(self.session.events)
        request = Request(system=self.system, messages=history, status=self.status(step))
        parser, text, end = ReplyParser(known_writers=writers), list[str](), None
        async with aclosing(self.provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart(attempt=attempt):
                        if attempt > 1:
                            parser, text = ReplyParser(known_writers=writers), []
                            self.emit(StreamReset(attempt=attempt))
                    case TextChunk(text=more):
                        text.append(more)
                        self._tell(parser.feed(more))
                    case ReplyEnd():
                        end = chunk
        if end is None:
            raise ModelUnreachableError(f"{self.provider.model}: the provider ended a reply without a ReplyEnd")
        self._tell(parser.flush())
        self.record(Replied(step=step, text="".join(text), usage=end.usage))
        return parser, end

    def _tell(self, events: list[ReplyEvent]) -> None:
        for event in events:
            match event:
                case ProseText(text=text):
                    self.emit(Streamed(text=text))
                case CompletionText(text=text):
                    self.emit(Streamed(text=text, completion=True))
                case _:
                    pass

    async def _act(self, step: int, reply: Reply) -> tuple[Status | None, str | None]:
        """Do what a reply says.

        Returns:
            How the run ends and with what text, or two Nones when it goes on.

        Raises:
            FormatError: the reply cannot be acted on.
        """
        if reply.control is None:
            if reply.completion is not None:
                return Status.FINISHED, reply.completion.strip()
            if self.chat:
                return Status.ANSWERED, reply.prose.strip()
            raise FormatError("empty", prompts.NO_ACTION)
        payloads = Payloads(reply.payloads)
        self.files.begin_step(payloads, reply.control)
        try:
            shown, ok = await execute(reply.control, interpreter=self.interpreter, calls=self.calls, payloads=payloads)
        except FormatError as error:  # nothing ran, but the contents came
            raise FormatError(error.code, f"{error}\n{self.files.end_step(ok=False)}".rstrip()) from error
        shown = "\n\n".join(part for part in (shown, self.files.end_step(ok=ok)) if part)
        finished = ok and reply.completion is not None
        if reply.completion is not None and not ok:
            self.emit(CompletionWithdrawn(step=step))
            shown = f"{shown}\n\n{prompts.WITHDRAWN}"
        self.record(Observed(step=step, text=shown or prompts.NO_OUTPUT, ok=ok))
        return (Status.FINISHED, (reply.completion or "").strip()) if finished else (None, None)


def _format_error(error: FormatError, count: int, limits: RunLimits) -> str:
    return f"[Format error {count} of {limits.max_format_errors} in a row: {error.code}. Nothing was run.]\n{error}"
