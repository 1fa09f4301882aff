"""A scripted agent: the real runtime's session, hooks, policy and approvals, with replies and effects of the test.

script = [reply(write("calc.py", FIXED), execute("sh check.sh"), completion="Fixed.")]

No model is asked, no command runs and no interpreter starts: a command has the exit code and the effects that the
script gives it. A call that needs approval pauses the run there; the answer continues it at that call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, cast

from typing_extensions import override

from agent_runtime import (
    Agent,
    AsyncRuntime,
    InMemorySession,
    Outcome,
    SandboxSettings,
    ScriptedProvider,
    Status,
    Task,
    Usage,
    parse_instructions,
    pick_sandbox,
)
from agent_runtime.core.errors import ResumeCode, ResumeError, Suspend, ToolError
from agent_runtime.core.events import Ended, Observed, Parked, Paused, Recovered, Replied, Resumed, Started, StepStarted
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.policy.policy import CallFacts
from agent_runtime.run.approvals import Answer
from agent_runtime.run.loop import Calls
from agent_runtime.run.output_schema import MAX_RETRIES
from agent_runtime.run.runtime import RUNNING
from agent_runtime.tools.tool import CallPlan, Registry
from agent_runtime.workspace.edits import number_lines
from bot.jobs.context import AgentSpec, Listener
from tests.fakes.clock import SteppedClock

REPLY_USAGE = Usage(requests=1, input_tokens=100, output_tokens=10)
TEST_KEY = b"key of the scripted agent, 32 B."


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A file that the agent writes with its tool."""

    path: str
    content: str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """A command of the agent, with the effects that it has when it is made.

    Attributes:
        exit_code: None while it still runs.
        appends: text that is added to files.
    """

    command: str
    exit_code: int | None = 0
    check: bool = True
    output: str = ""
    writes: Mapping[str, str | bytes] = field(default_factory=dict)
    appends: Mapping[str, str] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    terminal: str = "main"
    handled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Lines of a file that the agent reads with its tool."""

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the agent to the user."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """An action on GitHub that the agent proposes; `values` are its fields."""

    kind: str
    values: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """An action of the test between two calls of the agent; the queue then settles."""

    call: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait until the test lets the agent go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end of the segment with any status; `MODEL_UNAVAILABLE` is resumed with what follows."""

    status: Status
    reason: str = ""
    retry_after: float | None = None


Action = Write | Read | Execute | Question | Propose | Do | Wait | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the model: calls, of which the first failure skips the rest, and perhaps a completion.

    Attributes:
        expect: texts that the agent must have been told since its last reply.
    """

    actions: tuple[Action, ...] = ()
    completion: str | None = None
    expect: tuple[str, ...] = ()
    expect_not: tuple[str, ...] = ()
    usage: Usage = REPLY_USAGE
    output_json: str = ""


Script = Sequence[Reply]


def reply(
    *actions: Action,
    completion: str | None = None,
    expect: str | Sequence[str] = (),
    expect_not: str | Sequence[str] = (),
    usage: Usage = REPLY_USAGE,
    output_json: str = "",
) -> Reply:
    texts = [(text,) if isinstance(text, str) else tuple(text) for text in (expect, expect_not)]
    return Reply(
        actions=actions,
        completion=completion,
        expect=texts[0],
        expect_not=texts[1],
        usage=usage,
        output_json=output_json,
    )


def write(path: str, content: str | bytes) -> Write:
    return Write(path=path, content=content)


def read(path: str, first: int, last: int) -> Read:
    return Read(path=path, first=first, last=last)


def execute(command: str, exit_code: int | None = 0, **effects: Any) -> Execute:  # noqa: ANN401 - see `Execute`
    return Execute(command=command, exit_code=exit_code, **effects)


def ask_user(text: str) -> Question:
    return Question(text=text)


def propose(kind: str, **values: Plain) -> Propose:
    return Propose(kind=kind, values=values)


def do(call: Callable[[], object]) -> Do:
    return Do(call=call)


def wait_for_test() -> Wait:
    return Wait()


def end(status: Status, reason: str = "", *, retry_after: float | None = None) -> End:
    return End(status=status, reason=reason, retry_after=retry_after)


def unavailable(reason: str = "the model service does not answer", *, retry_after: float | None = None) -> Reply:
    """Return a reply that never comes, because the model service is away."""
    return reply(end(Status.MODEL_UNAVAILABLE, reason, retry_after=retry_after))


@dataclass(slots=True, kw_only=True)
class Play:
    """A run of a script, over all its segments.

    Attributes:
        specs: the agent's configuration in each segment.
        tasks: each task that it was given.
        observed: texts that the agent was told since its last reply.
        commands: commands that were made, oldest first.
        answers: the answers that resumed it.
        position: of the reply's next action; None before a reply.
        go: set by the test to end a wait.
    """

    script: Script
    specs: list[AgentSpec] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    facts: tuple[str, ...] = ()
    observed: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    number: int = 0
    position: int | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def remaining(self) -> int:
        """Number of replies that were not made."""
        return len(self.script) - self.number

    @property
    def opening(self) -> str:
        """The first message's texts."""
        task = self.tasks[-1]
        return "\n".join([task.goal, *(f"{quote.source}\n{quote.text}" for quote in task.quotes), *self.facts])


