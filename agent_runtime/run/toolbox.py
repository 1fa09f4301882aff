"""The tools of one runtime and what they share: workspace, terminals, logs, index, transport, child runs, MCP servers.

`CommandRunner` runs single commands in the same kind of sandbox, without an agent.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, get_args

from agent_runtime import prompts
from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.context.first_message import Orientation, describe_toolchain, orient
from agent_runtime.context.test_command import TRIAL_SECONDS, make_trial, read_trial
from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import (
    TICK_SECONDS,
    ChildRecorded,
    ChildResult,
    ChildWatched,
    Event,
    NetworkLost,
    NetworkUsed,
    Paused,
    Recorded,
    Refused,
)
from agent_runtime.core.values import Connection, Network, Outcome, Plain, Status, Task, parse_skills
from agent_runtime.delegation.children import (
    ChildRuns,
    Consumption,
    DelegatingRun,
    StartRuntime,
    TaskStatus,
    refuse_runtime,
)
from agent_runtime.delegation.tools import DelegationTools
from agent_runtime.index.index import WorkspaceIndex
from agent_runtime.index.store import has_sources
from agent_runtime.policy.policy import CallFacts, Permitted
from agent_runtime.providers.protocol import Provider, ToolSchema, tool_calling
from agent_runtime.run.checkpoint import transport_of
from agent_runtime.run.mcp import Servers
from agent_runtime.run.state import RunState
from agent_runtime.sandbox.protocol import Sandbox
from agent_runtime.sandbox.select import create_guard, find_encloser, open_egress
from agent_runtime.terminals.command import ShellStart
from agent_runtime.terminals.factory import LiveTerminal, create_terminals
from agent_runtime.terminals.output import OutputLogs
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.conversation import Ask, ContextTools, QuestionTools, SkillTools
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.tools.tool import Registry, ToolFamily
from agent_runtime.transports.blocks import BlockTransport
from agent_runtime.transports.native import NativeTransport
from agent_runtime.transports.protocol import Transport, TransportSession
from agent_runtime.workspace.files import Scratch, Workspace
from agent_runtime.workspace.state import Manifest

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress

_NAMED_FILES = 10
_INTERRUPT_SECONDS = 1.0


class Toolbox:
    """What an agent works with.

    Attributes:
        registry: its tools.
        files: those for files, which keep track of them.
        shell: the terminals.
        transport: how the model calls them.
        workspace: its directory.
        index: what the workspace defines; built once it is asked for.
        children: the child runs that it delegates tasks to.
        servers: the MCP servers whose tools it has.
        skills: what it can read on demand, by name.
        network_lost: why the sandbox has no network any more; empty while it has what it was given.
    """

    def __init__(self, agent: Agent, state: RunState, *, ask: Ask, start_child: StartRuntime = refuse_runtime) -> None:
        """Get everything ready; no program is started yet.

        Args:
            agent: which tools it has, and where.
            state: the run's log, and those who are told.
            ask: puts a question to the user.
            start_child: makes the runtimes of child runs.

        Raises:
            SettingsError: a tool that the agent is to have does not exist, or its network cannot be kept to.
        """
        self._agent = agent
        self._start_child = start_child
        self._state = state
        self._oriented = False
        self.network_lost = ""
        self._logs = OutputLogs(agent.logs)
        sandbox, place = agent.sandbox, agent.work_dir
        # In unsafe mode a path outside the workspace means the machine's own file.
        own = sandbox.is_isolated and sys.platform == "linux" and not agent.unsafe_mode
        self._scratch = Scratch() if own else None
        self._guard = create_guard(sandbox, place, lambda text: state.emit(Refused(error=text)))
        self.workspace = Workspace(
            place,
            agent_path=sandbox.inner_path(place),
            readable=self._logs.agent_paths(sandbox),
            confined_to_root=not agent.unsafe_mode,
            git_writable=sandbox.git_writable,
            scratch=self._scratch,
        )
        withholds = agent.policy.hides
        self.files = FileTools(self.workspace, agent.clock_and_random.now, withholds)
        self.index = WorkspaceIndex(self.workspace, agent.kept_index, is_hidden=self._hidden, service=agent.embeddings)
        self._search = SearchTools(
            self.workspace, sandbox, withholds=lambda _, path: withholds("find", path), index=self.index
        )
        self.shell = ShellTools(
            sandbox,
            place,
            self._logs,
            self._open_egress(),
            scratch=self._scratch,
            guard=self._guard,
            start_in=agent.start_in,
            gap=TICK_SECONDS if agent.separates_commands else 0.0,
        )
        self._python_path = state.progress.python_path
        self.shell.set_python_path(self._python_path)
        self.transport = _transport(agent, state)
        self.registry = Registry(self.transport.adapt, agent.policy.has_detailed_rules)
        self.children = ChildRuns(agent, OwnRun(state, self.registry), self.workspace, start_child, self.files.adopt)
        context = ContextTools(state)
        families: list[ToolFamily] = [self.files, self._search, self.shell, QuestionTools(ask), context]
        if agent.delegation is not None:
            families.append(DelegationTools(self.children))
        self.skills = parse_skills(agent.skills)
        known = [*(name for family in families for name in family.value_types), *IndexTools.value_types]
        if agent.indexed or (agent.indexed is None and has_sources(self.workspace)):
            families.insert(2, IndexTools(self.index))
        for name in agent.tools or ():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise SettingsError(f"there is no built-in tool {name!r}.{hint} Known: {', '.join(known)}")
        for family in families:
            chosen = [name for name in family.value_types if agent.tools is None or name in agent.tools]
            self.registry.add_family(family, only=chosen)
        if self.skills:
            self.registry.add_family(SkillTools(self.skills))
        self.servers = Servers(agent, state, self.registry, guard=self._guard, sees_images=self._sees_images)

    @property
    def system_prompt(self) -> str:
        """The system prompt: the agent, its tools and how to use them; it changes when tools are added or removed."""
        agent = self._agent
        replies = self.transport.guide(self.registry.declarations, chat=agent.chat)
        return prompts.system_prompt(
            name=agent.name,
            role=agent.role,
            replies=replies,
            step_chars=agent.step_chars,
            instructions=agent.instructions,
        )

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools as they are declared to the service; none where the system prompt declares them."""
        return self.transport.schemas(self.registry)

    def open_transport(self) -> TransportSession:
        """Begin to read replies that call these tools."""
        return self.transport.open(self.registry, self._agent.policy.limits, find_encloser(self._agent.sandbox))

    def use(self, provider: Provider) -> None:
        """Have another model call these tools in the same way, and child runs that begin from now on have it, too.

        Raises:
            SettingsError: it cannot.
        """
        if isinstance(self.transport, NativeTransport):
            _require_calls(provider)
        self._agent = replace(self._agent, provider=provider)
        self.children.set_provider(provider)

    async def orientation(self, task: Task, facts: Sequence[str]) -> Orientation:
        """What the model would otherwise have to find out about the place it works in; of that, only once."""
        if self._oriented:
            return replace(await self._oriented_in(task, facts), tree="", python_path=self._python_path)
        agent = self._agent
        place = f"Working directory: {agent.sandbox.inner_path(agent.work_dir)} (sandbox: {agent.sandbox.level})"
        if agent.start_in:
            start = f"{agent.sandbox.inner_path(agent.work_dir)}/{agent.start_in}"
            place += f"; commands start in {start}, paths of files do not"
        reach = (
            [f"Network: HTTPS to {', '.join(map(str, sorted(agent.network.allowed)))} only"] if agent.network else []
        )
        found, programs, tests = await asyncio.gather(
            self._oriented_in(task, [*facts, place, *reach]),
            describe_toolchain(agent.sandbox, agent.work_dir),
            self._tests(),
        )
        self._oriented = True  # only now: a run that was stopped meanwhile has told nothing
        told = (*found.facts, *filter(None, (programs, tests)))
        return replace(found, facts=told, python_path=self._python_path)

    async def _tests(self) -> str:
        """How the project's tests are run, as far as trying tells; nothing where no command may be run unasked."""
        agent = self._agent
        if not agent.sandbox.is_isolated or "execute" not in self.registry.names:
            return ""
        tried = await asyncio.to_thread(make_trial, self.workspace, agent.start_in, self._permits)
        if tried is None:
            return ""
        found = read_trial(tried, await self.shell.run_trial(tried.script, TRIAL_SECONDS))
        self._python_path = found.python_path
        self.shell.set_python_path(found.python_path)
        return found.fact

    def _permits(self, command: str) -> bool:
        arguments: dict[str, Plain] = {"session_id": "main", "command": command}
        facts = CallFacts(tool="execute", args=arguments, command=command)
        return isinstance(self._agent.policy.decide(facts), Permitted)

    async def _oriented_in(self, task: Task, facts: Sequence[str]) -> Orientation:
        return await orient(
            self.workspace,
            task,
            facts,
            index=self.index,
            grep=self._search.find_texts,
            hides=self._hidden,
            seconds=self._agent.index_seconds,
        )

    def children_of(self, caller: DelegatingRun, bounds: Delegation) -> ChildRuns:
        """Child runs that do not belong to a run of this agent, but to a caller; theirs to end."""
        agent = replace(self._agent, delegation=bounds)
        return ChildRuns(agent, caller, self.workspace, self._start_child, self.files.adopt)

    async def manifest(self) -> Manifest:
        """The workspace's files and what is in them."""
        return await Manifest.scan_bounded(self.workspace)

    async def changed_since(self, manifest: Mapping[str, Plain]) -> list[str]:
        """How the workspace's files differ from what `manifest` said of them, in words; a bounded number."""
        then, now = Manifest.from_plain(manifest), await self.manifest()
        return [] if now.digest == then.digest else now.difference(then, limit=_NAMED_FILES)

    async def renew(self) -> list[str]:
        """Have the next command start a new sandbox, if this one has lost its network.

        Returns:
            What the model should know of it, one line each.
        """
        if not self.network_lost:
            return []
        await self._end_terminals()
        return [
            "Every terminal was ended, because its sandbox had lost its network. The next command starts a new one."
        ]

    async def reset(self) -> None:
        """Forget everything about files, and end every terminal and what was started there."""
        self._oriented = False
        await self.children.close()
        self.files.reset()
        self.transport.reset()
        await self._end_terminals()
        if self._scratch is not None:
            self._scratch.clear()

    async def close(self) -> None:
        """Give everything back; idempotent."""
        await self.children.close()
        await self.servers.close()
        await self.shell.close()
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)
            self._guard.report()
        await self.index.close()
        self._search.close()
        self.workspace.close()
        if self._scratch is not None:
            self._scratch.clear()
        self._logs.close()

    async def _end_terminals(self) -> None:
        await self.shell.reset()
        self.network_lost = ""  # a new sandbox is served again, within what is left of the network's bounds

    def _open_egress(self) -> Egress | None:
        """Make the network of the sandbox; None without one.

        Raises:
            SettingsError: the sandbox cannot enforce it.
        """
        return open_egress(
            self._agent.sandbox,
            self._agent.network,
            on_connection=lambda connection: self._state.emit(NetworkUsed(connection=connection)),
            on_lost=self._note_lost,
        )

    def _note_lost(self, reason: str) -> None:
        self.network_lost = reason
        self._state.emit(NetworkLost(reason=reason))

    def _sees_images(self) -> bool:
        """Whether pictures in results reach the model that is asked now."""
        return isinstance(self.transport, NativeTransport) and self._agent.provider.sees_images

    def _hidden(self, path: str) -> bool:
        """Whether a file is not to be shown unasked."""
        return any(self._agent.policy.hides(tool, path) for tool in ("read_file", "find"))


