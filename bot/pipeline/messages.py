"""Deliver people's messages to an agent while it works, each once."""

from __future__ import annotations

from typing import Protocol

from agent_runtime import AsyncRuntime, Event, MessageInjected
from bot.engine.records import Signal


class Hears(Protocol):
    """An agent, or several at once."""

    def send_message(self, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Tell it something; see `AsyncRuntime.send_message`."""
        ...


class Messages:
    """The messages of one job, over all the legs of its run."""

    def __init__(self) -> None:
        self._signals: dict[str, Signal] = {}
        self._told: set[str] = set()
        self._agent: Hears | None = None

    def hear(self, signal: Signal) -> None:
        """Pass a message on, at once when the agent is at work."""
        self._signals[signal.id] = signal
        if self._agent is not None:
            _send(self._agent, signal)

    def go_to(self, runtime: AsyncRuntime | None) -> None:
        """Pass on what an agent that begins to work has not been told yet; None when it has ended."""
        for event in runtime.session.events if runtime is not None else ():
            self.note(event)
        self.go_on_to(runtime)

    def go_on_to(self, agent: Hears | None) -> None:
        """The same for an agent, or several at once, whose session tells nothing of messages."""
        self._agent = agent
        if agent is not None:
            for signal in self.untold:
                _send(agent, signal)

    def note(self, event: Event) -> None:
        """Take in an event of the run."""
        if isinstance(event, MessageInjected):
            self._told.add(event.id)

    @property
    def untold(self) -> tuple[Signal, ...]:
        """Those that came too late for the agent."""
        return tuple(signal for signal in self._signals.values() if signal.id not in self._told)


def _send(agent: Hears, signal: Signal) -> None:
    # By id: people repeat themselves, and a redactor may change the text on its way.
    agent.send_message(f"@{signal.by} says, while you work: {signal.text}", id=signal.id)
