"""Child runs of an agent on copies of its workspace.

Programs use them through `TaskManager`, agents through `agent_runtime.delegation.tools`.
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
    plan_merge,
    read_manifest,
    render_diff,
)
from agent_runtime.policy.policy import RunLimits
from agent_runtime.processes.spawn import finish_start, run_in_thread
from agent_runtime.providers.protocol import Chunk, Provider, Request, WrappedProvider
from agent_runtime.sandbox.protocol import PrivateDirectory
from agent_runtime.workspace.files import StagedFile, Workspace
from agent_runtime.workspace.state import Manifest

N = TypeVar("N", int, float)
_MAX_CHANGES = 500

CHILD_RUN_FACT = (
    "You work on a task that another agent has delegated to you, in a copy of its workspace that is yours alone. It "
    "reads your completion, and can take over the files that you change."
)
"""Fact in the first message of a child run."""


class ChildRuntime(Protocol):
    """Runtime of one child run."""

    async def run(self, task: Task, *, facts: Sequence[str]) -> Outcome: ...

    async def resume(self, *, approve: bool | None, note: str, request_id: str | None) -> Outcome: ...

    @property
    def usage(self) -> Usage: ...

    def send_message(self, message: str, *, id: str) -> None:  # noqa: A002 - as in the event
        ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


StartRuntime = Callable[[Agent, str, Callable[[Event], None]], ChildRuntime]
"""Create the runtime of a child run from its agent, its task id, and an event handler."""
ApplyWrites = Callable[[Sequence[StagedFile]], None]
"""Apply writes to the parent's workspace, all or none."""


