"""State of a session's newest run. Only the clock and unread messages are kept outside the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agent_runtime.core.events import (
    BaselineTaken,
    ChildRecorded,
    ChildResult,
    Ended,
    Event,
    InstructionsShown,
    MessageInjected,
    MessageQueued,
    Observed,
    Parked,
    Paused,
    Recorded,
    Recovered,
    Replied,
    ReplyBroken,
    Resumed,
    SessionReset,
    Started,
    Summarised,
    ToolReturned,
)
from agent_runtime.core.values import Outcome, PendingCall, Plain, Status, Usage
from agent_runtime.run.hooks import Announcer, HookSystem
from agent_runtime.sessions.protocol import Scrub, Session, scrub_value

_COMMAND_CHARS = 100
_ENDS = {
    "running": "has not ended",
    "waiting for input": "waits for input",
    "killed": "was killed",
    "incomplete": "was not run",
}
"""Ends of a command, by its status, that a completion in the same step cannot have known."""


class RunState:
    """State of a runtime's newest run.

    `original` is the newest reply if the log has a scrubbed one; it is never stored unencrypted.
    """

    def __init__(
        self, session: Session, hooks: HookSystem, *, stream: bool = False, scrub: Scrub | None = None
    ) -> None:
        self.session = session
        self.hooks = hooks
        self.clock = RunClock()
        self.original: Replied | None = None
        self._announce = Announcer(hooks, stream=stream)
        self._scrub = scrub
        self._progress = RunProgress(session.events)
        self._messages: deque[tuple[str, str]] = deque()

    @property
    def events(self) -> Sequence[Recorded]:
        return self.session.events

    @property
    def progress(self) -> RunProgress:
        return self._progress.read()

    def emit(self, event: Event) -> None:
        """Notify listeners without recording."""
        self.hooks.notify(event)
        self._announce(event)

    def record(self, event: Recorded) -> None:
        """Append an event to the log and notify listeners."""
        self.emit(self._append(event))

    async def record_durably(self, event: Recorded) -> None:
        """Append an event, commit, and then notify listeners."""
        stored = self._append(event)
        await self.session.commit()
        self.emit(stored)

    def send(self, message: str, id_: str) -> None:
        """Queue a message for the agent's next step. Thread-safe."""
        self._messages.append((message, id_))
        self.emit(MessageQueued(text=message))

    def inject(self, step: int) -> None:
        while self._messages:
            text, id_ = self._messages[0]
            self.record(MessageInjected(step=step, text=text, id=id_))
            self._messages.popleft()

    def outcome(
        self, status: Status, *, summary: str | None = None, reason: str | None = None, output_json: str = ""
    ) -> Outcome:
        progress = self.progress
        return Outcome(
            status=status,
            summary=summary,
            reason=reason,
            steps=progress.step,
            usage=progress.usage,
            seconds=self.clock.seconds,
            output_json=output_json,
        )

    @property
    def user_texts(self) -> list[str]:
        """The session's messages, notes of approvals, and answers with their questions."""
        texts = [event.text for event in self.events if isinstance(event, MessageInjected)]
        texts += [event.note for event in self.events if isinstance(event, Resumed)]
        asked = [event for event in self.events if isinstance(event, ToolReturned) and event.tool == "ask_user"]
        return [*texts, *(f"{event.label} {event.text}" for event in asked if event.ok)]

    def reset(self) -> None:
        self._messages.clear()
        self.session.reset()
        self._progress = RunProgress(self.session.events)
        self.emit(SessionReset())

    def _append(self, event: Recorded) -> Recorded:
        """Append an event without secrets; a pause stays as it was signed."""
        if self._scrub is not None and not isinstance(event, Paused):
            complete, event = event, scrub_value(event, self._scrub)
            if isinstance(complete, Replied):
                self.original = None if complete == event else complete
        self.session.append(event)
        return event

    def may_store(self, pending: PendingCall) -> bool:
        """Whether a request contains no secret."""
        return self._scrub is None or scrub_value(pending, self._scrub) == pending


