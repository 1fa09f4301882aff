"""One run: ask the model, read its reply, make the calls that it asks for, record what they showed; again.

The loop keeps no history of its own: what the model reads, and how far the run is, is derived from the session's
events. Whatever the model should know about a step that failed travels as an `Interrupt`, whose text is the next
message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

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
from agent_runtime.core.outcome import Outcome, Status
from agent_runtime.core.policy import TOKENS_PER_USD, RunLimits
from agent_runtime.processes.spawn import in_thread
from agent_runtime.providers.protocol import (
    CallChunk,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    StopReason,
    TextChunk,
)
from agent_runtime.run.output_schema import TIMES_ASKED_AGAIN, Checked, check_completion
from agent_runtime.run.progress import Repeats
from agent_runtime.run.state import RunState
from agent_runtime.run.step import Calls, observed
from agent_runtime.transports.protocol import ReplyReader, ReplyStep, TransportLeg


class FileWatch(Protocol):
    """What the tools that track files learn about a step, and what they report."""

    def may_differ(self) -> bool:
        """Whether a look could find something to tell; answered at once, by the stamps of a few files at most."""
        ...

    def changed_by_others(self) -> str:
        """What someone else did to files that the agent knows since its last step; empty for nothing."""
        ...

    def begin_step(self) -> None:
        """Begin a step, before its calls."""
        ...

    def resume_step(self, state: Mapping[str, Any]) -> None:
        """The same for a step that stands in the middle, as `step_state` told it."""
        ...

    def end_step(self) -> str:
        """What the model should know beside the step's results; empty for nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheckpoint:
    """Where a paused run goes on.

    Attributes:
        calls: where its calls stand, as the transport told it.
        shown: what the step has shown.
        files: what the file tools and the transport have done in it.
        call: the number of the call that was waiting.
        note: what the model should know of the break; empty for nothing.
    """

    calls: Mapping[str, Any]
    shown: Mapping[str, Any]
    files: Mapping[str, Any]
    call: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Everything one run needs.

    Attributes:
        provider: the model.
        transport: reads its replies.
        calls: answers the tool calls that they ask for.
        files: learns about each step.
        state: the log that everything is derived from, and those who are told; it holds at least the run's `Started`.
        conversation: makes requests of the log.
        status: the short text sent after the last message of a request, from the step's number.
        network_lost: why the network that the run was given is gone; empty while it is there, or none was given.
        limits: bounds of the run.
        chat: whether a reply that neither acts nor finishes is an answer.
    """

    provider: Provider
    transport: TransportLeg
    calls: Calls
    files: FileWatch
    state: RunState
    conversation: Conversation
    status: Callable[[int], str]
    network_lost: Callable[[], str]
    limits: RunLimits
    chat: bool
    repeats: Repeats = field(default_factory=Repeats, init=False)
    withdrawn: list[str] = field(default_factory=list, init=False)

    async def run(self) -> Outcome:
        """Take steps until the task is finished, a limit is reached or the network is lost.

        Raises:
            StepSuspended: a call waits for a person.
            ModelError: the model service failed for good.
            SandboxError: the machine failed.
        """
        progress, errors_in_a_row = self.state.progress, 0
        self.calls.number = progress.calls
        self._recall()
        for step in range(progress.step + 1, self.limits.max_steps + 1):
            if (cut := self._cut_off()) is not None:
                return cut
            self.state.emit(StepStarted(step=step, max_steps=self.limits.max_steps))
            if changes := await self._told(self.files.changed_by_others):
                self.state.record(Observed(step=step, text=changes, ok=True))
            self.state.inject(step)
            reader, stop = await self._ask(step)
            try:
                outcome = await self._act(step, reader.finish(stop))
                errors_in_a_row = 0
            except FormatError as error:
                errors_in_a_row += 1
                outcome, most = None, self.limits.max_format_errors
                text = f"[Format error {errors_in_a_row} of {most} in a row: {error.code}. Nothing was run.]\n{error}"
                self.state.emit(Refused(error=text) if error.code == "control_syntax" else Faulted(error=text))
                self.state.record(Observed(step=step, text=text, ok=False))
                if errors_in_a_row >= most:
                    reason = self.transport.unreadable(error.code, errors_in_a_row)
                    outcome = self.state.outcome(Status.FORMAT_ERRORS, reason=reason)
            await self.state.session.commit()
            if outcome is not None:
                return outcome
        return self._cut_off() or self.state.outcome(
            Status.MAX_STEPS, reason=f"The task was not finished within {self.limits.max_steps} steps."
        )

    async def resume(self, standing: StepCheckpoint) -> Outcome:
        """Go on in the middle of a step, at the call that was waiting; then like `run`.

        Raises:
            StepSuspended: as for `run`; the step may pause again.
            ModelError: the same.
            SandboxError: the same.
        """
        taken = self._recall()[-1]
        if taken is None:
            raise AssertionError("a step is paused only after its reply was accepted")
        self.files.resume_step(standing.files)
        self.calls.begin_step()
        self.calls.shown.take_back(standing.shown)
        self.calls.number = standing.call - 1
        if standing.note:
            self.calls.shown.result(standing.note)
        work = taken.resume(standing.files, standing.calls, self.calls, self.calls.shown)
        outcome = await self._see_through(self.state.progress.step, taken, work)
        await self.state.session.commit()
        return outcome if outcome is not None else await self.run()

    def _recall(self) -> Sequence[ReplyStep | None]:
        """The steps that the run has taken so far, read from the log again."""
        records = self.state.progress.steps
        replies = [record.reply for record in records]
        if replies and self.state.original is not None:
            replies[-1] = self.state.original
        taken = self.transport.recall(replies)
        both = [(each, step) for each, step in zip(records, taken, strict=True) if step is not None]
        self.repeats.recall((each.calls, step.contents) for each, step in both if each.ran)
        self.withdrawn[:] = [
            step.completion for each, step in both if step.completion and each.observed and each.observed.withdrew
        ]
        return taken

    def _completion(self, reply: ReplyStep) -> str | None:
        """A reply's completion; an empty one stands for the last that was withdrawn.

        Raises:
            FormatError: it is empty, and the reply does nothing that could prove the one that was withdrawn.
        """
        if reply.completion != "" or not self.withdrawn:
            return reply.completion
        if not reply.acts:
            raise FormatError("empty", prompts.NOTHING_PROVEN)
        return self.withdrawn[-1]

    async def _told(self, look: Callable[[], str]) -> str:
        """What there is to say about files; where it may be something, they are looked at in a thread."""
        return await in_thread(look) if self.files.may_differ() else ""

    async def _ask(self, step: int) -> tuple[ReplyReader, StopReason]:
        """Send the conversation and take in the reply; one that the model finds too long is sent shortened."""
        try:
            return await self._send(step)
        except ContextOverflowError:
            if not await self.conversation.shorten():
                raise
            return await self._send(step)

    async def _send(self, step: int) -> tuple[ReplyReader, StopReason]:
        """Take in one reply, telling watchers of its text as it arrives."""
        request = await self.conversation.request(self.status(step))
        reader, text, end = self.transport.reader(), list[str](), None
        async with aclosing(self.provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart(attempt=attempt):
                        if attempt > 1:
                            reader, text = self.transport.reader(), []
                            self.state.emit(StreamReset(attempt=attempt))
                    case TextChunk() | CallChunk():
                        if isinstance(chunk, TextChunk):
                            text.append(chunk.text)
                        self._stream(reader.feed(chunk))
                    case ReplyFault():
                        pass  # told and counted by the provider that waits for outages
                    case ReplyEnd():
                        end = chunk
        if end is None:
            raise ModelUnreachableError(f"{self.provider.model}: the provider ended a reply without a ReplyEnd")
        self._stream(reader.flush())
        told, requests = "".join(text), reader.requests
        reasoning = end.reasoning if requests else ""
        self.state.record(Replied(step=step, text=told, usage=end.usage, requests=requests, reasoning=reasoning))
        self.conversation.learned(end.usage)
        return reader, end.stop

    def _stream(self, texts: Sequence[Streamed]) -> None:
        """Tell watchers of a reply's text as it comes; a completion that has to fit a schema is checked before."""
        for text in texts:
            if not (text.completion and self.state.progress.output_schema is not None):
                self.state.emit(text)

    async def _act(self, step: int, reply: ReplyStep) -> Outcome | None:
        """Do what a reply says.

        Returns:
            How the run ends, or None when it goes on.

        Raises:
            FormatError: the reply cannot be acted on.
            StepSuspended: a call waits for a person.
        """
        completion = self._completion(reply)
        if not reply.acts:
            progress = self.state.progress
            converses = self.chat and progress.output_schema is None
            if completion is None and self.transport.prose_finishes and not (converses and not progress.calls):
                completion = reply.prose
            if completion is not None:
                checked = await self._checked(completion)
                if checked.problems or reply.answers:
                    unfit = self._unfit(step, checked) if checked.problems else ""
                    self.state.record(
                        Observed(step=step, text=unfit, ok=True, unfit=bool(unfit), answers=reply.answers)
                    )
                streamed = progress.output_schema is None and not reply.answers
                return self._completed(completion, checked, streamed=streamed)
            if converses:
                return self.state.outcome(Status.ANSWERED, summary=reply.prose.strip())
            raise FormatError("empty", self.transport.no_action)
        self.files.begin_step()
        self.calls.begin_step()
        return await self._see_through(step, reply, reply.run(self.calls, self.calls.shown))

    async def _see_through(self, step: int, reply: ReplyStep, work: Awaitable[None]) -> Outcome | None:
        """See a step's calls to their end, and record what they showed."""
        try:
            shown, ok = await observed(work, self.calls.shown)
        except FormatError as error:  # nothing ran, but the contents came
            told = [reply.end(ok=False), await self._told(self.files.end_step)]
            raise FormatError(error.code, "\n".join([str(error), "\n\n".join(filter(None, told))]).rstrip()) from error
        parts = [shown, reply.end(ok=ok), await self._told(self.files.end_step)]
        completion = self._completion(reply)
        withdrew = completion is not None and not ok
        if completion is not None and not ok:
            self.withdrawn.append(completion)
            self.state.emit(CompletionWithdrawn(step=step))
            parts.append(prompts.WITHDRAWN)
        if not ok:
            failed = [each.text for each in reply.answers if not each.ok]
            self.state.emit(Faulted(error="\n\n".join(filter(None, [*failed, shown]))))
        checked = await self._checked(completion if ok else None)
        if checked.problems:
            parts.append(self._unfit(step, checked))
        repeated = self.repeats.count(self.state.progress.called, reply.contents)
        if self.limits.max_repeated_calls > repeated >= _WARNED_OF_REPEATS:
            parts.append(prompts.repeated(repeated, self.limits.max_repeated_calls))
        text = "\n\n".join(filter(None, parts)) or self.transport.no_output
        self.state.record(
            Observed(
                step=step, text=text, ok=ok, unfit=bool(checked.problems), withdrew=withdrew, answers=reply.answers
            )
        )
        if (
            ok
            and completion is not None
            and (ended := self._completed(completion, checked, streamed=False)) is not None
        ):
            return ended
        if repeated >= self.limits.max_repeated_calls:
            reason = f"The agent made the same calls in {repeated} steps in a row."
            return self.state.outcome(Status.REPEATED_CALLS, reason=reason)
        return None

    async def _checked(self, completion: str | None) -> Checked:
        """A completion held against the task's output schema, if it has one."""
        schema = self.state.progress.output_schema
        return Checked() if completion is None or schema is None else await check_completion(completion, schema)

    def _unfit(self, step: int, checked: Checked) -> str:
        """The message to the model about a completion that does not match the output schema."""
        self.state.emit(CompletionWithdrawn(step=step))
        return self.transport.unfit(checked.problems, max(0, TIMES_ASKED_AGAIN - 1 - self.state.progress.unfit))

    def _completed(self, completion: str, checked: Checked, *, streamed: bool) -> Outcome | None:
        """How a run ends that wants to end; None when its completion is asked for again.

        A completion that was not streamed with its reply is told now that it counts.
        """
        if not checked.problems:
            if completion and not streamed:
                self.state.emit(Streamed(text=f"{completion}\n", completion=True))
            return self.state.outcome(Status.FINISHED, summary=completion.strip(), output_json=checked.output_json)
        if (count := self.state.progress.unfit) <= TIMES_ASKED_AGAIN:
            return None
        reason = f"{count} completions did not fit the output schema. The last one:\n{checked.problems}"
        return self.state.outcome(Status.INVALID_OUTPUT, reason=reason)

    def _cut_off(self) -> Outcome | None:
        """How the run ends because no further reply may be asked for; None when one may."""
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


_WARNED_OF_REPEATS = 3
