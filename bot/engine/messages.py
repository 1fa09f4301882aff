"""What people say to an agent while it works, and what of that it has been told."""

from __future__ import annotations

from agent_runtime import AsyncRuntime, Event, MessageInjected
from bot.engine.queue import Signal


class Messages:
    """The messages of one job, over all the legs of its run."""

    def __init__(self) -> None:
        self._signals: dict[str, Signal] = {}
        self._told: set[str] = set()
        self._runtime: AsyncRuntime | None = None

    def hear(self, signal: Signal) -> None:
        """Pass a message on, at once when the agent is at work."""
        text = f"@{signal.by} says, while you work: {signal.text}"
        self._signals[text] = signal
        if self._runtime is not None:
            self._runtime.send_message(text)

    def go_to(self, runtime: AsyncRuntime | None) -> None:
        """Pass on what an agent that begins to work has not been told yet; None when it has ended."""
        self._runtime = runtime
        if runtime is None:
            return
        for event in runtime.session.events:
            self.note(event)
        for text in (text for text in self._signals if text not in self._told):
            runtime.send_message(text)

    def note(self, event: Event) -> None:
        """Take in an event of the run."""
        if isinstance(event, MessageInjected):
            self._told.add(event.text)

    @property
    def untold(self) -> tuple[Signal, ...]:
        """Those that came too late for the agent."""
        return tuple(signal for text, signal in self._signals.items() if text not in self._told)
