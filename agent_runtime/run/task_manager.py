"""Tasks that a program delegates to child runs, in an event loop (`TaskManager`) or without (`BlockingTaskManager`).

Each task is a run of its own on a copy of its parent's workspace. It has the parent's tools, rules, network and hidden
files, never more, and a share of its limits; what it asks people, the parent's handlers are asked.

    manager = TaskManager()
    task = await manager.start_task("Write tests for parser.py", runtime)
    status = await manager.wait(task)          # .state, .outcome, .usage, .changes, .diff
    files = await manager.collect(task)        # merged into the runtime's workspace, or refused with the conflicts
    await manager.close()                      # ends what is under way, and removes the copies

`BlockingTaskManager` has these without `await`, for a `Runtime`, but for limits and facts of one task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path

from agent_runtime.agent.delegation import Delegation, Persona
from agent_runtime.core.errors import ToolError, UsageError
from agent_runtime.core.events import ChildWatched, Event
from agent_runtime.core.values import Task, Usage
from agent_runtime.delegation.children import CHILD_RUN_FACT, ChildRuns, Consumption, TaskStatus
from agent_runtime.policy.policy import RunLimits
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.run.runtime import AsyncRuntime, Runtime
from agent_runtime.workspace import listing
from agent_runtime.workspace.files import StagedFile, Workspace, apply_changes

_MOST_FILE, _MOST_BYTES, _MOST_FILES = 10_000_000, 100_000_000, 2_000


class TaskManager:
    """Starts child runs, knows how they are getting on, and ends them."""

    def __init__(self, bounds: Delegation | None = None) -> None:
        """Start nothing yet.

        Args:
            bounds: how many tasks, how deep, with which share of the parent's limits; by default those of `Delegation`.
        """
        self._bounds = bounds or Delegation()
        self._callers: list[_Caller] = []
        self._tasks: dict[str, _Caller] = {}
        self._numbers = count(1)

    async def start_task(  # noqa: PLR0917 - Pygent's documented signature
        self,
        prompt: str | Task,
        parent_rt: AsyncRuntime,
        files: Sequence[str] | None = None,
        parent_depth: int = 0,
        step_timeout: float | None = None,
        task_timeout: float | None = None,
        persona: str | Persona | None = None,
        *,
        facts: Sequence[str] = (CHILD_RUN_FACT,),
        limits: RunLimits | None = None,
        also: Collection[str] = (),
    ) -> str:
        """Begin a task on a copy of a runtime's workspace as it is now.

        Args:
            prompt: what is to be done; a plain string is a goal without quotes and images.
            parent_rt: whose workspace, agent and handlers.
            files: the files and directories that are copied; None for all.
            parent_depth: how deep the parent is in tasks itself.
            step_timeout: seconds that one step may take.
            task_timeout: seconds that the task may take.
            persona: as whom the child works.
            facts: what the model should know of its workspace, one line each.
            limits: the limits of its run in place of a share; of what is left, no more.
            also: files whose changes are collected although git ignores them, e.g. those that are committed.

        Returns:
            The task's name.

        Raises:
            UsageError: there are too many tasks, or too deep ones; no budget is left; or the files cannot be copied.
        """
        if parent_depth >= self._bounds.max_depth:
            raise UsageError(
                f"A task at depth {parent_depth + 1} cannot be started: max_depth is {self._bounds.max_depth}."
            )
        caller = next((each for each in self._callers if each.is_of(parent_rt, parent_depth)), None)
        if caller is None:
            bounds = replace(self._bounds, max_depth=self._bounds.max_depth - parent_depth)
            caller = _Caller(parent_rt, parent_depth, self._numbers, bounds)
            self._callers.append(caller)
        with _told():
            task = await caller.children.start(
                prompt,
                files=files,
                persona=persona,
                step_timeout=step_timeout,
                task_timeout=task_timeout,
                facts=facts,
                limits=limits,
                extra=also,
            )
        self._tasks[task] = caller
        return task

    def status(self, task_id: str) -> TaskStatus:
        """How a task is getting on.

        Raises:
            UsageError: there is no such task.
        """
        with _told():
            return self._of(task_id).status(task_id)

    async def wait(self, task_id: str) -> TaskStatus:
        """Wait until a task has ended, or waits for an answer that no handler gave.

        Raises:
            UsageError: there is no such task.
        """
        with _told():
            return await self._of(task_id).wait(task_id)

    def answer(self, task_id: str, *, approve: bool | None = None, note: str = "") -> None:
        """Answer the call that a task waits with; see `AsyncRuntime.resume`.

        Raises:
            UsageError: there is no such task, or it waits for nothing.
        """
        with _told():
            self._of(task_id).answer(task_id, approve=approve, note=note)

    def send_message(self, task_id: str, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Tell a task something; it reads it at its next step. See `AsyncRuntime.send_message`.

        Raises:
            UsageError: there is no such task.
        """
        with _told():
            self._of(task_id).send_message(task_id, message, id)

    async def cancel(self, task_id: str) -> None:
        """End a task; what it has changed so far can be collected.

        Raises:
            UsageError: there is no such task.
        """
        with _told():
            await self._of(task_id).cancel(task_id)

    async def collect(self, task_id: str, paths: Sequence[str] | None = None) -> list[str]:
        """Merge what a task that ended has changed into its parent's workspace: all, or nothing.

        Args:
            task_id: the task.
            paths: only these files and directories; None for all.

        Returns:
            The files.

        Raises:
            UsageError: the workspace has changed the same files since the task began, which the text names; or the
                task has not ended.
        """
        with _told():
            children = self._of(task_id)
            merged = await run_in_thread(partial(children.plan_merge, task_id, paths))
            if merged.conflicts:
                told = "\n".join(merged.conflicts)
                raise UsageError(f"Nothing was taken over from the task {task_id}, because of\n{told}")
            await run_in_thread(partial(children.apply_merge, task_id, merged.writes))
        return [each.path for each in merged.writes]

    async def collect_file(self, rt: AsyncRuntime, task_id: str, path: str, dest: str | None = None) -> list[str]:
        """Copy a file or directory of a task's copy into a runtime's workspace, in place of what stands there.

        Args:
            rt: whose workspace.
            task_id: the task, which may still be under way.
            path: the file or directory in its copy.
            dest: where to; None for the same path.

        Returns:
            The files that were written.

        Raises:
            UsageError: there is no such task or file, or it is too large.
        """
        with _told():
            source = self._of(task_id).workspace_of(task_id)
            return await run_in_thread(partial(_copied, source, rt.agent.work_dir, path, dest or path))

    def copy_of(self, task_id: str) -> Path:
        """The directory of a task's copy; its child may have written anything there.

        Raises:
            UsageError: there is no such task.
        """
        with _told():
            return self._of(task_id).workspace_of(task_id).root

    async def close(self, parent_rt: AsyncRuntime | None = None) -> None:
        """End what is under way, and remove all copies, before the runtimes are closed; idempotent.

        Args:
            parent_rt: the runtime whose tasks alone are ended; None for all.
        """
        for caller in [each for each in self._callers if parent_rt in {None, each.runtime}]:
            self._callers.remove(caller)
            self._tasks = {task: each for task, each in self._tasks.items() if each is not caller}
            await caller.children.close()

    def _of(self, task_id: str) -> ChildRuns:
        if task_id not in self._tasks:
            raise UsageError(f"There is no task {task_id!r}; there is {', '.join(self._tasks) or 'none'}.")
        return self._tasks[task_id].children


