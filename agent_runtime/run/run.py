"""One segment of a run: begin, recover or resume, until an outcome, a pause or an outage."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime.agent.agent import Agent, ClockAndRandom
from agent_runtime.context.conversation import Conversation
from agent_runtime.context.first_message import render_opening, step_status
from agent_runtime.context.instructions import parse_instructions
from agent_runtime.core.errors import (
    BoundExceededError,
    McpServerError,
    ModelError,
    ModelOutageError,
    ResumeCode,
    ResumeError,
    SandboxError,
    SettingsError,
)
from agent_runtime.core.events import (
    InstructionsShown,
    ModelAwaited,
    Observed,
    Parked,
    Recovered,
    Replied,
    ReplyBroken,
    Resumed,
    Started,
)
from agent_runtime.core.values import Outcome, Status, Task, Usage
from agent_runtime.policy.policy import RunLimits
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Provider,
    ReplyFault,
    ReplyStart,
    Request,
    TextChunk,
    WrappedProvider,
    traced_reply,
)
from agent_runtime.run.approvals import Answer, Gate
from agent_runtime.run.checkpoint import SavedStep, digest_log, seal, unseal
from agent_runtime.run.loop import Calls, Loop
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.transports.transport import StepSuspended, SuspendedCalls, Transport

FIRST_PAUSE = 10.0
MAX_PAUSE = 60.0
MAX_BILLED_PAUSE = 180.0
MAX_BILLED = 16
"""Broken replies to one request that may be billed, before the run is parked."""
MAX_SILENT = 2
"""Read time-outs of one request, before the run is parked."""
_JITTER_STEPS = 65_536


@dataclass(kw_only=True)
class Run:
    """One segment of a run; used once."""

    agent: Agent
    toolbox: Toolbox
    state: RunState
    conversation: Callable[[], Conversation]
    """Creates the conversation once the tools are known."""
    gate: Gate
    key: Callable[[], bytes]
    """Signs pauses."""
    _has_started: bool = True

    def __post_init__(self) -> None:
        self.state.clock.start()

    def begin(self, task: Task, facts: Sequence[str]) -> Coroutine[Any, Any, Outcome]:
        """Start a new run; an earlier one whose process died is closed first."""
        self._has_started = False  # not in `_begin`: a task cancelled at once never reaches its first line
        return self._begin(task, facts)

    async def _begin(self, task: Task, facts: Sequence[str]) -> Outcome:
        await self.toolbox.children.close()
        progress = self.state.progress
        if progress.is_open and progress.parked is None:
            self._record_crash()
        try:
            await self.toolbox.servers.connect()
        except (McpServerError, SettingsError) as error:
            return self.end_early(Status.FAILED, str(error))
        return await self._run_segment(lambda loop: self._start(loop, task, facts))

    async def recover(self) -> Outcome:
        """Continue a run that waits for the model service, or whose process died. The latter's clock restarts."""
        parked = self.state.progress.parked
        if parked is None:
            self._record_crash()
        else:
            self.state.clock.add(parked.seconds)
            self.toolbox.files.restore(parked.files)
            if note := self._describe_losses(parked.terminals):
                self.state.record(Recovered(text=note))
        return await self._run_segment(lambda loop: loop.run())

    async def answer(self, answer: Answer) -> Outcome:
        """Continue a paused run.

        Raises:
            ResumeError: nothing waits, the pause was altered, or an approved call's files have changed.
        """
        waiting = self.state.progress.waiting
        if waiting is None:
            raise ResumeError(ResumeCode.NOTHING_WAITS)
        (position, paused), events = waiting, self.state.events
        saved = unseal(
            paused,
            self.key(),
            session_id=self.state.session.session_id,
            run_id=self.state.progress.run_id,
            log=await asyncio.to_thread(digest_log, [*events[:position], *events[position + 1 :]]),
        )
        if answer.approved and (changed := await self.toolbox.list_changes(saved.manifest)):
            # An approval covers only the files as they were previewed.
            raise ResumeError(ResumeCode.FILES_CHANGED, request=saved.pending.request_id, changed="; ".join(changed))
        if self.state.progress.waiting != waiting:  # another runtime has the same session object
            raise ResumeError(
                ResumeCode.OTHER_REQUEST, request=saved.pending.request_id, now="it was answered meanwhile"
            )
        original = decode(saved.reply.encode("utf-8", "surrogatepass")) if saved.reply else None
        self.state.original = original if isinstance(original, Replied) else None
        self.toolbox.transport.require_resumable(saved.calls)
        if saved.pending.tool not in self.toolbox.registry.names:
            raise ResumeError(ResumeCode.TOOL_MISSING, tool=saved.pending.tool)
        self.toolbox.files.restore(dict[str, Any](saved.files)["tracked"])
        note = self._describe_losses(saved.terminals)
        self.state.record(Resumed(request_id=saved.pending.request_id, approved=answer.approved, note=answer.note))
        await self.state.session.commit()  # from here on the answer survives this process
        self.gate.set_answer(answer, saved.pending)
        self.state.clock.add(saved.seconds)
        return await self._run_segment(lambda loop: loop.run(saved, note))

    def end_early(self, status: Status, reason: str) -> Outcome:
        """Return the outcome of an interrupted run; the next one is told about an incomplete step."""
        if not self._has_started:
            return Outcome(status=status, reason=reason, seconds=self.state.clock.seconds)
        progress = self.state.progress
        if progress.step and not progress.step_done:
            note = notes.interrupted_step([call.label for call in progress.last_calls], reason)
            self.state.record(Observed(step=progress.step, text=note, ok=False))
        return self.state.outcome(status, reason=reason)

    async def _run_segment(self, work: Callable[[Loop], Awaitable[Outcome]]) -> Outcome:
        limits = self.agent.policy.limits
        transport = self.toolbox.open_transport()
        texts = self.agent.repository_instructions
        self.toolbox.instructions = await asyncio.to_thread(parse_instructions, texts)  # long ones take a while
        loop, deadline = self._create_loop(transport), self.state.clock.limit(limits.max_seconds)
        stopped: list[str] = []
        try:
            async with deadline:
                try:
                    outcome = await work(loop)
                finally:  # before the pause is signed: only its answer may follow it in the log
                    stopped += await self.toolbox.children.stop_all("the run that delegated it ended, or waits")
                return replace(outcome, usage=self.state.progress.usage)
        except StepSuspended as stop:
            if stopped:
                loop.calls.output.add_result(notes.tasks_stopped(stopped))
            return await self._pause(stop.state, loop)
        except TimeoutError:
            if not deadline.expired():
                raise
            await self.toolbox.shell.interrupt("the run's time was up")
            return self.end_early(Status.TIMEOUT, f"The run took longer than {limits.max_seconds:.0f} seconds.")
        except ModelOutageError as error:
            parked = Parked(
                reason=str(error),
                retry_after=error.retry_after,
                seconds=self.state.clock.seconds,
                files={**self.toolbox.files.tracked()},
                terminals=tuple(self.toolbox.shell.live_names),
            )
            self.state.record(parked)
            await self.state.session.commit()
            outcome = self.state.outcome(Status.MODEL_UNAVAILABLE, reason=str(error))
            return replace(outcome, retry_after=error.retry_after)
        except (ModelError, BoundExceededError) as error:
            return self.end_early(Status.FAILED, str(error))
        except SandboxError as error:
            return self.end_early(Status.SANDBOX_FAILED, str(error))
        finally:
            self.gate.discard_answer()
            await self.toolbox.end_baseline()
            await transport.close()

    def _record_crash(self) -> None:
        progress = self.state.progress
        calls = [call.label for call in progress.last_calls]
        parts = [notes.process_died(progress.step, calls, is_complete=progress.step_done), self._describe_losses(())]
        self.state.record(Recovered(text="\n".join(filter(None, parts))))

    async def _start(self, loop: Loop, task: Task, facts: Sequence[str]) -> Outcome:
        renewed = await self.toolbox.replace_sandbox()
        number, sources = self.state.progress.tasks + 1, self.agent.clock_and_random
        nonce, run_id = sources.token(6), sources.token(8)
        instructions = InstructionsShown(paths=())
        if (started := sources.recorded_start(task)) is not None:
            baseline = sources.recorded_baseline(started)
            instructions = self.toolbox.instructions.find_shown(started.opening, nonce)
            self.toolbox.shell.set_python_path(started.python_path)
        else:
            orientation = await self.toolbox.describe_environment(task, [*facts, *renewed])
            baseline = orientation.baseline
            if number == 1:
                places = [excerpt.path.partition(" (")[0] for excerpt in orientation.excerpts]
                instructions = await asyncio.to_thread(self.toolbox.instructions.open, task, places, nonce)
            first = render_opening(
                task,
                orientation,
                nonce=nonce,
                number=number,
                instructions=instructions.text,
                skills=self.toolbox.skills.values() if number == 1 else (),
            )
            if self.state.progress.tasks == 1 and "archive_context" in self.toolbox.registry:
                # Not in the prompt, whose bytes a provider has cached.
                first = f"{first}\n\n{notes.ARCHIVE}"
            started = Started(
                task=task,
                opening=first,
                facts=tuple(facts),
                indexed=orientation.indexed,
                python_path=orientation.python_path,
            )
        self.state.record(replace(started, run_id=run_id))
        if instructions.nonce:
            self.state.record(replace(instructions, text=""))
        if baseline is not None:
            self.state.record(baseline)
        self._has_started = True
        return await loop.run()

    async def _pause(self, suspended: SuspendedCalls, loop: Loop) -> Outcome:
        waiting = self.gate.waiting
        if waiting is None:
            raise AssertionError("a step is suspended by the gate only")
        manifest = await self.toolbox.manifest()
        pending = replace(waiting, workspace=manifest.digest)
        progress = self.state.progress
        saved = SavedStep(
            session_id=self.state.session.session_id,
            run_id=progress.run_id,
            pending=pending,
            step=progress.step,
            call=loop.calls.number + 1,
            seconds=self.state.clock.seconds,
            log=await asyncio.to_thread(digest_log, [*self.state.events]),
            output=loop.calls.output.to_plain(),
            calls=dict(suspended.calls),
            files={
                "tracked": {**self.toolbox.files.tracked()},
                "step": {**self.toolbox.files.step_state(), **suspended.contents},
            },
            manifest=manifest.to_plain(),
            terminals=[*self.toolbox.shell.live_names],
            reply=encode(self.state.original).decode("utf-8", "surrogatepass") if self.state.original else "",
        )
        # A visible request must be answerable even if this process dies.
        await self.state.record_durably(seal(saved, self.key()))
        request = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
        reason = f"The run waits for {request} (request {pending.request_id})."
        return replace(self.state.outcome(Status.PAUSED, reason=reason), pending=pending)

    def _describe_losses(self, terminals: Sequence[str]) -> str:
        dead = [name for name in terminals if name not in self.toolbox.shell.live_names]
        tasks = [task for task in self.state.progress.children if task not in self.toolbox.children]
        parts = (notes.terminals_died(dead) if dead else "", notes.copies_lost(tasks) if tasks else "")
        return "\n".join(filter(None, parts))

    def _create_loop(self, transport: Transport[Any]) -> Loop:
        agent, conversation = self.agent, self.conversation()
        conversation.provider = PatientProvider(
            agent.provider,
            self.state,
            limits=agent.policy.limits,
            clock_and_random=agent.clock_and_random,
            spent=conversation.estimate_usage,
        )
        return Loop(
            transport=transport,
            calls=Calls(
                registry=self.toolbox.registry,
                policy=agent.policy,
                gate=self.gate,
                state=self.state,
                max_output_chars=agent.max_output_chars,
                max_step_chars=agent.step_chars,
            ),
            files=self.toolbox.files,
            state=self.state,
            conversation=conversation,
            status=self._status,
            network_lost=lambda: self.toolbox.network_lost,
            limits=agent.policy.limits,
            instructions=self.toolbox.instructions,
            end_baseline=self.toolbox.end_baseline,
            chat=agent.chat,
        )

    def _status(self, step: int) -> str:
        """Return the variable part of a request, sent last to keep the cached prefix."""
        counter = step_status(step, self.agent.policy.limits.max_steps, self.agent.clock_and_random.now())
        return f"{counter}\n{self.toolbox.shell.status}".rstrip()


