"""The tools of one runtime, and what they share: the workspace, the terminals, the logs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from agent_runtime import prompts
from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.context.briefing import Orientation
from agent_runtime.context.orientation import orient
from agent_runtime.context.toolchain import toolchain
from agent_runtime.context.trial import TRIAL_SECONDS, read_trial, trial
from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import TICK_SECONDS, NetworkLost, NetworkUsed
from agent_runtime.core.policy import CallFacts, Permitted
from agent_runtime.core.skills import usable_skills
from agent_runtime.core.task import Task
from agent_runtime.delegation.children import Children
from agent_runtime.delegation.protocol import DelegatingRun, StartRuntime, no_runtime
from agent_runtime.index.building import has_sources
from agent_runtime.index.workspace_index import WorkspaceIndex
from agent_runtime.providers.protocol import Provider, ToolSchema, tool_calling
from agent_runtime.run.checkpoint import transport_of
from agent_runtime.run.delegating import OwnRun
from agent_runtime.run.servers import Servers
from agent_runtime.run.state import RunState
from agent_runtime.sandbox.enclosed import enclosing
from agent_runtime.sandbox.way_out import way_out
from agent_runtime.terminals.spool import OutputLogs
from agent_runtime.tools.context import ContextTools
from agent_runtime.tools.delegation import DelegationTools
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.index import IndexTools
from agent_runtime.tools.questions import Ask, QuestionTools
from agent_runtime.tools.registry import Registry, ToolFamily
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools
from agent_runtime.tools.skills import SkillTools
from agent_runtime.transports.blocks.transport import BlockTransport
from agent_runtime.transports.native.transport import NativeTransport
from agent_runtime.transports.protocol import Transport, TransportLeg
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.scratch import Scratch
from agent_runtime.workspace.state import Manifest

_NAMED_FILES = 10


class Toolbox:
    """What an agent works with.

    Attributes:
        registry: its tools.
        files: those for files, which keep track of them.
        transport: how the model calls them.
        workspace: its directory.
        index: what the workspace defines; built once it is asked for.
        children: the child runs that it delegates tasks to.
        servers: the MCP servers whose tools it has.
        skills: what it can read on demand, by name.
        network_lost: why the sandbox has no network any more; empty while it has what it was given.
    """

    def __init__(self, agent: Agent, state: RunState, *, ask: Ask, start_child: StartRuntime = no_runtime) -> None:
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
        own = sandbox.apart and sys.platform == "linux" and not agent.unsafe_mode
        self._scratch = Scratch() if own else None
        self.workspace = Workspace(
            place,
            seen_as=sandbox.seen_as(place),
            readable=self._logs.seen_in(sandbox),
            confined_to_root=not agent.unsafe_mode,
            scratch=self._scratch,
        )
        withholds = agent.policy.withholds
        self.files = FileTools(self.workspace, agent.clock_and_random.now, withholds)
        self.index = WorkspaceIndex(self.workspace, agent.kept_index, withholds=self._hidden, service=agent.embeddings)
        self._search = SearchTools(
            self.workspace, sandbox, withholds=lambda _, path: withholds("find", path), index=self.index
        )
        egress = way_out(
            sandbox,
            agent.network,
            told=lambda connection: state.emit(NetworkUsed(connection=connection)),
            lost=self._note_lost,
        )
        gap = TICK_SECONDS if agent.separates_commands else 0.0
        self._shell = ShellTools(
            sandbox, place, self._logs, egress, scratch=self._scratch, start_in=agent.start_in, gap=gap
        )
        self._python_path = state.progress.python_path
        self._shell.find_modules_in(self._python_path)
        self.transport = _transport(agent, state)
        self.registry = Registry(self.transport.adapt, agent.policy.looks_into)
        self.children = Children(agent, OwnRun(state, self.registry), self.workspace, start_child, self.files.adopt)
        context = ContextTools(state)
        families: list[ToolFamily] = [self.files, self._search, self._shell, QuestionTools(ask), context]
        if agent.delegation is not None:
            families.append(DelegationTools(self.children))
        self.skills = usable_skills(agent.skills)
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
        self.servers = Servers(agent, state, self.registry, sees_images=self._sees_images)

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

    def open_transport(self) -> TransportLeg:
        """Begin to read replies that call these tools."""
        return self.transport.open(self.registry, self._agent.policy.limits, enclosing(self._agent.sandbox))

    def use(self, provider: Provider) -> None:
        """Have another model call these tools in the same way, and child runs that begin from now on have it, too.

        Raises:
            SettingsError: it cannot.
        """
        if isinstance(self.transport, NativeTransport):
            _require_calls(provider)
        self._agent = replace(self._agent, provider=provider)
        self.children.use(provider)

    @property
    def status(self) -> str:
        """One line per living terminal."""
        return self._shell.status

    @property
    def terminals(self) -> list[str]:
        """Names of the terminals that are alive."""
        return self._shell.alive

    async def orientation(self, task: Task, facts: Sequence[str]) -> Orientation:
        """What the model would otherwise have to find out about the place it works in; of that, only once."""
        if self._oriented:
            return replace(await self._oriented_in(task, facts), tree="", python_path=self._python_path)
        agent = self._agent
        place = f"Working directory: {agent.sandbox.seen_as(agent.work_dir)} (sandbox: {agent.sandbox.level})"
        if agent.start_in:
            place += (
                f"; commands start in {agent.sandbox.seen_as(agent.work_dir)}/{agent.start_in}, paths of files do not"
            )
        reach = (
            [f"Network: HTTPS to {', '.join(map(str, sorted(agent.network.allowed)))} only"] if agent.network else []
        )
        found, programs, tests = await asyncio.gather(
            self._oriented_in(task, [*facts, place, *reach]),
            toolchain(agent.sandbox, agent.work_dir),
            self._tests(),
        )
        self._oriented = True  # only now: a run that was stopped meanwhile has told nothing
        told = (*found.facts, *filter(None, (programs, tests)))
        return replace(found, facts=told, python_path=self._python_path)

    async def _tests(self) -> str:
        """How the project's tests are run, as far as trying tells; nothing where no command may be run unasked."""
        agent = self._agent
        if not agent.sandbox.apart or "execute" not in self.registry.names:
            return ""
        tried = await asyncio.to_thread(trial, self.workspace, agent.start_in, self._permits)
        if tried is None:
            return ""
        found = read_trial(tried, await self._shell.try_out(tried.script, TRIAL_SECONDS))
        self._python_path = found.python_path
        self._shell.find_modules_in(found.python_path)
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
            grep=self._search.lines_with,
            hides=self._hidden,
            seconds=self._agent.index_seconds,
        )

    def children_of(self, caller: DelegatingRun, bounds: Delegation) -> Children:
        """Child runs that do not belong to a run of this agent, but to a caller; theirs to end."""
        agent = replace(self._agent, delegation=bounds)
        return Children(agent, caller, self.workspace, self._start_child, self.files.adopt)

    async def manifest(self) -> Manifest:
        """The workspace's files and what is in them."""
        return await Manifest.bounded(self.workspace)

    async def changed_since(self, manifest: Mapping[str, Plain]) -> list[str]:
        """How the workspace's files differ from what `manifest` said of them, in words; a bounded number."""
        then, now = Manifest.from_plain(manifest), await self.manifest()
        return [] if now.digest == then.digest else now.difference(then, limit=_NAMED_FILES)

    async def interrupt(self, reason: str) -> None:
        """Break off whatever runs, in all terminals; their shells live on where they can."""
        await self._shell.interrupt(reason)

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
        await self.children.forget()
        self.files.reset()
        self.transport.reset()
        await self._end_terminals()
        if self._scratch is not None:
            self._scratch.clear()

    async def close(self) -> None:
        """Give everything back; idempotent."""
        await self.children.forget()
        await self.servers.close()
        await self._shell.close()
        await self.index.close()
        self._search.close()
        self.workspace.close()
        if self._scratch is not None:
            self._scratch.clear()
        self._logs.close()

    async def _end_terminals(self) -> None:
        await self._shell.reset()
        self.network_lost = ""  # a new sandbox is served again, within what is left of the network's bounds

    def _note_lost(self, reason: str) -> None:
        self.network_lost = reason
        self._state.emit(NetworkLost(reason=reason))

    def _sees_images(self) -> bool:
        """Whether pictures in results reach the model that is asked now."""
        return isinstance(self.transport, NativeTransport) and self._agent.provider.sees_images

    def _hidden(self, path: str) -> bool:
        """Whether a file is not to be shown unasked."""
        return any(self._agent.policy.withholds(tool, path) for tool in ("read_file", "find"))


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