def _transport(agent: Agent, state: RunState) -> Transport:
    """How an agent's model calls tools: as the agent says, else as a run that waits did, else as suits the model.

    Raises:
        SettingsError: the model has no tool calls of its own, and is to use them.
    """
    if agent.transport == "tools":
        _require_calls(agent.provider)
    can = tool_calling(agent.provider)
    waiting = state.progress.waiting
    suspended = transport_of(waiting[1]) if waiting is not None and can != "unsupported" else None
    name = agent.transport or suspended or ("tools" if can == "preferred" else "blocks")
    return NativeTransport() if name == "tools" else BlockTransport()


def _require_calls(provider: Provider) -> None:
    """Refuse a model that cannot be spoken to by tool calls.

    Raises:
        SettingsError: it is one.
    """
    if tool_calling(provider) == "unsupported":
        raise SettingsError(
            f"The model {provider.model!r} has no tool calls of its own, or its provider does not pass them on, "
            "so `transport` cannot be `tools`. Leave it out, or choose another `model`."
        )


class OwnRun:
    """The run whose agent delegates: child runs share its limits, and its log holds their events."""

    def __init__(self, state: RunState, registry: Registry) -> None:
        """Speak for the newest run of a session.

        Args:
            state: of the run.
            registry: its tools.
        """
        self._state = state
        self._registry = registry
        self._number = 0

    @property
    def consumption(self) -> Consumption:
        """What the run has used of its limits."""
        progress = self._state.progress
        return Consumption(usage=progress.usage, steps=progress.step, seconds=self._state.clock.seconds)

    @property
    def tools(self) -> tuple[str, ...]:
        """The built-in tools that it has, as they were built in."""
        return self._registry.originals

    def new_task_id(self) -> str:
        """A name that no task of the session has."""
        self._number = max(self._number, self._state.progress.delegated) + 1
        return f"t{self._number}"

    def past_status(self, task: str) -> TaskStatus | None:
        """Return the status of a task by the run's log."""
        if (record := self._state.progress.children.get(task)) is None:
            return None
        ended = record.outcome or Outcome(status=Status.STOPPED, reason="The process that ran it ended.")
        return TaskStatus.build(task, record.goal, ended, record.result, ended.steps, ended.usage)

    def handle_child_event(self, task: str, event: Event) -> None:
        """Put an event of a child run into the log, and tell watchers.

        That a child paused is not recorded: what is signed for it is of no use to any other process.
        """
        if isinstance(event, get_args(Recorded)) and not isinstance(event, Paused):
            recorded = (
                event
                if isinstance(event, ChildResult) and event.task == task
                else ChildRecorded(task=task, event=event)
            )
            self._state.record(recorded)
        else:
            self._state.emit(ChildWatched(task=task, event=event))


