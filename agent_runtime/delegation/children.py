"""Child runs of one agent: started on copies of its workspace, watched, collected, and ended with it.

Programs use them through `TaskManager` in `agent_runtime.run`, agents through `agent_runtime.delegation.tools`. A child
run has the agent of its parent, never wider (`derive_agent`), and a share of the limits that are left (`share_limits`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeVar

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import DELEGATION_TOOLS, Delegation, Persona
from agent_runtime.core.errors import AgentError, BoundExceededError, ToolError, UsageError
from agent_runtime.core.events import ChildResult, Ended, Event, StepStarted
from agent_runtime.core.values import Outcome, PendingCall, Status, Task, Usage
from agent_runtime.delegation.copies import (
    CopyBounds,
    Merge,
    canonical_paths,
    changed_paths,
    copy_workspace,
    merge,
    read_state,
    render_diff,
)
from agent_runtime.policy.policy import TOKENS_PER_USD, RunLimits
from agent_runtime.processes.spawn import finish_start, run_in_thread
from agent_runtime.providers.protocol import Chunk, Provider, Request, WrappedProvider
from agent_runtime.sandbox.protocol import Temporary
from agent_runtime.workspace.files import StagedFile, Workspace
from agent_runtime.workspace.state import Manifest

N = TypeVar("N", int, float)
_MOST_CHANGES = 500

DELEGATED = (
    "You work on a task that another agent has delegated to you, in a copy of its workspace that is yours alone. It "
    "reads your completion, and can take over the files that you change."
)
"""The fact that a child run of an agent is told."""


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


class Children:
    """The child runs of one run, or of one caller."""

    def __init__(
        self, agent: Agent, parent: DelegatingRun, workspace: Workspace, start: StartRuntime, adopt: Adopt
    ) -> None:
        """Start nothing yet.

        Args:
            agent: the parent.
            parent: its run.
            workspace: its files.
            start: makes runtimes.
            adopt: changes its files.
        """
        self._agent, self._parent, self._workspace, self._start = agent, parent, workspace, start
        self._adopt = adopt
        self._bounds = agent.delegation or Delegation()
        self._children: dict[str, _Child] = {}
        self._starting: dict[asyncio.Task[str], RunLimits] = {}

    def __contains__(self, task: object) -> bool:
        return task in self._children

    def use(self, provider: Provider) -> None:
        """Give child runs that begin from now on another model, where they have their parent's."""
        self._agent = replace(self._agent, provider=provider)

    @property
    def ids(self) -> tuple[str, ...]:
        """The tasks, oldest first."""
        return tuple(self._children)

    async def start(
        self,
        task: str | Task,
        *,
        files: Sequence[str] | None = None,
        persona: str | Persona | None = None,
        step_timeout: float | None = None,
        task_timeout: float | None = None,
        facts: Sequence[str] = (DELEGATED,),
        limits: RunLimits | None = None,
        also: Collection[str] = (),
    ) -> str:
        """Begin a child run on a copy of the workspace as it is now.

        Args:
            task: what it is to do; a plain string is a goal without quotes and images.
            files: the files and directories that it gets; None for all.
            persona: as whom it works.
            step_timeout: seconds that one of its steps may take.
            task_timeout: seconds that it may take; never more than its parent has left.
            facts: what it should know of its place, one line each.
            limits: its limits in place of a share; of what is left, no more.
            also: files whose changes are collected although git ignores them.

        Returns:
            The task's name.

        Raises:
            ToolError: there are too many tasks, no budget is left for another, or the workspace cannot be copied.
        """
        task = Task(goal=task) if isinstance(task, str) else task
        if not task.goal.strip():
            raise ToolError("delegate: prompt is empty; say what is to be done", kind="ValueError")
        if isinstance(persona, str):
            personas = {each.name: each for each in self._bounds.personas}
            if persona not in personas:
                close = get_close_matches(persona, personas, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(personas) or 'none'}"
                raise ToolError(f"delegate: there is no persona {persona!r}; {hint}", kind="ValueError")
            persona = personas[persona]
        running = [child for child in self._children.values() if child.outcome is None]
        if len(self._children) + len(self._starting) >= self._bounds.max_tasks:
            raise ToolError(f"delegate: this run has delegated {self._bounds.max_tasks} tasks, and may no more")
        if len(running) + len(self._starting) >= self._bounds.at_once:
            raise ToolError(
                f"delegate: {self._bounds.at_once} tasks are under way, and no more may be at once; collect one first"
            )
        promised = [(child.limits, child.runtime.usage) for child in running]
        promised += [(each, Usage()) for each in self._starting.values()]
        share = self._bounds.share if limits is None else 1.0
        left = share_limits(self._agent.policy.limits, self._parent.spent, promised, share)
        given = left if limits is None else lower_limits(limits, left)
        if task_timeout is not None:
            given = replace(given, max_seconds=min(task_timeout, given.max_seconds))
        begun = self._begun(task, given, files, persona, step_timeout=step_timeout, facts=facts, also=also)
        starting = asyncio.create_task(begun)
        self._starting[starting] = given
        try:
            return await starting
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            raise ToolError("delegate: what would have delegated the task has ended meanwhile") from None
        finally:
            del self._starting[starting]

    def status(self, task: str) -> TaskStatus:
        """How a task is getting on.

        Raises:
            ToolError: there is no such task.
        """
        if task not in self._children and (past := self._parent.past(task)) is not None:
            return past
        child = self._of(task)
        state = "running" if child.pending is None else "waiting"
        told = TaskStatus.of(task, child.task.goal, child.outcome, child.result, child.steps, child.runtime.usage)
        return told if child.outcome else replace(told, state=state, pending=child.pending)

    async def wait(self, task: str) -> TaskStatus:
        """Wait until a task has ended, or waits for an answer.

        Raises:
            ToolError: there is no such task.
        """
        await self._of(task).turned.wait()
        return self.status(task)

    def answer(self, task: str, *, approve: bool | None = None, note: str = "") -> None:
        """Answer the request that a task waits with; see `AsyncRuntime.resume`.

        Raises:
            UsageError: it waits for nothing.
            ToolError: there is no such task.
        """
        child = self._of(task)
        if child.answer is None or child.answer.done():
            raise UsageError(f"The task {task} waits for no answer.")
        child.pending = None
        child.turned.clear()
        child.answer.set_result((approve, note))

    def send_message(self, task: str, message: str, id_: str = "") -> None:
        """Tell a child run something; see `AsyncRuntime.send_message`.

        Raises:
            ToolError: there is no such task.
        """
        self._of(task).runtime.send_message(message, id=id_)

    def merge(self, task: str, paths: Iterable[str] | None = None) -> Merge:
        """Work out what collecting a task's files would do; in a thread, since it reads them.

        Raises:
            ToolError: there is no such task, or it has not ended.
        """
        child = self._of(task)
        if child.now is None:
            told = child.problem or "it has not ended"
            raise ToolError(f"collect: the changes of {task} are not known: {told}")
        wanted = None if paths is None else canonical_paths(self._workspace, paths)
        return merge(child.files, self._workspace, child.base.entries, changed_paths(child.base, child.now, wanted))

    def take(self, task: str, writes: Sequence[StagedFile]) -> None:
        """Make the changes that `merge` has worked out, all or none; collecting them again changes nothing.

        Raises:
            ToolError: there is no such task, or a file is no longer as it was then.
        """
        child = self._of(task)
        self._adopt(writes)
        entries = dict(child.base.entries)
        for path in (each.path for each in writes):
            entries.pop(path, None)
            if child.now is not None and path in child.now.entries:
                entries[path] = child.now.entries[path]
        child.base = Manifest(entries, child.base.unread)

    def copy_of(self, task: str) -> Workspace:
        """The files of a task's copy.

        Raises:
            ToolError: there is no such task.
        """
        return self._of(task).files

    async def stop(self, reason: str) -> list[str]:
        """End the child runs that are under way; their copies stay. One that is only being copied is given up.

        Returns:
            Their tasks.
        """
        if starting := [*self._starting]:  # a copy that is still made belongs to nobody any more
            for each in starting:
                each.cancel()
            await asyncio.wait(starting)
        stopped = [child for child in self._children.values() if child.outcome is None]
        for child in stopped:
            child.stop(reason)
        for child in stopped:
            if child.work is not None:
                await asyncio.wait([child.work])
        return [child.id for child in stopped]

    async def cancel(self, task: str) -> None:
        """End one child run; its copy stays.

        Raises:
            ToolError: there is no such task.
        """
        child = self._of(task)
        child.stop("somebody cancelled the task")
        if child.work is not None:
            await asyncio.wait([child.work])

    async def forget(self) -> None:
        """End what is under way, and remove all copies."""
        await self.stop("what it was delegated by has ended")
        children, self._children = list(self._children.values()), {}
        for child in children:
            child.files.close()
            await asyncio.to_thread(child.directory.close)

    async def _begun(
        self,
        task: Task,
        limits: RunLimits,
        paths: Sequence[str] | None,
        persona: Persona | None,
        *,
        step_timeout: float | None,
        facts: Sequence[str],
        also: Collection[str],
    ) -> str:
        bounds = CopyBounds(
            size=self._bounds.max_copy_bytes,
            files=self._bounds.max_copy_files,
            free=self._agent.sandbox.limits.free_bytes,
        )
        names = None if paths is None else await run_in_thread(partial(canonical_paths, self._workspace, paths))
        async with AsyncExitStack() as undo:
            try:  # what a process that died has left is removed first, which may take long
                made = asyncio.to_thread(Temporary, "codepilot-task-", self._bounds.copies)
                directory = await finish_start(made, end=lambda unused: asyncio.to_thread(unused.close))
                undo.push_async_callback(asyncio.to_thread, directory.close)
                place = directory.path / "workspace"
                place.mkdir(mode=0o700)
            except OSError as error:
                raise ToolError(f"delegate: no directory for a copy can be made: {error}", kind="OSError") from error
            await copy_workspace(self._workspace, place, names, bounds)
            files = Workspace(place, seen_as=self._agent.sandbox.seen_as(place))
            undo.callback(files.close)
            base = await read_state(files, also)
            name = self._parent.named()
            agent = derive_agent(self._agent, tools=self._parent.tools, limits=limits, work_dir=place, persona=persona)
            try:
                runtime = self._start(agent, name, lambda event: self._heard(child, event))
            except AgentError as error:
                raise ToolError(f"delegate: {error}") from error
            child = _Child(
                id=name,
                task=task,
                limits=limits,
                directory=directory,
                files=files,
                base=base,
                runtime=runtime,
                step_timeout=step_timeout,
                also=also,
            )
            undo.pop_all()
        self._children[name] = child
        child.work = asyncio.create_task(self._see(child, facts), name=f"delegated task {name}")
        return name

    async def _see(self, child: _Child, facts: Sequence[str]) -> None:
        """See a child run to its end, and find out what it changed."""
        outcome = Outcome(status=Status.FAILED, reason="The child run broke off.")
        try:
            outcome = await self._worked(child, facts)
        except AgentError as error:
            outcome = Outcome(status=Status.FAILED, reason=str(error), usage=child.runtime.usage)
        finally:
            child.time_step(None)
            try:
                await child.runtime.close()
                child.result = await self._result(child)
            finally:  # whatever failed, nobody waits for ever
                child.outcome = outcome
                child.turned.set()
                self._parent.tell(child.id, Ended(outcome=outcome))
                if child.result is not None:
                    self._parent.tell(child.id, child.result)

    async def _worked(self, child: _Child, facts: Sequence[str]) -> Outcome:
        """Let a child run work until it ends; it waits for answers for as long as it takes."""
        outcome = Outcome(status=Status.STOPPED)
        if not child.stopping:  # before its first step there is nothing that could be aborted
            outcome = await child.runtime.run(child.task, facts=facts)
        while outcome.status is Status.PAUSED and not child.stopping:
            child.time_step(None)
            child.pending, child.answer = outcome.pending, asyncio.get_running_loop().create_future()
            child.turned.set()
            answer = await child.answer
            child.pending = child.answer = None
            if answer is not None:
                approve, note = answer
                child.time_step(child.step_timeout)
                outcome = await child.runtime.resume(approve=approve, note=note, request_id=None)
        if child.stopping:
            stopped = Outcome(status=Status.STOPPED, reason=f"The task was stopped: {child.stopping}.")
            return replace(stopped, steps=child.steps, usage=child.runtime.usage, seconds=outcome.seconds)
        return outcome

    async def _result(self, child: _Child) -> ChildResult:
        """What a child run that has ended changed in its copy."""
        try:
            # What git ignores only since the child has said so is not deleted.
            child.now = await read_state(child.files, {*child.also, *child.base.entries})
            paths = changed_paths(child.base, child.now)
            told = child.base.difference(child.now, limit=_MOST_CHANGES)
            diff, lines = await render_diff(child.files, self._workspace, paths[:_MOST_CHANGES], self._hides)
        except (BoundExceededError, ToolError) as error:
            child.problem = str(error)
            return ChildResult(task=child.id, changes=(), diff=f"What it changed cannot be determined: {error}")
        known = len(paths) <= _MOST_CHANGES
        return ChildResult(task=child.id, changes=tuple(told), diff=diff, lines=lines if known else None)

    def _hides(self, path: str) -> bool:
        """Whether nothing of a file's content is to be shown."""
        return any(self._agent.policy.withholds(tool, path) for tool in ("read_file", "find"))

    def _heard(self, child: _Child, event: Event) -> None:
        """Take in an event of a child run. How it ended is told by `_see`, and that it waits, by its status."""
        if isinstance(event, Ended):
            return
        if isinstance(event, StepStarted):
            child.steps = event.step
            child.time_step(child.step_timeout)
        self._parent.tell(child.id, event)

    def _of(self, task: str) -> _Child:
        """The child run of a task.

        Raises:
            ToolError: there is none.
        """
        if task not in self._children:
            known = ", ".join(self._children) or "none"
            raise ToolError(
                f"there is no task {task!r} with a copy of the workspace; there is {known}", kind="ValueError"
            )
        return self._children[task]


