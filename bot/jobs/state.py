"""The state of a running job (`RunState`) and its signals (`Inbox`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

from agent_runtime import ChildWatched, Event, MessageInjected, traced
from bot.domain.spend import Cap
from bot.github.types import PullLink
from bot.jobs.access import AccessCheck
from bot.jobs.posts import JobCheckRun, StatusComment
from bot.jobs.record import StoredRecord
from bot.permissions.levels import Grant
from bot.permissions.repo_config import Notify
from bot.publishing.checks import Edits
from bot.publishing.status_view import Activity, Progress
from bot.queue.records import Signal

T = TypeVar("T")
Phase = Literal["admit", "prepare", "run", "publish"]


class Phases(ExitStack):
    _phase: Phase | None = None

    def begin(self, phase: Phase) -> None:
        if phase != self._phase:
            self.close()
            self._phase = phase
            self.enter_context(traced(phase, {"codepilot.phase": phase}))


class Receiver(Protocol):
    """An agent, or several candidates, that messages reach."""

    def send_message(self, message: str, /, *, id: str = "") -> object: ...  # noqa: A002 - as in the event


def _no_op() -> None: ...


class Inbox:
    """The signals of one job, over all its segments: requests to stop it, and messages for its agent.

    Attributes:
        stop_reason: empty unless the job is to stop.
        delivered: ids of the messages that the agent has received.
    """

    def __init__(self) -> None:
        self.stop_reason = ""
        self.delivered: set[str] = set()
        self._messages: dict[str, Signal] = {}
        self._receiver: Receiver | None = None
        self._interrupt: Callable[[], object] = _no_op

    def put(self, signal: Signal) -> None:
        if signal.kind == "stop":
            self.stop_reason = signal.text
            self._interrupt()
            return
        self._messages[signal.id] = signal
        if self._receiver is not None:
            _send(self._receiver, signal)

    def connect(self, receiver: Receiver, interrupt: Callable[[], object], log: Sequence[Event] = ()) -> None:
        """Send undelivered messages to `receiver`, and call `interrupt` to stop it; `log` has its earlier events."""
        for event in log:
            self.record_event(event)
        self._receiver, self._interrupt = receiver, interrupt
        for signal in self.undelivered:
            _send(receiver, signal)

    def disconnect(self) -> None:
        self._receiver, self._interrupt = None, _no_op

    def record_event(self, event: Event) -> None:
        inner = event.event if isinstance(event, ChildWatched) else event
        if isinstance(inner, MessageInjected):
            self.delivered.add(inner.id)

    @property
    def undelivered(self) -> tuple[Signal, ...]:
        return tuple(signal for signal in self._messages.values() if signal.id not in self.delivered)

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or None if the job is stopped meanwhile."""
        task, interrupt = asyncio.ensure_future(work), self._interrupt
        self._interrupt = task.cancel
        try:
            if self.stop_reason:
                task.cancel()
            result = await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not self.stop_reason or (current is not None and current.cancelling()):
                raise
            return None
        finally:
            self._interrupt = interrupt
        return None if self.stop_reason else result


def _send(receiver: Receiver, signal: Signal) -> None:
    # By id: people repeat themselves, and a redactor may change the text on its way.
    receiver.send_message(f"@{signal.by} says, while you work: {signal.text}", id=signal.id)


@dataclass(slots=True, kw_only=True)
class RunState:
    """Everything that changes while a job runs. Its stored part is the job's record.

    Attributes:
        started_at: when the command was stored, in seconds since the epoch.
        access: of the requesters; None until it is checked.
        grant: None until decided.
        continues: the pull request that the job continues.
        branch_prefix: of new branches; empty for the operator's.
        notify: events to notify about.
        is_shown: whether this attempt has posted the comment, which says that the job runs.
        keeps_files: whether the workspace stays for a later attempt.
        events: of the agent's session, after a segment of its run; a workflow step stores no session.
        caps: of spending, if this attempt runs an agent.
    """

    record: StoredRecord
    comment: StatusComment
    check: JobCheckRun | None = None
    inbox: Inbox = field(default_factory=Inbox)
    phases: Phases = field(default_factory=Phases)
    started_at: float = field(default_factory=time.time)
    progress: Progress = field(default_factory=Progress)
    access: AccessCheck | None = None
    grant: Grant | None = None
    run_url: str = ""
    continues: PullLink | None = None
    branch_prefix: str = ""
    notify: tuple[Notify, ...] = ()
    is_shown: bool = False
    keeps_files: bool = False
    events: Sequence[Event] = ()
    caps: tuple[Cap, ...] = ()

    def warn(self, warning: str) -> None:
        text = "\n\n".join(filter(None, (self.progress.warning, warning)))
        self.progress = replace(self.progress, warning=text)

    def process_event(self, event: Event) -> None:
        self.progress = self.progress.apply_event(event)
        self.inbox.record_event(event)

    def add_activity(self, activity: Activity) -> None:
        self.progress = self.progress.with_activity(activity)

    def add_edits(self, first: float, last: float) -> None:
        self.progress = self.progress.with_edits(Edits(first=first, last=last))

    async def save_progress(self) -> None:
        """Store the progress before the agent starts; the session has the rest."""
        progress = self.progress
        await self.record.update(lambda record: replace(record, progress=progress))

    async def save_denied(self) -> None:
        if denied := self.progress.denied:
            await self.record.update(lambda record: replace(record, denied=denied))
