"""Pygent's `TaskManager`: tasks beside the program, each by an agent of its own in a workspace of its own.

`TaskTools` are the tools by which agents delegate such tasks, once `register_task_tools` was called.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from agent_runtime.agent.agent import Agent as CoreAgent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.compat.pygent import runtime
from agent_runtime.compat.pygent.agent import Agent
from agent_runtime.compat.pygent.models import Persona, number, task_personas
from agent_runtime.compat.pygent.runtime import Runtime
from agent_runtime.compat.pygent.tools import DEFAULT, Tools
from agent_runtime.core.errors import AgentError, ToolError, UsageError
from agent_runtime.core.events import Event
from agent_runtime.core.values import Outcome, Status, Usage
from agent_runtime.core.values import Task as CoreTask
from agent_runtime.delegation.children import ChildRuns, Consumption, TaskStatus
from agent_runtime.policy.policy import Policy, RunLimits
from agent_runtime.processes.spawn import LoopThread, run_in_daemon_thread
from agent_runtime.providers.scripted import ScriptedProvider
from agent_runtime.workspace.files import apply_changes

_STEP_SECONDS, _TASK_SECONDS = 300.0, 1200.0
_MAX_TASKS = 3
_PAUSE = 0.05
_GRACE_SECONDS = 2.0
"""How long an agent of another class may take to end, beyond its time and once it is stopped."""


class TaskManager:
    """Launches agents that work beside the program, and tells how they are getting on.

    Attributes:
        tasks: the tasks so far, by id.
        personas: as whom tasks work that name no persona, by turns.
        max_tasks: how many may be under way at once.
        agent_factory: makes the agent of a task.
    """

    def __init__(
        self,
        agent_factory: Callable[..., Any] | None = None,
        max_tasks: int | None = None,
        personas: list[Persona] | None = None,
        *,
        on_event: Callable[[str, Event], object] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            agent_factory: makes an agent of a persona; by default an `Agent`.
            max_tasks: by default `PYGENT_MAX_TASKS`, else 3.
            personas: by default of the variables `PYGENT_TASK_PERSONAS_JSON` and `PYGENT_TASK_PERSONAS`.
            on_event: called with each event and the task's id.
        """
        most = number("MAX_TASKS") if max_tasks is None else max_tasks
        self.max_tasks = _MAX_TASKS if most is None else int(most)
        self.agent_factory: Callable[..., Any] = agent_factory or _default_agent
        self.personas = personas or task_personas()
        self.tasks: dict[str, DelegatedTask] = {}
        self._started = self._starting = 0
        self._lock = threading.Lock()
        self._on_event = on_event or (lambda _task, _event: None)
        self._loop = LoopThread("TaskManager", owner=self)

    def start_task(  # noqa: PLR0917 - the documented signature
        self,
        prompt: str,
        parent_rt: Runtime,
        files: list[str] | None = None,
        parent_depth: int = 0,
        step_timeout: float | None = None,
        task_timeout: float | None = None,
        persona: Persona | str | None = None,
    ) -> str:
        """Start a task in a workspace of its own, with the parent's kind of sandbox; return its id.

        Args:
            files: to copy from the parent's workspace.
            parent_depth: the delegating agent's depth in tasks.
            step_timeout: seconds; by default `PYGENT_STEP_TIMEOUT`, else 300.
            task_timeout: seconds; by default `PYGENT_TASK_TIMEOUT`, else 1200.
            persona: or the name of one of `personas`; by default they take turns.

        Raises:
            RuntimeError: too many tasks run, or a task may not delegate.
            SandboxError: there is no sandbox for commands.
            SettingsError: a variable is no number.
            FileNotFoundError: there is no such file in the parent's workspace.
            ToolError: a file lies elsewhere, or cannot be copied.
        """
        if max(parent_depth, parent_rt.task_depth) >= 1:
            raise RuntimeError("nested delegation is not allowed")
        for each in files or ():
            if not parent_rt.files.exists(each):
                raise FileNotFoundError(f"file {each} not found in the workspace {parent_rt.base_dir}")
        step = _first(step_timeout, number("STEP_TIMEOUT"), _STEP_SECONDS)
        total = _first(task_timeout, number("TASK_TIMEOUT"), _TASK_SECONDS)
        with self._claim_slot():
            agent, id_ = self._create_agent(persona, parent_rt), secrets.token_hex(4)
            child = _Child(agent, parent_rt, partial(agent.run_until_stop, step_timeout=step, max_time=total), total)
            children = ChildRuns(
                CoreAgent(
                    provider=ScriptedProvider(()),  # never asked: the task's agent has a model of its own
                    work_dir=parent_rt.base_dir,
                    sandbox=parent_rt.sandbox,
                    policy=Policy(limits=RunLimits(max_seconds=total)),
                    delegation=Delegation(max_tasks=1, share=1.0),
                ),
                _Caller(id_, self._on_event),
                parent_rt.files,
                child.begin,
                partial(apply_changes, parent_rt.files),
            )
            self._loop.run(partial(children.start, prompt, files=files or []))
            with ExitStack() as undo:
                undo.callback(self._loop.run, children.close)
                undo.callback(self._loop.run, child.go)
                child.prepare()  # here, since trying a container blocks
                undo.pop_all()
            self._loop.run(child.go)
            self.tasks[id_] = DelegatedTask(id=id_, agent=agent, timeout=total, children=children, loop=self._loop)
            return id_

    def status(self, task_id: str) -> str:
        """Return a task's state: `running`, `finished`, `timeout after 60s`, `error: …`, or another ending."""
        return self.tasks[task_id].status if task_id in self.tasks else f"Task {task_id} not found"

    def result(self, task_id: str) -> TaskStatus:
        """The same with what the task used, and what it changed in its workspace.

        Raises:
            UsageError: there is no such task.
        """
        return self._of(task_id).result

    def cancel(self, task_id: str) -> None:
        """End a task. Its workspace stays until `close`.

        Raises:
            UsageError: there is no such task.
        """
        self._loop.run(partial(self._of(task_id).children.cancel, task_id))

    def collect_file(self, rt: Runtime, task_id: str, path: str, dest: str | None = None) -> str:
        """Copy a file or directory of a task's workspace into `rt`; see `runtime.copy`.

        Raises:
            ToolError: a path leaves its workspace, or it cannot be copied there.
        """
        if task_id not in self.tasks:
            return f"Task {task_id} not found"
        source = self.tasks[task_id].children.workspace_of(task_id)
        name = source.resolve(path)
        if not source.exists(name):
            return f"file {path} not found"
        target = rt.files.resolve(dest or path)
        runtime.copy(source, name, rt.files, target)
        return f"Retrieved {target}"

    def close(self) -> None:
        """End all tasks, and remove their workspaces; idempotent."""
        if not self._loop.stopped:
            for task in self.tasks.values():
                self._loop.run(task.children.close)
            self.tasks.clear()
            self._loop.stop()

    def _of(self, task_id: str) -> DelegatedTask:
        if task_id not in self.tasks:
            raise UsageError(f"There is no task {task_id!r}; there is {', '.join(self.tasks) or 'none'}.")
        return self.tasks[task_id]

    @contextmanager
    def _claim_slot(self) -> Iterator[None]:
        """Count a task that is being started as a running one."""
        with self._lock:  # agents delegate from threads of their own
            if self._starting + sum(each.status == "running" for each in [*self.tasks.values()]) >= self.max_tasks:
                raise RuntimeError(f"max {self.max_tasks} tasks reached")
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1

    def _create_agent(self, wanted: Persona | str | None, parent_rt: Runtime) -> Any:  # noqa: ANN401 - the factory's
        """Create the agent of a persona, without a runtime of its own."""
        if wanted is None:
            with self._lock:
                self._started += 1
                persona = self.personas[(self._started - 1) % len(self.personas)]
        elif isinstance(wanted, Persona):
            persona = wanted
        else:
            persona = next((each for each in self.personas if each.name == wanted), Persona(wanted))
        try:
            given = inspect.signature(self.agent_factory).bind(persona).args
        except TypeError:  # it takes none
            given = ()
        agent = self.agent_factory(*given)
        if isinstance(own := getattr(agent, "runtime", None), Runtime) and own is not parent_rt:
            own.cleanup()  # the task works elsewhere
        agent.persona = persona
        return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedTask:
    id: str
    agent: Any
    timeout: float
    children: ChildRuns
    loop: LoopThread

    @property
    def result(self) -> TaskStatus:
        """The task's state, usage and changes."""
        return self.children.status(self.id)

    @property
    def status(self) -> str:
        """The task's state in a few words."""
        outcome = self.result.outcome
        if outcome is None:
            return "running"
        match outcome.status:
            case Status.FINISHED | Status.ANSWERED:
                return "finished"
            case Status.TIMEOUT:
                return f"timeout after {self.timeout:g}s"
            case Status.FAILED | Status.SANDBOX_FAILED | Status.MODEL_UNAVAILABLE:
                return f"error: {outcome.reason}"
            case other:
                return f"{other}: {outcome.reason}"

    @property
    def thread(self) -> DelegatedTask:
        return self

    def join(self, timeout: float | None = None) -> None:
        async def wait() -> None:
            await asyncio.wait([asyncio.ensure_future(self.children.wait(self.id))], timeout=timeout)

        self.loop.run(wait)


