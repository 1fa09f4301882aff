"""The tools of one runtime and their shared state; `CommandRunner` for commands without an agent."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_args

from agent_runtime import prompts
from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation
from agent_runtime.context.code_map import CodeMap
from agent_runtime.context.first_message import Orientation, describe_toolchain, orient
from agent_runtime.context.instructions import InstructionSet
from agent_runtime.context.test_command import TRIAL_SECONDS, TrialResult, make_trial, read_trial
from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import (
    TICK_SECONDS,
    BaselineTaken,
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
from agent_runtime.processes.spawn import run_in_thread
from agent_runtime.providers.protocol import Provider, ToolSchema, tool_calling
from agent_runtime.run.baseline import choose_tests, digest_file, excuse_failures, is_about, take_baseline
from agent_runtime.run.checkpoint import read_transport
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
from agent_runtime.transports.transport import Transport
from agent_runtime.workspace.files import Scratch, Workspace
from agent_runtime.workspace.state import Manifest

if TYPE_CHECKING:
    from agent_runtime.sandbox.egress import Egress

_MAX_LISTED = 10
_INTERRUPT_SECONDS = 1.0


class Toolbox:
    """The tools of an agent and their shared state.

    `network_lost` is why the sandbox has lost its network, or empty.
    """

    def __init__(self, agent: Agent, state: RunState, *, ask: Ask, start_child: StartRuntime = refuse_runtime) -> None:
        """Create the tools without starting a program.

        Raises:
            SettingsError: a tool does not exist, or the sandbox cannot enforce the network.
        """
        self._agent = agent
        self._start_child = start_child
        self._state = state
        self._oriented, self.network_lost = False, ""
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
        self.index = WorkspaceIndex(self.workspace, agent.kept_index, is_hidden=self._hides, service=agent.embeddings)
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
            excuse=self._excuse_failures,
        )
        self._baseline: asyncio.Task[BaselineTaken] | None = None
        self._python_path = state.progress.python_path
        self.shell.set_python_path(self._python_path)
        self.transport = _select_transport(agent, state)
        self.registry = Registry(self.transport.adapt_tool, agent.policy.has_detailed_rules)
        self.children = ChildRuns(agent, OwnRun(state, self.registry), self.workspace, start_child, self.files.adopt)
        context = ContextTools(state)
        questions = QuestionTools(ask, is_listed=agent.attended)
        families: list[ToolFamily] = [self.files, self._search, self.shell, questions, context]
        if agent.delegation is not None:
            families.append(DelegationTools(self.children))
        self.skills = parse_skills(agent.skills)
        self.instructions = InstructionSet()
        self._register_tools(families)
        self.servers = Servers(agent, state, self.registry, guard=self._guard, sees_images=self._sees_images)

    def _register_tools(self, families: list[ToolFamily]) -> None:
        agent = self._agent
        names = [*(name for family in families for name in family.value_types), *IndexTools.value_types]
        if agent.indexed or (agent.indexed is None and has_sources(self.workspace)):
            families.insert(2, IndexTools(self.index))
        else:
            self.registry.missing |= dict.fromkeys(IndexTools.value_types, "there is no code index here; use find")
        for name in agent.tools or ():
            if name not in names:
                close = get_close_matches(name, names, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise SettingsError(f"there is no built-in tool {name!r}.{hint} Known: {', '.join(names)}")
        for family in families:
            chosen = [name for name in family.value_types if agent.tools is None or name in agent.tools]
            self.registry.add_family(family, only=chosen)
        if self.skills:
            self.registry.add_family(SkillTools(self.skills))

    @property
    def system_prompt(self) -> str:
        """Current system prompt; it depends on the registered tools."""
        agent = self._agent
        replies = self.transport.render_guide(self.registry.listing, chat=agent.chat)
        return prompts.system_prompt(
            name=agent.name,
            role=agent.role,
            replies=replies,
            step_chars=agent.step_chars,
            instructions=agent.instructions,
        )

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """Tool schemas for the model service; see `Transport.declare_tools`."""
        return self.transport.declare_tools(self.registry)

    def open_transport(self) -> Transport[Any]:
        """Begin a segment of a run with these tools."""
        return self.transport.open(self.registry, self._agent.policy.limits, find_encloser(self._agent.sandbox))

    def set_provider(self, provider: Provider) -> None:
        """Set the model, also of future child runs."""
        if self.transport.uses_tool_calls:
            _require_tool_calls(provider)
        self._agent = replace(self._agent, provider=provider)
        self.children.set_provider(provider)

    async def describe_environment(self, task: Task, facts: Sequence[str]) -> Orientation:
        """Return facts about the environment for the first message; constant ones only once."""
        if self._oriented:
            known = await self._orient(task, facts)
            return replace(known, tree="", map=CodeMap(), is_late=False, python_path=self._python_path)
        agent, deadline = self._agent, time.monotonic() + self._agent.baseline_seconds
        directory = f"Working directory: {agent.sandbox.inner_path(agent.work_dir)} (sandbox: {agent.sandbox.level})"
        if agent.start_in:
            start = f"{agent.sandbox.inner_path(agent.work_dir)}/{agent.start_in}"
            directory += f"; commands start in {start}, paths of files do not"
        reach = (
            [f"Network: HTTPS to {', '.join(map(str, sorted(agent.network.allowed)))} only"] if agent.network else []
        )
        trials = asyncio.gather(describe_toolchain(agent.sandbox, agent.work_dir), self._find_tests())
        result, (programs, tests) = await asyncio.gather(
            self._orient(task, [*facts, directory, *reach], trial=trials), trials
        )
        self._oriented = True  # only now: a stopped run has sent nothing
        lines = (*result.facts, *filter(None, (programs, tests.fact)))
        result = replace(result, facts=lines, python_path=self._python_path)
        baseline = await self._begin_baseline(task, tests, result.files, deadline)
        return replace(result, baseline=baseline, reads_names="read_file" in self.registry.originals)

    async def _find_tests(self) -> TrialResult:
        """Return how to run the project's tests, found by trial; empty if commands need approval."""
        agent = self._agent
        if not agent.sandbox.is_isolated or "execute" not in self.registry.names:
            return TrialResult(fact="")
        tried = await asyncio.to_thread(make_trial, self.workspace, agent.start_in, self._is_permitted)
        if tried is None:
            return TrialResult(fact="")
        trial_result = read_trial(tried, await self.shell.run_trial(tried.script, TRIAL_SECONDS))
        self._python_path = trial_result.python_path
        self.shell.set_python_path(trial_result.python_path)
        return trial_result

    async def _begin_baseline(
        self, task: Task, tests: TrialResult, ranked: Sequence[str], deadline: float
    ) -> BaselineTaken | None:
        """Run the nearest tests; return their failures if they end before the deadline."""
        if not tests.command or not self._agent.baseline_seconds:
            return None
        files = await asyncio.to_thread(choose_tests, self.workspace, self._agent.start_in, task, ranked, tests.files)
        if not self._is_permitted(f"{tests.command} {shlex.join(files)}"):
            return None
        self._baseline = asyncio.create_task(take_baseline(self._agent, self.workspace, task, tests, files=files))
        ended, _ = await asyncio.wait([self._baseline], timeout=max(0.0, deadline - time.monotonic()))
        return await self.end_baseline() if ended else None

    async def end_baseline(self) -> BaselineTaken | None:
        """End the tests that run beside the first request; return their failures if they ended by themselves."""
        task, self._baseline = self._baseline, None
        if task is None:
            return None
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return None
        paths = {test: posixpath.join(self._agent.start_in, test.partition("::")[0]) for test in task.result().failures}
        failures = {test: old for test, old in task.result().failures.items() if not self._hides(paths[test])}
        return replace(task.result(), failures=failures) if failures else None

    async def _excuse_failures(self, command: str, output: str) -> tuple[str, ...]:
        before, digest = self._state.progress.failures, partial(digest_file, self.workspace, self._agent.start_in)
        excused = await run_in_thread(partial(excuse_failures, before, command, output, digest))
        texts = self._state.user_texts if excused else []
        return () if any(is_about(Task(goal=text), test) for text in texts for test in excused) else excused

    def _is_permitted(self, command: str) -> bool:
        facts = CallFacts(tool="execute", args={"session_id": "main", "command": command}, command=command)
        return isinstance(self._agent.policy.decide(facts), Permitted)

    async def _orient(self, task: Task, facts: Sequence[str], trial: asyncio.Future[Any] | None = None) -> Orientation:
        return await orient(
            self.workspace,
            task,
            facts,
            index=self.index,
            grep=self._search.find_texts,
            hides=self._hides,
            seconds=self._agent.index_seconds,
            trial=trial,
        )

    def create_child_runs(self, caller: DelegatingRun, bounds: Delegation) -> ChildRuns:
        """Return child runs that belong to a caller."""
        agent = replace(self._agent, delegation=bounds)
        return ChildRuns(agent, caller, self.workspace, self._start_child, self.files.adopt)

    async def manifest(self) -> Manifest:
        return await Manifest.scan_bounded(self.workspace)

    async def list_changes(self, manifest: Mapping[str, Plain]) -> list[str]:
        """Return differences from a manifest, a limited number, as text."""
        base, current = Manifest.from_plain(manifest), await self.manifest()
        return [] if current.digest == base.digest else current.difference(base, limit=_MAX_LISTED)

    async def replace_sandbox(self) -> list[str]:
        """Replace a sandbox without network on the next command; return lines for the model."""
        if not self.network_lost:
            return []
        await self._end_terminals()
        return [
            "Every terminal was ended, because its sandbox had lost its network. The next command starts a new one."
        ]

    async def reset(self) -> None:
        """Discard all state of files and end all terminals."""
        self._oriented = False
        await self.children.close()
        self.files.reset()
        self.transport.reset()
        await self._end_terminals()
        if self._scratch is not None:
            self._scratch.clear()

    async def close(self) -> None:
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
        self.network_lost = ""  # a new sandbox gets the network again, within its remaining limits

    def _open_egress(self) -> Egress | None:
        return open_egress(
            self._agent.sandbox,
            self._agent.network,
            on_connection=lambda connection: self._state.emit(NetworkUsed(connection=connection)),
            on_lost=self._record_loss,
        )

    def _record_loss(self, reason: str) -> None:
        self.network_lost = reason
        self._state.emit(NetworkLost(reason=reason))

    def _sees_images(self) -> bool:
        return self.transport.uses_tool_calls and self._agent.provider.sees_images

    def _hides(self, path: str) -> bool:
        return any(self._agent.policy.hides(tool, path) for tool in ("read_file", "find"))


