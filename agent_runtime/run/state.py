"""The state of a session's newest run: its log, its progress derived from that log, its clock, and its listeners.

`RunProgress` reads each event of the log once. Only the clock and unread messages are kept beside the log.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agent_runtime.core.events import (
    ChildRecorded,
    ChildResult,
    Ended,
    Event,
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


class RunState:
    """All that a runtime knows of its newest run. Everything but the clock and unread messages is in the log.

    Attributes:
        session: the log.
        hooks: who is told what happens, and who is asked.
        clock: counts the run's seconds.
        original: the newest reply as the model wrote it, where the log has it without secrets. Never stored in clear.
    """

    def __init__(
        self, session: Session, hooks: HookSystem, *, stream: bool = False, scrub: Scrub | None = None
    ) -> None:
        """Follow a session.

        Args:
            session: the log, which may hold earlier runs.
            hooks: who is told.
            stream: whether handlers get text as it comes, or once a reply is complete.
            scrub: takes secrets out of what is recorded.
        """
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
        """Everything that was recorded, oldest first."""
        return self.session.events

    @property
    def progress(self) -> RunProgress:
        """How far the run is, by the log as it is now."""
        return self._progress.read()

    def emit(self, event: Event) -> None:
        """Tell watchers, and record nothing."""
        self.hooks.tell(event)
        self._announce(event)

    def record(self, event: Recorded) -> None:
        """Append an event to the log, and tell watchers."""
        self.emit(self._kept(event))

    async def record_durably(self, event: Recorded) -> None:
        """Append an event to the log, and tell watchers once it cannot be lost any more."""
        kept = self._kept(event)
        await self.session.commit()
        self.emit(kept)

    def send(self, message: str, id_: str) -> None:
        """Keep a message for the agent's next step. From any thread."""
        self._messages.append((message, id_))
        self.emit(MessageQueued(text=message))

    def inject(self, step: int) -> None:
        """Put the messages that were sent meanwhile into the conversation."""
        while self._messages:
            text, id_ = self._messages[0]
            self.record(MessageInjected(step=step, text=text, id=id_))
            self._messages.popleft()

    def outcome(
        self, status: Status, *, summary: str | None = None, reason: str | None = None, output_json: str = ""
    ) -> Outcome:
        """How the run ends, or waits, with what it has used."""
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

    def reset(self) -> None:
        """Forget the whole conversation, and the messages that were not read."""
        self._messages.clear()
        self.session.reset()
        self._progress = RunProgress(self.session.events)
        self.emit(SessionReset())

    def _kept(self, event: Recorded) -> Recorded:
        """Append an event without its secrets; a call that waits stays as it was signed."""
        if self._scrub is not None and not isinstance(event, Paused):
            written, event = event, scrub_value(event, self._scrub)
            if isinstance(written, Replied):
                self.original = None if written == event else written
        self.session.append(event)
        return event

    def may_store(self, pending: PendingCall) -> bool:
        """Whether a request holds nothing that is scrubbed from the log."""
        return self._scrub is None or scrub_value(pending, self._scrub) == pending