class _Child:
    """The agent of a task, as child runs are driven."""

    def __init__(self, agent: Any, parent: Runtime, work: Callable[[str], object], seconds: float) -> None:  # noqa: ANN401 - any agent with `run_until_stop`
        self._agent, self._parent, self._work, self._seconds = agent, parent, work, seconds
        self._stop, self._ready = asyncio.Event(), asyncio.Event()
        self._runtime: Runtime | None = None

    def begin(self, described: CoreAgent, _task: str, told: Callable[[Event], None]) -> _Child:
        self._work_dir = described.work_dir
        if isinstance(self._agent, Agent):
            self._agent.listeners.append(told)
        return self

    def prepare(self) -> None:
        self._runtime = self._agent.runtime = Runtime(
            image=self._parent.image, workspace=self._work_dir, sandbox=self._parent.sandbox_kind, initial_files=[]
        )
        self._runtime.toolchains = self._parent.toolchains
        self._runtime.task_depth = self._parent.task_depth + 1
        self._runtime.is_private = True

    async def go(self) -> None:
        self._ready.set()

    async def run(self, task: CoreTask, *, facts: Sequence[str]) -> Outcome:  # noqa: ARG002 - the interface of all children
        """Work on a task, in a thread that does not keep the process from ending.

        An agent of another class that neither ends in its time nor when it is stopped is left behind: its thread cannot
        be ended, but its commands are, and it can run no more of them.
        """
        await self._ready.wait()
        if self._runtime is None:
            return Outcome(status=Status.FAILED, reason="It has no workspace.")
        working = asyncio.ensure_future(run_in_daemon_thread(partial(self._work, task.goal)))
        stopping = asyncio.ensure_future(self._stop.wait())
        is_ours = isinstance(self._agent, Agent)
        most = None if is_ours else self._seconds + _GRACE_SECONDS
        await asyncio.wait([working, stopping], timeout=most, return_when=asyncio.FIRST_COMPLETED)
        is_stopped = not stopping.cancel()
        while not working.done() and is_ours:  # it may not have begun yet
            await asyncio.to_thread(self._agent.abort)
            await asyncio.wait([working], timeout=_PAUSE)
        if not working.done():
            await asyncio.to_thread(self._runtime.cleanup)
            await asyncio.wait([working], timeout=_GRACE_SECONDS)
        if not working.done():
            status, why = (Status.STOPPED, "when it was stopped") if is_stopped else (Status.TIMEOUT, "in its time")
            return Outcome(status=status, reason=f"The agent did not end {why}.")
        try:
            outcome = await working
        except Exception as error:  # noqa: BLE001 - whatever a stranger's agent or model raises, the task ends
            return Outcome(status=Status.FAILED, reason=str(error) or type(error).__name__, usage=self.usage)
        return outcome if isinstance(outcome, Outcome) else Outcome(status=Status.FINISHED)

    async def resume(self, *, approve: bool | None, note: str, request_id: str | None) -> Outcome:  # noqa: ARG002 - the same
        raise UsageError("The task waits for nothing.")

    @property
    def usage(self) -> Usage:
        return self._agent.usage if isinstance(self._agent, Agent) else Usage()

    def send_message(self, message: str, *, id: str) -> None:  # noqa: A002, ARG002 - the same
        raise UsageError("A task of this kind takes no messages.")

    def abort(self) -> None:
        self._stop.set()

    async def close(self) -> None:
        if isinstance(self._agent, Agent):
            await asyncio.to_thread(self._agent.close)
        if self._runtime is not None:
            await asyncio.to_thread(self._runtime.stop_commands)