class ChildRuns:
    """The child runs of one parent. Methods raise ToolError for an unknown task."""

    def __init__(
        self, agent: Agent, parent: DelegatingRun, workspace: Workspace, factory: StartRuntime, apply: ApplyWrites
    ) -> None:
        self._agent, self._parent, self._workspace, self._factory = agent, parent, workspace, factory
        self._apply = apply
        self._bounds = agent.delegation or Delegation()
        self._children: dict[str, _ChildRun] = {}
        self._starting: dict[asyncio.Task[str], RunLimits] = {}

    def __contains__(self, task: object) -> bool:
        return task in self._children

    def set_provider(self, provider: Provider) -> None:
        self._agent = replace(self._agent, provider=provider)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._children)

    async def start(
        self,
        task: str | Task,
        *,
        files: Sequence[str] | None = None,
        persona: str | Persona | None = None,
        step_timeout: float | None = None,
        task_timeout: float | None = None,
        facts: Sequence[str] = (CHILD_RUN_FACT,),
        limits: RunLimits | None = None,
        extra: Collection[str] = (),
    ) -> str:
        """Start a child run on a copy of the workspace and return its task id.

        By default all files are copied and limits are a share of the parent's. Changes of `extra` paths are collected
        even if git ignores them.

        Raises:
            ToolError: a limit on tasks is reached, no budget is left, or the workspace cannot be copied.
        """
        task = Task(goal=task) if isinstance(task, str) else task
        if not task.goal.strip():
            raise ToolError("delegate: prompt is empty; say what is to be done", kind="ValueError")
        if isinstance(persona, str):
            personas = {option.name: option for option in self._bounds.personas}
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
        reserved = [(child.limits, child.runtime.usage) for child in running]
        reserved += [(bounds, Usage()) for bounds in self._starting.values()]
        share = self._bounds.share if limits is None else 1.0
        available = share_limits(self._agent.policy.limits, self._parent.consumption, reserved, share)
        child_limits = available if limits is None else min_limits(limits, available)
        if task_timeout is not None:
            child_limits = replace(child_limits, max_seconds=min(task_timeout, child_limits.max_seconds))
        launch = self._launch(task, child_limits, files, persona, step_timeout=step_timeout, facts=facts, extra=extra)
        starting = asyncio.create_task(launch)
        self._starting[starting] = child_limits
        try:
            return await starting
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            raise ToolError("delegate: the run that delegates the task has ended") from None
        finally:
            del self._starting[starting]

    def status(self, task: str) -> TaskStatus:
        if task not in self._children and (past := self._parent.past_status(task)) is not None:
            return past
        child = self._child(task)
        state = "running" if child.pending is None else "waiting"
        status = TaskStatus.build(task, child.task.goal, child.outcome, child.result, child.steps, child.runtime.usage)
        return status if child.outcome else replace(status, state=state, pending=child.pending)

    async def wait(self, task: str) -> TaskStatus:
        await self._child(task).settled.wait()
        return self.status(task)

    def answer(self, task: str, *, approve: bool | None = None, note: str = "") -> None:
        child = self._child(task)
        if child.answer is None or child.answer.done():
            raise UsageError(f"The task {task} waits for no answer.")
        child.pending = None
        child.settled.clear()
        child.answer.set_result((approve, note))

    def send_message(self, task: str, message: str, id_: str = "") -> None:
        self._child(task).runtime.send_message(message, id=id_)

    def plan_merge(self, task: str, paths: Iterable[str] | None = None) -> Merge:
        """Plan the merge of an ended task's files. Reads files: call it in a thread."""
        child = self._child(task)
        if child.final is None:
            reason = child.error or "it has not ended"
            raise ToolError(f"collect: the changes of {task} are not known: {reason}")
        selected = None if paths is None else canonical_paths(self._workspace, paths)
        return plan_merge(
            child.files, self._workspace, child.base.entries, changed_paths(child.base, child.final, selected)
        )

    def apply_merge(self, task: str, writes: Sequence[StagedFile]) -> None:
        """Apply planned writes and make them the new merge base."""
        child = self._child(task)
        self._apply(writes)
        entries = dict(child.base.entries)
        for path in (write.path for write in writes):
            entries.pop(path, None)
            if child.final is not None and path in child.final.entries:
                entries[path] = child.final.entries[path]
        child.base = Manifest(entries, child.base.unread)

    def workspace_of(self, task: str) -> Workspace:
        return self._child(task).files

    async def stop_all(self, reason: str) -> list[str]:
        """Stop active child runs, keep their copies, and return their task ids."""
        if starting := [*self._starting]:
            for launch in starting:
                launch.cancel()
            await asyncio.wait(starting)
        stopped = [child for child in self._children.values() if child.outcome is None]
        for child in stopped:
            child.stop(reason)
        for child in stopped:
            if child.supervisor is not None:
                await asyncio.wait([child.supervisor])
        return [child.id for child in stopped]

    async def cancel(self, task: str) -> None:
        child = self._child(task)
        child.stop("it was cancelled")
        if child.supervisor is not None:
            await asyncio.wait([child.supervisor])

    async def close(self) -> None:
        await self.stop_all("the run that delegated it has ended")
        children, self._children = list(self._children.values()), {}
        for child in children:
            child.files.close()
            await asyncio.to_thread(child.directory.close)

    async def _launch(
        self,
        task: Task,
        limits: RunLimits,
        paths: Sequence[str] | None,
        persona: Persona | None,
        *,
        step_timeout: float | None,
        facts: Sequence[str],
        extra: Collection[str],
    ) -> str:
        bounds = CopyBounds(
            bytes_left=self._bounds.max_copy_bytes,
            files_left=self._bounds.max_copy_files,
            reserved_bytes=self._agent.sandbox.limits.free_bytes,
        )
        canonical = None if paths is None else await run_in_thread(partial(canonical_paths, self._workspace, paths))
        async with AsyncExitStack() as undo:
            try:  # `PrivateDirectory` first removes the directories of dead processes, which may take long
                creation = asyncio.to_thread(PrivateDirectory, "codepilot-task-", self._bounds.copies)
                directory = await finish_start(creation, end=lambda unused: asyncio.to_thread(unused.close))
                undo.push_async_callback(asyncio.to_thread, directory.close)
                root = directory.path / "workspace"
                root.mkdir(mode=0o700)
            except OSError as error:
                raise ToolError(f"delegate: no directory for a copy can be made: {error}", kind="OSError") from error
            await copy_workspace(self._workspace, root, canonical, bounds)
            files = Workspace(root, agent_path=self._agent.sandbox.inner_path(root))
            undo.callback(files.close)
            base = await read_manifest(files, extra)
            task_id = self._parent.new_task_id()
            agent = derive_agent(self._agent, tools=self._parent.tools, limits=limits, work_dir=root, persona=persona)
            try:
                runtime = self._factory(agent, task_id, lambda event: self._handle_event(child, event))
            except AgentError as error:
                raise ToolError(f"delegate: {error}") from error
            child = _ChildRun(
                id=task_id,
                task=task,
                limits=limits,
                directory=directory,
                files=files,
                base=base,
                runtime=runtime,
                step_timeout=step_timeout,
                extra=extra,
            )
            undo.pop_all()
        self._children[task_id] = child
        child.supervisor = asyncio.create_task(self._supervise(child, facts), name=f"delegated task {task_id}")
        return task_id

    async def _supervise(self, child: _ChildRun, facts: Sequence[str]) -> None:
        outcome = Outcome(status=Status.FAILED, reason="The child run broke off.")
        try:
            outcome = await self._run_to_end(child, facts)
        except AgentError as error:
            outcome = Outcome(status=Status.FAILED, reason=str(error), usage=child.runtime.usage)
        finally:
            child.set_step_timeout(None)
            try:
                await child.runtime.close()
                child.result = await self._collect_result(child)
            finally:  # `wait` must return after any error
                child.outcome = outcome
                child.settled.set()
                self._parent.handle_child_event(child.id, Ended(outcome=outcome))
                if child.result is not None:
                    self._parent.handle_child_event(child.id, child.result)

    async def _run_to_end(self, child: _ChildRun, facts: Sequence[str]) -> Outcome:
        outcome = Outcome(status=Status.STOPPED)
        if not child.stop_reason:  # `abort` has no effect before the first step
            outcome = await child.runtime.run(child.task, facts=facts)
        while outcome.status is Status.PAUSED and not child.stop_reason:
            child.set_step_timeout(None)
            child.pending, child.answer = outcome.pending, asyncio.get_running_loop().create_future()
            child.settled.set()
            answer = await child.answer
            child.pending = child.answer = None
            if answer is not None:
                approve, note = answer
                child.set_step_timeout(child.step_timeout)
                outcome = await child.runtime.resume(approve=approve, note=note, request_id=None)
        if child.stop_reason:
            stopped = Outcome(status=Status.STOPPED, reason=f"The task was stopped: {child.stop_reason}.")
            return replace(stopped, steps=child.steps, usage=child.runtime.usage, seconds=outcome.seconds)
        return outcome

    async def _collect_result(self, child: _ChildRun) -> ChildResult:
        try:
            # Include files of the base: a file that the child added to .gitignore was not deleted.
            child.final = await read_manifest(child.files, {*child.extra, *child.base.entries})
            paths = changed_paths(child.base, child.final)
            changes = child.base.difference(child.final, limit=_MAX_CHANGES)
            diff, lines = await render_diff(child.files, self._workspace, paths[:_MAX_CHANGES], self._is_hidden)
        except (BoundExceededError, ToolError) as error:
            child.error = str(error)
            return ChildResult(task=child.id, changes=(), diff=f"What it changed cannot be determined: {error}")
        is_complete = len(paths) <= _MAX_CHANGES
        return ChildResult(task=child.id, changes=tuple(changes), diff=diff, lines=lines if is_complete else None)

    def _is_hidden(self, path: str) -> bool:
        return any(self._agent.policy.hides(tool, path) for tool in ("read_file", "find"))

    def _handle_event(self, child: _ChildRun, event: Event) -> None:
        if isinstance(event, Ended):  # `_supervise` emits it after the result is collected
            return
        if isinstance(event, StepStarted):
            child.steps = event.step
            child.set_step_timeout(child.step_timeout)
        self._parent.handle_child_event(child.id, event)

    def _child(self, task: str) -> _ChildRun:
        if task not in self._children:
            task_ids = ", ".join(self._children) or "none"
            raise ToolError(
                f"there is no task {task!r} with a copy of the workspace; there is {task_ids}", kind="ValueError"
            )
        return self._children[task]


