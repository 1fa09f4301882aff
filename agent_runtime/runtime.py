"""AsyncRuntime: settings to a ready agent."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_runtime import prompts
from agent_runtime.context.briefing import opening
from agent_runtime.context.orientation import orient
from agent_runtime.context.toolchain import toolchain
from agent_runtime.errors import ModelError, SandboxError
from agent_runtime.events import Ended, Event, Recorded, Replied, Started, ToolReturned
from agent_runtime.hooks import Hooks, Listener
from agent_runtime.interpreter import Interpreter, InterpreterLimits
from agent_runtime.loop import Loop
from agent_runtime.outcome import Outcome, Status, Usage
from agent_runtime.policy import Policy
from agent_runtime.providers.protocol import Provider
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sessions.memory import InMemorySession
from agent_runtime.sessions.protocol import Session
from agent_runtime.step import Calls
from agent_runtime.task import Task
from agent_runtime.terminals.spool import Logs
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.workspace.files import Workspace


class AsyncRuntime:
    """An agent on one workspace, for use inside a running event loop.

    Example:
        ```python
        async with AsyncRuntime(provider=provider, work_dir=Path("."), sandbox=pick("auto")) as runtime:
            outcome = await runtime.run("Make the tests pass")
        ```
    """

    def __init__(
        self,
        *,
        provider: Provider,
        work_dir: Path,
        sandbox: Sandbox,
        policy: Policy | None = None,
        session: Session | None = None,
        listeners: Sequence[Listener] = (),
        name: str = "Codepilot",
        role: str = "an autonomous software engineering agent.",
        instructions: str = "",
        chat: bool = True,
        logs: Path | None = None,
    ) -> None:
        """Prepare an agent; nothing is started before the first run.

        Args:
            provider: the model.
            work_dir: the directory that the agent may read and change.
            sandbox: where its commands run.
            policy: what it may call and spend.
            session: the log of the conversation; in memory by default.
            listeners: told of every event.
            name: how the agent is called.
            role: what it is, as one sentence.
            instructions: further words for the system prompt.
            chat: whether a reply that neither acts nor finishes is an answer (True) or an error (False).
            logs: where the full output of commands is kept; a private directory, removed by `close`, by default.
        """
        self.policy = policy or Policy()
        self.session: Session = session or InMemorySession()
        self.hooks = Hooks(*listeners)
        self.registry = Registry()
        self._provider, self._sandbox, self._chat = provider, sandbox, chat
        self._persona = {"name": name, "role": role, "instructions": instructions}
        self._work_dir = work_dir
        self._logs = Logs(logs)
        self._workspace = Workspace(work_dir, seen_as=sandbox.seen_as(work_dir), readable=self._logs.seen_in(sandbox))
        self._files = FileTools(self._workspace)
        self._search = SearchTools(self._workspace, sandbox)
        self._shell = ShellTools(sandbox, work_dir, self._logs)
        for family in (self._files, self._search, self._shell):
            self.registry.add_family(family)
        self._running: asyncio.Task[Outcome] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Enter; see `close`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def register_tool(self, name: str, func: Callable[..., Any], *, replace: bool = False) -> None:
        """Let control code call `func`; its signature and docstring are what the model is told.

        Raises:
            SettingsError: the name is taken and `replace` is not set.
        """
        self.registry.register_tool(name, func, replace=replace)

    async def run(self, task: str | Task, *, facts: Sequence[str] = ()) -> Outcome:
        """Work on one task to its end; a second call waits for the first.

        Args:
            task: what to do; a plain string is a goal without quotes.
            facts: what the model should know about the workspace, one line each.

        Returns:
            How it ended. A model or sandbox that fails is an outcome (`failed`), not an exception.
        """
        async with self._lock:
            begun = time.monotonic()
            self._running = asyncio.create_task(self._run(Task(goal=task) if isinstance(task, str) else task, facts))
            try:
                outcome = await self._running
            except asyncio.CancelledError:
                await self._shell.interrupt("the run was stopped")
                outcome = self._cut_short(Status.STOPPED, "The run was stopped.")
                if _being_cancelled():  # from outside, as opposed to by `abort`: the caller goes down with it
                    self._record(Ended(outcome=outcome))
                    raise
            finally:
                self._running = None
            outcome = replace(outcome, seconds=time.monotonic() - begun)
            self._record(Ended(outcome=outcome))
            return outcome

    def abort(self) -> None:
        """Stop the run that is under way, if any; its outcome has the status `stopped`."""
        if self._running is not None:
            self._running.cancel()

    async def close(self) -> None:
        """Stop what runs, end every terminal, give back connections; idempotent."""
        self.abort()
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._shell.close()
        self._search.close()
        self._workspace.close()
        self._logs.close()
        await self._provider.close()

    async def _run(self, task: Task, facts: Sequence[str]) -> Outcome:
        limits = self.policy.limits
        bounds = InterpreterLimits(calls=limits.max_calls_per_step)
        interpreter = Interpreter(tools=self.registry.names, stubs=self.registry.stubs, limits=bounds)
        deadline = asyncio.timeout(limits.max_seconds)
        try:
            async with deadline:
                told = [*facts, *await self._facts()]
                orientation = await asyncio.to_thread(orient, self._workspace, task, told)
                self._record(Started(task=task, opening=opening(task, orientation, nonce=secrets.token_hex(6))))
                return await self._loop(interpreter).run()
        except TimeoutError:
            if not deadline.expired():
                raise
            await self._shell.interrupt("the run's time was up")
            return self._cut_short(Status.TIMEOUT, f"The run took longer than {limits.max_seconds:.0f} seconds.")
        except (ModelError, SandboxError) as error:
            return self._cut_short(Status.FAILED, str(error))
        finally:
            await interpreter.close()

    async def _facts(self) -> list[str]:
        """What the model would otherwise have to find out about the place it works in."""
        programs = await toolchain(self._sandbox, self._work_dir)
        place = f"Working directory: {self._sandbox.seen_as(self._work_dir)} (sandbox: {self._sandbox.level})"
        return [place, *([programs] if programs else [])]

    def _loop(self, interpreter: Interpreter) -> Loop:
        return Loop(
            provider=self._provider,
            interpreter=interpreter,
            calls=Calls(registry=self.registry, policy=self.policy, emit=self._tell_call),
            files=self._files,
            session=self.session,
            record=self._record,
            emit=self.hooks.emit,
            system=prompts.system_prompt(tools=self.registry.declarations, chat=self._chat, **self._persona),
            status=self._status,
            limits=self.policy.limits,
            chat=self._chat,
        )

    def _status(self, step: int) -> str:
        """What changes with every request; sent last, so that it never breaks the cached prefix."""
        counter = f"[Step {step} of {self.policy.limits.max_steps}. {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.]"
        return f"{counter}\n{self._shell.status}".rstrip()

    def _record(self, event: Recorded) -> None:
        self.session.append(event)
        self.hooks.emit(event)

    def _tell_call(self, event: Event) -> None:
        """Calls are told to watchers; only what they returned is history."""
        if isinstance(event, ToolReturned):
            self.session.append(event)
        self.hooks.emit(event)

    def _cut_short(self, status: Status, reason: str) -> Outcome:
        """An outcome for a run that ended between steps: what it used is in the log, after the last run's end."""
        steps, usage = 0, Usage()
        for event in reversed(self.session.events):
            if isinstance(event, Started | Ended):
                break
            if isinstance(event, Replied):
                steps, usage = max(steps, event.step), usage + event.usage
        return Outcome(status=status, reason=reason, steps=steps, usage=usage)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