class RunProgress:
    """What a log says of its newest run. Each event is looked at once, so that late steps cost no more.

    Attributes:
        tasks: runs begun so far, the newest included.
        run_id: the run's name; empty before the first.
        step: the last step whose reply has come.
        calls: tool calls that it was answered.
        usage: what its model calls used, those for summaries, those that broke off and its child runs' included.
        steps: its replies, with what came of each.
        called: the calls of its last step, as far as they were answered.
        acted: whether its last step came to its end.
        waiting: the request that nobody has answered yet, and where that is in the log.
        output_schema: what its result must fit; None for a result in words.
        python_path: see `Started`.
        unfit: how many completions did not fit it.
        children: the child runs that it started, by their tasks' names.
        delegated: tasks that the session's runs have delegated so far.
        parked: how it came to wait for the model service, if it does.
        ended: how it ended; None before.
        is_open: whether it neither ended nor waits for a person. It is at work, waits for the model service, or its
            process died.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        """Follow a log that only grows, or starts again."""
        self._events = events
        self._taken = 0
        self._newest: Event | None = None
        self._forget()

    def read(self, events: Sequence[Event] | None = None) -> RunProgress:
        """Take in what was recorded since the last time; all of it where the log began anew, as `save` lets it.

        Args:
            events: the log, where it may be another object by now.
        """
        events = self._events = self._events if events is None else events
        if self._taken and (len(events) < self._taken or events[self._taken - 1] is not self._newest):
            self._forget()
        for position in range(self._taken, len(events)):
            self._take(position, events[position])
            self._newest = events[position]
        self._taken = len(events)
        return self

    @property
    def outcome(self) -> Outcome | None:
        """What it came to, or waits for; None while it has come to neither."""
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

    def _forget(self) -> None:
        self._newest = None
        self.tasks = self._taken = self.delegated = 0
        self._begin("")
        self.is_open = False

    def _begin(self, run_id: str) -> None:
        self.run_id = run_id
        self.step = self.calls = self.unfit = 0
        self.output_schema: dict[str, Plain] | None = None
        self.python_path = ""
        self.usage = Usage()
        self.called: list[ToolReturned] = []
        self.acted = False
        self.waiting: tuple[int, Paused] | None = None
        self.parked: Parked | None = None
        self.ended: Outcome | None = None
        self.is_open = True
        self.steps: list[StepRecord] = []
        self.children: dict[str, ChildRecord] = {}
        self._in_step = False

    def _take(self, position: int, event: Event) -> None:
        match event:
            case Started(run_id=run_id, task=task, python_path=python_path):
                self.tasks += 1
                self._begin(run_id)
                self.output_schema, self.python_path = task.output_schema, python_path
            case Replied():
                self.step, self.usage = event.step, self.usage + event.usage
                self.called, self.acted, self.parked = [], False, None
                self.steps.append(StepRecord(event, self.called))
                self._in_step = True
            case Summarised() | ReplyBroken():
                self.usage += event.usage
            case ToolReturned(number=number):
                self.calls = number
                self.called.append(event)
            case Observed():
                if self._in_step:  # a later one reports what others did
                    self.steps[-1].observed = event
                self.unfit += event.unfit
                self.acted, self._in_step = True, False
            case ChildRecorded():
                self._take_child(event)
            case ChildResult(task=task) if task in self.children:
                self.children[task].result = event
            case _:
                self._move(position, event)

    def _take_child(self, recorded: ChildRecorded) -> None:
        """Take in what a child run did; what it used, this one has used."""
        event = recorded.event
        self.usage += used_by(event)
        if isinstance(event, Started):
            self.delegated += 1
            self.children[recorded.task] = ChildRecord(event.task.goal)
        elif (child := self.children.get(recorded.task)) is not None and isinstance(event, Ended):
            child.outcome = event.outcome

    def _move(self, position: int, event: Event) -> None:
        """Take in that the run waits, goes on or ends."""
        match event:
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
    """A reply, the calls that it was answered, and what it showed; nothing while it is under way or was cut off."""

    reply: Replied
    calls: list[ToolReturned]
    observed: Observed | None = None

    @property
    def ran(self) -> bool:
        """Whether it came to its end, and not only to an error of form."""
        return self.observed is not None and (bool(self.calls) or self.observed.ok)


@dataclass(slots=True)
class ChildRecord:
    """What a log says of a child run: its task, how it ended and what it changed; nothing before that."""

    goal: str
    outcome: Outcome | None = None
    result: ChildResult | None = None


def used_by(event: Event) -> Usage:
    """What the model calls that an event reports used, those of a child run included."""
    while isinstance(event, ChildRecorded):
        event = event.event
    return event.usage if isinstance(event, Replied | Summarised | ReplyBroken) else Usage()


class Repeats:
    """Counts steps in a row that make the very same calls."""

    def __init__(self) -> None:
        self._last = ""
        self._count = 0

    def recall(self, made: Iterable[tuple[Sequence[ToolReturned], Sequence[str]]]) -> None:
        """Count what a run has done so far, its steps' calls and contents: a pause gives it no new tries."""
        self._last, self._count = "", 0
        for calls, contents in made:
            self.count(calls, contents)

    def count(self, calls: Sequence[ToolReturned], contents: Sequence[str]) -> int:
        """How many steps in a row, this one included, have made these calls with these contents.

        Waiting is no repetition: a step in which a command still runs resets the count.
        """
        waits = any(isinstance(call.value, dict) and call.value.get("status") == "running" for call in calls)
        made = json.dumps([[[call.tool, call.args] for call in calls], [*contents]], sort_keys=True)
        self._count = self._count + 1 if made == self._last and (calls or contents) and not waits else 1
        self._last = made
        return self._count


class RunClock:
    """Counts the seconds of a run over all its legs; it stands still while a person or a service is waited for."""

    def __init__(self) -> None:
        self._used = 0.0
        self._begun = time.monotonic()
        self._deadline: asyncio.Timeout | None = None

    @property
    def seconds(self) -> float:
        """What the run has used."""
        return self._used + time.monotonic() - self._begun

    def start(self) -> None:
        """Begin a leg; what earlier ones have used is added with `add`."""
        self._used, self._begun, self._deadline = 0.0, time.monotonic(), None

    def add(self, seconds: float) -> None:
        """Count what the run had used before this leg."""
        self._used += seconds

    def limit(self, seconds: float) -> asyncio.Timeout:
        """A timeout for the rest of the leg, of a run that may take `seconds` in all; it stands still as the clock."""
        self._deadline = asyncio.timeout(max(0.0, seconds - self._used))
        return self._deadline

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stand still while this is entered."""
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