@dataclass(slots=True, kw_only=True)
class _ChildRun:
    id: str
    task: Task
    limits: RunLimits
    directory: PrivateDirectory
    files: Workspace
    base: Manifest
    runtime: ChildRuntime
    step_timeout: float | None
    extra: Collection[str]
    steps: int = 0
    pending: PendingCall | None = None
    answer: asyncio.Future[tuple[bool | None, str] | None] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    result: ChildResult | None = None
    final: Manifest | None = None
    error: str = ""
    stop_reason: str = ""
    timer: asyncio.TimerHandle | None = None
    supervisor: asyncio.Task[None] | None = None

    def stop(self, reason: str) -> None:
        if self.outcome is None and not self.stop_reason:
            self.stop_reason = reason
            if self.answer is not None and not self.answer.done():
                self.answer.set_result(None)
            self.runtime.abort()

    def set_step_timeout(self, seconds: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if seconds is not None:
            expire = partial(self.stop, f"step {self.steps} took longer than {seconds:g} seconds")
            self.timer = asyncio.get_running_loop().call_later(seconds, expire)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Status of a delegated task."""

    id: str
    """The task id."""
    goal: str
    """The task's goal."""
    state: str
    """`running`, `waiting`, or the value of the final `Status`."""
    outcome: Outcome | None = None
    """None until the task ends."""
    pending: PendingCall | None = None
    """The call that waits for an answer."""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    changes: tuple[str, ...] = ()
    """One line for each changed file, after the end."""
    diff: str = ""
    """Unified diff, cut at 100,000 characters."""
    lines: int | None = None
    """Number of changed lines; None if unknown, for example for binary files."""

    @classmethod
    def build(  # noqa: PLR0917 - one for each field
        cls, task: str, goal: str, outcome: Outcome | None, result: ChildResult | None, steps: int, usage: Usage
    ) -> Self:
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
class Consumption:
    """Consumption of a run and its child runs."""

    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    seconds: float = 0.0


class DelegatingRun(Protocol):
    """The parent of child runs."""

    @property
    def consumption(self) -> Consumption: ...

    @property
    def tools(self) -> Sequence[str]: ...

    def new_task_id(self) -> str: ...

    def past_status(self, task: str) -> TaskStatus | None:
        """Return the logged status of a task of an earlier process."""

    def handle_child_event(self, task: str, event: Event) -> None: ...


def refuse_runtime(_agent: Agent, task: str, _handle_event: Callable[[Event], None]) -> ChildRuntime:
    """Raise UsageError; for tools that are described but never run."""
    raise UsageError(f"The task {task} cannot be started: nothing is run here.")


def derive_agent(
    parent: Agent, *, tools: Iterable[str], limits: RunLimits, work_dir: Path, persona: Persona | None
) -> Agent:
    """Return the agent of a child run, which has no registered tools: they may hold the parent's state."""
    settings = parent.delegation
    may_delegate = settings is not None and settings.max_depth > 1
    provider = ChildProvider((settings.provider if settings else None) or parent.provider)
    child_provider = provider if settings and settings.provider else None
    delegation = (
        replace(settings, max_depth=settings.max_depth - 1, provider=child_provider)
        if settings and may_delegate
        else None
    )
    policy = parent.policy
    tool_names = [tool for tool in tools if may_delegate or tool not in DELEGATION_TOOLS]
    if persona is not None:
        tool_names = [tool for tool in tool_names if persona.tools is None or tool in persona.tools]
        policy = replace(policy, rules=(*persona.denied, *policy.rules))
    instructions = (parent.instructions, persona.instructions if persona else "")
    return replace(
        parent,
        provider=provider,
        transport=None if settings and settings.provider else parent.transport,  # the default of the child's model
        work_dir=work_dir,
        policy=replace(policy, limits=limits),
        role=(persona.role if persona else "") or parent.role,
        instructions="\n\n".join(text for text in instructions if text.strip()),
        tools=tuple(tool_names),
        chat=False,
        logs=None,
        baseline_seconds=0,  # the parent may have changed the files
        delegation=delegation,
        mcp=(),
    )


class ChildProvider(WrappedProvider):
    """The provider of child runs; its owner closes it."""

    def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        return self._inner.reply(replace(request, child=True))

    async def close(self) -> None: ...


def share_limits(
    limits: RunLimits, consumption: Consumption, reserved: Iterable[tuple[RunLimits, Usage]], share: float
) -> RunLimits:
    """Return a share of the parent's unused and unreserved limits.

    Time is not divided: child runs are concurrent.
    """
    active = tuple(reserved)
    available = {
        "steps": share * (limits.max_steps - consumption.steps),
        "seconds": limits.max_seconds - consumption.seconds,
    }
    tokens = limits.max_tokens
    if tokens is not None:
        reserved_tokens = sum(
            max(0, (child_limits.max_tokens or 0) - usage.total_tokens) for child_limits, usage in active
        )
        available["tokens"] = share * (tokens - consumption.usage.total_tokens - reserved_tokens)
    if (cost := limits.max_cost_usd) is not None:
        reserved_usd = sum(
            max(0.0, (child_limits.max_cost_usd or 0.0) - usage.estimated_cost_usd) for child_limits, usage in active
        )
        available["US dollars"] = share * (cost - consumption.usage.estimated_cost_usd - reserved_usd)
    minimums = {"steps": 1.0, "tokens": 1.0}
    if exhausted := [name for name, amount in available.items() if amount <= 0 or amount < minimums.get(name, 0.0)]:
        raise ToolError(
            f"delegate: no {' and no '.join(exhausted)} of this run are left for another task; do it yourself"
        )
    return replace(
        limits,
        max_steps=int(available["steps"]),
        max_seconds=available["seconds"],
        max_tokens=None if tokens is None else int(available["tokens"]),
        max_cost_usd=available.get("US dollars"),
    )


def min_limits(limits: RunLimits, available: RunLimits) -> RunLimits:
    return replace(
        limits,
        max_steps=min(limits.max_steps, available.max_steps),
        max_seconds=min(limits.max_seconds, available.max_seconds),
        max_tokens=_min_bound(limits.max_tokens, available.max_tokens),
        max_cost_usd=_min_bound(limits.max_cost_usd, available.max_cost_usd),
    )


def _min_bound(first: N | None, second: N | None) -> N | None:
    """Return the smaller bound; None is unbounded."""
    return first if second is None else second if first is None else min(first, second)