class BlockingTaskManager:
    """The same for a `Runtime`: its calls block."""

    def __init__(self, bounds: Delegation | None = None) -> None:
        """Start nothing yet; see `TaskManager`."""
        self._manager = TaskManager(bounds)
        self._runtimes: dict[str, Runtime] = {}

    def start_task(  # noqa: PLR0917 - Pygent's documented signature
        self,
        prompt: str,
        parent_rt: Runtime,
        files: Sequence[str] | None = None,
        parent_depth: int = 0,
        step_timeout: float | None = None,
        task_timeout: float | None = None,
        persona: str | Persona | None = None,
    ) -> str:
        """See `TaskManager.start_task`."""
        task = parent_rt.call(
            lambda parent: self._manager.start_task(
                prompt, parent, files, parent_depth, step_timeout, task_timeout, persona
            )
        )
        self._runtimes[task] = parent_rt
        return task

    def status(self, task_id: str) -> TaskStatus:
        """See `TaskManager.status`."""
        return self._manager.status(task_id)

    def wait(self, task_id: str) -> TaskStatus:
        """See `TaskManager.wait`."""
        return self._of(task_id).call(lambda _: self._manager.wait(task_id))

    def answer(self, task_id: str, *, approve: bool | None = None, note: str = "") -> None:
        """See `TaskManager.answer`."""

        async def answer(_: AsyncRuntime) -> None:
            self._manager.answer(task_id, approve=approve, note=note)

        self._of(task_id).call(answer)

    def send_message(self, task_id: str, message: str, *, id: str = "") -> None:  # noqa: A002 - as above
        """See `TaskManager.send_message`."""
        self._manager.send_message(task_id, message, id=id)

    def cancel(self, task_id: str) -> None:
        """See `TaskManager.cancel`."""
        self._of(task_id).call(lambda _: self._manager.cancel(task_id))

    def collect(self, task_id: str, paths: Sequence[str] | None = None) -> list[str]:
        """See `TaskManager.collect`."""
        return self._of(task_id).call(lambda _: self._manager.collect(task_id, paths))

    def collect_file(self, rt: Runtime, task_id: str, path: str, dest: str | None = None) -> list[str]:
        """See `TaskManager.collect_file`."""
        return rt.call(lambda own: self._manager.collect_file(own, task_id, path, dest))

    def close(self) -> None:
        """See `TaskManager.close`; before the runtimes are closed."""
        for runtime in dict.fromkeys(self._runtimes.values()):
            runtime.call(self._manager.close)
        self._runtimes.clear()

    def _of(self, task_id: str) -> Runtime:
        if task_id not in self._runtimes:
            raise UsageError(f"There is no task {task_id!r}; there is {', '.join(self._runtimes) or 'none'}.")
        return self._runtimes[task_id]


