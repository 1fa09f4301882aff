"""A run's loop, from a step's request to its observation, in this order; then its tool calls and their output."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, groupby, takewhile
from typing import Any

from agent_runtime import prompts
from agent_runtime.context.conversation import Conversation
from agent_runtime.context.instructions import InstructionSet
from agent_runtime.core.errors import (
    ContextOverflowError,
    FormatError,
    Interrupt,
    ModelUnreachableError,
    Suspend,
    ToolError,
)
from agent_runtime.core.events import (
    BaselineTaken,
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
from agent_runtime.core.text import replace_binary
from agent_runtime.core.values import (
    TOKENS_PER_USD,
    Image,
    ListedLines,
    Outcome,
    Plain,
    Status,
    ToolAnswer,
    ToolRequest,
)
from agent_runtime.interpreter.source import to_plain
from agent_runtime.policy.policy import CallFacts, Denied, NeedsApproval, Permitted, Policy, RunLimits
from agent_runtime.processes.spawn import run_in_thread, traced
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import CallChunk, ReplyEnd, ReplyFault, ReplyStart, TextChunk
from agent_runtime.run.approvals import Gate
from agent_runtime.run.checkpoint import SavedStep
from agent_runtime.run.output_schema import MAX_RETRIES, Validation, check_completion
from agent_runtime.run.state import RepeatCounter, RunState
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.tool import CallPlan, Registry, describe_in_line
from agent_runtime.transports.transport import ReplyState, SuspendedCalls, Transport

_TURN_CHARS = 64_000
"""Characters of a reply that are parsed before other tasks run."""
_MIN_REPEATS_TO_WARN = 3
_SETTLE_SECONDS = 60.0
"""How long a completion waits for the commands of its step together."""
_FOLLOW = "read_output"
_FAILURE_CHARS = 30_000
_RECORDED_CHARS = 10_000
_NO_OUTPUT = "[done, without output]"
_MIN_EXCERPT_CHARS = 400
_MIN_OMITTED = 3
_MAX_REQUESTED = 4
"""How many times the limit of a step a call may ask for."""
_MAX_NOTES = 30
"""Further omitted results are only counted."""
_NAME_CHARS = 200


@dataclass(slots=True, kw_only=True)
class Loop:
    """One run, or the rest of one."""

    transport: Transport[Any]
    calls: Calls
    files: FileTools
    state: RunState
    """Has at least a `Started`."""
    conversation: Conversation
    status: Callable[[int], str]
    """Returns the text after the last message of a step's request."""
    network_lost: Callable[[], str]
    """Returns why the network was lost, or an empty text."""
    limits: RunLimits
    end_baseline: Callable[[], Awaitable[BaselineTaken | None]]
    """Ends the tests that run beside the first request, before anything acts; see `Toolbox.end_baseline`."""
    chat: bool
    """Whether a reply that neither acts nor finishes is an answer."""
    instructions: InstructionSet = field(default_factory=InstructionSet)
    format_errors: int = field(default=0, init=False)
    """Consecutive unreadable replies."""
    repeats: RepeatCounter = field(default_factory=RepeatCounter, init=False)
    """Consecutive steps with the same calls."""
    withdrawn: list[str] = field(default_factory=list, init=False)
    """Completions of failed steps, and of one whose commands failed or did not end."""

    async def run(self, saved: SavedStep | None = None, note: str = "") -> Outcome:
        """Take steps until the task is finished, a limit is reached or the network is lost.

        A `saved` step is continued first, at the call that was waiting; `note` is for the model, about the pause.

        Raises:
            StepSuspended: a call waits for a person.
            ModelError: the model service failed.
            SandboxError: the machine failed.
        """
        last = await run_in_thread(self._read_history)
        if saved is not None:
            if last is None:
                raise AssertionError("a step is paused only after its reply was accepted")
            files = dict[str, Any](saved.files)["step"]
            self.files.resume_step(files)
            self.calls.begin_step()
            self.calls.output.restore(saved.output)
            self.calls.number = saved.call - 1
            if note:
                self.calls.output.add_result(note)
            suspended = SuspendedCalls(calls=saved.calls, contents=files)
            outcome = await self._run_calls(self.state.progress.step, last, suspended)
            await self.state.session.commit()
            if outcome is not None:
                return outcome
        progress = self.state.progress
        self.calls.number = progress.calls
        for step in range(progress.step + 1, self.limits.max_steps + 1):
            outcome = self._check_limits() or await self._take_step(step)
            if outcome is not None:
                return outcome
        return self._check_limits() or self.state.outcome(
            Status.MAX_STEPS, reason=f"The task was not finished within {self.limits.max_steps} steps."
        )

    def _read_history(self) -> ReplyState | None:
        """Read the run's earlier replies, to which later ones refer; return the last one, if it is readable."""
        reply, records = None, self.state.progress.steps
        for record in records:
            original = self.state.original if record is records[-1] else None
            recorded = original or record.reply
            try:
                reply = self.transport.read_reply(recorded.text, "stop", recorded.requests)
            except FormatError:  # it was not acted on
                reply = None
                continue
            if record.is_done:
                self.repeats.count(record.calls, reply.contents)
            if reply.completion and record.observed and record.observed.withdrew:
                self.withdrawn.append(reply.completion)
        return reply

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
        await self._show_instructions()
        self.state.inject(step)
        try:
            reply, end = await self._request_reply(step)
        except ContextOverflowError:  # the model finds the conversation too long
            if not await self.conversation.shorten():
                raise
            reply, end = await self._request_reply(step)
        if (baseline := await self.end_baseline()) is not None:
            self.state.record(baseline)
        try:
            self.transport.parse_reply(reply, end.stop)
            outcome = await self._act(step, reply)
            self.format_errors = 0
        except FormatError as error:
            self.format_errors += 1
            count, most, outcome = self.format_errors, self.limits.max_format_errors, None
            text = f"[Format error {count} of {most} in a row: {error.code}. Nothing was run.]\n{error}"
            if error.is_escape or error.code == "missing_tool":
                self.state.emit(Refused(error=text))
            elif error.code != "control_syntax":  # a slip that the model corrects
                self.state.emit(Faulted(error=text))
            self.state.record(Observed(step=step, text=text, ok=False))
            if count >= most:
                reason = error.reason or self.transport.explain_format_errors(error.code, count)
                outcome = self.state.outcome(Status.FORMAT_ERRORS, reason=reason)
        await self.state.session.commit()
        return outcome

    async def _show_instructions(self) -> None:
        """Show the missing instructions about files that the agent has read or written."""
        if self.instructions.scoped:
            paths, earlier = self.files.tracked(), self.state.progress.instructions
            # Many globs and files take a while.
            shown = await run_in_thread(lambda: self.instructions.follow(paths, earlier))
            if shown is not None:
                self.state.record(shown)

    async def _read_changes(self, read: Callable[[], str]) -> str:
        """Read changes of tracked files in a thread, unless their stamps exclude any."""
        return await run_in_thread(read) if self.files.may_differ() else ""

    async def _request_reply(self, step: int) -> tuple[ReplyState, ReplyEnd]:
        request, provider = await self.conversation.request(self.status(step)), self.conversation.provider
        reply, text, end = self.transport.start_reply(), list[str](), None
        async with aclosing(provider.reply(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case ReplyStart(attempt=attempt):
                        if attempt > 1:
                            reply, text = self.transport.start_reply(), []
                            self.state.emit(StreamReset(attempt=attempt))
                    case CallChunk():
                        self._stream(self.transport.feed_reply(reply, chunk))
                    case TextChunk(text=piece):
                        text.append(piece)
                        for start in range(0, len(piece), _TURN_CHARS):
                            await asyncio.sleep(0)
                            turn = TextChunk(text=piece[start : start + _TURN_CHARS])
                            self._stream(self.transport.feed_reply(reply, turn))
                    case ReplyFault():
                        pass  # reported and counted by the provider that waits for outages
                    case ReplyEnd():
                        end = chunk
        if end is None:
            raise ModelUnreachableError(f"{provider.model}: the provider ended a reply without a ReplyEnd")
        self._stream(self.transport.feed_reply(reply, end))
        reasoning = end.reasoning if reply.requests else ""
        self.state.record(
            Replied(step=step, text="".join(text), usage=end.usage, requests=reply.requests, reasoning=reasoning)
        )
        self.conversation.record_usage(end.usage)
        return reply, end

    def _stream(self, texts: Sequence[Streamed]) -> None:
        for text in texts:
            if not (text.completion and self.state.progress.output_schema is not None):
                self.state.emit(text)

    async def _act(self, step: int, reply: ReplyState) -> Outcome | None:
        """Run a reply's calls, finish the run, or answer with its prose."""
        completion = self._effective_completion(reply)
        if reply.has_calls:
            self.files.begin_step()
            self.calls.begin_step()
            return await self._run_calls(step, reply)
        progress = self.state.progress
        converses = self.chat and progress.output_schema is None
        if completion is None and self.transport.prose_finishes and not (converses and not progress.calls):
            completion = reply.prose
        if completion is not None:
            self.calls.begin_step()
            if unsettled := await self._settle_commands(step, is_known=True):
                self._withdraw(step, completion)
                self._observe(
                    step, reply, f"{self.calls.output.text()}\n\n{unsettled}", ok=True, unfit=False, withdrew=True
                )
                return None
            validation = await self._check_completion(completion)
            if validation.problems or reply.answers:
                error = self._reject_completion(step, validation) if validation.problems else ""
                self._observe(step, reply, error, ok=True, unfit=bool(error))
            streamed = progress.output_schema is None and not reply.answers
            return self._finish_run(completion, validation, streamed=streamed)
        if converses:
            return self.state.outcome(Status.ANSWERED, summary=reply.prose.strip())
        raise FormatError("empty", self.transport.no_action)

    def _effective_completion(self, reply: ReplyState) -> str | None:
        """Return a reply's completion; an empty one repeats the last withdrawn one."""
        if reply.completion != "" or not self.withdrawn:
            return reply.completion
        if not reply.has_calls:
            raise FormatError("empty", prompts.NOTHING_PROVEN)
        return self.withdrawn[-1]

    async def _run_calls(self, step: int, reply: ReplyState, suspended: SuspendedCalls | None = None) -> Outcome | None:
        """Run a reply's calls, record the observation, and finish the run if its completion counts."""
        output, ok, failure, is_escape = self.calls.output, True, "", False
        try:
            await self.transport.run_calls(
                reply, call=self.calls, show=output.add_print, answer=output.take_answer, suspended=suspended
            )
        except FormatError as error:  # nothing ran, but the contents are stored
            notes = filter(None, [self.transport.store_unreached(), await self._read_changes(self.files.end_step)])
            text = "\n".join([str(error), "\n\n".join(notes)]).rstrip()
            raise FormatError(error.code, text, reason=error.reason, is_escape=error.is_escape) from error
        except Interrupt as error:
            ok, failure, is_escape = False, clip(str(error), _FAILURE_CHARS), error.is_escape
        completion = self._effective_completion(reply)
        is_known = not self.state.progress.last_calls
        unsettled = await self._settle_commands(step, is_known=is_known) if completion is not None and ok else ""
        prints = "\n\n".join(filter(None, (output.text(), failure)))
        parts = [prints, "" if ok else self.transport.store_unreached(), await self._read_changes(self.files.end_step)]
        withdrew = completion is not None and (not ok or bool(unsettled))
        if completion is not None and withdrew:
            self._withdraw(step, completion)
            parts.append(unsettled or prompts.WITHDRAWN)
        if not ok:
            failed = [answer.text for answer in reply.answers if not answer.ok]
            self.calls.report_failure(failure, "\n\n".join(filter(None, [*failed, prints])), is_escape=is_escape)
        validation = await self._check_completion(None if withdrew else completion)
        if validation.problems:
            parts.append(self._reject_completion(step, validation))
        repeated = self.repeats.count(self.state.progress.last_calls, reply.contents)
        if self.limits.max_repeated_calls > repeated >= _MIN_REPEATS_TO_WARN:
            parts.append(prompts.repetition_warning(repeated, self.limits.max_repeated_calls))
        text = "\n\n".join(filter(None, parts)) or self.transport.no_output
        self._observe(step, reply, text, ok=ok, unfit=bool(validation.problems), withdrew=withdrew)
        outcome = None
        if completion is not None and not withdrew:
            outcome = self._finish_run(completion, validation, streamed=False)
        if outcome is None and repeated >= self.limits.max_repeated_calls:
            reason = f"The agent made the same calls in {repeated} steps in a row."
            outcome = self.state.outcome(Status.REPEATED_CALLS, reason=reason)
        return outcome

    async def _settle_commands(self, step: int, *, is_known: bool) -> str:
        """Wait for commands of the last calls that still run; return the note that asks again, once in a run.

        In a chat, programs outlive the run. With `is_known`, the model has seen the results that there are.
        """
        progress = self.state.progress
        is_last = step >= self.limits.max_steps or self._check_limits() is not None
        if self.chat or is_last or progress.has_unsettled_completion:
            return ""
        seconds = self.state.clock.seconds
        deadline = seconds + min(_SETTLE_SECONDS, (self.limits.max_seconds - seconds) / 2)
        running = {result.command: result.terminal for result in progress.command_results() if result.is_running}
        for terminal in running.values():
            await self.calls.follow(terminal, max(0.0, deadline - self.state.clock.seconds))
        results = self.state.progress.command_results()
        commands = "; ".join(r.problem for r in results if r.problem and (r.command in running or not is_known))
        return prompts.UNSETTLED.format(commands=commands) if commands else ""

    def _withdraw(self, step: int, completion: str) -> None:
        self.withdrawn.append(completion)
        self.state.emit(CompletionWithdrawn(step=step))

    def _observe(
        self, step: int, reply: ReplyState, text: str, *, ok: bool, unfit: bool, withdrew: bool = False
    ) -> None:
        answers = tuple(reply.answers)
        self.state.record(Observed(step=step, text=text, ok=ok, unfit=unfit, withdrew=withdrew, answers=answers))

    async def _check_completion(self, completion: str | None) -> Validation:
        if completion is None:
            return Validation()
        progress = self.state.progress
        schema = progress.output_schema
        validation = Validation() if schema is None else await check_completion(completion, schema)
        if validation.problems or progress.unfit >= MAX_RETRIES:
            return validation
        objection = await self.calls.gate.find_objection(completion)
        return Validation(problems=objection, is_objection=True) if objection else validation

    def _reject_completion(self, step: int, validation: Validation) -> str:
        """Withdraw a completion that is not accepted; return the message to the model."""
        self.state.emit(CompletionWithdrawn(step=step))
        if validation.is_objection:
            return prompts.objection_note(self.transport.correction, validation.problems)
        attempts = max(0, MAX_RETRIES - 1 - self.state.progress.unfit)
        return prompts.output_note(self.transport.correction, validation.problems, attempts)

    def _finish_run(self, completion: str, validation: Validation, *, streamed: bool) -> Outcome | None:
        if not validation.problems:
            completion = self._add_old_failures(completion)
            if completion and not streamed:
                self.state.emit(Streamed(text=f"{completion}\n", completion=True))
            return self.state.outcome(Status.FINISHED, summary=completion.strip(), output_json=validation.output_json)
        if (count := self.state.progress.unfit) <= MAX_RETRIES:
            return None
        reason = f"{count} completions did not fit the output schema. The last one:\n{validation.problems}"
        return self.state.outcome(Status.INVALID_OUTPUT, reason=reason)

    def _add_old_failures(self, completion: str) -> str:
        """Name the failures of the last commands that do not count, unless the completion is for a program."""
        progress = self.state.progress
        tests = [test for result in progress.command_results() for test in result.failed_before]
        if not tests or progress.output_schema is not None:
            return completion
        return f"{completion.rstrip()}\n\nFailed before too: {notes.list_tests([*dict.fromkeys(tests)])}."


class Calls:
    """The tool calls of a run's steps."""

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
        self.number = 0
        self.output = StepOutput(0)
        self.refusal = ""
        self._registry = registry
        self._policy = policy
        self.gate = gate
        self._state = state
        self._max_output_chars = max_output_chars or {}
        self._max_step_chars = max_step_chars or policy.limits.max_output_chars_per_step

    def begin_step(self) -> None:
        self.output = StepOutput(self._max_step_chars)
        self.refusal = ""

    def report_failure(self, failure: str, text: str, *, is_escape: bool) -> None:
        if is_escape:
            self._state.emit(Refused(error=text))
        elif not self.refusal or self.refusal not in failure:  # else it was reported
            self._state.emit(Faulted(error=text))

    def _refuse(self, error: ToolError) -> None:
        self.refusal = str(error)
        self._state.emit(Refused(error=self.refusal))

    async def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        """Make one call.

        Raises:
            ToolError: it was refused or failed; control code gets an exception.
            Suspend: it waits for a person.
        """
        try:
            return await self._make_call(tool, args, kwargs, show=show)
        finally:
            self.gate.discard_answer()

    async def _make_call(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Plain:
        entry = self._registry.get(tool)
        bound = entry.bind(args, kwargs)
        planned = await entry.plan(bound)
        refusal = self.gate.denial(tool) or await self._refusal(bound, planned)
        self.number += 1
        label = entry.describe_call(bound)
        recorded = {name: clip_value(value) for name, value in bound.items()}
        self._state.emit(ToolCalled(number=self.number, tool=tool, args=recorded, label=label))
        record = partial(self._record, tool, recorded, label, time.monotonic())
        try:
            await asyncio.sleep(0)  # a listener may have stopped the run
            if refusal is not None:
                note = planned.on_decline()
                raise ToolError(f"{refusal}\n{note}", kind=refusal.kind, value=refusal.value) if note else refusal
            with traced(f"execute_tool {tool}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
                result = await entry.apply(planned, partial(self._report_progress, self.number, tool))
        except ToolError as error:
            if refusal is None and error.kind == "PermissionError":
                self._refuse(error)
            record(to_plain(error.value, f"the failure of {tool}"), str(error), ok=False)
            raise
        except Suspend:  # a question without an answer; it will be repeated
            self.number -= 1
            raise
        if show:
            limit = self._max_output_chars.get(tool)
            options: dict[str, Any] = {"max_chars": limit, "quota": max(result.max_chars, limit or 0)}
            if result.lines:
                self.output.add_lines(result.lines, **options)
            else:
                self.output.add_result(result.text, call=label, images=result.images, rest=result.rest, **options)
        record(result.value, result.text, ok=True)
        return result.value

    async def _refusal(self, args: dict[str, Plain], planned: CallPlan) -> ToolError | None:
        tool = planned.facts.tool
        if self._policy.always_allows(tool) and not planned.facts.is_external:
            return None
        match self._policy.decide(planned.facts):
            case Permitted():
                return None
            case Denied(reason=reason):
                denied = ToolError(f"{tool} is not allowed in this run: {reason}", kind="PermissionError")
                self._refuse(denied)
                return denied
            case NeedsApproval() if planned.refusal:  # it cannot succeed; the call itself says why
                return None
            case NeedsApproval(reason=reason):
                try:
                    preview = await run_in_thread(planned.preview)
                    description = await run_in_thread(partial(describe_in_line, planned.facts))
                    await self.gate.permit(
                        tool=tool, args=args, reason=reason, description=description, preview=preview
                    )
                except ToolError as error:
                    return error
                return None

    async def follow(self, terminal: str, seconds: float) -> None:
        """Wait for the end of a terminal's command with the agent's own tool, if that needs no approval."""
        args: dict[str, Plain] = {"session_id": terminal, "timeout": seconds}
        is_permitted = isinstance(self._policy.decide(CallFacts(tool=_FOLLOW, args=args)), Permitted)
        if is_permitted and _FOLLOW in self._registry.originals:
            with suppress(ToolError):  # the terminal has ended
                await self(_FOLLOW, (), args, show=True)

    def _report_progress(self, number: int, tool: str, text: str) -> None:
        self._state.emit(ToolProgressed(number=number, tool=tool, text=clip(text, _RECORDED_CHARS)))

    def _record(  # noqa: PLR0917 - the first four are the call, bound once
        self, tool: str, args: dict[str, Plain], label: str, started: float, value: Plain, text: str, *, ok: bool
    ) -> None:
        self._state.record(
            ToolReturned(
                number=self.number,
                tool=tool,
                args=args,
                value=clip_value(value),
                text=clip(text, _RECORDED_CHARS),
                ok=ok,
                seconds=time.monotonic() - started,
                label=label,
                ended=time.time(),
            )
        )


class StepOutput:
    """Output of a step for the model, within a limit. Notes name omitted calls and file lines."""

    def __init__(self, max_chars: int) -> None:
        self._max = max_chars
        self._used = 0
        self._dropped = 0
        self._missing = 0
        self._parts: list[tuple[str, bool]] = []
        self._images: tuple[Image, ...] = ()
        self._listed_lines: dict[tuple[str, str], set[int]] = {}
        """Numbers of the lines in results of this step, by path and version."""

    def to_plain(self) -> dict[str, Plain]:
        parts: list[Plain] = [[text, printed] for text, printed in self._parts]
        counts: dict[str, Plain] = {"used": self._used, "dropped": self._dropped, "missing": self._missing}
        return {"parts": parts, **counts, "images": [asdict(image) for image in self._images]}

    def restore(self, plain: Mapping[str, Any]) -> None:
        self._parts = [(text, printed) for text, printed in plain["parts"]]
        self._used, self._dropped, self._missing = plain["used"], plain["dropped"], plain["missing"]
        self._images = tuple(Image(**image) for image in plain["images"])

    def add_print(self, text: str) -> None:
        text = replace_binary(text)
        excerpt = text[: max(0, self._max - self._used)]
        self._used += len(excerpt)
        self._dropped += len(text) - len(excerpt)
        if excerpt:
            self._parts.append((excerpt, True))

    def add_result(
        self,
        text: str,
        *,
        call: str = "",
        max_chars: int | None = None,
        quota: int = 0,
        images: tuple[Image, ...] = (),
        rest: str = "",
    ) -> None:
        """Add the result of a call as a separate block.

        Args:
            max_chars: characters that settings allow for such a result.
            quota: characters that the call asks for.
            rest: says how to see all of it.
        """
        self._images += images
        text = replace_binary(text)
        room, reason = self._room(max_chars, quota)
        if len(text) <= room:
            excerpt = text
        elif room >= min(_MIN_EXCERPT_CHARS, self._max, max_chars or _MIN_EXCERPT_CHARS):
            head, tail = text[: room // 2], text[len(text) - room // 2 :]
            head, tail = head[: head.rfind("\n") + 1] or head, tail[tail.find("\n") + 1 :] or tail
            missing = f"{len(text) - len(head) - len(tail):,} characters left out{f' of {call}' if call else ''}"
            excerpt = f"{head.rstrip()}\n[{missing}, since {reason}{rest and f'; {rest}'}]\n{tail}"
        else:
            excerpt = ""
        omitted = f"{call or 'a result'}, {len(text):,} characters{rest and f'; {rest}'}"
        self._add_block(excerpt, f"[not shown, since {reason}: {omitted}]")

    def add_lines(self, parts: Sequence[ListedLines], *, max_chars: int | None = None, quota: int = 0) -> None:
        """Add listed lines, each once in a step."""
        start = self._used
        for part in parts:
            room, reason = self._room(None if max_chars is None else max(0, max_chars + start - self._used), quota)
            listed = self._listed_lines.setdefault((posixpath.normpath(part.path), part.version), set())
            heading, *rows = map(replace_binary, part.text.split("\n"))
            numbered = dict(takewhile(lambda pair: pair[1].startswith(f"{pair[0]} |"), enumerate(rows, part.first)))
            blocks = [(part.first, heading), *_omit_shown(numbered, listed)]
            blocks += [(part.last + 1, row) for row in rows[len(numbered) :]]
            fitting = sum(size <= room for size in accumulate(len(row) + 1 for _, row in blocks))
            number = [*blocks, (part.last + 1, "")][fitting][0]
            name = repr(part.path) if len(part.path) <= _NAME_CHARS else f"{part.path[:_NAME_CHARS]!r}…"
            call = f"{name}, {number}, {part.last}" if part.first <= number <= part.last else name
            note = f"[not shown, since {reason}: {'' if call != name else 'the rest of '}read_file({call})]"
            fits = fitting == len(blocks)
            kept = [*(row for _, row in blocks[:fitting]), *([] if fits else [note])] if fits or fitting > 1 else []
            listed.update(line for line in numbered if kept and line < number)
            self._add_block("\n".join(kept), note)

    def _room(self, max_chars: int | None, quota: int) -> tuple[int, str]:
        """Return the characters left and the reason."""
        most = max(self._max, min(_MAX_REQUESTED * self._max, quota))
        room = max(0, most - self._used)
        if max_chars is not None and max_chars < room:
            return max_chars, f"of such a result {max_chars:,} characters are shown"
        return room, f"a step shows {most:,} characters"

    def _add_block(self, excerpt: str, note: str) -> None:
        """Add an excerpt, or a note."""
        self._used += len(excerpt)
        if not excerpt:
            self._missing += 1
            excerpt = note if self._missing <= _MAX_NOTES else ""
        if excerpt:
            self._parts.append((excerpt, False))

    def take_answer(self, request: ToolRequest, failure: str) -> ToolAnswer:
        """Move the output into the answer of a native call, with the reason of its `failure`; it still counts."""
        if failure:
            self.add_result(failure, call=request.name)
        answer = ToolAnswer(id=request.id, text=self.text() or _NO_OUTPUT, ok=not failure, images=self._images)
        self._parts, self._images = [], ()
        self._dropped = self._missing = 0
        return answer

    def text(self) -> str:
        blocks: list[str] = []
        previous = False
        for text, printed in self._parts:
            if blocks and printed and previous:
                blocks[-1] += text
            else:
                blocks.append(text)
            previous = printed
        if self._missing > _MAX_NOTES:
            blocks.append(f"[{self._missing - _MAX_NOTES} more results are not shown]")
        if self._dropped:
            blocks.append(f"[{self._dropped:,} more characters were printed in this step and are left out; print less]")
        return "\n\n".join(block.rstrip("\n") for block in blocks)


def _omit_shown(rows: Mapping[int, str], listed: set[int]) -> Iterator[tuple[int, str]]:
    for is_listed, group in groupby(rows, listed.__contains__):
        numbers = list(group)
        if is_listed and len(numbers) >= _MIN_OMITTED:
            yield numbers[0], f"[lines {numbers[0]}-{numbers[-1]}: above]"
        else:
            yield from ((number, rows[number]) for number in numbers)


def clip_value(value: Plain) -> Plain:
    """Return plain data with clipped texts, so that a log does not contain every file."""
    if isinstance(value, str):
        return clip(value, _RECORDED_CHARS)
    if isinstance(value, dict):
        return {key: clip_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clip_value(item) for item in value)
    return value


def clip(text: str, limit: int) -> str:
    """Return head and tail of a long text."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
