"""The runtime of one agent and one session: `AsyncRuntime` inside an event loop, `Runtime` for code without one.

It takes tasks one after another and gives their outcomes. `preload` imports the modules that a run needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar, copy_context
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.core.errors import ResumeCode, ResumeError, UsageError
from agent_runtime.core.events import Ended
from agent_runtime.core.values import Outcome, PendingCall, Status, Task, Usage
from agent_runtime.processes.spawn import LoopThread
from agent_runtime.providers.models import require_image_support
from agent_runtime.providers.protocol import Provider
from agent_runtime.run import hooks as hooks_module
from agent_runtime.run.checkpoint import StateKey
from agent_runtime.run.hooks import HookSystem, Listener
from agent_runtime.run.state import RunState
from agent_runtime.sessions.create import create_session
from agent_runtime.sessions.file import FileSession
from agent_runtime.sessions.protocol import InMemorySession, Session, StoredSession

if TYPE_CHECKING:
    from agent_runtime.agent.agent_file import AgentFile
    from agent_runtime.context.conversation import Conversation
    from agent_runtime.delegation.children import ChildRuns, DelegatingRun
    from agent_runtime.run.run import Run
    from agent_runtime.tools.tool import Registry

T = TypeVar("T")
RUNNING: ContextVar[AsyncRuntime | None] = ContextVar("RUNNING", default=None)
"""The runtime in whose run this code is called, also in a thread that a handler or tool was given."""

WAITS_FOR_ITSELF = (
    "A handler or tool of a run cannot start, resume or reset its own runtime and wait for it. Use send_message() or "
    "abort(), or do it after run() has returned."
)

_EVERY_RUN = (
    "agent_runtime.agent.agent_file",
    "agent_runtime.run.run",
    "agent_runtime.run.runtime",
    "agent_runtime.sandbox.resident",
    "agent_runtime.terminals.factory",
    "agent_runtime.terminals.terminal",
    "pydantic_monty",
    "re2",
    "tree_sitter",
    "tree_sitter_bash",
)

# The clients import their resources when these are used first.
_BY_PROVIDER: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic.resources.messages.messages",),
    "openai": ("openai.resources.chat.completions.completions", "openai.resources.responses.responses"),
    "alibaba": ("openai.resources.chat.completions.completions",),
    "azure": ("openai.resources.chat.completions.completions",),
    "bedrock": ("anthropic.resources.messages.messages", "boto3"),
    "llm": ("llm",),
    "vertex": ("anthropic.resources.messages.messages", "google.auth"),
}

_BY_CLIENT = ("anyio", "anyio._core._sockets", "httpcore2", "httpx2", "truststore")


class AsyncRuntime:
    """An agent on one workspace, for use inside a running event loop.

    Example:
        ```python
        async with AsyncRuntime("agent.yaml") as runtime:
            outcome = await runtime.run("Make the tests pass")
        ```

    Attributes:
        agent: who works, with which model, where.
    """

    def __init__(  # noqa: PLR0917 - the seed's documented signature
        self,
        agent_file: Agent | AgentFile | Path | str,
        session: Session | str = "memory",
        session_id: str | None = None,
        session_dir: Path | None = None,
        stream: bool = False,  # noqa: FBT001, FBT002 - the seed's documented signature
        db_url: str | None = None,
        *,
        listeners: Sequence[Listener] = (),
        hooks: HookSystem | None = None,
        state_key: bytes | None = None,
        console: Callable[[str], str | None] | None = None,
        resumable: bool = False,
        asks_for: str = "",
    ) -> None:
        """Prepare an agent; nothing is started before the first run.

        Args:
            agent_file: the path of an `agent.yaml`, or an agent described in code.
            session: `memory`, `file`, `db`, or a session of your own.
            session_id: names the conversation; by default the agent's name in lower case with hyphens.
            session_dir: where `file` keeps its sessions, by default `~/.codepilot/sessions`; out of the agent's reach.
            stream: whether handlers get text as it comes (True), or once a reply is complete.
            db_url: the database of `db`, e.g. `sqlite:///codepilot.db`.
            listeners: called with every event, as the values of `agent_runtime.core.events`.
            hooks: handlers that are registered already.
            state_key: the secret that paused runs are signed with; give the same to all machines that are to go on
                with each other's. By default one in `~/.codepilot/state.key`, made when it is first needed.
            console: asked a question of the agent that no handler answers.
            resumable: whether a run whose caller is cancelled is left as if its process had died, for `resume` to go on
                with; by default it ends as stopped.
            asks_for: what people who are asked are told first; for a child run, whose it is.

        Raises:
            SettingsError: something in it cannot work.
            SandboxError: this machine has no sandbox of the kind that the agent file asks for.
        """
        from agent_runtime.run.approvals import Gate  # noqa: PLC0415 - see TYPE_CHECKING above
        from agent_runtime.run.toolbox import Toolbox  # noqa: PLC0415 - the same

        self.agent = agent_file if isinstance(agent_file, Agent) else Agent.from_file(agent_file)
        name, work_dir = self.agent.name, self.agent.work_dir
        if isinstance(session, str):
            session = create_session(
                session, session_id or "-".join(name.lower().split()) or "agent", name, session_dir, db_url
            )
        if isinstance(session, FileSession):
            session.require_out_of_reach(work_dir)
        hooks = hooks or HookSystem()
        for listener in listeners:
            hooks.add(listener)
        self._key = StateKey(state_key, lasting=not isinstance(session, InMemorySession), work_dir=work_dir)
        self._state = RunState(session, hooks, stream=stream, scrub=self.agent.scrub)
        self._gate = Gate(self._state, console=console, asks_for=asks_for)
        self._console = console
        self._toolbox = Toolbox(self.agent, self._state, ask=self._gate.question, start_child=self.child)
        self._talk: Conversation | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._lock = asyncio.Lock()
        self._resets = self._aborts = 0
        self._resumable = resumable
        self._closed = False
        self._former: list[Provider] = []

    async def __aenter__(self) -> Self:
        """Enter; see `close`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    @property
    def session(self) -> Session:
        """The log of the conversation."""
        return self._state.session

    @property
    def hooks(self) -> HookSystem:
        """Who is told what happens, and who is asked."""
        return self._state.hooks

    @property
    def registry(self) -> Registry:
        """The agent's tools."""
        return self._toolbox.registry

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as the model would read it now: `role` and `content` of each message."""
        from agent_runtime.context.transcript import render_messages  # noqa: PLC0415 - see TYPE_CHECKING above

        return [{"role": each.role, "content": each.full_text} for each in render_messages(self.session.events)]

    @property
    def pending(self) -> PendingCall | None:
        """The call that waits for a person, if the session's newest run is paused."""
        outcome = self.outcome
        return outcome.pending if outcome else None

    @property
    def outcome(self) -> Outcome | None:
        """What the session's newest run came to, or waits for; None without one, and while it has come to neither."""
        return self._state.progress.outcome

    @property
    def usage(self) -> Usage:
        """What the model calls of the session's newest run have used, those of its child runs included."""
        return self._state.progress.usage

    @property
    def unfinished(self) -> bool:
        """Whether `resume` has a run to go on with: it waits for a person or the model service, or its process died."""
        progress = self._state.progress
        return progress.waiting is not None or (progress.is_open and self._work is None)

    def register_tool(self, name: str, func: Callable[..., Any], *, replace: bool = False) -> None:
        """Let control code call `func`; its signature and docstring are what the model is told.

        Raises:
            SettingsError: the name is taken and `replace` is not set.
        """
        self.registry.register_tool(name, func, replace=replace)

    def run(self, task: str | Task, *, facts: Sequence[str] = ()) -> Coroutine[Any, Any, Outcome]:
        """Work on one task to its end, or until a call waits for a person; a second run waits for the first.

        It is a coroutine, which `abort` also stops before it has begun, e.g. right after `asyncio.create_task`.

        Args:
            task: what to do; a plain string is a goal without quotes and images.
            facts: what the model should know about the workspace, one line each.

        Returns:
            How it ended. A model or sandbox that fails is an outcome (`failed`), not an exception.

        Raises:
            ResumeError: a call of an earlier run waits; answer it with `resume`, or `reset`.
            SessionError: the session cannot be written.
            SettingsError: the task has images, and the model is not known to see; or its output schema cannot be used.
                Nothing was sent or recorded.
            UsageError: the task is empty; or the runtime is closed, or was reset while this run waited for the first;
                or the caller is one of its own handlers or tools, for which the run under way waits.
        """
        return self._run(Task(goal=task) if isinstance(task, str) else task, facts, self._aborts)

    async def _run(self, task: Task, facts: Sequence[str], aborts: int) -> Outcome:
        """Take one task, unless `abort` was called since there were `aborts` of them."""
        self._require_outside()
        if not task.goal.strip():
            raise UsageError("The task is empty: say what the agent should do.")
        require_image_support(self.agent.provider, task.images)
        if task.output_schema is not None:
            from agent_runtime.run.output_schema import require_output_schema  # noqa: PLC0415 - few tasks have one

            await require_output_schema(task.output_schema)
        resets = self._resets
        async with self._lock:
            self._require_usable(resets)
            if (pending := self.pending) is not None:
                raise ResumeError(ResumeCode.UNANSWERED, request=pending.request_id, tool=pending.tool)
            if aborts != self._aborts:
                return Outcome(status=Status.STOPPED, reason="The run was stopped before it began.")
            return await self._see(lambda run: run.begin(task, facts))

    async def resume(self, *, approve: bool | None = None, note: str = "", request_id: str | None = None) -> Outcome:
        """Go on with the session's newest run, in this process or another, at the call that waits.

        A run that ended its leg as `model_unavailable` asks the model again. One that was cut off when its process died
        goes on too; the model is told what is known of the step in flight.

        Args:
            approve: whether the call may be made; for a question, False means that there is no answer.
            note: the answer to a question, or a word to the model about a denial.
            request_id: which request is answered; give it where somebody else may have answered it already, and the run
                may wait for another by now. By default the one that waits.

        Raises:
            ResumeError: nothing waits, or not this request; it was altered; or files have changed since the call was
                shown, and it was approved. The run still waits then.
            SessionError: the session cannot be written.
            UsageError: as for `run`.
        """
        from agent_runtime.run.approvals import answer_to  # noqa: PLC0415 - see TYPE_CHECKING above

        self._require_outside()
        resets = self._resets
        async with self._lock:
            self._require_usable(resets)
            if not self.unfinished:
                raise ResumeError(ResumeCode.NOTHING_WAITS)
            answer = answer_to(self.pending, approve=approve, note=note, request_id=request_id)
            return await self._see(lambda run: run.recover() if answer is None else run.answer(answer))

    def send_message(self, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Tell the agent something; it reads it at its next step, or at the start of the next run. From any thread.

        Args:
            message: the text.
            id: tells this message from another one of the same text, in `MessageInjected`.
        """
        self._state.send(message, id)

    def abort(self) -> None:
        """Stop the run that is under way, or else those that were called and have not begun. From any thread.

        Its outcome has the status `stopped`.
        """
        work = self._work
        if work is None:
            self._aborts += 1
            return
        if (loop := work.get_loop()).is_closed():
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:  # none runs in this thread
            here = False
        if here:
            work.cancel()
        else:
            loop.call_soon_threadsafe(work.cancel)

    async def reset(self) -> None:
        """Stop what runs and forget everything: history, archive, counters, terminals, messages, tracked files.

        A run that waits for its turn is refused.

        Raises:
            UsageError: the runtime is closed, or as for `run`.
        """
        self._require_outside()
        self._resets += 1
        self.abort()
        async with self._lock:
            self._require_usable(self._resets)
            await self._toolbox.reset()
            self._talk = None
            self._state.reset()

    async def close(self) -> None:
        """Stop what runs, end every terminal, give back connections and the session; idempotent."""
        self._closed = True
        self.abort()
        async with self._lock, AsyncExitStack() as stack:  # whatever fails, the rest is given back
            # What lies in a store may have to wait for it, and the loop must not; of other sessions no thread is known.
            if isinstance(self.session, StoredSession):
                stack.push_async_callback(asyncio.to_thread, self.session.close)
            else:
                stack.callback(self.session.close)
            for provider in (self.agent.provider, *self._former):
                stack.push_async_callback(provider.close)
            if self.agent.delegation is not None and self.agent.delegation.provider is not None:
                stack.push_async_callback(self.agent.delegation.provider.close)
            stack.push_async_callback(self._toolbox.close)

    async def use(self, provider: Provider) -> None:
        """Ask another model from the next run on, after the one under way. Conversation, terminals and files stay.

        Thoughts that only the former model can read are not sent on. The former provider is closed with the runtime.

        Raises:
            SettingsError: this runtime's model calls tools by its service's own tool calls, and the new one has none.
            UsageError: as for `run`.
        """
        self._require_outside()
        resets = self._resets
        async with self._lock:
            self._require_usable(resets)
            self._toolbox.use(provider)
            self._former.append(self.agent.provider)
            self.agent = replace(self.agent, provider=provider)
            self._talk = None

    async def serve_tools(self) -> None:
        """Serve the agent's tools by MCP on standard input and output, until the input ends. No model is asked.

        A call that requires approval is put to the handlers, and refused if none answers.

        Raises:
            SettingsError: the package `mcp` is not installed.
            UsageError: as for `run`.
        """
        from agent_runtime.run.mcp import ToolServer  # noqa: PLC0415 - see TYPE_CHECKING above

        self._require_outside()
        resets = self._resets
        async with self._lock:
            self._require_usable(resets)
            await ToolServer(self.agent, self._toolbox.registry, self._state, self._gate).serve()

    def children_of(self, caller: DelegatingRun, bounds: Delegation) -> ChildRuns:
        """Child runs on this workspace that belong to a caller, who ends them; `TaskManager` is one."""
        return self._toolbox.children_of(caller, bounds)

    def child(self, agent: Agent, task: str, told: Listener) -> AsyncRuntime:
        """A runtime for a child run, whose requests are put to this one's handlers, and nobody else.

        Args:
            agent: the child.
            task: names its task.
            told: of its events.
        """
        session = InMemorySession(f"{self.session.session_id}/{task}", agent.name)
        hooks = HookSystem(told, asked_by=self.hooks)
        return AsyncRuntime(agent, session, hooks=hooks, console=self._console, asks_for=f"[task {task}] ")

    def _require_outside(self) -> None:
        """A run waits for its handlers and tools; one of them that waited for a run would never end.

        Raises:
            UsageError: the caller is such a one.
        """
        if self._work is not None and asyncio.current_task() is self._work:
            raise UsageError(WAITS_FOR_ITSELF)

    def _require_usable(self, resets: int) -> None:
        """A call that waited its turn must not go on with what was given back or forgotten meanwhile.

        Raises:
            UsageError: the runtime is closed, or was reset since there were `resets` of them.
        """
        if self._closed:
            raise UsageError("This runtime is closed; create a new one.")
        if resets != self._resets:
            raise UsageError("The runtime was reset while this call waited for another one to end; call it again.")
        self._state.progress.read(self.session.events)  # another object, where the session was closed meanwhile

    async def _see(self, begin: Callable[[Run], Coroutine[Any, Any, Outcome]]) -> Outcome:
        """See one leg of a run to its end, and record how it ended."""
        from agent_runtime.run.run import Run  # noqa: PLC0415 - see TYPE_CHECKING above

        self._toolbox.servers.restore()
        run = Run(
            agent=self.agent,
            toolbox=self._toolbox,
            state=self._state,
            conversation=self._conversation,
            gate=self._gate,
            key=self._key,
        )
        context = copy_context()
        context.run(RUNNING.set, self)
        self._work = asyncio.create_task(begin(run), context=context)
        try:
            outcome = await self._work
        except asyncio.CancelledError:
            await self._toolbox.shell.interrupt("the run was stopped")
            task = asyncio.current_task()
            is_ours = task is not None and bool(task.cancelling())  # not `abort`: the caller goes down with it
            if is_ours and self._resumable:
                raise  # nothing is recorded: it may wait for a person by now, and then nothing may follow in the log
            outcome = run.cut_short(Status.STOPPED, "The run was stopped.")
            if is_ours:
                await self._state.record_durably(Ended(outcome=outcome))
                raise
        finally:
            self._work = None
        if outcome.status not in {Status.PAUSED, Status.MODEL_UNAVAILABLE}:
            await self._state.record_durably(Ended(outcome=outcome))
            await self._toolbox.children.close()  # removing copies takes time, in which the caller may be cancelled
        return outcome

    def _conversation(self) -> Conversation:
        """The one of this session; a new one when tools were added or removed, so that the model knows them."""
        from agent_runtime.context.conversation import Conversation  # noqa: PLC0415 - see TYPE_CHECKING above

        agent, system, tools = self.agent, self._toolbox.system_prompt, self._toolbox.schemas
        if self._talk is None or (self._talk.system, self._talk.tools) != (system, tools):
            self._talk = Conversation(
                log=self._state,
                provider=agent.provider,
                system=system,
                memory=agent.memory,
                limits=agent.policy.limits,
                words=self._toolbox.transport.plain_text,
                tools=tools,
                clock=lambda: agent.clock_and_random.now().timestamp(),
            )
        return self._talk


class Runtime:
    """An agent on one workspace. Its calls block; handlers run in its own thread, those that are asked in others.

    With nobody registered it prints what the agent says and does, and asks on the terminal, if there is one.

    Example:
        ```python
        runtime = Runtime("agent.yaml")
        print(runtime.run("Make the tests pass"))
        ```
    """

    def __init__(  # noqa: PLR0917 - the seed's documented signature
        self,
        agent_file: Agent | AgentFile | Path | str,
        session: Session | str = "memory",
        session_id: str | None = None,
        session_dir: Path | None = None,
        stream: bool = False,  # noqa: FBT001, FBT002 - the seed's documented signature
        db_url: str | None = None,
        *,
        listeners: Sequence[Listener] = (),
        state_key: bytes | None = None,
        quiet: bool = False,
    ) -> None:
        """Prepare an agent; see `AsyncRuntime` for the arguments.

        Args:
            agent_file: the path of an `agent.yaml`, or an agent described in code.
            session: `memory`, `file`, `db`, or a session of your own.
            session_id: names the conversation.
            session_dir: where `file` keeps its sessions.
            stream: whether handlers get text as it comes.
            db_url: the database of `db`.
            listeners: called with every event.
            state_key: the secret that paused runs are signed with.
            quiet: print nothing and ask nobody but registered handlers.

        Raises:
            SettingsError: something in it cannot work.
            SandboxError: this machine has no sandbox of the kind that the agent file asks for.
        """
        self._loop = LoopThread("Runtime", "AsyncRuntime", owner=self)
        hooks = HookSystem()
        ask = None if quiet else hooks_module.install(hooks)
        self._runtime = AsyncRuntime(
            agent_file,
            session,
            session_id=session_id,
            session_dir=session_dir,
            db_url=db_url,
            stream=stream,
            listeners=listeners,
            hooks=hooks,
            state_key=state_key,
            console=ask,
        )

    def __enter__(self) -> Self:
        """Enter; see `close`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def hooks(self) -> HookSystem:
        """Who is told what happens, and who is asked."""
        return self._runtime.hooks

    @property
    def registry(self) -> Registry:
        """The agent's tools."""
        return self._runtime.registry

    @property
    def session(self) -> Session:
        """The log of the conversation."""
        return self._runtime.session

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as the model would read it now: `role` and `content` of each message."""
        return self._runtime.messages

    @property
    def pending(self) -> PendingCall | None:
        """The call that waits for a person, if the session's newest run is paused."""
        return self._runtime.pending

    @property
    def outcome(self) -> Outcome | None:
        """See `AsyncRuntime.outcome`."""
        return self._runtime.outcome

    @property
    def unfinished(self) -> bool:
        """Whether the session's newest run waits, or was cut off when its process died."""
        return self._runtime.unfinished

    def run(self, task: str | Task) -> Outcome:
        """Work on one task to its end, or until a call waits for a person; a second run waits for the first.

        Ctrl+C stops the run, or makes it give up its turn, and goes on as `KeyboardInterrupt`.

        Raises:
            UsageError: called from inside an event loop, where `AsyncRuntime` is to be used; from one of its own
                handlers or tools, for which the run under way waits; or in a process that was forked off since it was
                made.
            ResumeError: a call of an earlier run waits.
            SessionError: the session cannot be written.
        """
        return self._see(lambda: self._runtime.run(task))

    def resume(
        self,
        approve: bool | None = None,  # noqa: FBT001 - reads well by position, too
        note: str = "",
        *,
        request_id: str | None = None,
    ) -> Outcome:
        """Go on with a run that waits or was cut off; see `AsyncRuntime.resume`."""
        return self._see(lambda: self._runtime.resume(approve=approve, note=note, request_id=request_id))

    def send_message(self, message: str) -> None:
        """Tell the agent something; it reads it at its next step. From any thread."""
        self._runtime.send_message(message)

    def abort(self) -> None:
        """Stop the run that is under way, if any. From any thread."""
        self._runtime.abort()

    def register_tool(self, name: str, func: Callable[..., Any], replace: bool = False) -> None:  # noqa: FBT001, FBT002 - the seed's documented signature
        """Let control code call `func`; its signature and docstring are what the model is told.

        Raises:
            SettingsError: the name is taken and `replace` is not set.
        """
        self._runtime.register_tool(name, func, replace=replace)

    def call(self, work: Callable[[AsyncRuntime], Coroutine[Any, Any, T]]) -> T:
        """Wait for a coroutine on the runtime's own event loop, where the same runtime is an `AsyncRuntime`.

        Raises:
            UsageError: as for `run`; or the runtime is closed.
        """
        return self._loop.run(lambda: work(self._runtime))

    def reset(self) -> None:
        """Stop what runs and forget everything: history, archive, counters, terminals, messages, tracked files."""
        self._loop.run(self._runtime.reset)

    def close(self) -> None:
        """Stop what runs, end every terminal, give everything back; idempotent."""
        if not self._loop.stopped:
            self._loop.run(self._runtime.close)
            self._loop.stop()

    def _see(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> Outcome:
        if RUNNING.get() is self._runtime:
            raise UsageError(WAITS_FOR_ITSELF)
        return self._loop.run(work)


def preload(provider: str) -> None:
    """Import what a run with a model of this provider imports; a name that is not known adds nothing.

    `import agent_runtime` leaves out imports that are slow and that not every program needs. The first run of a process
    makes them, and blocks the event loop for up to a second: too long for a server with other requests.
    """
    clients = _BY_CLIENT if provider in _BY_PROVIDER else ()
    for name in (*_EVERY_RUN, *clients, *_BY_PROVIDER.get(provider, ())):
        import_module(name)
