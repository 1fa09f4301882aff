"""The runtime of one agent and one session: `AsyncRuntime` in an event loop, `Runtime` for blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType, coroutine
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.core.errors import ResumeCode, ResumeError, UsageError
from agent_runtime.core.events import Ended
from agent_runtime.core.values import Outcome, PendingCall, Status, Task, Usage
from agent_runtime.processes.spawn import LoopThread, is_in_a_loop
from agent_runtime.providers.models import require_image_support
from agent_runtime.providers.protocol import Provider
from agent_runtime.run import hooks as hooks_module
from agent_runtime.run.checkpoint import StateKey
from agent_runtime.run.hooks import NOBODY_ANSWERS, HookSystem, Listener, NoAnswer
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
"""The runtime whose handler or tool is running, also in its threads."""

WAITS_FOR_ITSELF = (
    "A handler or tool of a run cannot start, resume or reset its own runtime and wait for it. Use send_message() or "
    "abort(), or do it after run() has returned."
)

_COMMON_MODULES = (
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
_PROVIDER_MODULES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic.resources.messages.messages",),
    "openai": ("openai.resources.chat.completions.completions", "openai.resources.responses.responses"),
    "alibaba": ("openai.resources.chat.completions.completions",),
    "azure": ("openai.resources.chat.completions.completions",),
    "bedrock": ("anthropic.resources.messages.messages", "boto3"),
    "llm": ("llm",),
    "vertex": ("anthropic.resources.messages.messages", "google.auth"),
}

_CLIENT_MODULES = ("anyio", "anyio._core._sockets", "httpcore2", "httpx2", "truststore")


class AsyncRuntime:
    """An agent on one workspace, in a running event loop.

    Example:
        ```python
        async with AsyncRuntime("agent.yaml") as runtime:
            outcome = await runtime.run("Make the tests pass")
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
        hooks: HookSystem | None = None,
        state_key: bytes | None = None,
        console: Callable[[str], str | None] | None = None,
        resumable: bool = False,
        request_prefix: str = "",
    ) -> None:
        """Prepare an agent; nothing is started before the first run.

        Args:
            agent_file: path of an `agent.yaml`, or an agent in code. Only the latter waits by default for a model
                service that is down.
            session: `memory`, `file`, `db`, or a custom session.
            session_id: by default the agent's name in lower case with hyphens.
            session_dir: of `file` sessions, by default `~/.codepilot/sessions`; out of the agent's reach.
            stream: whether handlers get text as it arrives, or once a reply is complete.
            db_url: of `db`, for example `sqlite:///codepilot.db`.
            listeners: called with every event.
            hooks: existing handlers.
            state_key: signs paused runs, for all machines that resume them; by default `~/.codepilot/state.key`.
            console: asks questions that no handler answers.
            resumable: whether a run whose caller is cancelled can be resumed; by default it ends as stopped.
            request_prefix: for child runs.

        Raises:
            SettingsError: a setting is invalid.
            SandboxError: this machine has no such sandbox.
        """
        from agent_runtime.run.approvals import Gate  # noqa: PLC0415 - see TYPE_CHECKING above
        from agent_runtime.run.toolbox import Toolbox  # noqa: PLC0415 - the same

        self.agent = agent_file if isinstance(agent_file, Agent) else Agent.from_file(agent_file, waits=False)
        name, work_dir = self.agent.name, self.agent.work_dir
        if isinstance(session, str):
            session = create_session(
                session, session_id or name.lower().replace(" ", "-") or "agent", name, session_dir, db_url
            )
        if isinstance(session, FileSession):
            session.require_out_of_reach(work_dir)
        hooks = hooks or HookSystem()
        for listener in listeners:
            hooks.add(listener)
        self._key = StateKey(state_key, persistent=not isinstance(session, InMemorySession), work_dir=work_dir)
        self._state = RunState(session, hooks, stream=stream, scrub=self.agent.scrub)
        if not self.agent.attended:
            hooks.register("ask_user", lambda **_: NoAnswer(why=NOBODY_ANSWERS), default=True)
        self._gate = Gate(self._state, console=console, request_prefix=request_prefix)
        self._console = console
        self._toolbox = Toolbox(self.agent, self._state, ask=self._gate.ask_question, start_child=self.create_child)
        self._cached: Conversation | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._lock = asyncio.Lock()
        self._resets = self._aborts = 0
        self._resetting: asyncio.Task[None] | None = None
        self._stale_state = self._stale_tools = False
        self._resumable, self._closed = resumable, False
        self._former_providers: list[Provider] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def session(self) -> Session:
        """The log of the conversation."""
        return self._state.session

    @property
    def hooks(self) -> HookSystem:
        """Listeners and handlers."""
        return self._state.hooks

    @property
    def registry(self) -> Registry:
        """The agent's tools."""
        return self._toolbox.registry

    @property
    def messages(self) -> list[dict[str, str]]:
        """Current conversation: `role` and `content` of each message."""
        from agent_runtime.context.transcript import render_messages  # noqa: PLC0415 - see TYPE_CHECKING above

        return [
            {"role": message.role, "content": message.full_text} for message in render_messages(self.session.events)
        ]

    @property
    def pending(self) -> PendingCall | None:
        """The call that waits for a person."""
        outcome = self.outcome
        return outcome.pending if outcome else None

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the newest run; None while it is running."""
        return self._state.progress.outcome

    @property
    def usage(self) -> Usage:
        """Usage of the newest run and its child runs."""
        return self._state.progress.usage

    @property
    def unfinished(self) -> bool:
        """Whether `resume` can continue a run: it waits for a person or the model service, or its process died."""
        progress = self._state.progress
        return progress.waiting is not None or (progress.is_open and self._work is None)

    def register_tool(self, name: str, func: Callable[..., Any], replace: bool = False) -> None:  # noqa: FBT001, FBT002 - the seed's documented signature
        """Register a function as a tool; signature and docstring are its declaration.

        Raises:
            SettingsError: the name is taken and `replace` is not set.
        """
        self.registry.register_tool(name, func, replace=replace)

    def run(self, task: str | Task, *, facts: Sequence[str] = ()) -> Coroutine[Any, Any, Outcome]:
        """Work on a task until its end, or until a call waits for a person; a second run waits for the first.

        `facts` are lines for the first message. A failure of model or sandbox is an outcome, not an exception.

        Raises:
            ResumeError: a call of an earlier run waits.
            SessionError: the session cannot be written.
            SettingsError: the model supports no images, or the output schema is invalid.
            UsageError: the task is empty, the runtime is closed or was reset, or a handler or tool of a run calls.
        """
        return self._run(Task(goal=task) if isinstance(task, str) else task, facts, self._aborts)

    async def _run(self, task: Task, facts: Sequence[str], aborts: int) -> Outcome:
        self._require_outside()
        if not task.goal.strip():
            raise UsageError("The task is empty: say what the agent should do.")
        require_image_support(self.agent.provider, task.images)
        if task.output_schema is not None:
            from agent_runtime.run.output_schema import require_output_schema  # noqa: PLC0415 - few tasks have one

            await require_output_schema(task.output_schema)
        resets = self._resets
        async with self._turn(resets):
            if (pending := self.pending) is not None:
                raise ResumeError(ResumeCode.UNANSWERED, request=pending.request_id, tool=pending.tool)
            if aborts != self._aborts:
                return Outcome(status=Status.STOPPED, reason="The run was stopped before it began.")
            return await self._run_segment(lambda run: run.begin(task, facts))

    async def resume(self, *, approve: bool | None = None, note: str = "", request_id: str | None = None) -> Outcome:
        """Continue the newest run at the call that waits, after an outage, or after its process died.

        For a question, `note` is the answer, and `approve=False` means that there is none. `request_id` is the expected
        request, if another person may have answered it.

        Raises:
            ResumeError: nothing waits, or not this request; it was altered; or files of an approved call have changed.
            SessionError: the session cannot be written.
            UsageError: see `run`.
        """
        from agent_runtime.run.approvals import parse_answer  # noqa: PLC0415 - see TYPE_CHECKING above

        self._require_outside()
        resets = self._resets
        async with self._turn(resets):
            if not self.unfinished:
                raise ResumeError(ResumeCode.NOTHING_WAITS)
            answer = parse_answer(self.pending, approve=approve, note=note, request_id=request_id)
            return await self._run_segment(lambda run: run.recover() if answer is None else run.answer(answer))

    async def list_programs(self) -> tuple[str, ...]:
        """List the commands that run in terminals, and programs in the background (Linux), which `close` ends."""
        return await self._toolbox.shell.list_programs()

    def send_message(self, message: str, *, id: str = "") -> None:  # noqa: A002 - as in the event
        """Send a message for the agent's next step. Thread-safe."""
        self._state.send(message, id)

    def abort(self) -> None:
        """Stop the current run, or else waiting ones, with the status `stopped`. Thread-safe."""
        work = self._work
        if work is None:
            self._aborts += 1
            return
        if (loop := work.get_loop()).is_closed():
            return
        try:
            is_same_loop = asyncio.get_running_loop() is loop
        except RuntimeError:  # none runs in this thread
            is_same_loop = False
        if is_same_loop:
            work.cancel()
        else:
            loop.call_soon_threadsafe(work.cancel)

    def reset(self) -> Awaitable[None]:
        """Stop the run and delete all state, at once if nothing runs; await the end of its programs, or not.

        Waiting runs are refused.

        Raises:
            UsageError: see `run`.
        """
        work, is_in_loop = self._work, is_in_a_loop()
        if is_in_loop:
            self._require_outside()
        self._resets += 1
        self._require_usable(self._resets)
        self.abort()
        self._stale_state = self._stale_tools = True
        if not self._lock.locked():
            self._delete_state()
        if is_in_loop:
            self._resetting = asyncio.create_task(self._finish_reset())
            return self._resetting
        if work is not None:
            asyncio.run_coroutine_threadsafe(self._finish_reset(), work.get_loop())
        return self._await_reset()  # or the next run finishes it

    @coroutine
    def _await_reset(self) -> Generator[Any, Any, None]:  # unlike a coroutine, no warning if nothing awaits it
        yield from self._finish_reset().__await__()

    async def _finish_reset(self) -> None:
        async with self._lock:
            await self._apply_reset()

    async def _apply_reset(self) -> None:
        if self._stale_tools and not self._closed:
            await self._toolbox.reset()
            self._stale_tools = False
        if self._stale_state:
            self._delete_state()

    def _delete_state(self) -> None:
        self._stale_state, self._cached = False, None
        self._state.reset()

    async def close(self) -> None:
        """Stop the run and release terminals, connections and the session; idempotent."""
        self._closed = True
        self.abort()
        async with self._lock, AsyncExitStack() as stack:  # release the rest after an error
            # Closing a stored session may block; other sessions may not be thread-safe.
            if isinstance(self.session, StoredSession):
                stack.push_async_callback(asyncio.to_thread, self.session.close)
            else:
                stack.callback(self.session.close)
            for provider in (self.agent.provider, *self._former_providers):
                stack.push_async_callback(provider.close)
            if self.agent.delegation is not None and self.agent.delegation.provider is not None:
                stack.push_async_callback(self.agent.delegation.provider.close)
            stack.push_async_callback(self._toolbox.close)
            stack.push_async_callback(self._apply_reset)  # of state only

    async def set_provider(self, provider: Provider) -> None:
        """Replace the model after the current run. The former provider is closed with the runtime.

        Raises:
            SettingsError: the session uses native tool calls, and the model has none.
            UsageError: see `run`.
        """
        self._require_outside()
        resets = self._resets
        async with self._turn(resets):
            self._toolbox.set_provider(provider)
            self._former_providers.append(self.agent.provider)
            self.agent = replace(self.agent, provider=provider)
            self._cached = None

    async def serve_tools(self) -> None:
        """Serve the agent's tools by MCP on standard input and output until the input ends.

        Raises:
            SettingsError: the package `mcp` is not installed.
            UsageError: see `run`.
        """
        from agent_runtime.run.mcp import ToolServer  # noqa: PLC0415 - see TYPE_CHECKING above

        self._require_outside()
        resets = self._resets
        async with self._turn(resets):
            await ToolServer(self.agent, self._toolbox.registry, self._state, self._gate).serve()

    def create_child_runs(self, caller: DelegatingRun, bounds: Delegation) -> ChildRuns:
        """Return child runs that belong to a caller, such as `TaskManager`, who closes them."""
        return self._toolbox.create_child_runs(caller, bounds)

    def create_child(self, agent: Agent, task: str, listener: Listener) -> AsyncRuntime:
        """Create the runtime of a child run, whose requests go to this one's handlers."""
        session = InMemorySession(f"{self.session.session_id}/{task}", agent.name)
        hooks = HookSystem(listener, answers_from=self.hooks)
        return AsyncRuntime(agent, session, hooks=hooks, console=self._console, request_prefix=f"[task {task}] ")

    def _append_execution(self, _text: str) -> Never:
        raise UsageError(
            "There is no execution buffer: return the text from the tool instead of _append_execution(…). To refuse "
            "a call, raise ToolError."
        )

    @property
    def _terminal_manager(self) -> Never:
        raise UsageError(
            "There is no terminal manager: take the tool, execute = runtime.registry.get('execute').func, before you "
            "register yours, and return await execute(…) from an async function."
        )

    def _require_outside(self) -> None:
        """Reject a caller for which the run waits: it would never end."""
        if self._work is not None and asyncio.current_task() is self._work:
            raise UsageError(WAITS_FOR_ITSELF)

    @asynccontextmanager
    async def _turn(self, resets: int) -> AsyncIterator[None]:
        async with self._lock:
            self._require_usable(resets)
            await self._apply_reset()
            yield

    def _require_usable(self, resets: int) -> None:
        """Reject a call if the runtime was closed or reset while it waited."""
        if self._closed:
            raise UsageError("This runtime is closed; create a new one.")
        if resets != self._resets:
            raise UsageError("The runtime was reset while this call waited for another one to end; call it again.")
        self._state.progress.read(self.session.events)  # a new object if the session was closed

    async def _run_segment(self, begin: Callable[[Run], Coroutine[Any, Any, Outcome]]) -> Outcome:
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
            is_ours = task is not None and bool(task.cancelling())  # not `abort`: the caller is cancelled, too
            if is_ours and self._resumable:
                raise  # record nothing: after a pause, only its answer may follow in the log
            outcome = run.end_early(Status.STOPPED, "The run was stopped.")
            if is_ours:
                await self._state.record_durably(Ended(outcome=outcome))
                raise
        finally:
            self._work = None
        if outcome.status not in {Status.PAUSED, Status.MODEL_UNAVAILABLE}:
            await self._state.record_durably(Ended(outcome=outcome))
            await self._toolbox.children.close()  # may take long, and the caller may be cancelled
        return outcome

    def _conversation(self) -> Conversation:
        """Return the session's conversation; a new one after tools have changed."""
        from agent_runtime.context.conversation import Conversation  # noqa: PLC0415 - see TYPE_CHECKING above

        agent, system, tools = self.agent, self._toolbox.system_prompt, self._toolbox.schemas
        if self._cached is None or (self._cached.system, self._cached.tools) != (system, tools):
            self._cached = Conversation(
                log=self._state,
                provider=agent.provider,
                system=system,
                memory=agent.memory,
                limits=agent.policy.limits,
                words=self._toolbox.transport.extract_prose,
                tools=tools,
                clock=lambda: agent.clock_and_random.now().timestamp(),
            )
        return self._cached