class RunProgress:
    """Progress of a log's newest run.

    Attributes:
        tasks: number of runs in the session.
        step: number of the last reply.
        usage: includes summaries, broken replies and child runs.
        last_calls: completed calls of the last step.
        waiting: the unanswered pause, and its position in the log.
        unfit: completions that did not match the schema.
        delegations: tasks delegated in the session.
        failures: tests that failed before the run; see `BaselineTaken`.
        is_open: whether it neither ended nor waits for a person; its process may have died.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._position = 0
        self._newest: Event | None = None
        self._clear()

    def read(self, events: Sequence[Event] | None = None) -> RunProgress:
        """Read new events; all of them after a restart of the log."""
        events = self._events = self._events if events is None else events
        if self._position and (len(events) < self._position or events[self._position - 1] is not self._newest):
            self._clear()
        for position in range(self._position, len(events)):
            self._apply(position, events[position])
            self._newest = events[position]
        self._position = len(events)
        return self

    @property
    def has_unsettled_completion(self) -> bool:
        """Whether a completion of a successful step was withdrawn, because of commands."""
        observations = (record.observed for record in self.steps)
        return any(observed is not None and observed.ok and observed.withdrew for observed in observations)

    def command_results(self) -> list[CommandResult]:
        """Return the last result of each command that the last step with calls ran or followed."""
        commands: dict[str, str] = {}
        results: dict[str, CommandResult] = {}
        for call in (call for record in self.steps for call in record.calls):
            terminal, value = str(call.args.get("session_id", "")), call.value
            if call.tool == "execute":
                commands[terminal] = str(call.args.get("command", ""))
            elif call.tool == "terminate_terminal":
                results = {command: result for command, result in results.items() if result.terminal != terminal}
            if isinstance(value, dict) and "status" in value:
                code, command = value.get("exit_code"), commands.get(terminal, "")
                results[command] = CommandResult(
                    terminal=terminal,
                    command=command,
                    status=str(value["status"]),
                    # The input may have interrupted it.
                    exit_code=code if isinstance(code, int) and call.tool != "send_input" else 0,
                    call=call.number,
                    failed_before=tuple(map(str, value.get("failed_before") or ())),  # type: ignore[arg-type] # a list
                )
        last = next((record.calls for record in reversed(self.steps) if record.calls), [])
        return [result for result in results.values() if result.call >= last[0].number]

    @property
    def instructions(self) -> tuple[InstructionsShown, ...]:
        return tuple(event for _, event in self._instructions)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome or pause; None before."""
        if self.waiting is not None:
            return Outcome(status=Status.PAUSED, pending=self.waiting[1].pending, steps=self.step, usage=self.usage)
        if self.parked is not None:
            return Outcome(
                status=Status.MODEL_UNAVAILABLE,
                reason=self.parked.reason,
                steps=self.step,
                usage=self.usage,
                seconds=self.parked.seconds,
                retry_after=self.parked.retry_after,
            )
        return self.ended

    def _clear(self) -> None:
        self._newest = None
        self.tasks = self._position = self.delegations = 0
        self._instructions: list[tuple[int, InstructionsShown]] = []
        self._begin_run("")
        self.is_open = False

    def _begin_run(self, run_id: str) -> None:
        self.run_id = run_id
        self.step = self.calls = self.unfit = 0
        self.output_schema: dict[str, Plain] | None = None
        self.python_path = ""
        self.failures: dict[str, str] = {}
        self.usage = Usage()
        self.last_calls: list[ToolReturned] = []
        self.step_done = False
        self.waiting: tuple[int, Paused] | None = None
        self.parked: Parked | None = None
        self.ended: Outcome | None = None
        self.is_open = True
        self.steps: list[StepRecord] = []
        self.children: dict[str, ChildRecord] = {}
        self._in_step = False

    def _apply(self, position: int, event: Event) -> None:
        match event:
            case Started(run_id=run_id, task=task, python_path=python_path):
                self.tasks += 1
                self._begin_run(run_id)
                self.output_schema, self.python_path = task.output_schema, python_path
            case BaselineTaken(failures=failures):
                self.failures = failures
            case Replied():
                self.step, self.usage = event.step, self.usage + event.usage
                self.last_calls, self.step_done, self.parked = [], False, None
                self.steps.append(StepRecord(event, self.last_calls))
                self._in_step = True
            case ReplyBroken():
                self.usage += event.usage
            case ToolReturned(number=number):
                self.calls = number
                self.last_calls.append(event)
            case Observed():
                if self._in_step:  # a later one reports external changes
                    self.steps[-1].observed = event
                self.unfit += event.unfit
                self.step_done, self._in_step = True, False
            case ChildRecorded():
                self._apply_child(event)
            case ChildResult(task=task) if task in self.children:
                self.children[task].result = event
            case _:
                self._apply_transition(position, event)

    def _apply_child(self, recorded: ChildRecorded) -> None:
        event = recorded.event
        self.usage += usage_of(event)
        if isinstance(event, Started):
            self.delegations += 1
            self.children[recorded.task] = ChildRecord(event.task.goal)
        elif (child := self.children.get(recorded.task)) is not None and isinstance(event, Ended):
            child.outcome = event.outcome

    def _apply_transition(self, position: int, event: Event) -> None:
        match event:
            case InstructionsShown():
                self._instructions.append((position, event))
            case Summarised():
                self.usage += event.usage
                # The first message stays.
                self._instructions = [
                    (at, item) for at, item in self._instructions if at >= event.upto or not item.text
                ]
            case Paused():
                self.waiting, self.is_open = (position, event), False
            case Resumed():
                self.waiting, self.is_open = None, True
            case Parked():
                self.parked = event
            case Recovered():
                self.waiting, self.parked, self.is_open, self._in_step = None, None, True, False
            case Ended():
                self.waiting, self.parked, self.ended, self.is_open = None, None, event.outcome, False
            case _:
                pass


