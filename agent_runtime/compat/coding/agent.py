"""`CodingAgent` of llm-coding-agent: a coding agent on one directory with a model of the `llm` package.

Runs are those of `AsyncRuntime`; callbacks run in the caller's thread (`CallerThread`).
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.resources import files
from queue import SimpleQueue
from string import Template
from types import TracebackType
from typing import Any, Self, TypeVar

import click
import llm
from llm.logs import LogStore
from llm.parts import Message
from sqlite_utils import Database
from typing_extensions import override

from agent_runtime.agent.agent import Agent
from agent_runtime.compat.coding.provider import ConversationProvider, Turn
from agent_runtime.compat.coding.tools import MUTATING, NAMES, PREFIX, CodingTools
from agent_runtime.compat.commands import lease_of
from agent_runtime.context.first_message import WORKSPACE
from agent_runtime.core.errors import ModelError, SandboxError, SettingsError
from agent_runtime.core.events import Event, EventType, Replied, Started, Streamed
from agent_runtime.core.values import Outcome, PendingCall, Status, Usage
from agent_runtime.policy.policy import Policy, Rule, RunLimits, alike_patterns, exact_patterns, is_covered
from agent_runtime.policy.shell import CommandPattern
from agent_runtime.processes.spawn import LoopThread
from agent_runtime.run.runtime import AsyncRuntime
from agent_runtime.sandbox.select import SandboxName

T = TypeVar("T")
Model = llm.models._BaseModel  # noqa: SLF001 - llm has no public name for what `get_model` gives
Approve = Callable[[llm.Tool | None, llm.ToolCall], object]
"""Decides whether a call may be made; a text is a refusal with its reason."""
_NO_LIMIT = 100_000
_LONGEST_SECONDS = 24 * 3600.0
_DECLINED = "Cancelled: the user declined this call"
_NAME_CHARS = 100
_ASKS = Policy(rules=(Rule(decision="ask", tool="execute"),))
_TOO_LONG = "Cancelled: it is too long to be approved. People approve only what they were shown whole; make it shorter"


class CodingAgent:
    """A coding agent loop around a model and `CodingTools`.

    Callbacks run in the thread that called `run`.

    Attributes:
        approve: see `__init__`; may be changed between runs.
        conversation: as `llm` keeps it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the documented signature
        self,
        model: str | Model | None = None,
        root: str | os.PathLike[str] = ".",
        approve: bool | Approve | None = None,  # noqa: FBT001 - the same
        chain_limit: int = 25,
        system: str | None = None,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        disabled_tools: Iterable[str] | None = None,
        on_text: Callable[[str], object] | None = None,
        on_tool: Callable[[llm.ToolCall, llm.ToolResult], object] | None = None,
        conversation: llm.Conversation | None = None,
        db: Database | None = None,
        *,
        sandbox: SandboxName = "auto",
        toolchains: str = "auto",
    ) -> None:
        """Prepare; nothing is sent or started yet.

        Args:
            model: an id, an alias or a model; by default that of `conversation`, else the default of `llm`.
            approve: for calls that write or run something: True approves each, a function decides, None pauses the run
                until `resume`.
            chain_limit: replies of one run that may act; 0 for no bound.
            system: additional words for the system prompt.
            key: takes precedence over the key that `llm` would find.
            on_text: called with the model's text as it comes.
            on_tool: called with each finished call.
            db: a database of `llm` for complete responses.
            sandbox, toolchains: see `CodingTools`.

        Raises:
            SandboxError: no such sandbox works on this machine.
            SettingsError: the root is no directory, the model calls no tools, or a disabled tool is unknown.
            llm.UnknownModelError: there is no such model.
            ValueError: the model has no such options.
        """
        found = _found(model) if conversation is None or model is not None else conversation.model
        self.conversation = conversation or llm.Conversation(model=found)
        self.set_model(found)
        self.tools = CodingTools(root, sandbox, toolchains=toolchains)
        self.root = self.tools.root
        if not self.root.is_dir():
            raise SettingsError(f"root: {self.root} is not a directory; create it, or name another.")
        disabled = {name.removeprefix(PREFIX) for name in disabled_tools or ()}
        if unknown := disabled - {*NAMES}:
            raise SettingsError(f"there is no tool {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
        self.model.Options(**(options or {}))
        self.approve = approve
        self.db = db
        self._extra = system
        self._on_text = on_text
        self._on_tool = on_tool
        self._tools = {tool.name: tool for tool in self.tools.tools() if tool.name.removeprefix(PREFIX) not in disabled}
        self._caller = CallerThread(self.tools._loop)  # noqa: SLF001 - they belong together
        self._turn = Turn()
        self._facts = ""
        self._answers: dict[str, bool] = {}
        self._paused = False
        self._provider = ConversationProvider(
            self.conversation, self._tools, system=self.system_prompt, done=self._keep, key=key, options=options
        )
        self._runtime = AsyncRuntime(
            Agent(
                provider=self._provider,
                work_dir=self.root,
                sandbox=self.tools._actions.sandbox,  # noqa: SLF001 - the same
                policy=_policy(chain_limit or _NO_LIMIT),
                tools=(),
                indexed=False,
                index_seconds=0,
                baseline_seconds=0,
                transport="tools",
            ),
            stream=True,
            listeners=[self._listen],
        )
        self._runtime.registry.add_family(self.tools._actions, only=self._tools)  # noqa: SLF001 - the same
        self._runtime.hooks.register(EventType.PERMISSION_REQUEST, self._decide, by_arguments=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_model(self, model: str | Model) -> None:
        """Go on with another model; it is told the whole conversation.

        Raises:
            llm.UnknownModelError: there is no such model.
            SettingsError: it calls no tools.
        """
        found = _found(model)
        if not found.supports_tools:
            raise SettingsError(
                f"The model {found.model_id!r} calls no tools; `llm models --tools` lists those that do."
            )
        self.model = self.conversation.model = found

    def system_prompt(self) -> str:
        """The system prompt."""
        sandbox = self._runtime.agent.sandbox
        text = Template(files(__package__).joinpath("system_prompt.md").read_text(encoding="utf-8")).substitute(
            root=self.root, platform=platform.system(), seen=sandbox.inner_path(self.root), level=sandbox.level
        )
        return "\n".join(filter(None, [text.rstrip(), self._facts, self._extra]))

    def run(self, prompt: str) -> AgentResult:
        """Send a prompt, and make the model's calls until it answers, pauses or is at its limit.

        Raises:
            ModelError: the model service failed.
            ResumeError: a call of the run before waits; call `resume`.
            SandboxError: the sandbox failed.
            UsageError: another agent works in this directory.
        """
        self._answers = {}
        if self._history is not None and not self._paused:
            self._history.begin(self.conversation.id, prompt)
        return self._see(lambda: self._runtime.run(prompt))

    def resume(self, *, approve: bool = True) -> AgentResult:
        """Go on with a paused run, whose pending calls are approved; later ones ask again.

        Args:
            approve: False declines them.

        Raises:
            ResumeError: files have changed since the run paused; the calls can only be declined now.
            ValueError: the last run did not pause.
            others: as for `run`.
        """
        if not self._paused:
            raise ValueError("Nothing to resume: the last run did not pause.")
        self._answers = {_shape(each.name, each.arguments): approve for each in self._turn.pending}
        self._turn.declined = not approve
        return self._see(lambda: self._runtime.resume(approve=approve, note="" if approve else _DECLINED))

    def close(self) -> None:
        """End running commands and release all resources; idempotent."""
        if not self.tools._loop.stopped:  # noqa: SLF001 - the same
            self._caller.run(self._runtime.close)
        self.tools.close()

    @cached_property
    def _history(self) -> History | None:
        return None if self.db is None else History(self.db)

    async def _keep(self, response: llm.Response) -> None:
        """Store a response, in the database's thread."""
        if self._history is not None:
            await self._caller.ask(self._history.record, response)

    def _see(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> AgentResult:
        """Run one leg to its end."""
        with lease_of(self.root):
            self._turn.begin()
            outcome = self._caller.run(work)
        self._paused = outcome.status is Status.PAUSED
        if outcome.status in {Status.SANDBOX_FAILED, Status.NETWORK_LOST}:
            raise SandboxError(outcome.reason or outcome.status)
        if outcome.status not in {Status.FINISHED, Status.ANSWERED, Status.PAUSED, Status.MAX_STEPS}:
            raise ModelError(outcome.reason or outcome.status)
        return AgentResult(
            text="\n".join(self._turn.texts) if outcome.summary is None else outcome.summary,
            tool_calls=self._turn.made,
            paused=self._paused,
            pending_tool_calls=self._turn.pending if self._paused else [],
            hit_limit=outcome.status is Status.MAX_STEPS,
            usage=outcome.usage,
        )

    def _listen(self, event: Event) -> None:
        if isinstance(event, Started):
            self._provider.prompts[event.opening] = goal = event.task.goal
            workspace = event.opening.partition(f"{goal.strip()}\n\n{WORKSPACE}\n")[2].partition("\n\n")[0]
            self._facts = f"\n{WORKSPACE}\n{workspace}" if workspace else self._facts
        if isinstance(event, Streamed) and self._on_text is not None:
            self._caller.tell(self._on_text, event.text)
        if isinstance(event, Replied):
            self._answers = {}  # they were about the reply before
        told = self._turn.take(event)
        if told is not None and self._on_tool is not None:
            self._caller.tell(self._on_tool, *told)

    async def _decide(self, *, tool: str, pending: PendingCall, **_: object) -> bool | str | None:
        """Return the decision about a call; None without an approver."""
        approved: object = self._answers.get(_shape(tool, pending.args))
        if approved is None and self.approve is True:
            return True
        if approved is None and callable(self.approve):
            asked = self._turn.asked(tool, pending.args)
            call = CodingCall(tool, {**pending.args}, asked.tool_call_id if asked else None, preview=pending.preview)
            approved = await self._caller.ask(self.approve, self._tools.get(tool), call) or False
        if approved is None:
            return None
        if approved and not isinstance(approved, str):
            return True
        self._turn.declined = True
        return approved if isinstance(approved, str) else _DECLINED


@dataclass
class CodingCall(llm.ToolCall):
    """A call that is to be approved.

    Attributes:
        preview: what it would do, whole: a diff for a write, the command for a shell; empty where that is too long.
    """

    preview: str = ""


@dataclass
class AgentResult:
    """The outcome of one `run` or `resume`.

    Attributes:
        text: the final answer, or the text so far.
        tool_calls: with results; a declined one has a `llm.CancelToolCall` as its `exception`.
        paused: whether calls wait for `resume`.
        hit_limit: whether `chain_limit` ended the run.
    """

    text: str
    tool_calls: list[tuple[llm.ToolCall, llm.ToolResult]] = field(default_factory=list)
    paused: bool = False
    pending_tool_calls: list[llm.ToolCall] = field(default_factory=list)
    hit_limit: bool = False
    usage: Usage = field(default_factory=Usage)


def _policy(steps: int) -> Policy:
    """Return a policy that asks before each write and command."""
    why = "it writes or runs something"
    return Policy(
        rules=tuple(Rule(decision="ask", tool=f"{PREFIX}{name}", reason=why) for name in MUTATING),
        # A service that is down is reported to the user, who decides when to try again.
        limits=RunLimits(
            max_steps=steps,
            max_repeated_calls=_NO_LIMIT,
            max_seconds=_LONGEST_SECONDS,
            outage_seconds=0.0,
            max_output_chars_per_step=60_000,  # the document names a larger limit, or none
        ),
    )


def _found(model: str | Model | None) -> Model:
    return llm.get_model(model) if model is None or isinstance(model, str) else model


def _shape(tool: str, arguments: Mapping[str, object]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


class CallerThread:
    """The thread in which an embedder waits: callbacks run there, where its database and its terminal belong."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._interrupted = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end, and make its calls; what one of them raises stops it, and goes on from here.

        Raises:
            UsageError: as for `LoopThread.prepare`.
        """
        self._interrupted = False
        self._calls = calls = SimpleQueue[Callable[[], None] | None]()
        prepared = self._loop.prepare(work)
        try:
            future = prepared.begin()
            future.add_done_callback(lambda _: calls.put(None))
            while (call := calls.get()) is not None:
                call()
        except BaseException:  # Ctrl+C, too
            self._interrupted = True
            ended = prepared.cancel()
            ended.add_done_callback(lambda _: calls.put(None))
            while not ended.done():
                if (call := calls.get()) is not None:
                    call()
            raise
        return future.result()

    def tell(self, callback: Callable[..., object], *args: object) -> None:
        def call() -> None:
            if not self._interrupted:
                callback(*args)

        self._calls.put(call)

    async def ask(self, callback: Callable[..., T], *args: object) -> T:
        """Call `callback` and return its answer; cancelled if the caller is interrupted."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            if self._interrupted:
                loop.call_soon_threadsafe(answer.cancel)
                return
            said = callback(*args)
            loop.call_soon_threadsafe(partial(_give, answer, said))

        self._calls.put(call)
        return await answer


def _give(answer: asyncio.Future[T], said: T) -> None:
    if not answer.done():
        answer.set_result(said)


class History(LogStore):
    """The log of one conversation.

    `LogStore` hashes the whole conversation for every response; this one remembers the stored messages by identity.
    """

    def __init__(self, db: Database) -> None:
        super().__init__(db)  # type: ignore[no-untyped-call]  # llm leaves it untyped
        self._stored: dict[tuple[str | None, int], tuple[Message, str]] = {}

    def begin(self, conversation_id: str, prompt: str) -> None:
        """Name a new conversation after its first prompt."""
        name = " ".join(prompt.split())
        self.ensure_thread(conversation_id, name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…")

    def record(self, response: llm.Response) -> None:
        """Store a response in one transaction."""
        try:
            self.log(response)
        except BaseException:
            self._stored.clear()  # what this transaction had stored is gone
            raise

    @override
    def ensure_chain(
        self, messages: Sequence[Message], parent: str | None = None, fragments: Sequence[str] | None = None
    ) -> str | None:
        """Store messages as a chain; see `LogStore.ensure_chain`."""
        tip = parent
        for message in messages:
            known = self._stored.get((tip, id(message)))
            if known is None:
                stored = super().ensure_chain([message], tip, fragments)
                known = self._stored[tip, id(message)] = (message, str(stored))
            tip = known[1]
        return tip


class TerminalApproval:
    """Approvals on the terminal, remembered for the session."""

    def __init__(self, allow: tuple[str, ...] = (), *, approve_all: bool = False) -> None:
        """Begin a session.

        Args:
            allow: commands without a question, e.g. `pytest*`: a `*` at the end stands for any further arguments.

        Raises:
            SettingsError: a pattern is invalid.
        """
        self.approve_all = approve_all
        self._writes = False
        self._patterns = tuple(_pattern(each) for each in allow)

    def __call__(self, tool: llm.Tool | None, call: llm.ToolCall) -> bool | str:  # noqa: ARG002 - what CodingAgent calls
        """Return True, or the reason of a refusal."""
        command = call.arguments.get("command") if call.name == f"{PREFIX}execute_command" else None
        pending = None
        if isinstance(command, str):  # as the rules of this runtime know a command
            pending = PendingCall(
                request_id="",
                kind="permission",
                tool="execute",
                args={"command": command},
                reason="",
                preview="",
                workspace="",
            )
        if self.approve_all or (pending is None and self._writes):
            return True
        if pending is not None and is_covered(_ASKS, self._patterns, pending):
            return True
        preview = call.preview if isinstance(call, CodingCall) else ""
        if not preview:
            click.secho(f"\n{call.name.removeprefix(PREFIX)}: declined, it is too long to be shown whole", fg="yellow")
            return _TOO_LONG
        patterns = () if pending is None else alike_patterns(_ASKS, pending) or exact_patterns(_ASKS, pending)
        always = "every change of a file" if pending is None else " and ".join(f"`{each}`" for each in patterns)
        click.secho(f"\n{preview}", fg="yellow")
        try:
            answer = input(f"Approve? [y/n{f'/a=always: {always}' if always else ''}] ").strip().lower()
        except EOFError:
            return False
        if answer == "a" and always:
            self._writes = self._writes or pending is None
            self._patterns += patterns
            return True
        return answer == "y"


def _pattern(text: str) -> str:
    """Convert llm-coding-agent's command pattern to this runtime's form."""
    text = text.strip()
    plain = text.rstrip("*").rstrip()
    if not plain.partition(" ")[0].strip("*"):
        raise SettingsError(f"--allow {text!r}: name a program, e.g. 'pytest*'; --yolo approves everything")
    pattern = f"{plain} *" if text.endswith("*") else plain
    CommandPattern.parse(pattern)
    return pattern