class PatientProvider(WrappedProvider):
    """Provider that waits for outages within the run's limits, and records the cost of broken replies."""

    def __init__(
        self,
        provider: Provider,
        state: RunState,
        *,
        limits: RunLimits,
        clock_and_random: ClockAndRandom,
        spent: Callable[[str, str], Usage],
    ) -> None:
        super().__init__(provider)
        self._state, self._spent = state, spent
        self._limits, self._clock_and_random, self._has_answered = limits, clock_and_random, False

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer a request; see `Provider.reply`. Attempts are numbered over all pauses."""
        faults, attempts, tries = _Faults(), 0, 0
        with ExitStack() as untimed:
            while True:
                tries, before = tries + 1, attempts
                try:
                    async with aclosing(traced_reply(self._inner, request)) as chunks:
                        async for chunk in chunks:
                            match chunk:
                                case ReplyStart(attempt=attempt):
                                    attempts, faults.text = before + attempt, []
                                    yield ReplyStart(attempt=attempts)
                                case ReplyFault():
                                    self._count_fault(chunk, faults)
                                case _:
                                    self._has_answered = True
                                    if isinstance(chunk, TextChunk | CallChunk):
                                        untimed.close()
                                        text = chunk.text if isinstance(chunk, TextChunk) else chunk.arguments
                                        faults.text.append(text)
                                    yield chunk
                except asyncio.CancelledError:
                    fault = ReplyFault(reason="the run ended while it came", billed=bool(faults.text))
                    self._count_fault(fault, faults)
                    raise
                except ModelOutageError as error:
                    chance = int(self._clock_and_random.token(2), 16) / _JITTER_STEPS
                    most = MAX_BILLED_PAUSE if faults.billed else MAX_PAUSE
                    backoff = min(FIRST_PAUSE * 2.0 ** (tries - 1), most) * (0.5 + chance / 2)
                    pause = max(backoff, error.retry_after or 0.0)
                    limits, offline = self._limits, error.offline and not self._has_answered
                    seconds = min(limits.outage_seconds, limits.offline_seconds if offline else math.inf)
                    if faults.is_costly or faults.waited + pause > seconds:
                        raise
                    untimed.close()  # replaces an earlier pause of the clock
                    untimed.enter_context(self._state.clock.pause())
                    self._state.emit(ModelAwaited(reason=str(error), seconds=pause))
                else:
                    return
                await self._clock_and_random.sleep(pause)
                faults.waited += pause

    async def close(self) -> None:
        await self._inner.close()

    def _count_fault(self, fault: ReplyFault, faults: _Faults) -> None:
        """Count a failed attempt; raise ModelOutageError if another may cost too much now."""
        faults.billed += fault.billed
        faults.silent += fault.silent
        if fault.billed:
            model = fault.model or self._inner.model
            usage = self._spent(model, "".join(faults.text))
            faults.text = []
            self._state.record(ReplyBroken(reason=fault.reason, usage=usage))
        if fault.wait is None:
            return
        if faults.is_costly:
            raise ModelOutageError(
                f"Model {self._inner.model!r} broke off {faults.billed} replies to the same request, which its service "
                f"has probably charged for; the last one: {fault.reason}. Try again later, or choose another model."
            )
        faults.waited += fault.wait
        self._state.emit(ModelAwaited(reason=fault.reason, seconds=fault.wait))


@dataclass(slots=True)
class _Faults:
    billed: int = 0
    silent: int = 0
    waited: float = 0.0
    text: list[str] = field(default_factory=list)

    @property
    def is_costly(self) -> bool:
        """Whether to send the request again in a later segment only."""
        return self.silent >= MAX_SILENT or self.billed >= MAX_BILLED