async def _no_settling() -> None: ...


def _ignore(_play: Play) -> None: ...


class ScriptedAgents:
    """Factory of agents that play scripts, one for each run; a run beyond the last one fails.

    Attributes:
        plays: the runs, oldest first.
        settle: called after each action of the test, so that the queue takes up what it did.
        on_wait: called when a play waits for the test.
        on_go: called when it no longer does.
    """

    def __init__(self, scripts: Sequence[Script], *, clock: SteppedClock, sees_images: bool = False) -> None:
        self._scripts = list(scripts)
        self.clock, self.sees_images = clock, sees_images
        self._plays: dict[str, Play] = {}
        self.plays: list[Play] = []
        self.settle: Callable[[], Awaitable[None]] = _no_settling
        self.on_wait: Callable[[Play], None] = _ignore
        self.on_go: Callable[[Play], None] = _ignore

    def __call__(self, spec: AgentSpec, listeners: Sequence[Listener]) -> AsyncRuntime:
        session = cast("InMemorySession", spec.session) if spec.session is not None else InMemorySession()
        play = self._plays.get(session.session_id) if session.events else None
        if play is None:
            play = Play(script=self._scripts.pop(0) if self._scripts else ())
            self.plays.append(play)
        self._plays[session.session_id] = play
        play.specs.append(spec)
        return ScriptedAgent(self, play, spec, session, listeners)

    def play_of(self, job_id: str) -> Play:
        """Return the newest run of a job."""
        return self._plays[job_id]


class ScriptedAgent(AsyncRuntime):
    """One segment of a play."""

    def __init__(
        self,
        agents: ScriptedAgents,
        play: Play,
        spec: AgentSpec,
        session: InMemorySession,
        listeners: Sequence[Listener],
    ) -> None:
        agent = Agent(
            provider=ScriptedProvider((), sees_images=agents.sees_images),
            work_dir=spec.work_dir,
            sandbox=pick_sandbox("local", SandboxSettings()),
            policy=spec.policy,
            chat=False,
        )
        resumable = spec.session is not None
        super().__init__(agent, session, listeners=listeners, state_key=TEST_KEY, resumable=resumable)
        self._agents, self._play = agents, play

    @override
    def abort(self) -> None:
        self._agents.on_go(self._play)
        super().abort()

    @override
    async def _run_segment(self, begin: Callable[[Any], Coroutine[Any, Any, Outcome]]) -> Outcome:
        run = _Segment(self, self._play)
        context = copy_context()
        context.run(RUNNING.set, self)
        self._work = asyncio.create_task(begin(run), context=context)
        try:
            outcome = await self._work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            is_ours = task is not None and bool(task.cancelling())
            if is_ours and self._resumable:
                raise
            outcome = run.end_early(Status.STOPPED, "The run was stopped.")
            if is_ours:
                self._state.record(Ended(outcome=outcome))
                raise
        finally:
            self._work = None
        if outcome.status not in {Status.PAUSED, Status.MODEL_UNAVAILABLE}:
            self._state.record(Ended(outcome=outcome))
        return outcome


class _EndedError(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.status)
        self.outcome = outcome


