"""Runtime: the same agent for code without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.agent_file import AgentFile
from agent_runtime.core.errors import UsageError
from agent_runtime.core.outcome import Outcome, PendingCall
from agent_runtime.core.task import Task
from agent_runtime.processes.loop_thread import LoopThread
from agent_runtime.run import console
from agent_runtime.run.hooks import HookSystem, Listener
from agent_runtime.run.runtime import RUNNING, WAITS_FOR_ITSELF, AsyncRuntime
from agent_runtime.sessions.protocol import Session
from agent_runtime.tools.registry import Registry

T = TypeVar("T")


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
        ask = None if quiet else console.install(hooks)
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
        return self._loop.see(lambda: work(self._runtime))

    def reset(self) -> None:
        """Stop what runs and forget everything: history, archive, counters, terminals, messages, tracked files."""
        self._loop.see(self._runtime.reset)

    def close(self) -> None:
        """Stop what runs, end every terminal, give everything back; idempotent."""
        if not self._loop.stopped:
            self._loop.see(self._runtime.close)
            self._loop.stop()

    def _see(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> Outcome:
        if RUNNING.get() is self._runtime:
            raise UsageError(WAITS_FOR_ITSELF)
        return self._loop.see(work)