class _Caller:
    """The delegating agent of one task, as child runs know it."""

    consumption, tools = Consumption(), ()

    def __init__(self, task: str, told: Callable[[str, Event], object]) -> None:
        self._task, self._told = task, told

    def new_task_id(self) -> str:
        return self._task

    def past_status(self, task: str) -> None: ...

    def handle_child_event(self, task: str, event: Event) -> None:
        self._told(task, event)


def _default_agent(persona: Persona) -> Agent:
    return Agent(runtime=None, persona=persona, history_file=None)


def _first(*values: float | None) -> float:
    return next(each for each in values if each is not None)


_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_DELEGATED = {
    "prompt": {"type": "string", "description": "Instruction for the sub-agent"},
    "files": {"type": "array", "items": _TEXT, "description": "Files to copy to the sub-agent before starting"},
    "persona": {"type": "string", "description": "Persona for the sub-agent"},
    "timeout": {"type": "number", "description": "Max seconds for the task"},
    "step_timeout": {"type": "number", "description": "Time limit per step"},
}


class TaskTools:
    """The tools of one manager.

    Attributes:
        manager: starts the tasks.
    """

    def __init__(self, manager: TaskManager | None = None) -> None:
        """Delegate with `manager`; by default one that is made when it is first needed."""
        if manager is not None:
            self.manager = manager

    @cached_property
    def manager(self) -> TaskManager:
        return TaskManager()

    def register(self, tools: Tools) -> None:
        for name, description, properties, required in (
            ("delegate_task", "Create a background task using a new agent and return its ID.", _DELEGATED, ["prompt"]),
            (
                "delegate_persona_task",
                "Create a background task with a specific persona and return its ID.",
                _DELEGATED,
                ["prompt", "persona"],
            ),
            ("list_personas", "Return the available personas for delegated agents.", {}, []),
            ("task_status", "Check the status of a delegated task.", {"task_id": _TEXT}, ["task_id"]),
            (
                "collect_file",
                "Retrieve a file or directory from a delegated task.",
                {"task_id": _TEXT, "path": _TEXT, "dest": _TEXT},
                ["task_id", "path"],
            ),
            (
                "download_file",
                "Return the contents of a file from the workspace.",
                {"path": _TEXT, "binary": {"type": "boolean"}},
                ["path"],
            ),
        ):
            if name in tools.functions:
                tools.remove_tool(name)
            parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
            tools.register_tool(name, description, parameters, getattr(self, name))

    def delegate_task(  # noqa: PLR0917 - the documented signature
        self,
        rt: Runtime,
        prompt: str,
        files: list[str] | None = None,
        timeout: float | None = None,
        step_timeout: float | None = None,
        persona: str | None = None,
    ) -> str:
        """Begin a task; gives `started <id>`, or why not."""
        if rt.task_depth >= 1:
            return "error: delegation not allowed in sub-tasks"
        try:
            task = self.manager.start_task(
                prompt, rt, files, rt.task_depth, step_timeout=step_timeout, task_timeout=timeout, persona=persona
            )
        except (AgentError, ToolError, OSError, RuntimeError) as error:
            return str(error)
        return f"started {task}"

    def delegate_persona_task(  # noqa: PLR0917 - the same
        self,
        rt: Runtime,
        prompt: str,
        persona: str,
        files: list[str] | None = None,
        timeout: float | None = None,
        step_timeout: float | None = None,
    ) -> str:
        """Begin a task as a persona."""
        return self.delegate_task(rt, prompt, files, timeout, step_timeout, persona)

    def list_personas(self, rt: Runtime) -> str:  # noqa: ARG002 - the interface of all tools
        """The personas, as JSON."""
        return json.dumps([{"name": each.name, "description": each.description} for each in self.manager.personas])

    def task_status(self, rt: Runtime, task_id: str) -> str:  # noqa: ARG002 - the same
        """Return the progress of a task."""
        return self.manager.status(task_id)

    def collect_file(self, rt: Runtime, task_id: str, path: str, dest: str | None = None) -> str:
        """Copy a file or directory of a task into the workspace."""
        return self.manager.collect_file(rt, task_id, path, dest)

    def download_file(self, rt: Runtime, path: str, binary: bool = False) -> str:  # noqa: FBT001, FBT002 - as models call it
        """The content of a file of the workspace."""
        return rt.read_file(path, binary)


DEFAULT_TASKS = TaskTools()
"""The tools of one manager for all agents that are given none."""


def register_task_tools(tools: Tools = DEFAULT, manager: TaskManager | None = None) -> None:
    """Let agents delegate tasks.

    Args:
        tools: what the tools are added to.
        manager: starts the tasks; by default one for all.
    """
    (DEFAULT_TASKS if manager is None else TaskTools(manager)).register(tools)