class _Segment:
    """Plays replies until an outcome; takes the place of `agent_runtime.run.run.Run`."""

    def __init__(self, runtime: ScriptedAgent, play: Play) -> None:
        self._play, self._agents = play, runtime._agents
        self._state, self._gate, self._policy = runtime._state, runtime._gate, runtime.agent.policy
        self._folder = runtime.agent.work_dir
        self._tools = _Tools(runtime.registry)
        self._calls = Calls(
            registry=cast("Registry", self._tools), policy=self._policy, gate=self._gate, state=self._state
        )
        self._state.clock.start()

    async def begin(self, task: Task, facts: Sequence[str]) -> Outcome:
        play = self._play
        play.tasks.append(task)
        play.facts = tuple(facts)
        play.observed = [play.opening]
        run_id = f"run-{len(play.tasks)}-{id(play)}"
        self._state.record(Started(task=task, opening="", run_id=run_id, facts=play.facts))
        shown = parse_instructions(play.specs[-1].instructions).open(task, (), "n0nce")
        play.observed.append(shown.text)
        if shown.nonce:
            self._state.record(replace(shown, text=""))
        return await self._play_on()

    async def recover(self) -> Outcome:
        if self._state.progress.parked is None:
            # The process died in a reply, of which the rest is lost.
            self._play.number += self._play.position is not None
            self._play.position = None
            self._state.record(Recovered(text="The process died."))
        return await self._play_on()

    async def answer(self, answer: Answer) -> Outcome:
        waiting = self._state.progress.waiting
        if waiting is None:
            raise ResumeError(ResumeCode.NOTHING_WAITS)
        pending = waiting[1].pending
        self._play.answers.append(answer)
        self._state.record(Resumed(request_id=pending.request_id, approved=answer.approved, note=answer.note))
        self._gate.set_answer(answer, pending)
        return await self._play_on()

    def end_early(self, status: Status, reason: str) -> Outcome:
        return self._state.outcome(status, reason=reason)

    async def _play_on(self) -> Outcome:
        self._calls.number = self._state.progress.calls
        try:
            while True:
                await self._play_reply()
        except Suspend:
            return self._pause()
        except _EndedError as ended:
            return ended.outcome

    async def _play_reply(self) -> None:
        play, step = self._play, self._state.progress.step
        if play.position is None:
            step += 1
            self._begin_reply(step)
        current = play.script[play.number]
        self._calls.begin_step()
        text, ok = "", True
        while play.position is not None and play.position < len(current.actions):
            try:
                await self._perform(current.actions[play.position])
            except ToolError as error:
                text, ok = str(error), False
                play.observed.append(text)
                handled = current.actions[play.position]
                if not (isinstance(handled, Execute) and handled.handled):
                    break
            play.position += 1
        play.number, play.position = play.number + 1, None
        text = "\n".join(filter(None, [self._calls.output.text(), text]))
        play.observed.append(text)
        objection = ""
        if ok and current.completion is not None and self._state.progress.unfit < MAX_RETRIES:
            objection = await self._gate.find_objection(current.completion)
            play.observed.append(objection)
        self._state.record(Observed(step=step, text=text or objection, ok=ok, unfit=bool(objection)))
        if ok and current.completion is not None and not objection:
            summary, data = current.completion.strip(), current.output_json
            raise _EndedError(self._state.outcome(Status.FINISHED, summary=summary, output_json=data))

    def _begin_reply(self, step: int) -> None:
        play, limits = self._play, self._policy.limits
        if step > limits.max_steps:
            reason = f"The task was not finished within {limits.max_steps} steps."
            raise _EndedError(self._state.outcome(Status.MAX_STEPS, reason=reason))
        self._state.emit(StepStarted(step=step, max_steps=limits.max_steps))
        events = len(self._state.events)
        self._state.inject(step)
        play.observed += [getattr(event, "text", "") for event in self._state.events[events:]]
        if not play.remaining:
            raise _EndedError(self._state.outcome(Status.FAILED, reason="The script has no further reply."))
        current, observed = play.script[play.number], "\n".join(play.observed)
        missing = [text for text in current.expect if text not in observed]
        missing += [f"not {text}" for text in current.expect_not if text in observed]
        if missing:
            reason = f"The script expects {missing}, and the agent was told: {observed}"
            raise _EndedError(self._state.outcome(Status.FAILED, reason=reason))
        play.observed.clear()
        self._state.record(Replied(step=step, text="", usage=current.usage))
        play.position = 0

    async def _perform(self, action: Action) -> None:
        self._agents.clock.step()
        args: dict[str, Plain]
        await asyncio.sleep(0)  # an abort of a listener counts here
        match action:
            case Do(call=call):
                await self._call_test(call)
            case Wait():
                self._agents.on_wait(self._play)
                try:
                    await self._play.go.wait()
                finally:
                    self._agents.on_go(self._play)
                self._play.go.clear()
            case End(status=Status.MODEL_UNAVAILABLE):
                self._play.number, self._play.position = self._play.number + 1, None
                self._state.record(Parked(reason=action.reason, retry_after=action.retry_after))
                outcome = self._state.outcome(action.status, reason=action.reason)
                raise _EndedError(replace(outcome, retry_after=action.retry_after))
            case End():
                raise _EndedError(self._state.outcome(action.status, reason=action.reason))
            case Write():
                self._tools.effect = lambda: self._write({action.path: action.content})
                await self._calls("write_file", (), {"path": action.path}, show=True)
            case Read():
                self._tools.effect = lambda: self._read(action)
                args = {"path": action.path, "start_line": action.first, "end_line": action.last}
                await self._calls("read_file", (), args, show=True)
            case Question():
                self._tools.effect = lambda: self._gate.ask_question(action.text)
                await self._calls("ask_user", (action.text,), {}, show=True)
            case Propose():
                self._tools.effect = None
                await self._calls("propose", (action.kind,), dict(action.values), show=True)
            case Execute():
                self._tools.effect = lambda: self._execute(action)
                args = {"check": True} if action.check else {}
                await self._calls("execute", (action.terminal, action.command), args, show=True)

    async def _call_test(self, call: Callable[[], object]) -> None:
        async def work() -> None:
            result = call()
            if isawaitable(result):
                await result
            await self._agents.settle()

        task = asyncio.ensure_future(work())
        try:
            await asyncio.shield(task)
        finally:  # a stop that the test sends does not interrupt the test
            await asyncio.wait([task])
            task.result()

    def _write(self, files: Mapping[str, str | bytes]) -> ToolResult:
        for path, content in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
            self._stamp(target)
        return ToolResult(value=None, text="\n".join(f"[write_file] {path!r} written. Version 0." for path in files))

    def _read(self, action: Read) -> ToolResult:
        lines = (self._folder / action.path).read_text(encoding="utf-8").splitlines()
        head = f"[read_file] {action.path!r} (lines {action.first}\u2013{action.last} of {len(lines)}, version 1)"
        listing, _ = number_lines(lines, action.first, action.last)
        return ToolResult(value="\n".join(lines[action.first - 1 : action.last]), text="\n".join([head, *listing]))

    def _stamp(self, path: Path) -> None:
        now = self._agents.clock()
        os.utime(path, (now, now))

    def _execute(self, action: Execute) -> ToolResult:
        self._play.commands.append(action.command)
        self._write(action.writes)
        for path, text in action.appends.items():
            target = self._folder / path
            with target.open("a", encoding="utf-8") as file:
                file.write(text)
            self._stamp(target)
        for path in action.deletes:
            (self._folder / path).unlink()
        self._agents.clock.step()
        status: Literal["done", "running"] = "running" if action.exit_code is None else "done"
        value: dict[str, Plain] = {
            "status": status,
            "exit_code": action.exit_code,
            "output": action.output,
            "cwd": str(self._folder),
        }
        text = f"$ {action.command}\n{action.output}\n[status: {status} | exit_code: {action.exit_code}]"
        if action.check and action.exit_code != 0:
            raise ToolError(text, kind="RuntimeError", value=value)
        return ToolResult(value=value, text=text)

    def _pause(self) -> Outcome:
        pending = self._gate.waiting
        assert pending is not None
        self._state.record(Paused(pending=pending, state="", signature=""))
        noun = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
        reason = f"The run waits for {noun} (request {pending.request_id})."
        return replace(self._state.outcome(Status.PAUSED, reason=reason), pending=pending)


class _Tools:
    """The real tools, whose calls have the effect of the script."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.effect: Callable[[], ToolResult | Awaitable[str]] | None = None

    def get(self, name: str) -> _Tool:
        return _Tool(self, self._registry, name)


class _Tool:
    def __init__(self, tools: _Tools, registry: Registry, name: str) -> None:
        self._tools, self._name = tools, name
        self._entry = registry.get(name)

    def bind(self, args: tuple[Plain, ...], kwargs: dict[str, Plain]) -> dict[str, Plain]:
        return self._entry.bind(args, kwargs)

    def describe_call(self, args: dict[str, Plain]) -> str:
        return self._entry.describe_call(args)

    async def plan(self, args: dict[str, Plain]) -> CallPlan:
        if self._name != "write_file":
            return await self._entry.plan(args)
        path = str(args["path"])
        facts = CallFacts(tool=self._name, args=args, paths=(path,), writes=True)
        return CallPlan(facts=facts, preview=lambda: path, apply=lambda: None)

    async def apply(self, plan: CallPlan, _progress: object) -> ToolResult:
        effect = self._tools.effect
        if effect is None:
            return await self._entry.apply(plan)
        result = effect()
        return result if isinstance(result, ToolResult) else ToolResult(value=None, text=await result)
