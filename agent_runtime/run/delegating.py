"""The run that child runs belong to, as they know it."""

from __future__ import annotations

from typing import get_args

from agent_runtime.core.events import ChildRecorded, ChildResult, ChildWatched, Event, Paused, Recorded
from agent_runtime.delegation.child import Spent
from agent_runtime.run.progress import ChildRecord
from agent_runtime.run.state import RunState
from agent_runtime.tools.registry import Registry


class OwnRun:
    """The run whose agent delegates: child runs share its limits, and its log holds their events."""

    def __init__(self, state: RunState, registry: Registry) -> None:
        """Speak for the newest run of a session.

        Args:
            state: of the run.
            registry: its tools.
        """
        self._state = state
        self._registry = registry
        self._number = 0

    @property
    def spent(self) -> Spent:
        """What the run has used of its limits."""
        progress = self._state.progress
        return Spent(usage=progress.usage, steps=progress.step, seconds=self._state.clock.seconds)

    @property
    def tools(self) -> tuple[str, ...]:
        """The built-in tools that it has, as they were built in."""
        return self._registry.unchanged

    def named(self) -> str:
        """A name that no task of the session has."""
        self._number = max(self._number, self._state.progress.delegated) + 1
        return f"t{self._number}"

    def past(self, task: str) -> ChildRecord | None:
        """What the run's log says of a task."""
        return self._state.progress.children.get(task)

    def tell(self, task: str, event: Event) -> None:
        """Put an event of a child run into the log, and tell watchers.

        That a child paused is not recorded: what is signed for it is of no use to any other process.
        """
        if isinstance(event, get_args(Recorded)) and not isinstance(event, Paused):
            known = (
                event
                if isinstance(event, ChildResult) and event.task == task
                else ChildRecorded(task=task, event=event)
            )
            self._state.record(known)
        else:
            self._state.emit(ChildWatched(task=task, event=event))
