"""The state of a session's newest run: its log, what is derived from that log, its clock, and its listeners."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_runtime.core.events import Event, MessageInjected, MessageQueued, Paused, Recorded, Replied, SessionReset
from agent_runtime.core.outcome import Outcome, PendingCall, Status
from agent_runtime.run.announcer import Announcer
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.progress import RunProgress
from agent_runtime.sessions.protocol import Session
from agent_runtime.sessions.scrubbing import Scrub, scrubbed


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
            written, event = event, scrubbed(event, self._scrub)
            if isinstance(written, Replied):
                self.original = None if written == event else written
        self.session.append(event)
        return event

    def may_store(self, pending: PendingCall) -> bool:
        """Whether a request holds nothing that is scrubbed from the log."""
        return self._scrub is None or scrubbed(pending, self._scrub) == pending