class Runtime:
    """An agent on one workspace, for blocking code. By default it prints, and asks on the terminal.

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
        """Prepare an agent; see `AsyncRuntime`. With `quiet`, print nothing and ask only registered handlers."""
        self._loop = LoopThread("Runtime", "AsyncRuntime", owner=self)
        hooks = HookSystem()
        ask = None if quiet else hooks_module.install_defaults(hooks)
        self._async = AsyncRuntime(
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def hooks(self) -> HookSystem:
        """See `AsyncRuntime.hooks`."""
        return self._async.hooks

    @property
    def registry(self) -> Registry:
        """See `AsyncRuntime.registry`."""
        return self._async.registry

    @property
    def session(self) -> Session:
        """See `AsyncRuntime.session`."""
        return self._async.session

    @property
    def messages(self) -> list[dict[str, str]]:
        """See `AsyncRuntime.messages`."""
        return self._async.messages

    @property
    def pending(self) -> PendingCall | None:
        """See `AsyncRuntime.pending`."""
        return self._async.pending

    @property
    def outcome(self) -> Outcome | None:
        """See `AsyncRuntime.outcome`."""
        return self._async.outcome

    @property
    def unfinished(self) -> bool:
        """See `AsyncRuntime.unfinished`."""
        return self._async.unfinished

    def run(self, task: str | Task) -> Outcome:
        """Work on a task; see `AsyncRuntime.run`. Ctrl+C stops it and raises `KeyboardInterrupt`.

        Raises:
            UsageError: called in an event loop, by a handler or tool of the run, or in a forked process.
            ResumeError: a call of an earlier run waits.
            SessionError: the session cannot be written.
        """
        return self._call(lambda: self._async.run(task))

    def resume(
        self,
        approve: bool | None = None,  # noqa: FBT001 - reads well by position, too
        note: str = "",
        *,
        request_id: str | None = None,
    ) -> Outcome:
        """See `AsyncRuntime.resume`."""
        return self._call(lambda: self._async.resume(approve=approve, note=note, request_id=request_id))

    def send_message(self, message: str) -> None:
        """See `AsyncRuntime.send_message`."""
        self._async.send_message(message)

    def abort(self) -> None:
        """See `AsyncRuntime.abort`."""
        self._async.abort()

    def register_tool(self, name: str, func: Callable[..., Any], replace: bool = False) -> None:  # noqa: FBT001, FBT002 - the seed's documented signature
        """See `AsyncRuntime.register_tool`."""
        self._async.register_tool(name, func, replace=replace)

    def call(self, work: Callable[[AsyncRuntime], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the runtime's event loop, where it is an `AsyncRuntime`.

        Raises:
            UsageError: see `run`; or the runtime is closed.
        """
        return self._loop.run(lambda: work(self._async))

    def reset(self) -> None:
        """See `AsyncRuntime.reset`."""

        async def reset() -> None:
            await self._async.reset()

        self._loop.run(reset)

    def close(self) -> None:
        """See `AsyncRuntime.close`."""
        if not self._loop.stopped:
            self._loop.run(self._async.close)
            self._loop.stop()

    def _call(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> Outcome:
        if RUNNING.get() is self._async:
            raise UsageError(WAITS_FOR_ITSELF)
        return self._loop.run(work)


def preload(provider: str) -> None:
    """Import the modules of a run with a provider's models, so that the first run does not block the event loop."""
    clients = _CLIENT_MODULES if provider in _PROVIDER_MODULES else ()
    for name in (*_COMMON_MODULES, *clients, *_PROVIDER_MODULES.get(provider, ())):
        import_module(name)