@dataclass(slots=True)
class StepRecord:
    """A reply with its completed calls and its observation, if any."""

    reply: Replied
    calls: list[ToolReturned]
    observed: Observed | None = None

    @property
    def is_done(self) -> bool:
        """Whether the step was completed and not only a format error."""
        return self.observed is not None and (bool(self.calls) or self.observed.ok)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """State of a command; `call` is the number of the call that returned it, `exit_code` 0 while it runs."""

    terminal: str
    command: str
    status: str
    exit_code: int
    call: int
    failed_before: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.status in {"running", "waiting for input"}

    @property
    def problem(self) -> str:
        """Description for the model of an end that keeps a completion from counting; empty for another end."""
        end = _ENDS.get(self.status) or (
            f"ended with exit code {self.exit_code}" if self.exit_code and not self.failed_before else ""
        )
        return f"`{' '.join(self.command.split())[:_COMMAND_CHARS]}` in {self.terminal} {end}" if end else ""


@dataclass(slots=True)
class ChildRecord:
    """A child run in a log."""

    goal: str
    outcome: Outcome | None = None
    result: ChildResult | None = None


def usage_of(event: Event) -> Usage:
    """Return the usage in an event, including a child run's."""
    while isinstance(event, ChildRecorded):
        event = event.event
    return event.usage if isinstance(event, Replied | Summarised | ReplyBroken) else Usage()


class RepeatCounter:
    """Counter of consecutive steps with the same calls."""

    def __init__(self) -> None:
        self._last = ""
        self._count = 0

    def count(self, calls: Sequence[ToolReturned], contents: Sequence[str]) -> int:
        """Return the number of consecutive steps with these calls. A running command resets the count."""
        waits = any(isinstance(call.value, dict) and call.value.get("status") == "running" for call in calls)
        key = json.dumps([[[call.tool, call.args] for call in calls], [*contents]], sort_keys=True)
        self._count = self._count + 1 if key == self._last and (calls or contents) and not waits else 1
        self._last = key
        return self._count


class RunClock:
    """Clock of a run over all segments; stopped while a person or a service is awaited."""

    def __init__(self) -> None:
        self._used = 0.0
        self._started = time.monotonic()
        self._deadline: asyncio.Timeout | None = None

    @property
    def seconds(self) -> float:
        return self._used + time.monotonic() - self._started

    def start(self) -> None:
        self._used, self._started, self._deadline = 0.0, time.monotonic(), None

    def add(self, seconds: float) -> None:
        self._used += seconds

    def limit(self, seconds: float) -> asyncio.Timeout:
        """Return a timeout for the rest of a run; it stops with the clock."""
        self._deadline = asyncio.timeout(max(0.0, seconds - self._used))
        return self._deadline

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock in a `with` block."""
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
