"""One segment of a run: it begins, recovers or resumes, and ends with an outcome, a pause or a wait for the model.

A run has several segments if it waits for a person or for the model service, or if its process died. `Run` builds the
loop for one of them. `PatientProvider` waits for outages of the model service and stops the run's clock meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime.agent.agent import Agent, ClockAndRandom
from agent_runtime.context.conversation import Conversation
from agent_runtime.context.first_message import render_opening, step_status
from agent_runtime.core.errors import (
    BoundExceededError,
    McpServerError,
    ModelError,
    ModelOutageError,
    ModelUnreachableError,
    ResumeCode,
    ResumeError,
    SandboxError,
    SettingsError,
)
from agent_runtime.core.events import ModelAwaited, Observed, Parked, Recovered, Replied, ReplyBroken, Resumed, Started
from agent_runtime.core.values import Outcome, Plain, Status, Task, Usage
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
from agent_runtime.run.calls import Calls
from agent_runtime.run.checkpoint import SavedStep, digest_of, seal, unseal
from agent_runtime.run.loop import Loop, StepCheckpoint
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.transports.protocol import StepSuspended, TransportSession

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 60.0
MOST_BILLED = 5
"""Replies to one request that may break off before it is asked no more, however many outages lie between them."""
MOST_SILENT = 2
_JITTER_STEPS = 65_536


@dataclass(kw_only=True)
class Run:
    """What one leg of a run works with; used once.

    Attributes:
        agent: who works.
        toolbox: its tools.
        state: the run's log, clock and watchers.
        conversation: gives what makes requests of the log, once it is known which tools there are.
        gate: asks people.
        key: the secret that a paused run is signed with.
    """

    agent: Agent
    toolbox: Toolbox
    state: RunState
    conversation: Callable[[], Conversation]
    gate: Gate
    key: Callable[[], bytes]
    _has_started: bool = True

    def __post_init__(self) -> None:
        self.state.clock.start()

    def begin(self, task: Task, facts: Sequence[str]) -> Coroutine[Any, Any, Outcome]:
        """Start a new run; one before it whose process died is closed first."""
        self._has_started = False  # here, since a task that is stopped at once never gets to its first line
        return self._begin(task, facts)

    async def _begin(self, task: Task, facts: Sequence[str]) -> Outcome:
        await self.toolbox.children.close()
        progress = self.state.progress
        if progress.is_open and progress.parked is None:
            self._note_death()
        try:
            await self.toolbox.servers.connect()
        except (McpServerError, SettingsError) as error:
            return self.cut_short(Status.FAILED, str(error))
        return await self._leg(lambda loop: self._first(loop, task, facts))

    async def recover(self) -> Outcome:
        """Go on with a run that waits for the model service, or whose process died.

        The clock of one whose process died starts at zero: how long a process worked is written down when it pauses or
        ends, not when it dies.
        """
        parked = self.state.progress.parked
        if parked is None:
            self._note_death()
        else:
            self.state.clock.add(parked.seconds)
            self.toolbox.files.restore(parked.files)
            if told := self._lost(parked.terminals):
                self.state.record(Recovered(text=told))
        return await self._leg(lambda loop: loop.run())

    async def answer(self, answer: Answer) -> Outcome:
        """Go on with a paused run.

        Raises:
            ResumeError: nothing waits any more, it was altered, or it was approved and files have changed.
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
            log=await asyncio.to_thread(digest_of, [*events[:position], *events[position + 1 :]]),
        )
        if answer.approved and (changed := await self.toolbox.changed_since(saved.manifest)):
            # An approval is of what was shown; nothing may have moved beneath it.
            raise ResumeError(ResumeCode.FILES_CHANGED, request=saved.pending.request_id, changed="; ".join(changed))
        if self.state.progress.waiting != waiting:  # another runtime has the same session object
            raise ResumeError(
                ResumeCode.OTHER_REQUEST, request=saved.pending.request_id, now="it was answered meanwhile"
            )
        standing = self._standing(saved)
        self.state.record(Resumed(request_id=saved.pending.request_id, approved=answer.approved, note=answer.note))
        await self.state.session.commit()  # from here on it is answered, whatever happens to this process
        self.gate.give(answer, saved.pending)
        self.state.clock.add(saved.seconds)
        return await self._leg(lambda loop: loop.resume(standing))

    def cut_short(self, status: Status, reason: str) -> Outcome:
        """An outcome for a run that did not end by itself; of a step that was cut off the next run is told."""
        if not self._has_started:
            return Outcome(status=status, reason=reason, seconds=self.state.clock.seconds)
        progress = self.state.progress
        if progress.step and not progress.acted:
            told = notes.interrupted_step([call.label for call in progress.called], reason)
            self.state.record(Observed(step=progress.step, text=told, ok=False))
        return self.state.outcome(status, reason=reason)

    async def _leg(self, work: Callable[[Loop], Awaitable[Outcome]]) -> Outcome:
        limits = self.agent.policy.limits
        transport = self.toolbox.open_transport()
        loop, deadline = self._loop(transport), self.state.clock.limit(limits.max_seconds)
        stopped: list[str] = []
        try:
            async with deadline:
                try:
                    outcome = await work(loop)
                finally:  # before a pause is signed: nothing may follow it in the log but its answer
                    stopped += await self.toolbox.children.stop_all("the run that delegated it ended, or waits")
                return replace(outcome, usage=self.state.progress.usage)
        except StepSuspended as stop:
            if stopped:
                loop.calls.shown.add_result(notes.tasks_stopped(stopped))
            return await self._pause(stop.calls, loop)
        except TimeoutError:
            if not deadline.expired():
                raise
            await self.toolbox.shell.interrupt("the run's time was up")
            return self.cut_short(Status.TIMEOUT, f"The run took longer than {limits.max_seconds:.0f} seconds.")
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
            return self.cut_short(Status.FAILED, str(error))
        except SandboxError as error:
            return self.cut_short(Status.SANDBOX_FAILED, str(error))
        finally:
            self.gate.forget()
            await transport.close()

    def _note_death(self) -> None:
        progress = self.state.progress
        calls = [call.label for call in progress.called]
        told = [notes.process_died(progress.step, calls, is_complete=progress.acted), self._lost(())]
        self.state.record(Recovered(text="\n".join(filter(None, told))))

    async def _first(self, loop: Loop, task: Task, facts: Sequence[str]) -> Outcome:
        renewed = await self.toolbox.renew()
        orientation = await self.toolbox.orientation(task, [*facts, *renewed])
        number, token = self.state.progress.tasks + 1, self.agent.clock_and_random.token
        first = render_opening(
            task,
            orientation,
            nonce=token(6),
            number=number,
            instructions=self.agent.repository_instructions if number == 1 else {},
            skills=self.toolbox.skills.values() if number == 1 else (),
        )
        started = Started(
            task=task,
            opening=first,
            run_id=token(8),
            facts=tuple(facts),
            indexed=orientation.indexed,
            python_path=orientation.python_path,
        )
        self.state.record(started)
        self._has_started = True
        return await loop.run()

    async def _pause(self, calls: dict[str, Plain], loop: Loop) -> Outcome:
        """Keep where the run stands, and say what it waits for."""
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
            log=await asyncio.to_thread(digest_of, [*self.state.events]),
            shown=loop.calls.shown.to_plain(),
            calls=calls,
            files={
                "tracked": {**self.toolbox.files.tracked()},
                "step": {**self.toolbox.files.step_state(), **loop.transport.state()},
            },
            manifest=manifest.to_plain(),
            terminals=[*self.toolbox.shell.live_names],
            reply=encode(self.state.original).decode("utf-8", "surrogatepass") if self.state.original else "",
        )
        # People who see a request must be able to answer it, whatever happens to this process.
        await self.state.record_durably(seal(saved, self.key()))
        what = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
        reason = f"The run waits for {what} (request {pending.request_id})."
        return replace(self.state.outcome(Status.PAUSED, reason=reason), pending=pending)

    def _standing(self, saved: SavedStep) -> StepCheckpoint:
        files = dict[str, Any](saved.files)
        original = decode(saved.reply.encode("utf-8", "surrogatepass")) if saved.reply else None
        self.state.original = original if isinstance(original, Replied) else None
        self.toolbox.transport.require_resumable(saved.calls)
        if saved.pending.tool not in self.toolbox.registry.names:
            raise ResumeError(ResumeCode.TOOL_MISSING, tool=saved.pending.tool)
        self.toolbox.files.restore(files["tracked"])
        return StepCheckpoint(
            calls=saved.calls,
            shown=saved.shown,
            files=files["step"],
            call=saved.call,
            note=self._lost(saved.terminals),
        )

    def _lost(self, alive: Sequence[str]) -> str:
        """What the model should know of terminals that were `alive`, and of tasks, when the run stopped; or nothing."""
        dead = [name for name in alive if name not in self.toolbox.shell.live_names]
        gone = [task for task in self.state.progress.children if task not in self.toolbox.children]
        told = (notes.terminals_died(dead) if dead else "", notes.copies_lost(gone) if gone else "")
        return "\n".join(filter(None, told))

    def _loop(self, transport: TransportSession) -> Loop:
        agent, conversation = self.agent, self.conversation()
        conversation.provider = PatientProvider(
            agent.provider,
            self.state,
            seconds=agent.policy.limits.outage_seconds,
            clock_and_random=agent.clock_and_random,
            spent=conversation.estimate_usage,
        )
        return Loop(
            provider=conversation.provider,
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
            chat=agent.chat,
        )

    def _status(self, step: int) -> str:
        """What changes with every request; sent last, so that it never breaks the cached prefix."""
        counter = step_status(step, self.agent.policy.limits.max_steps, self.agent.clock_and_random.now())
        return f"{counter}\n{self.toolbox.shell.status}".rstrip()


