"""Tasks that a program delegates to child runs.

manager = TaskManager()
task = await manager.start_task("Write tests for parser.py", runtime)
status = await manager.wait(task)
files = await manager.collect(task)
await manager.close()
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

_MAX_FILE_BYTES, _MAX_BYTES, _MAX_FILES = 10_000_000, 100_000_000, 2_000


class TaskManager:
    """Manager of delegated tasks. Methods raise UsageError for an unknown task."""

    def __init__(self, bounds: Delegation | None = None) -> None:
        """Create a manager with limits of tasks, by default those of `Delegation`."""
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
        extra: Collection[str] = (),
    ) -> str:
        """Start a task on a copy of a runtime's workspace and return its id; see `ChildRuns.start`."""
        if parent_depth >= self._bounds.max_depth:
            raise UsageError(
                f"A task at depth {parent_depth + 1} cannot be started: max_depth is {self._bounds.max_depth}."
            )
        caller = next((owner for owner in self._callers if owner.is_of(parent_rt, parent_depth)), None)
        if caller is None:
            bounds = replace(self._bounds, max_depth=self._bounds.max_depth - parent_depth)
            caller = _Caller(parent_rt, parent_depth, self._numbers, bounds)
            self._callers.append(caller)
        with _usage_errors():
            task = await caller.children.start(
                prompt,
                files=files,
                persona=persona,
                step_timeout=step_timeout,
                task_timeout=task_timeout,
                facts=facts,
                limits=limits,
                extra=extra,
            )
        self._tasks[task] = caller
        return task

    def status(self, task_id: str) -> TaskStatus:
        """Return the status of a task."""
        with _usage_errors():
            return self._child_runs(task_id).status(task_id)

    async def wait(self, task_id: str) -> TaskStatus:
        """Wait until a task ends, or waits for an answer that no handler gave."""
        with _usage_errors():
            return await self._child_runs(task_id).wait(task_id)

    def answer(self, task_id: str, *, approve: bool | None = None, note: str = "") -> None:
        """Answer a task's pending call; see `AsyncRuntime.resume`."""
        with _usage_errors():
            self._child_runs(task_id).answer(task_id, approve=approve, note=note)

    def send_message(self, task_id: str, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Send a message to a task; see `AsyncRuntime.send_message`."""
        with _usage_errors():
            self._child_runs(task_id).send_message(task_id, message, id)

    async def cancel(self, task_id: str) -> None:
        """Stop a task; its changes can be collected."""
        with _usage_errors():
            await self._child_runs(task_id).cancel(task_id)

    async def collect(
        self, task_id: str, paths: Sequence[str] | None = None, *, skip_conflicts: bool = False
    ) -> list[str]:
        """Merge the changes of an ended task into its parent's workspace, and return the files.

        Args:
            skip_conflicts: leave out files with conflicts and those beyond a limit; otherwise, all or none are merged.

        Raises:
            UsageError: the task has not ended, or there are conflicts.
        """
        with _usage_errors():
            children = self._child_runs(task_id)
            merge = await run_in_thread(partial(children.plan_merge, task_id, paths))
            if merge.conflicts and not skip_conflicts:
                conflicts = "\n".join(merge.conflicts)
                raise UsageError(f"Nothing was taken over from the task {task_id}, because of\n{conflicts}")
            await run_in_thread(partial(children.apply_merge, task_id, merge.writes))
        return [write.path for write in merge.writes]

    async def collect_file(self, rt: AsyncRuntime, task_id: str, path: str, dest: str | None = None) -> list[str]:
        """Copy a path of a task's copy into a runtime's workspace, and return the written files.

        Raises:
            UsageError: the path does not exist or is too large.
        """
        with _usage_errors():
            source = self._child_runs(task_id).workspace_of(task_id)
            return await run_in_thread(partial(_copy_files, source, rt.agent.work_dir, path, dest or path))

    def copy_path(self, task_id: str) -> Path:
        """Return the directory of a task's copy, which is untrusted."""
        with _usage_errors():
            return self._child_runs(task_id).workspace_of(task_id).root

    async def close(self, parent_rt: AsyncRuntime | None = None) -> None:
        """Stop all tasks, or those of one runtime, and remove their copies; call before closing runtimes."""
        for caller in [owner for owner in self._callers if parent_rt in {None, owner.runtime}]:
            self._callers.remove(caller)
            self._tasks = {task: owner for task, owner in self._tasks.items() if owner is not caller}
            await caller.children.close()

    def _child_runs(self, task_id: str) -> ChildRuns:
        if task_id not in self._tasks:
            raise UsageError(f"There is no task {task_id!r}; there is {', '.join(self._tasks) or 'none'}.")
        return self._tasks[task_id].children


class BlockingTaskManager:
    """`TaskManager` for a blocking `Runtime`, without limits and facts of one task."""

    def __init__(self, bounds: Delegation | None = None) -> None:
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
        return self._runtime(task_id).call(lambda _: self._manager.wait(task_id))

    def answer(self, task_id: str, *, approve: bool | None = None, note: str = "") -> None:
        """See `TaskManager.answer`."""

        async def answer(_: AsyncRuntime) -> None:
            self._manager.answer(task_id, approve=approve, note=note)

        self._runtime(task_id).call(answer)

    def send_message(self, task_id: str, message: str, *, id: str = "") -> None:  # noqa: A002 - as above
        """See `TaskManager.send_message`."""
        self._manager.send_message(task_id, message, id=id)

    def cancel(self, task_id: str) -> None:
        """See `TaskManager.cancel`."""
        self._runtime(task_id).call(lambda _: self._manager.cancel(task_id))

    def collect(self, task_id: str, paths: Sequence[str] | None = None) -> list[str]:
        """See `TaskManager.collect`."""
        return self._runtime(task_id).call(lambda _: self._manager.collect(task_id, paths))

    def collect_file(self, rt: Runtime, task_id: str, path: str, dest: str | None = None) -> list[str]:
        """See `TaskManager.collect_file`."""
        return rt.call(lambda own: self._manager.collect_file(own, task_id, path, dest))

    def close(self) -> None:
        """See `TaskManager.close`."""
        for runtime in dict.fromkeys(self._runtimes.values()):
            runtime.call(self._manager.close)
        self._runtimes.clear()

    def _runtime(self, task_id: str) -> Runtime:
        if task_id not in self._runtimes:
            raise UsageError(f"There is no task {task_id!r}; there is {', '.join(self._runtimes) or 'none'}.")
        return self._runtimes[task_id]


class _Caller:
    def __init__(self, runtime: AsyncRuntime, depth: int, numbers: Iterator[int], bounds: Delegation) -> None:
        self.runtime, self._depth, self._numbers = runtime, depth, numbers
        self.children = runtime.create_child_runs(self, bounds)

    def is_of(self, runtime: AsyncRuntime, depth: int) -> bool:
        return (self.runtime, self._depth) == (runtime, depth)

    @property
    def consumption(self) -> Consumption:
        return Consumption(usage=sum((self.children.status(task).usage for task in self.children.ids), Usage()))

    @property
    def tools(self) -> tuple[str, ...]:
        return self.runtime.registry.originals

    def new_task_id(self) -> str:
        return f"t{next(self._numbers)}"

    def past_status(self, task: str) -> None: ...

    def handle_child_event(self, task: str, event: Event) -> None:
        self.runtime.hooks.notify(ChildWatched(task=task, event=event))


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise UsageError(str(error)) from error


def _copy_files(source: Workspace, work_dir: Path, path: str, dest: str) -> list[str]:
    """Copy a path between workspaces; ignored files only if they are named."""
    start = source.resolve(path)
    names = [start]
    if source.is_directory(start):
        prefix = "" if start == "." else f"{start}/"
        names = [name for _, name in islice(listing.walk_files(source, prefix, ()), _MAX_FILES + 1)]
    if len(names) > _MAX_FILES:
        raise ToolError(f"{path!r} holds more than {_MAX_FILES:,} files; name a directory in it")
    with Workspace(work_dir) as target:
        changes: list[StagedFile] = []
        room = _MAX_BYTES
        for name in names:
            data = source.read_bytes(name, _MAX_FILE_BYTES)
            room -= len(data)
            if room < 0:
                raise ToolError(f"{path!r} holds more than {_MAX_BYTES:,} bytes; name a part of it")
            below = name.removeprefix("" if start == "." else start).lstrip("/")
            target_path = target.resolve("/".join(filter(None, (dest.rstrip("/"), below))) or name)
            old = target.read_bytes(target_path, _MAX_FILE_BYTES) if target.exists(target_path) else None
            changes.append(StagedFile(path=target_path, data=data, old=old, mode=source.mode(name)))
        apply_changes(target, changes)
    return [change.path for change in changes]