class CommandRunner:
    """Runs commands one after the other in one sandbox on one workspace; everything in it ends on leaving.

    Use it on Linux or macOS, and from the main thread, because a sandbox dies with the thread that started it.

    Example:
        ```python
        async with CommandRunner(sandbox, work_dir, network=Network.of("registries")) as runner:
            end = await runner.run("pip install -r requirements.txt", seconds=300)
        ```
    """

    def __init__(
        self,
        sandbox: Sandbox,
        work_dir: Path,
        *,
        network: Network | None = None,
        told: Callable[[Connection], None] = lambda _connection: None,
        start_in: str = "",
    ) -> None:
        """Prepare; nothing is started before the first command.

        Args:
            sandbox: protects the host.
            work_dir: the directory that the commands work in, and may change.
            network: what they may reach; nothing by default.
            told: called with each connection once it is over or was refused.
            start_in: the directory below `work_dir` in which they start.

        Raises:
            SettingsError: there is to be a network that the sandbox cannot keep to.
        """
        self._lost = ""
        egress = open_egress(sandbox, network or Network(), on_connection=told, on_lost=self._note_lost)
        self._guard = create_guard(sandbox, work_dir)
        start = ShellStart(directory=start_in)
        self._place = create_terminals(sandbox, work_dir, {}, None, egress, guard=self._guard, start=start)
        self._terminal: LiveTerminal = self._place.terminal("commands", self._place.shells[0])

    async def __aenter__(self) -> Self:
        """Enter; see `close`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def run(self, command: str, *, seconds: float) -> CommandEnd:
        """Run a command in a bash of its own, which stops at the first thing that fails, and has no input.

        Args:
            command: one line or many.
            seconds: after these it is stopped.

        Raises:
            SandboxError: the sandbox cannot be started.
        """
        begun = time.monotonic()
        # With `bash -c` no spelling of a command can leave the terminal's own shell waiting for more.
        text = f"bash -e -o pipefail -c {shlex.quote(command)} </dev/null"
        report = await self._terminal.run(text, timeout=seconds)
        said = report.output
        timed_out = report.status == "running"
        if timed_out or report.status == "waiting for input":
            why = f"it was stopped after {seconds:.3g} s" if timed_out else "it asked for input, and there is none"
            await self._terminal.interrupt(why)
            last = await self._terminal.read(timeout=_INTERRUPT_SECONDS)
            if last is not None:
                report, said = last, said + last.output
        stopped = report.status in {"running", "waiting for input", "stopped", "killed", "incomplete", "restarted"}
        return CommandEnd(
            command=command,
            exit_code=None if stopped else report.exit_code,
            seconds=time.monotonic() - begun,
            output=said,
            timed_out=timed_out,
            note="; ".join(filter(None, (report.note, self._lost and f"the network went away: {self._lost}"))),
        )

    async def close(self) -> None:
        """End everything that was started; idempotent."""
        await self._place.close()
        await self._terminal.close()
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)

    def _note_lost(self, reason: str) -> None:
        self._lost = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        command: as it was given.
        exit_code: None when it was stopped before it ended.
        seconds: how long it took.
        output: what it wrote, as plain text; of much, the first and the last 5,000 characters.
        note: what else is to be known: a limit that it went over, a network that went away; or empty. It may hold words
            of programs, too.
        timed_out: whether it was stopped because its time was over.
    """

    command: str
    exit_code: int | None
    seconds: float
    output: str
    note: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.exit_code == 0