class PatientProvider(WrappedProvider):
    """A provider whose outages are waited for. What its broken replies have probably cost is recorded.

    A provider makes a few quick attempts, and a chain then asks the next model. This waits longer, with growing pauses,
    for as long as the run's limits allow. After that the segment ends, and `resume` sends the same request again.
    """

    def __init__(
        self,
        provider: Provider,
        state: RunState,
        *,
        seconds: float,
        clock_and_random: ClockAndRandom,
        spent: Callable[[str, str], Usage],
    ) -> None:
        """Wait for `provider`.

        Args:
            provider: the model, or a chain of them.
            state: the run's log and watchers, and its clock, which stands still during the wait.
            seconds: for how long one request is waited for, the pauses between the provider's own attempts included.
            clock_and_random: to wait, and to spread the pauses of many runs.
            spent: estimates what a broken reply cost, from the model's name and the text that came.
        """
        super().__init__(provider)
        self._state, self._spent = state, spent
        self._seconds, self._clock_and_random = seconds, clock_and_random

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`. Attempts are counted on over the pauses.

        Raises:
            ModelOutageError: the outage lasts longer than it is waited for here.
            ModelUnreachableError: too many replies broke off that were charged for.
            ModelError: as for the inner provider.
        """
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
                                    self._note(chunk, faults)
                                case _:
                                    if isinstance(chunk, TextChunk | CallChunk):
                                        untimed.close()
                                        told = chunk.text if isinstance(chunk, TextChunk) else chunk.arguments
                                        faults.text.append(told)
                                    yield chunk
                except asyncio.CancelledError:
                    self._note(ReplyFault(reason="the run ended while it came", billed=bool(faults.text)), faults)
                    raise
                except ModelOutageError as error:
                    chance = int(self._clock_and_random.token(2), 16) / _JITTER_STEPS
                    usual = min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE) * (0.5 + chance / 2)
                    pause = max(usual, error.retry_after or 0.0)
                    if faults.waited + pause > self._seconds:
                        raise
                    untimed.close()  # where it stands still already, it goes on doing so
                    untimed.enter_context(self._state.clock.stopped())
                    self._state.emit(ModelAwaited(reason=str(error), seconds=pause))
                else:
                    return
                await self._clock_and_random.sleep(pause)
                faults.waited += pause

    async def close(self) -> None:
        """Close the inner provider; idempotent."""
        await self._inner.close()

    def _note(self, fault: ReplyFault, faults: _Faults) -> None:
        """Count a failed attempt.

        Raises:
            ModelUnreachableError: the same request is not to be bought once more.
        """
        faults.billed += fault.billed
        faults.silent += fault.silent
        if fault.billed:
            model = fault.model or self._inner.model
            usage = self._spent(model, "".join(faults.text))
            faults.text = []
            self._state.record(ReplyBroken(reason=fault.reason, usage=usage))
        if fault.wait is None:
            return
        if faults.silent >= MOST_SILENT or faults.billed >= MOST_BILLED:
            raise ModelUnreachableError(
                f"Model {self._inner.model!r} broke off {faults.billed} replies to the same request, which its service "
                f"has probably charged for; the last one: {fault.reason}. Try again later, or choose another `model`."
            )
        faults.waited += fault.wait
        self._state.emit(ModelAwaited(reason=fault.reason, seconds=fault.wait))


@dataclass(slots=True)
class _Faults:
    """What went wrong with one request so far."""

    billed: int = 0
    silent: int = 0
    waited: float = 0.0
    text: list[str] = field(default_factory=list)
