"""The protocols of child runs: what they need of their runtimes and of the run that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from agent_runtime.agent.agent import Agent
from agent_runtime.core.errors import UsageError
from agent_runtime.core.events import ChildResult, Event
from agent_runtime.core.outcome import Outcome, PendingCall, Usage
from agent_runtime.core.task import Task
from agent_runtime.delegation.child import Spent
from agent_runtime.workspace.staging import StagedFile


class ChildRuntime(Protocol):
    """The runtime of one child run."""

    async def run(self, task: Task, *, facts: Sequence[str]) -> Outcome:
        """Work on a task."""
        ...

    async def resume(self, *, approve: bool | None, note: str, request_id: str | None) -> Outcome:
        """Go on at the call that waits."""
        ...

    @property
    def usage(self) -> Usage:
        """What its model calls have used so far."""
        ...

    def send_message(self, message: str, *, id: str) -> None:  # noqa: A002 - as in the event
        """Tell it something."""
        ...

    def abort(self) -> None:
        """Stop it."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


StartRuntime = Callable[[Agent, str, Callable[[Event], None]], ChildRuntime]
"""Makes the runtime of a child run, given its agent, its task's name, and who hears its events."""

Adopt = Callable[[Sequence[StagedFile]], None]
"""Makes changes in the parent's workspace, all or none."""


def no_runtime(_agent: Agent, task: str, _told: Callable[[Event], None]) -> ChildRuntime:
    """Refuse to make one, where nothing is ever run."""
    raise UsageError(f"The task {task} cannot be started: nothing is run here.")


class PastTask(Protocol):
    """What a log says of a child run."""

    @property
    def goal(self) -> str:
        """Its task."""
        ...

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, if it did."""
        ...

    @property
    def result(self) -> ChildResult | None:
        """What it changed."""
        ...


class DelegatingRun(Protocol):
    """What child runs need of the one that they belong to."""

    @property
    def spent(self) -> Spent:
        """What it has used of its limits."""
        ...

    @property
    def tools(self) -> Sequence[str]:
        """The built-in tools that it has, as they were built in."""
        ...

    def named(self) -> str:
        """A name for another task."""
        ...

    def past(self, task: str) -> PastTask | None:
        """What the log says of a task whose copy may be gone; None where it knows of none."""
        ...

    def tell(self, task: str, event: Event) -> None:
        """Take in an event of a child run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """How a delegated task is getting on.

    Attributes:
        id: names the task.
        goal: what it was asked to do.
        state: `running`; `waiting` for somebody's answer; or, once it has ended, the value of a `Status`.
        outcome: how it ended; None before.
        pending: the call that waits for an answer.
        steps: steps taken.
        usage: what its model calls used.
        changes: each file that it changed in its copy, and how; empty before it has ended.
        diff: the same as a unified diff, cut at 100,000 characters.
        lines: how many lines it added and removed; None where that is not known, e.g. for what is no text.
    """

    id: str
    goal: str
    state: str
    outcome: Outcome | None = None
    pending: PendingCall | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    changes: tuple[str, ...] = ()
    diff: str = ""
    lines: int | None = None

    @classmethod
    def of(  # noqa: PLR0917 - all that a status is made of
        cls, task: str, goal: str, outcome: Outcome | None, result: ChildResult | None, steps: int, usage: Usage
    ) -> Self:
        """The status of a task by how it ended, if it did."""
        return cls(
            id=task,
            goal=goal,
            state=outcome.status.value if outcome else "",
            outcome=outcome,
            steps=steps,
            usage=usage,
            changes=result.changes if result else (),
            diff=result.diff if result else "",
            lines=result.lines if result else None,
        )