_TRANSPORTS: dict[str, type[Transport[Any]]] = {"blocks": BlockTransport, "tools": NativeTransport}


def _select_transport(agent: Agent, state: RunState) -> Transport[Any]:
    if agent.transport is not None and _TRANSPORTS[agent.transport].uses_tool_calls:
        _require_tool_calls(agent.provider)
    support = tool_calling(agent.provider)
    waiting = state.progress.waiting
    suspended = read_transport(waiting[1]) if waiting is not None and support != "unsupported" else None
    name = agent.transport or suspended or ("tools" if support == "preferred" else "blocks")
    return _TRANSPORTS[name]()


def _require_tool_calls(provider: Provider) -> None:
    if tool_calling(provider) == "unsupported":
        raise SettingsError(
            f"The model {provider.model!r} has no tool calls of its own, or its provider does not pass them on, "
            "so `transport` cannot be `tools`. Leave it out, or choose another model."
        )


class OwnRun:
    """The delegating run."""

    def __init__(self, state: RunState, registry: Registry) -> None:
        self._state = state
        self._registry = registry
        self._number = 0

    @property
    def consumption(self) -> Consumption:
        progress = self._state.progress
        return Consumption(usage=progress.usage, steps=progress.step, seconds=self._state.clock.seconds)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of built-in tools that were not replaced."""
        return self._registry.originals

    def new_task_id(self) -> str:
        self._number = max(self._number, self._state.progress.delegations) + 1
        return f"t{self._number}"

    def past_status(self, task: str) -> TaskStatus | None:
        if (record := self._state.progress.children.get(task)) is None:
            return None
        ended = record.outcome or Outcome(status=Status.STOPPED, reason="The process that ran it ended.")
        return TaskStatus.build(task, record.goal, ended, record.result, ended.steps, ended.usage)

    def handle_child_event(self, task: str, event: Event) -> None:
        """Record an event of a child run, except a pause: no other process can resume it."""
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
    """Run commands in one sandbox on one workspace.

    Use it in the main thread: a sandbox dies with the thread that started it. Not on Windows.

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
        on_connection: Callable[[Connection], None] = lambda _connection: None,
        start_in: str = "",
    ) -> None:
        """Prepare the sandbox without starting it; `on_connection` gets each ended or refused connection.

        Raises:
            SettingsError: the sandbox cannot enforce the network.
        """
        self._lost = ""
        egress = open_egress(sandbox, network or Network(), on_connection=on_connection, on_lost=self._record_loss)
        self._guard = create_guard(sandbox, work_dir)
        start = ShellStart(directory=start_in)
        self._place = create_terminals(sandbox, work_dir, {}, None, egress, guard=self._guard, start=start)
        self._terminal: LiveTerminal = self._place.terminal("commands", self._place.shells[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, command: str, *, seconds: float) -> CommandEnd:
        """Run a command in a new bash, which stops at the first failure and has no input.

        Raises:
            SandboxError: the sandbox cannot be started.
        """
        started = time.monotonic()
        # With `bash -c` no spelling of a command can leave the terminal's own shell waiting for more.
        text = f"bash -e -o pipefail -c {shlex.quote(command)} </dev/null"
        report = await self._terminal.run(text, timeout=seconds)
        output = report.output
        timed_out = report.status == "running"
        if timed_out or report.status == "waiting for input":
            reason = f"it was stopped after {seconds:.3g} s" if timed_out else "it asked for input, and there is none"
            await self._terminal.interrupt(reason)
            last = await self._terminal.read(timeout=_INTERRUPT_SECONDS)
            if last is not None:
                report, output = last, output + last.output
        stopped = report.status in {"running", "waiting for input", "stopped", "killed", "incomplete", "restarted"}
        return CommandEnd(
            command=command,
            exit_code=None if stopped else report.exit_code,
            seconds=time.monotonic() - started,
            output=output,
            timed_out=timed_out,
            note="; ".join(filter(None, (report.note, self._lost and f"the network went away: {self._lost}"))),
        )

    async def close(self) -> None:
        """End all programs; idempotent."""
        await self._place.close()
        await self._terminal.close()
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)

    def _record_loss(self, reason: str) -> None:
        self._lost = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """Result of a command."""

    command: str
    """The command."""
    exit_code: int | None
    """None if it was stopped."""
    seconds: float
    """Run time."""
    output: str
    """Plain text, cut in the middle to 10,000 characters."""
    note: str = ""
    """A reached limit or a lost network; may contain words of programs."""
    timed_out: bool = False
    """Whether it was stopped at its time limit."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.exit_code == 0
