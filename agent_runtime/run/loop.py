"""The loop of a run: send the conversation, parse the reply, make its calls, record the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from agent_runtime import prompts
from agent_runtime.context.conversation import Conversation
from agent_runtime.core.errors import ContextOverflowError, FormatError, ModelUnreachableError
from agent_runtime.core.events import (
    CompletionWithdrawn,
    Faulted,
    Observed,
    Refused,
    Replied,
    StepStarted,
    Streamed,
    StreamReset,
)
from agent_runtime.core.values import Outcome, Status
from agent_runtime.policy.policy import TOKENS_PER_USD, RunLimits
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.providers.protocol import (
    CallChunk,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    StopReason,
    TextChunk,
)
from agent_runtime.run.calls import Calls
from agent_runtime.run.output_schema import MAX_RETRIES, Validation, check_completion
from agent_runtime.run.state import RepeatCounter, RunState
from agent_runtime.tools.files import FileTools
from agent_runtime.transports.protocol import ReplyReader, ReplyStep, TransportSession

_MIN_REPEATS_TO_WARN = 3
_TURN_CHARS = 64_000
"""Characters of a reply that are parsed before other tasks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheckpoint:
    """The position at which a suspended run continues."""

    calls: Mapping[str, Any]
    """State of the calls, from the transport."""
    output: Mapping[str, Any]
    """Output of the step so far."""
    files: Mapping[str, Any]
    """State of the file tools and the transport."""
    call: int
    """Number of the call that was waiting."""
    note: str = ""
    """For the model, about the pause."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """One run, or the rest of one."""

    provider: Provider
    """The model."""
    transport: TransportSession
    """Parses replies."""
    calls: Calls
    """Makes tool calls."""
    files: FileTools
    """Tracks files between steps."""
    state: RunState
    """The log and its listeners; has at least a `Started`."""
    conversation: Conversation
    """Creates requests from the log."""
    status: Callable[[int], str]
    """Returns the text after the last message of a step's request."""
    network_lost: Callable[[], str]
    """Returns why the network was lost, or an empty text."""
    limits: RunLimits
    """Limits of the run."""
    chat: bool
    """Whether a reply that neither acts nor finishes is an answer."""
    format_errors: int = field(default=0, init=False)
    """Consecutive unreadable replies."""
    repeats: RepeatCounter = field(default_factory=RepeatCounter, init=False)
    """Consecutive steps with the same calls."""
    withdrawn: list[str] = field(default_factory=list, init=False)
    """Completions of failed steps."""

    async def run(self) -> Outcome:
        """Take steps until the task is finished, a limit is reached or the network is lost.

        Raises:
            StepSuspended: a call waits for a person.
            ModelError: the model service failed.
            SandboxError: the machine failed.
        """
        progress = self.state.progress
        self.calls.number = progress.calls
        await run_in_thread(self._parse_history)
        for step in range(progress.step + 1, self.limits.max_steps + 1):
            outcome = self._check_limits() or await self._take_step(step)
            if outcome is not None:
                return outcome
        return self._check_limits() or self.state.outcome(
            Status.MAX_STEPS, reason=f"The task was not finished within {self.limits.max_steps} steps."
        )

    async def resume(self, checkpoint: StepCheckpoint) -> Outcome:
        """Continue a step at the call that was waiting, then like `run`."""
        reply = (await run_in_thread(self._parse_history))[-1]
        if reply is None:
            raise AssertionError("a step is paused only after its reply was accepted")
        self.files.resume_step(checkpoint.files)
        self.calls.begin_step()
        self.calls.output.restore(checkpoint.output)
        self.calls.number = checkpoint.call - 1
        if checkpoint.note:
            self.calls.output.add_result(checkpoint.note)
        work = reply.resume(checkpoint.files, checkpoint.calls, self.calls, self.calls.output)
        outcome = await self._finish_calls(self.state.progress.step, reply, work)
        await self.state.session.commit()
        return outcome if outcome is not None else await self.run()

    def _parse_history(self) -> Sequence[ReplyStep | None]:
        records = self.state.progress.steps
        replies = [record.reply for record in records]
        if replies and self.state.original is not None:
            replies[-1] = self.state.original
        steps = self.transport.parse_history(replies)
        pairs = [(record, step) for record, step in zip(records, steps, strict=True) if step is not None]
        self.repeats.restore((record.calls, step.contents) for record, step in pairs if record.is_done)
        self.withdrawn[:] = [
            step.completion
            for record, step in pairs
            if step.completion and record.observed and record.observed.withdrew
        ]
        return steps

    def _check_limits(self) -> Outcome | None:
        if lost := self.network_lost():
            reason = f"The sandbox has lost its network: {lost}. The next run gets a new sandbox."
            return self.state.outcome(Status.NETWORK_LOST, reason=reason)
        usage, limits = self.state.progress.usage, self.limits
        if limits.max_cost_usd is not None and usage.cost_usd is None:
            most = int(limits.max_cost_usd * TOKENS_PER_USD)
            if usage.total_tokens >= most:
                reason = (
                    f"The run has used {usage.total_tokens:,} tokens, and the model's price is not known: its limit of "
                    f"${limits.max_cost_usd:.2f} then allows {most:,} tokens. Raise or remove the cost limit."
                )
                return self.state.outcome(Status.MAX_COST, reason=reason)
        elif limits.max_cost_usd is not None and (usage.cost_usd or 0.0) >= limits.max_cost_usd:
            reason = f"The run has cost ${usage.cost_usd or 0.0:.2f}; its limit is ${limits.max_cost_usd:.2f}."
            return self.state.outcome(Status.MAX_COST, reason=reason)
        if limits.max_tokens is not None and usage.total_tokens >= limits.max_tokens:
            reason = f"The run has used {usage.total_tokens:,} tokens; its limit is {limits.max_tokens:,}."
            return self.state.outcome(Status.MAX_TOKENS, reason=reason)
        return None

    async def _take_step(self, step: int) -> Outcome | None:
        self.state.emit(StepStarted(step=step, max_steps=self.limits.max_steps))
        if changes := await self._read_changes(self.files.report_external_changes):
            self.state.record(Observed(step=step, text=changes, ok=True))
        self.state.inject(step)
        try:
            reader, stop = await self._request_reply(step)
        except ContextOverflowError:  # the model finds the conversation too long
            if not await self.conversation.shorten():
                raise
            reader, stop = await self._request_reply(step)
        try:
            outcome = await self._act(step, reader.finish(stop))
            self.format_errors = 0
        except FormatError as error:
            outcome = self._reject_reply(step, error)
        await self.state.session.commit()
        return outcome

    async def _read_changes(self, read: Callable[[], str]) -> str:
        """Read changes of tracked files in a thread, unless their stamps exclude any."""
        return await run_in_thread(read) if self.files.may_differ() else ""

    async def _request_reply(self, step: int) -> tuple[ReplyReader, StopReason]:
        request = await self.conversation.request(self.status(step))
        reader, text, end = self.transport.new_reader(), list[str](), None
        async with aclosing(self.provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart(attempt=attempt):
                        if attempt > 1:
                            reader, text = self.transport.new_reader(), []
                            self.state.emit(StreamReset(attempt=attempt))
                    case CallChunk():
                        self._stream(reader.feed(chunk))
                    case TextChunk(text=piece):
                        text.append(piece)
                        for start in range(0, len(piece), _TURN_CHARS):
                            await asyncio.sleep(0)
                            self._stream(reader.feed(TextChunk(text=piece[start : start + _TURN_CHARS])))
                    case ReplyFault():
                        pass  # reported and counted by the provider that waits for outages
                    case ReplyEnd():
                        end = chunk
        if end is None:
            raise ModelUnreachableError(f"{self.provider.model}: the provider ended a reply without a ReplyEnd")
        self._stream(reader.flush())
        requests = reader.requests
        reasoning = end.reasoning if requests else ""
        reply = Replied(step=step, text="".join(text), usage=end.usage, requests=requests, reasoning=reasoning)
        self.state.record(reply)
        self.conversation.record_usage(end.usage)
        return reader, end.stop

    def _stream(self, texts: Sequence[Streamed]) -> None:
        for text in texts:
            if not (text.completion and self.state.progress.output_schema is not None):
                self.state.emit(text)

    def _reject_reply(self, step: int, error: FormatError) -> Outcome | None:
        self.format_errors += 1
        count, most = self.format_errors, self.limits.max_format_errors
        text = f"[Format error {count} of {most} in a row: {error.code}. Nothing was run.]\n{error}"
        self.state.emit(Refused(error=text) if error.code == "control_syntax" else Faulted(error=text))
        self.state.record(Observed(step=step, text=text, ok=False))
        if count < most:
            return None
        return self.state.outcome(Status.FORMAT_ERRORS, reason=self.transport.failure_message(error.code, count))

    async def _act(self, step: int, reply: ReplyStep) -> Outcome | None:
        completion = self._effective_completion(reply)
        if reply.has_calls:
            self.files.begin_step()
            self.calls.begin_step()
            return await self._finish_calls(step, reply, reply.run(self.calls, self.calls.output))
        progress = self.state.progress
        converses = self.chat and progress.output_schema is None
        if completion is None and self.transport.prose_finishes and not (converses and not progress.calls):
            completion = reply.prose
        if completion is not None:
            checked = await self._check_completion(completion)
            if checked.problems or reply.answers:
                error = self._reject_completion(step, checked) if checked.problems else ""
                self.state.record(Observed(step=step, text=error, ok=True, unfit=bool(error), answers=reply.answers))
            streamed = progress.output_schema is None and not reply.answers
            return self._finish_run(completion, checked, streamed=streamed)
        if converses:
            return self.state.outcome(Status.ANSWERED, summary=reply.prose.strip())
        raise FormatError("empty", self.transport.no_action)

    def _effective_completion(self, reply: ReplyStep) -> str | None:
        """Return a reply's completion; an empty one repeats the last withdrawn one."""
        if reply.completion != "" or not self.withdrawn:
            return reply.completion
        if not reply.has_calls:
            raise FormatError("empty", prompts.NOTHING_PROVEN)
        return self.withdrawn[-1]

    async def _finish_calls(self, step: int, reply: ReplyStep, work: Awaitable[None]) -> Outcome | None:
        try:
            output, ok = await self.calls.finish_step(work)
        except FormatError as error:  # nothing ran, but the contents are stored
            notes = filter(None, [reply.end(ok=False), await self._read_changes(self.files.end_step)])
            raise FormatError(error.code, "\n".join([str(error), "\n\n".join(notes)]).rstrip()) from error
        parts = [output, reply.end(ok=ok), await self._read_changes(self.files.end_step)]
        completion = self._effective_completion(reply)
        withdrew = completion is not None and not ok
        if completion is not None and not ok:
            self.withdrawn.append(completion)
            self.state.emit(CompletionWithdrawn(step=step))
            parts.append(prompts.WITHDRAWN)
        if not ok:
            failed = [answer.text for answer in reply.answers if not answer.ok]
            self.state.emit(Faulted(error="\n\n".join(filter(None, [*failed, output]))))
        checked = await self._check_completion(completion if ok else None)
        if checked.problems:
            parts.append(self._reject_completion(step, checked))
        repeated = self.repeats.count(self.state.progress.last_calls, reply.contents)
        if self.limits.max_repeated_calls > repeated >= _MIN_REPEATS_TO_WARN:
            parts.append(prompts.repetition_warning(repeated, self.limits.max_repeated_calls))
        text = "\n\n".join(filter(None, parts)) or self.transport.no_output
        unfit = bool(checked.problems)
        self.state.record(Observed(step=step, text=text, ok=ok, unfit=unfit, withdrew=withdrew, answers=reply.answers))
        outcome = None
        if ok and completion is not None:
            outcome = self._finish_run(completion, checked, streamed=False)
        if outcome is None and repeated >= self.limits.max_repeated_calls:
            reason = f"The agent made the same calls in {repeated} steps in a row."
            outcome = self.state.outcome(Status.REPEATED_CALLS, reason=reason)
        return outcome

    async def _check_completion(self, completion: str | None) -> Validation:
        schema = self.state.progress.output_schema
        return Validation() if completion is None or schema is None else await check_completion(completion, schema)

    def _reject_completion(self, step: int, checked: Validation) -> str:
        """Withdraw a completion that does not match the schema; return the message to the model."""
        self.state.emit(CompletionWithdrawn(step=step))
        attempts = max(0, MAX_RETRIES - 1 - self.state.progress.unfit)
        return self.transport.mismatch_message(checked.problems, attempts)

    def _finish_run(self, completion: str, checked: Validation, *, streamed: bool) -> Outcome | None:
        if not checked.problems:
            if completion and not streamed:
                self.state.emit(Streamed(text=f"{completion}\n", completion=True))
            return self.state.outcome(Status.FINISHED, summary=completion.strip(), output_json=checked.output_json)
        if (count := self.state.progress.unfit) <= MAX_RETRIES:
            return None
        reason = f"{count} completions did not fit the output schema. The last one:\n{checked.problems}"
        return self.state.outcome(Status.INVALID_OUTPUT, reason=reason)
