"""Pygent's agent: a conversation with a model that calls tools on a workspace, as runs of the agent runtime."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from string import Template
from types import TracebackType
from typing import Any, Self

from agent_runtime.agent import agent as core
from agent_runtime.compat.pygent.models import (
    APIError,
    Entry,
    HistoryFile,
    Message,
    Model,
    Persona,
    SpeakingProvider,
    default_model,
    default_persona,
    events_of,
    history_of,
    number,
    provider_of,
    variable,
)
from agent_runtime.compat.pygent.runtime import Runtime
from agent_runtime.compat.pygent.tools import DEFAULT, Tools, registered_name
from agent_runtime.core.errors import SandboxError, SettingsError, UsageError
from agent_runtime.core.events import Event, Imported, Observed, StepStarted
from agent_runtime.core.values import Outcome, Status, Usage
from agent_runtime.policy.policy import Policy, RunLimits
from agent_runtime.processes.spawn import LoopThread
from agent_runtime.providers.protocol import Provider
from agent_runtime.run.hooks import Listener
from agent_runtime.run.runtime import RUNNING, WAITS_FOR_ITSELF, AsyncRuntime
from agent_runtime.sandbox.protocol import PrivateDirectory, SandboxSettings
from agent_runtime.sandbox.select import pick_sandbox
from agent_runtime.sessions.protocol import InMemorySession

DEFAULT_MODEL = "gpt-4.1-mini"
_LONGEST_SECONDS = 86_400.0


def build_system_msg(persona: Persona, tools: Tools = DEFAULT) -> str:
    """The system message of an agent that is given none."""
    told = (each["function"] for each in tools.schemas)
    lines = "\n".join(f"- {each['name']}: {each['description']}" for each in told)
    return _template().substitute(name=persona.name, description=persona.description, tools=lines or "none").strip()


@dataclass(eq=False)
class Agent:
    """A conversation with a model that can call tools. Its calls block; use it from one thread at a time.

    Attributes:
        runtime: where its tools work: a `Runtime`, or anything with the methods that its tools call.
        model: a model of Pygent's protocol or a provider of this library; None for OpenAI's.
        model_name: the model's name; by default `PYGENT_MODEL`, else `gpt-4.1-mini`.
        persona: as whom it works; by default `PYGENT_PERSONA_NAME` and `PYGENT_PERSONA`.
        system_msg: the system message. One that is given stays; else it follows the tools.
        history: the messages so far, the system message first. A change of it counts from the next step on.
        history_file: a JSON file, out of the agent's reach, that keeps the history; by default `PYGENT_HISTORY_FILE`.
        tools: what it may call; by default the tools that all agents share.
        listeners: called with each event of its runs, as the values of `agent_runtime`.
        usage: what its model calls have used so far.
    """

    runtime: Any = field(default_factory=Runtime)
    model: Model | Provider = field(default_factory=default_model)
    model_name: str = field(default_factory=lambda: variable("MODEL") or DEFAULT_MODEL)
    persona: Persona | None = None
    system_msg: str = ""
    history: list[Any] = field(default_factory=list)
    history_file: Path | str | None = field(default_factory=lambda: variable("HISTORY_FILE"))
    tools: Tools = field(default_factory=lambda: DEFAULT, kw_only=True)
    listeners: list[Listener] = field(default_factory=list, kw_only=True)
    usage: Usage = field(default_factory=Usage, init=False)

    def __post_init__(self) -> None:
        """Take in the history, and get ready; nothing is sent or started yet.

        Raises:
            SessionError: the history cannot be read.
            SettingsError: the history file is in the workspace, where commands could change it.
        """
        self.persona = self.persona or default_persona()
        self._built = ""
        self._taken = 0
        self._session = InMemorySession()
        self._engine: AsyncRuntime | None = None
        self._engine_of: object = None
        self._provider: Provider | None = None
        self._provider_of: object = None
        self._own_directory: PrivateDirectory | None = None
        self._task: asyncio.Task[Any] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._aborting: asyncio.Future[None] | None = None
        self._step_timeout: float | None = None
        self._timed_out = ""
        self._loop = LoopThread("Agent", owner=self)
        self._speaking = SpeakingProvider(self._provided, self.tools, lambda: self.system_msg)
        self._file: HistoryFile | None = None
        if self.history_file:
            self._file = HistoryFile(Path(self.history_file))
            base = getattr(self.runtime, "base_dir", None)
            if base is not None and self._file.path.is_relative_to(Path(base).resolve()):
                raise SettingsError(
                    f"history_file: {self._file.path} is in the workspace, where commands could change it; name a "
                    "file outside."
                )
            self.history = self._file.load() or self.history
        self._take_over()

    def __enter__(self) -> Self:
        """Enter; see `close`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def refresh_system_message(self) -> None:
        """Bring the system message in line with the tools, unless it is one that was given."""
        if self.system_msg == self._built:
            self.system_msg = self._built = build_system_msg(self.persona or default_persona(), self.tools)
        if self.history and isinstance(self.history[0], dict) and self.history[0].get("role") == "system":
            self.history[0]["content"] = self.system_msg

    def append_history(self, msg: Entry) -> None:
        """Add a message, which the model reads with the next step.

        Raises:
            SessionError: it is no message, or the history file cannot be written.
        """
        self.history.append(msg)
        self._take_over()
        self._save()

    def step(self, user_msg: str) -> Message:
        """Tell the model something, and make the calls that it asks for in its reply.

        Returns:
            The reply.

        Raises:
            APIError: the model service failed. What a model of one's own raises is raised.
            SandboxError: there is no sandbox for commands.
            SessionError: the history file cannot be written.
            UsageError: another agent works in the workspace, or the caller is one of the agent's own tools.
        """
        self._run(user_msg, max_steps=1)
        return next((each for each in reversed(self.history) if isinstance(each, Message)), Message("assistant"))

    def run_until_stop(
        self, user_msg: str, max_steps: int = 20, step_timeout: float | None = None, max_time: float | None = None
    ) -> Outcome:
        """Take steps until the model calls `stop` or `continue`, answers without a call, or a limit is reached.

        Args:
            user_msg: what to do.
            max_steps: replies of the model.
            step_timeout: seconds that a step may take; by default `PYGENT_STEP_TIMEOUT`. One that takes longer is
                broken off, and ends the run.
            max_time: seconds that all may take; by default `PYGENT_TASK_TIMEOUT`.

        Returns:
            How it ended, and what it used.

        Raises:
            SettingsError: a variable is no number.
            others: as for `step`.
        """
        return self._run(
            user_msg,
            max_steps=max_steps,
            step_timeout=number("STEP_TIMEOUT") if step_timeout is None else step_timeout,
            max_time=number("TASK_TIMEOUT") if max_time is None else max_time,
        )

    def abort(self) -> None:
        """Stop the run that is under way, if any, and its commands. From any thread."""
        if (task := self._task) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)
        if isinstance(self.runtime, Runtime):
            self.runtime.stop_commands()

    def close(self) -> None:
        """Stop what runs and give everything back but the workspace, which `runtime.cleanup()` does; idempotent."""
        if not self._loop.stopped:
            if self._engine is not None:
                self._loop.run(self._engine.close)
            if self._provider is not None:
                self._loop.run(self._provider.close)
            self._loop.stop()
        if self._own_directory is not None:
            self._own_directory.close()

    def _run(
        self, user_msg: str, *, max_steps: int, step_timeout: float | None = None, max_time: float | None = None
    ) -> Outcome:
        """See one run to its end."""
        if self._engine is not None and RUNNING.get() is self._engine:
            raise UsageError(WAITS_FOR_ITSELF)
        self._take_over()
        limits = RunLimits(
            max_steps=max_steps,
            max_seconds=_LONGEST_SECONDS if max_time is None else max_time,
            max_repeated_calls=20,
            outage_seconds=0.0,
            max_output_chars_per_step=60_000,  # the document names a larger limit, or none
        )
        self._step_timeout, self._timed_out = step_timeout, ""
        try:
            with self.runtime.held() if isinstance(self.runtime, Runtime) else contextlib.nullcontext():
                outcome = self._loop.run(partial(self._worked, user_msg, limits))
                if self._aborting is not None:
                    self._loop.run(partial(asyncio.wait_for, self._aborting, None))
        finally:
            self._refresh()
        if outcome.status is Status.TIMEOUT:
            self._timed_out = f"[timeout after {max_time:g}s]"
        if self._timed_out:
            self._session.append(Imported(role="user", text=self._timed_out))
        self._refresh()
        self._save()
        self.usage += outcome.usage
        if outcome.status in {Status.FAILED, Status.MODEL_UNAVAILABLE}:
            raise APIError(outcome.reason or outcome.status)
        if outcome.status is Status.SANDBOX_FAILED:
            raise SandboxError(outcome.reason or outcome.status)
        return replace(outcome, status=Status.TIMEOUT, reason=self._timed_out) if self._timed_out else outcome

    async def _worked(self, user_msg: str, limits: RunLimits) -> Outcome:
        """Run one task on the loop; stopped, it gives what it came to."""
        self._task, self._aborting = asyncio.current_task(), None
        stopped = Outcome(status=Status.STOPPED, reason="The run was stopped.")
        try:
            engine = await self._ready()
            engine.agent = replace(engine.agent, policy=Policy(limits=limits))
            registry = engine.registry
            registry.clear_tools()
            for name in self.tools.functions:
                registry.register_tool(registered_name(name), self.tools.bound(name, lambda: self.runtime))
            try:
                return await engine.run(user_msg)
            except asyncio.CancelledError:  # by `abort`; the waiting caller wants to know what it used
                return engine.outcome or stopped
        except asyncio.CancelledError:
            return stopped
        finally:
            self._task = None
            self._disarm()

    async def _ready(self) -> AsyncRuntime:
        """The runtime of this library for the present workspace."""
        if self._engine is not None and self._engine_of is self.runtime:
            return self._engine
        if self._engine is not None:
            await self._engine.close()
        persona, own = self.persona or default_persona(), self.runtime
        work_dir = getattr(own, "base_dir", None)
        if work_dir is None:
            self._own_directory = self._own_directory or PrivateDirectory("codepilot-pygent-")
            work_dir = self._own_directory.path
        agent = core.Agent(
            provider=self._speaking,
            work_dir=Path(work_dir),
            sandbox=own.sandbox if isinstance(own, Runtime) else pick_sandbox("auto", SandboxSettings()),
            name=persona.name,
            role=persona.description,
            tools=(),
            indexed=False,
            index_seconds=0,
            baseline_seconds=0,
            transport="tools",
        )
        self._engine, self._engine_of = AsyncRuntime(agent, self._session, listeners=[self._heard]), own
        return self._engine

    def _provided(self) -> Provider:
        """The model, which may be another one since the last request."""
        wanted = (self.model, self.model_name)
        if self._provider is None or self._provider_of != wanted:
            self._provider, self._provider_of = provider_of(self.model, self.model_name), wanted
        return self._provider

    def _heard(self, event: Event) -> None:
        """Take in an event of a run, on the loop."""
        if isinstance(event, StepStarted):
            self._disarm()
            if (seconds := self._step_timeout) is not None:
                self._late = asyncio.get_running_loop().call_later(seconds, self._too_late, seconds)
        if isinstance(event, Observed):
            self._refresh()
            self._save()
        for listener in self.listeners:
            listener(event)

    def _too_late(self, seconds: float) -> None:
        self._timed_out = f"[timeout after {seconds:g}s]"
        # Not here: it waits until all commands have ended.
        self._aborting = asyncio.get_running_loop().run_in_executor(None, self.abort)

    def _disarm(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _take_over(self) -> None:
        """Bring the session in line with the history, where that was changed from outside."""
        self.refresh_system_message()
        if self.history != self._told():
            events = events_of(self.history, registered_name)
            self._session.reset()
            for event in events:
                self._session.append(event)
            self.history[:] = self._told()
            self._taken = len(self._session.events)

    def _refresh(self) -> None:
        """Take what is new in the session into the history."""
        events = self._session.events
        self.history += history_of(events[self._taken :], self._speaking.name_of)
        self._taken = len(events)

    def _told(self) -> list[Entry]:
        """The session as a history."""
        told = history_of(self._session.events, self._speaking.name_of)
        return [{"role": "system", "content": self.system_msg}, *told]

    def _save(self) -> None:
        if self._file is not None:
            self._file.save(self.history)


@cache
def _template() -> Template:
    return Template(files(__package__).joinpath("system.md").read_text(encoding="utf-8"))
