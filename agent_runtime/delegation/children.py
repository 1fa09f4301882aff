"""Child runs of one agent: started on copies of its workspace, watched, collected, and ended with it.

Embedders use it through `TaskManager` in `agent_runtime.run`, agents through `agent_runtime.tools.delegation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation, Persona
from agent_runtime.core.errors import AgentError, BoundExceededError, ToolError, UsageError
from agent_runtime.core.events import ChildResult, Ended, Event, StepStarted
from agent_runtime.core.outcome import Outcome, PendingCall, Status, Usage
from agent_runtime.core.policy import RunLimits
from agent_runtime.core.task import Task
from agent_runtime.delegation.child import derived, lesser, shared
from agent_runtime.delegation.copying import CopyBounds, copied
from agent_runtime.delegation.merging import Merge, canonical, changed, diff_of, merge, state_of
from agent_runtime.delegation.protocol import Adopt, ChildRuntime, DelegatingRun, StartRuntime, TaskStatus
from agent_runtime.processes.spawn import in_thread, seen_through
from agent_runtime.providers.protocol import Provider
from agent_runtime.sandbox.temporary import Temporary
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.staging import StagedFile
from agent_runtime.workspace.state import Manifest

_MOST_CHANGES = 500
DELEGATED = (
    "You work on a task that another agent has delegated to you, in a copy of its workspace that is yours alone. It "
    "reads your completion, and can take over the files that you change."
)
"""The fact that a child run of an agent is told."""


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
        left = shared(self._agent.policy.limits, self._parent.spent, promised, share)
        given = left if limits is None else lesser(limits, left)
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
            ended = past.outcome or Outcome(status=Status.STOPPED, reason="The process that ran it ended.")
            return TaskStatus.of(task, past.goal, ended, past.result, ended.steps, ended.usage)
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
        wanted = None if paths is None else canonical(self._workspace, paths)
        return merge(child.files, self._workspace, child.base.entries, changed(child.base, child.now, wanted))

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
        names = None if paths is None else await in_thread(partial(canonical, self._workspace, paths))
        async with AsyncExitStack() as undo:
            try:  # what a process that died has left is removed first, which may take long
                made = asyncio.to_thread(Temporary, "codepilot-task-", self._bounds.copies)
                directory = await seen_through(made, end=lambda unused: asyncio.to_thread(unused.close))
                undo.push_async_callback(asyncio.to_thread, directory.close)
                place = directory.path / "workspace"
                place.mkdir(mode=0o700)
            except OSError as error:
                raise ToolError(f"delegate: no directory for a copy can be made: {error}", kind="OSError") from error
            await copied(self._workspace, place, names, bounds)
            files = Workspace(place, seen_as=self._agent.sandbox.seen_as(place))
            undo.callback(files.close)
            base = await state_of(files, also)
            name = self._parent.named()
            agent = derived(self._agent, tools=self._parent.tools, limits=limits, work_dir=place, persona=persona)
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
            child.now = await state_of(child.files, {*child.also, *child.base.entries})
            paths = changed(child.base, child.now)
            told = child.base.difference(child.now, limit=_MOST_CHANGES)
            diff, lines = await diff_of(child.files, self._workspace, paths[:_MOST_CHANGES], self._hides)
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