class _Caller:
    """A program that delegates tasks of one runtime. Its tasks share the limits of one run."""

    def __init__(self, runtime: AsyncRuntime, depth: int, numbers: Iterator[int], bounds: Delegation) -> None:
        self.runtime, self._depth, self._numbers = runtime, depth, numbers
        self.children = runtime.children_of(self, bounds)

    def is_of(self, runtime: AsyncRuntime, depth: int) -> bool:
        """Whether it delegates for a runtime."""
        return (self.runtime, self._depth) == (runtime, depth)

    @property
    def consumption(self) -> Consumption:
        """What all its tasks have used."""
        return Consumption(usage=sum((self.children.status(each).usage for each in self.children.ids), Usage()))

    @property
    def tools(self) -> tuple[str, ...]:
        """The runtime's built-in tools."""
        return self.runtime.registry.originals

    def new_task_id(self) -> str:
        """A name that no task of the manager has."""
        return f"t{next(self._numbers)}"

    def past_status(self, task: str) -> None:
        """Nothing is known of tasks but what their copies tell."""

    def handle_child_event(self, task: str, event: Event) -> None:
        """Tell the runtime's listeners; no run of its holds the event."""
        self.runtime.hooks.tell(ChildWatched(task=task, event=event))


@contextmanager
def _told() -> Iterator[None]:
    """Turn what an agent would be told into an error for a program."""
    try:
        yield
    except ToolError as error:
        raise UsageError(str(error)) from error


def _copied(source: Workspace, work_dir: Path, path: str, dest: str) -> list[str]:
    """Copy a file or directory from one workspace to another; files that git ignores only where they are named.

    Raises:
        ToolError: there is none, it is too large, or the workspace cannot be written.
    """
    start = source.resolve(path)
    names = [start]
    if source.is_directory(start):
        prefix = "" if start == "." else f"{start}/"
        names = [name for _, name in islice(listing.walk_files(source, prefix, ()), _MOST_FILES + 1)]
    if len(names) > _MOST_FILES:
        raise ToolError(f"{path!r} holds more than {_MOST_FILES:,} files; name a directory in it")
    with Workspace(work_dir) as target:
        changes: list[StagedFile] = []
        room = _MOST_BYTES
        for name in names:
            data = source.read_bytes(name, _MOST_FILE)
            room -= len(data)
            if room < 0:
                raise ToolError(f"{path!r} holds more than {_MOST_BYTES:,} bytes; name a part of it")
            below = name.removeprefix("" if start == "." else start).lstrip("/")
            place = target.resolve("/".join(filter(None, (dest.rstrip("/"), below))) or name)
            old = target.read_bytes(place, _MOST_FILE) if target.exists(place) else None
            changes.append(StagedFile(path=place, data=data, old=old, mode=source.mode(name)))
        apply_changes(target, changes)
    return [each.path for each in changes]
