"""One run: ask the model, read its reply, make the calls that it asks for, record what they showed; again.

The loop keeps no history of its own: what the model reads, and how far the run is, is derived from the session's
events. Whatever the model should know about a step that failed travels as an `Interrupt`, whose text is the next
message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

from agent_runtime import prompts
from agent_runtime.context.conversation import Conversation
from agent_runtime.core.errors import (
    ContextOverflowError,
    FormatError,
    Interrupt,
    ModelUnreachableError,
    Suspend,
    ToolError,
)
from agent_runtime.core.events import (
    CompletionWithdrawn,
    Faulted,
    Observed,
    Refused,
    Replied,
    StepStarted,
    Streamed,
    StreamReset,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
)
from agent_runtime.core.text import without_binary
from agent_runtime.core.values import Image, ListedLines, Outcome, Plain, Status
from agent_runtime.interpreter.source import plain
from agent_runtime.policy.policy import TOKENS_PER_USD, Denied, NeedsApproval, Permitted, Policy, RunLimits
from agent_runtime.processes.spawn import in_thread, traced
from agent_runtime.providers.protocol import (
    CallChunk,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    StopReason,
    TextChunk,
)
from agent_runtime.run.approvals import Gate
from agent_runtime.run.output_schema import TIMES_ASKED_AGAIN, Checked, check_completion
from agent_runtime.run.state import Repeats, RunState
from agent_runtime.tools.tool import Planned, Registry, in_one_line
from agent_runtime.transports.protocol import ReplyReader, ReplyStep, Shown, TransportLeg

# ---- Collect the results and prints of a step, in order and within a bound, for the model. Pure.


_LEAST = 400
"""Characters of a result that are worth showing a part of it."""
_NAMED = 30
"""Results that are named when nothing of them is shown; more are counted."""
_NAME_CHARS = 200


class ShownOutput:
    """Collects what a step shows; past the bound, what is missing."""

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._missing = 0
        self._parts: list[tuple[str, bool]] = []
        self._images: tuple[Image, ...] = ()

    def take(self) -> Shown:
        """Take out what was shown since the last time; it still counts for the bound."""
        shown = Shown(text=self.text(), images=self._images)
        self._parts, self._images = [], ()
        self._dropped = self._missing = 0
        return shown

    def to_plain(self) -> dict[str, Plain]:
        """What was shown so far, to be kept while the run is paused."""
        parts: list[Plain] = [[text, printed] for text, printed in self._parts]
        counts: dict[str, Plain] = {"used": self._used, "dropped": self._dropped, "missing": self._missing}
        return {"parts": parts, **counts, "images": [asdict(image) for image in self._images]}

    def take_back(self, plain: Mapping[str, Any]) -> None:
        """Go on after what `to_plain` gave."""
        self._parts = [(text, printed) for text, printed in plain["parts"]]
        self._used = plain.get("used", sum(len(text) for text, _ in self._parts))
        self._dropped, self._missing = plain["dropped"], plain.get("missing", 0)
        self._images = tuple(Image(**image) for image in plain.get("images", ()))

    def printed(self, text: str) -> None:
        """Add what the control block printed."""
        text = without_binary(text)
        kept = text[: max(0, self._max - self._used)]
        self._used += len(kept)
        self._dropped += len(text) - len(kept)
        if kept:
            self._parts.append((kept, True))

    def result(
        self,
        text: str,
        *,
        call: str = "",
        lines: ListedLines | None = None,
        most: int | None = None,
        images: tuple[Image, ...] = (),
    ) -> None:
        """Add the result of a call, set apart from its neighbours.

        Args:
            text: as the model reads it.
            call: the call in a few words.
            lines: those of a file that the text lists, if it does.
            most: characters of it that are shown at most; None for no bound but the step's.
            images: pictures beside it.
        """
        self._images += images
        text = without_binary(text)
        room, why = max(0, self._max - self._used), f"a step shows {self._max:,} characters"
        if most is not None and most < room:
            room, why = most, f"of such a result {most:,} characters are shown"
        if len(text) <= room:
            shown = text
        elif lines is not None:
            shown = _first_lines(text, room, lines, why)
        else:
            least = min(_LEAST, self._max, most or _LEAST)
            shown = _head_and_tail(text, room, call, why) if room >= least else ""
        self._used += len(shown)
        if not shown:
            self._missing += 1
            what = _span(lines, lines.first) if lines is not None else f"{call or 'a result'}, {len(text):,} characters"
            shown = f"[not shown, since {why}: {what}]" if self._missing <= _NAMED else ""
        if shown:
            self._parts.append((shown, False))

    def text(self) -> str:
        """Everything, as the model reads it: runs of prints and results, a blank line between them."""
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._missing > _NAMED:
            blocks.append(f"[{self._missing - _NAMED} more results are not shown]")
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were printed in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)


def _first_lines(text: str, room: int, lines: ListedLines, why: str) -> str:
    """A listing up to the last line that fits whole; empty where none does."""
    end = text.rfind("\n", 0, room + 1)
    count = text.count("\n", 0, end) if end > 0 else 0
    if not count:
        return ""
    shown, rest = text[:end], _span(lines, lines.first + count) if lines.first + count <= lines.last else "an outline"
    return f"{shown}\n[not shown, since {why}: {rest}]"


def _head_and_tail(text: str, room: int, call: str, why: str) -> str:
    """The beginning and the end of a text, in whole lines where it has lines."""
    head, tail = text[: room // 2], text[len(text) - room // 2 :]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    missing = len(text) - len(head) - len(tail)
    of = f" of {call}" if call else ""
    return f"{head.rstrip()}\n[{missing:,} characters left out{of}, since {why}]\n{tail}"


def _span(lines: ListedLines, first: int) -> str:
    name = repr(lines.path)
    return f"lines {first}-{lines.last} of {name if len(name) <= _NAME_CHARS else f'{name[:_NAME_CHARS]}…'}"


# ---- One step's work: its tool calls, and what the model is shown of them.


_FAILURE_CHARS = 30_000
_RECORDED_CHARS = 10_000


class Calls:
    """Answers the tool calls of a run's steps, and tells watchers of each.

    Attributes:
        number: how many calls the run has made.
        shown: what the present step shows.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        policy: Policy,
        gate: Gate,
        state: RunState,
        max_output_chars: Mapping[str, int] | None = None,
        max_step_chars: int | None = None,
    ) -> None:
        """Answer calls of the tools in `registry`.

        Args:
            registry: the tools.
            policy: what they may be called for.
            gate: asks people where the policy says so.
            state: the log to which each call's result is appended, and those who are told.
            max_output_chars: tool name → characters of one result that the model is shown at most.
            max_step_chars: characters that one step may show; None for the policy's own bound.
        """
        self.number = 0
        self.shown = ShownOutput(0)
        self._registry = registry
        self._policy = policy
        self._gate = gate
        self._state = state
        self._max_output_chars = max_output_chars or {}
        self._max_step_chars = max_step_chars or policy.limits.max_output_chars_per_step

    def begin_step(self) -> None:
        """Clear what the step has shown, and collect again."""
        self.shown = ShownOutput(self._max_step_chars)

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        """Answer one call: check it against the policy, run it, record it.

        Raises:
            ToolError: refused, wrong, or failed; the control block sees it as an exception.
            Suspend: the call waits for a person, and has not been made.
        """
        try:
            return await self._answered(tool, args, kwargs, shown=shown)
        finally:
            self._gate.forget()

    async def _answered(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool) -> Plain:
        found = self._registry.get(tool)
        bound = found.bind(args, kwargs)
        planned = await found.plan(bound)
        refused = self._gate.denial(tool) or await self._refusal(bound, planned)
        self.number += 1
        label = found.described(bound)
        recorded = {name: shortened(value) for name, value in bound.items()}
        self._state.emit(ToolCalled(number=self.number, tool=tool, args=recorded, label=label))
        begun = time.monotonic()
        returned = partial(self._returned, tool, recorded, label, begun)
        try:
            await asyncio.sleep(0)  # a listener may have stopped the run
            if refused is not None:
                raise _declined(refused, planned.declined())
            with traced(f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
                result = await found.apply(planned, partial(self._progressed, self.number, tool))
        except ToolError as error:
            returned(plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        except Suspend:  # a question that nobody answers; it will be put again
            self.number -= 1
            raise
        if shown:
            most = self._max_output_chars.get(tool)
            self.shown.result(result.text, call=label, lines=result.lines, most=most, images=result.images)
        returned(result.value, result.text, ok=True)
        return result.value

    async def _refusal(self, args: dict[str, Plain], planned: Planned) -> ToolError | None:
        """Why a call may not be made, or None when it may; asks where the policy says so.

        Raises:
            Suspend: somebody has to be asked, and nobody answered.
        """
        tool = planned.facts.tool
        if self._policy.always_allows(tool) and not planned.facts.outside:
            return None
        match self._policy.decide(planned.facts):
            case Permitted():
                return None
            case Denied(reason=reason):
                refused = ToolError(f"{tool} is not allowed in this run: {reason}", kind="PermissionError")
                self._state.emit(Refused(error=str(refused)))
                return refused
            case NeedsApproval() if planned.refusal:  # it cannot succeed; the call itself says why
                return None
            case NeedsApproval(reason=reason):
                try:
                    preview = await in_thread(planned.preview)
                    described = in_one_line(planned.facts)
                    await self._gate.permit(tool=tool, args=args, reason=reason, description=described, preview=preview)
                except ToolError as denied:
                    return denied
                return None

    def _progressed(self, number: int, tool: str, text: str) -> None:
        self._state.emit(ToolProgressed(number=number, tool=tool, text=clipped(text, _RECORDED_CHARS)))

    def _returned(  # noqa: PLR0917 - the first four are the call, bound once
        self, tool: str, args: dict[str, Plain], label: str, begun: float, value: Plain, text: str, *, ok: bool
    ) -> None:
        self._state.record(
            ToolReturned(
                number=self.number,
                tool=tool,
                args=args,
                value=shortened(value),
                text=clipped(text, _RECORDED_CHARS),
                ok=ok,
                seconds=time.monotonic() - begun,
                label=label,
                ended=time.time(),
            )
        )


def _declined(refused: ToolError, told: str) -> ToolError:
    """A denial, and what else its author should know."""
    return ToolError(f"{refused}\n{told}", kind=refused.kind, value=refused.value) if told else refused


def shortened(value: Plain) -> Plain:
    """Plain data whose long texts are clipped: a log of calls that keeps every file that was read grows without end."""
    if isinstance(value, str):
        return clipped(value, _RECORDED_CHARS)
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if isinstance(value, tuple):
        return tuple(shortened(item) for item in value)
    return value


def clipped(text: str, limit: int) -> str:
    """The head and the tail of a text, and how much is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"


async def observed(work: Awaitable[None], shown: ShownOutput) -> tuple[str, bool]:
    """See the calls of one step to their end.

    Args:
        work: the transport at work on them.
        shown: collects what they show.

    Returns:
        What the model is shown, and whether nothing was raised.

    Raises:
        FormatError: they do not fit the tools; nothing ran.
        StepSuspended: one waits for a person.
        SandboxError: the machine failed, not the model.
    """
    failure, ok = "", True
    try:
        await work
    except FormatError:
        raise
    except Interrupt as stop:
        failure, ok = clipped(str(stop), _FAILURE_CHARS), False
    return "\n\n".join(part for part in (shown.text(), failure) if part), ok


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
