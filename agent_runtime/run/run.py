"""One leg of a run: from its start, or from where it was paused or cut off, to its end or its next pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agent_runtime.agent.agent import Agent
from agent_runtime.context.awareness import step_status
from agent_runtime.context.briefing import opening
from agent_runtime.context.conversation import Conversation
from agent_runtime.core.errors import BoundExceededError, ModelError, ModelOutageError, ResumeError, SandboxError
from agent_runtime.core.events import Event, Observed, Recorded, Recovered, Resumed, Started
from agent_runtime.core.outcome import Outcome, Status
from agent_runtime.core.task import Task
from agent_runtime.interpreter import (
    Interpreter,
    InterpreterLimits,
    InterpreterState,
    Suspended,
    require_readable,
)
from agent_runtime.prompts import notes
from agent_runtime.run.approvals import Answer, Gate
from agent_runtime.run.checkpoint import SavedStep, digest_of, seal, unseal
from agent_runtime.run.loop import Loop, StepCheckpoint
from agent_runtime.run.parking import parked, patient, unpark
from agent_runtime.run.progress import RunProgress
from agent_runtime.run.step import Calls
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sandbox.enclosed import enclosing
from agent_runtime.sessions.protocol import Session
from agent_runtime.transports.blocks.transport import BlockTransport


@dataclass(kw_only=True)
class Run:
    """What one leg of a run works with; used once.

    Attributes:
        agent: who works.
        hands: its tools.
        session: the log.
        progress: reads off the log how far the run is.
        conversation: makes requests of it.
        gate: asks people.
        record: appends an event to the session and tells watchers.
        emit: tells watchers only.
        inject: records the messages that people have sent to the agent meanwhile.
        key: the secret that a paused run is signed with.
    """

    agent: Agent
    toolbox: Toolbox
    session: Session
    progress: RunProgress
    conversation: Conversation
    gate: Gate
    record: Callable[[Recorded], None]
    emit: Callable[[Event], None]
    inject: Callable[[int], None]
    key: Callable[[], bytes]
    _used: float = 0.0
    _begun: float = field(default_factory=time.monotonic)
    _deadline: asyncio.Timeout | None = None
    _has_started: bool = True

    def begin(self, task: Task, facts: Sequence[str]) -> Coroutine[Any, Any, Outcome]:
        """Start a new run; one before it whose process died is closed first."""
        self._has_started = False  # here, since a task that is stopped at once never gets to its first line
        return self._begin(task, facts)

    async def _begin(self, task: Task, facts: Sequence[str]) -> Outcome:
        progress = self.progress.read()
        if progress.is_open and progress.parked is None:
            self._note_death()
        return await self._leg(lambda loop: self._first(loop, task, facts))

    async def recover(self) -> Outcome:
        """Go on with a run that waits for the model service, or whose process died.

        The clock of one whose process died starts at zero: how long a process worked is written down when it pauses or
        ends, not when it dies.
        """
        kept = self.progress.read().parked
        if kept is None:
            self._note_death()
        else:
            self._used = kept.seconds
            if (lost := unpark(kept, self.toolbox)) is not None:
                self.record(lost)
        return await self._leg(lambda loop: loop.run())

    async def answer(self, answer: Answer) -> Outcome:
        """Go on with a paused run.

        Raises:
            ResumeError: nothing waits any more, it was altered, or it was approved and files have changed.
        """
        waiting = self.progress.read().waiting
        saved = await self._saved()
        if answer.approved:
            await self._require_unchanged(saved)
        if self.progress.read().waiting != waiting:  # another runtime has the same session object
            raise ResumeError(f"Request {saved.pending.request_id} was answered meanwhile.")
        standing = self._standing(saved)
        self.record(Resumed(request_id=saved.pending.request_id, approved=answer.approved, note=answer.note))
        await self.session.commit()  # from here on it is answered, whatever happens to this process
        self.gate.give(answer, saved.pending)
        self._used = saved.seconds
        return await self._leg(lambda loop: loop.resume(standing))

    def cut_short(self, status: Status, reason: str) -> Outcome:
        """An outcome for a run that did not end by itself; of a step that was cut off the next run is told."""
        progress = self.progress.read()
        if self._has_started and progress.step and not progress.acted:
            told = notes.broken_off([call.label for call in progress.called], reason)
            self.record(Observed(step=progress.step, text=told, ok=False))
        return self._outcome(status, reason)

    def _outcome(self, status: Status, reason: str) -> Outcome:
        progress = self.progress.read() if self._has_started else RunProgress(())
        return Outcome(status=status, reason=reason, steps=progress.step, usage=progress.usage, seconds=self._seconds)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """While a person is asked, the run's clock stands still."""
        since, deadline = time.monotonic(), self._deadline
        when = deadline.when() if deadline is not None else None
        if deadline is not None:
            deadline.reschedule(None)
        try:
            yield
        finally:
            waited = time.monotonic() - since
            self._used -= waited
            if deadline is not None and when is not None:
                deadline.reschedule(when + waited)

    @property
    def _seconds(self) -> float:
        return self._used + time.monotonic() - self._begun

    async def _leg(self, work: Callable[[Loop], Awaitable[Outcome]]) -> Outcome:
        limits = self.agent.policy.limits
        interpreter = self._interpreter()
        loop = self._loop(interpreter)
        try:
            async with asyncio.timeout(max(0.0, limits.max_seconds - self._used)) as self._deadline:
                outcome = await work(loop)
        except Suspended as stop:
            return await self._pause(stop.state, loop)
        except TimeoutError:
            if self._deadline is None or not self._deadline.expired():
                raise
            await self.toolbox.interrupt("the run's time was up")
            return self.cut_short(Status.TIMEOUT, f"The run took longer than {limits.max_seconds:.0f} seconds.")
        except ModelOutageError as error:
            return await self._park(error)
        except (ModelError, BoundExceededError) as error:
            return self.cut_short(Status.FAILED, str(error))
        except SandboxError as error:
            return self.cut_short(Status.SANDBOX_FAILED, str(error))
        finally:
            self._deadline = None
            self.gate.forget()
            await interpreter.close()
        return replace(outcome, seconds=self._seconds)

    def _note_death(self) -> None:
        progress = self.progress.read()
        calls = [call.label for call in progress.called]
        self.record(Recovered(text=notes.cut_off(progress.step, calls, acted=progress.acted)))

    async def _first(self, loop: Loop, task: Task, facts: Sequence[str]) -> Outcome:
        renewed = await self.toolbox.renew()
        orientation = await self.toolbox.orientation(task, [*facts, *renewed])
        number, token = self.progress.tasks + 1, self.agent.clock_and_random.token
        first = opening(
            task,
            orientation,
            nonce=token(6),
            number=number,
            instructions=self.agent.repository_instructions if number == 1 else {},
        )
        self.record(Started(task=task, opening=first, run_id=token(8), facts=tuple(facts)))
        self._has_started = True
        return await loop.run()

    async def _pause(self, state: InterpreterState, loop: Loop) -> Outcome:
        """Keep where the run stands, and say what it waits for."""
        waiting = self.gate.waiting
        if waiting is None:
            raise AssertionError("a step is suspended by the gate only")
        manifest = await self.toolbox.manifest()
        pending = replace(waiting, workspace=manifest.digest)
        progress = self.progress.read()
        saved = SavedStep(
            session_id=self.session.session_id,
            run_id=progress.run_id,
            pending=pending,
            step=progress.step,
            call=loop.calls.number + 1,
            seconds=self._seconds,
            log=await asyncio.to_thread(digest_of, [*self.session.events]),
            shown=loop.calls.shown.to_plain(),
            interpreter=state.to_plain(),
            files={
                "tracked": {**self.toolbox.files.tracked()},
                "step": {**self.toolbox.files.step_state(), **loop.transport.state()},
            },
            manifest=manifest.to_plain(),
            terminals=[*self.toolbox.terminals],
        )
        paused = seal(saved, self.key())
        self.session.append(paused)
        await self.session.commit()  # who is told of a request must be able to answer it, whatever happens to us
        self.emit(paused)
        what = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
        return replace(
            self._outcome(Status.PAUSED, f"The run waits for {what} (request {pending.request_id})."), pending=pending
        )

    async def _park(self, error: ModelOutageError) -> Outcome:
        """Keep where the run stands, between two steps, until the model service is back."""
        self.record(parked(error, self.toolbox, self._seconds))
        await self.session.commit()
        return replace(self._outcome(Status.MODEL_UNAVAILABLE, str(error)), retry_after=error.retry_after)

    async def _saved(self) -> SavedStep:
        waiting = self.progress.read().waiting
        if waiting is None:
            raise ResumeError("Nothing waits for an answer any more.")
        (position, paused), events = waiting, self.session.events
        return unseal(
            paused,
            self.key(),
            session_id=self.session.session_id,
            run_id=self.progress.run_id,
            log=await asyncio.to_thread(digest_of, [*events[:position], *events[position + 1 :]]),
        )

    async def _require_unchanged(self, saved: SavedStep) -> None:
        """An approval is of what was shown; nothing may have moved beneath it."""
        if changed := await self.toolbox.changed_since(saved.manifest):
            raise ResumeError(
                f"Request {saved.pending.request_id} is not gone on with: the workspace has changed since the call was "
                f"shown: {'; '.join(changed)}. Put it back as it was, or deny the call: the agent then looks again."
            )

    def _standing(self, saved: SavedStep) -> StepCheckpoint:
        files = dict[str, Any](saved.files)
        require_readable(InterpreterState.from_plain(saved.interpreter))
        if saved.pending.tool not in self.toolbox.registry.names:
            raise ResumeError(
                f"Request {saved.pending.request_id} is not gone on with: this runtime has no tool "
                f"{saved.pending.tool!r}. Register it as it was, or reset the session."
            )
        self.toolbox.files.restore(files["tracked"])
        dead = [name for name in saved.terminals if name not in self.toolbox.terminals]
        return StepCheckpoint(
            interpreter=saved.interpreter,
            shown=saved.shown,
            files=files["step"],
            call=saved.call,
            note=notes.terminals_died(dead) if dead else "",
        )

    def _interpreter(self) -> Interpreter:
        registry, limits = self.toolbox.registry, self.agent.policy.limits
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        enclose = enclosing(self.agent.sandbox)
        return Interpreter(tools=registry.names, stubs=registry.stubs, limits=bounds, enclose=enclose)

    def _loop(self, interpreter: Interpreter) -> Loop:
        agent = self.agent
        return Loop(
            provider=patient(agent, self.conversation, record=self.record, emit=self.emit, untimed=self.untimed),
            transport=BlockTransport(self.toolbox.payloads, interpreter),
            calls=Calls(
                registry=self.toolbox.registry,
                policy=agent.policy,
                gate=self.gate,
                record=self.record,
                emit=self.emit,
                max_output_chars=agent.max_output_chars,
            ),
            files=self.toolbox.files,
            session=self.session,
            progress=self.progress,
            conversation=self.conversation,
            record=self.record,
            emit=self.emit,
            inject=self.inject,
            status=self._status,
            network_lost=lambda: self.toolbox.network_lost,
            limits=agent.policy.limits,
            chat=agent.chat,
        )

    def _status(self, step: int) -> str:
        """What changes with every request; sent last, so that it never breaks the cached prefix."""
        counter = step_status(step, self.agent.policy.limits.max_steps, self.agent.clock_and_random.now())
        return f"{counter}\n{self.toolbox.status}".rstrip()