@dataclass(slots=True, kw_only=True)
class _Child:
    """One child run. Its copy stays until it is forgotten."""

    id: str
    task: Task
    limits: RunLimits
    directory: Temporary
    files: Workspace
    base: Manifest
    runtime: ChildRuntime
    step_timeout: float | None
    also: Collection[str]
    steps: int = 0
    pending: PendingCall | None = None
    answer: asyncio.Future[tuple[bool | None, str] | None] | None = None
    turned: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    result: ChildResult | None = None
    now: Manifest | None = None
    problem: str = ""
    stopping: str = ""
    timer: asyncio.TimerHandle | None = None
    work: asyncio.Task[None] | None = None

    def stop(self, reason: str) -> None:
        """Have it end; `work` is done when it has."""
        if self.outcome is None and not self.stopping:
            self.stopping = reason
            if self.answer is not None and not self.answer.done():
                self.answer.set_result(None)
            self.runtime.abort()

    def time_step(self, seconds: float | None) -> None:
        """Bound how long the step under way may go on from here; None for no bound."""
        if self.timer is not None:
            self.timer.cancel()
        if seconds is not None:
            late = partial(self.stop, f"step {self.steps} took longer than {seconds:g} seconds")
            self.timer = asyncio.get_running_loop().call_later(seconds, late)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used of its limits.

    Attributes:
        usage: what its model calls used, those of its child runs included.
        steps: steps taken.
        seconds: wall time.
    """

    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    seconds: float = 0.0


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

    def past(self, task: str) -> TaskStatus | None:
        """Return the status of a task of an earlier process from the log; None where it knows of none."""
        ...

    def tell(self, task: str, event: Event) -> None:
        """Take in an event of a child run."""
        ...


def no_runtime(_agent: Agent, task: str, _told: Callable[[Event], None]) -> ChildRuntime:
    """Refuse to make one, where nothing is ever run."""
    raise UsageError(f"The task {task} cannot be started: nothing is run here.")


def derive_agent(
    parent: Agent, *, tools: Iterable[str], limits: RunLimits, work_dir: Path, persona: Persona | None
) -> Agent:
    """The agent of a child run.

    Sandbox, network, rules and hidden files are the parent's. It has no tool that the parent has not, and none that
    somebody registered, because those may hold the parent's state.

    Args:
        parent: whose child it is.
        tools: the built-in tools that the parent has, as they were built in.
        limits: of the run.
        work_dir: its copy of the workspace.
        persona: as whom it works.
    """
    given = parent.delegation
    deeper = given is not None and given.max_depth > 1
    provider = Borrowed((given.provider if given else None) or parent.provider)
    another = provider if given and given.provider else None
    delegation = replace(given, max_depth=given.max_depth - 1, provider=another) if given and deeper else None
    policy = parent.policy
    had = [each for each in tools if deeper or each not in DELEGATION_TOOLS]
    if persona is not None:
        had = [each for each in had if persona.tools is None or each in persona.tools]
        policy = replace(policy, rules=(*persona.denied, *policy.rules))
    told = (parent.instructions, persona.instructions if persona else "")
    return replace(
        parent,
        provider=provider,
        transport=None if given and given.provider else parent.transport,  # as suits another model
        work_dir=work_dir,
        policy=replace(policy, limits=limits),
        role=(persona.role if persona else "") or parent.role,
        instructions="\n\n".join(text for text in told if text.strip()),
        tools=tuple(had),
        chat=False,
        logs=None,
        delegation=delegation,
        mcp=(),
    )


class Borrowed(WrappedProvider):
    """A provider of child runs, which is somebody else's to close."""

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Answer one request; see `Provider.reply`."""
        return self._inner.reply(replace(request, child=True))

    async def close(self) -> None:
        """Leave it open."""


def share_limits(
    limits: RunLimits, spent: Spent, promised: Iterable[tuple[RunLimits, Usage]], share: float
) -> RunLimits:
    """The limits of a child run: a share of what nobody has used yet, and no other child run may.

    Args:
        limits: of the parent.
        spent: what the parent has used, with all its child runs.
        promised: the child runs that are under way: their limits, and what they have used of these.
        share: the part that this one gets. Of time it gets all: it runs beside its parent.

    Raises:
        ToolError: nothing is left.
    """
    open_ = tuple(promised)
    left = {
        "steps": share * (limits.max_steps - spent.steps),
        "seconds": limits.max_seconds - spent.seconds,
    }
    tokens = limits.max_tokens
    if tokens is not None:
        promised_tokens = sum(max(0, (each.max_tokens or 0) - used.total_tokens) for each, used in open_)
        left["tokens"] = share * (tokens - spent.usage.total_tokens - promised_tokens)
    if (cost := limits.max_cost_usd) is not None:
        promised_usd = sum(max(0.0, (each.max_cost_usd or 0.0) - cost_of(used)) for each, used in open_)
        left["US dollars"] = share * (cost - cost_of(spent.usage) - promised_usd)
    least = {"steps": 1.0, "tokens": 1.0}
    if out := [name for name, amount in left.items() if amount <= 0 or amount < least.get(name, 0.0)]:
        raise ToolError(f"delegate: no {' and no '.join(out)} of this run are left for another task; do it yourself")
    return replace(
        limits,
        max_steps=int(left["steps"]),
        max_seconds=left["seconds"],
        max_tokens=None if tokens is None else int(left["tokens"]),
        max_cost_usd=left.get("US dollars"),
    )


def lower_limits(limits: RunLimits, left: RunLimits) -> RunLimits:
    """Limits of a run that somebody has chosen, as far as so much is left."""
    return replace(
        limits,
        max_steps=min(limits.max_steps, left.max_steps),
        max_seconds=min(limits.max_seconds, left.max_seconds),
        max_tokens=_least(limits.max_tokens, left.max_tokens),
        max_cost_usd=_least(limits.max_cost_usd, left.max_cost_usd),
    )


def _least(one: N | None, other: N | None) -> N | None:
    """The smaller bound; None is none."""
    return one if other is None else other if one is None else min(one, other)


def cost_of(usage: Usage) -> float:
    """What a usage cost in US dollars; where the model's price is not known, as limits count it."""
    return usage.total_tokens / TOKENS_PER_USD if usage.cost_usd is None else usage.cost_usd
