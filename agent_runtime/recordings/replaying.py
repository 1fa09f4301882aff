"""Running recorded tasks again with the recorded replies, on a copy of the workspace."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, cast, get_args

from agent_runtime.agent.agent import Agent
from agent_runtime.agent.delegation import Delegation, Persona
from agent_runtime.context.memory import MemorySettings
from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.clock_and_random import ClockAndRandom
from agent_runtime.core.errors import ScriptError, SettingsError, ToolError, ToolErrorKind
from agent_runtime.core.events import (
    Ended,
    Event,
    MessageInjected,
    Parked,
    Paused,
    Recorded,
    ServedTool,
    Started,
    StepStarted,
    ToolReturned,
    ToolsListed,
)
from agent_runtime.core.outcome import Outcome, Status
from agent_runtime.core.policy import Policy, Rule, RunLimits
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.recording import ReplayProvider, load_tape
from agent_runtime.providers.scripted import ScriptedProvider
from agent_runtime.providers.tape import DIGITS, HISTORY, TIME, VOLATILE, Note, Tape, calls_tools
from agent_runtime.recordings.comparing import Comparison, compare, events_of
from agent_runtime.run.approvals import Gate
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.progress import RunProgress
from agent_runtime.run.runtime import AsyncRuntime
from agent_runtime.run.servers import declare
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sandbox.protocol import Sandbox, SandboxSettings
from agent_runtime.sandbox.select import pick
from agent_runtime.sessions.memory import InMemorySession
from agent_runtime.tools.registry import Registry
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest

PLACE = "<work dir>"
_INDEX_SECONDS = 60.0
_NETWORK = (re.compile(r"^Network: HTTPS to .* only\n?", re.MULTILINE), "")
"""What the first message says of a network: a replay has none, since a recording never chooses one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How a replay went.

    Attributes:
        requests: requests that were made as recorded.
        left: recorded requests that were not made.
        outcomes: how each run ended now.
        recorded: how each run ended then.
        same_start: whether the directory was as it was when the recording began.
        difference: where the conversation left the recording, with a unified diff; None when it did not.
    """

    requests: int
    left: int
    outcomes: tuple[Outcome, ...]
    recorded: tuple[Outcome, ...]
    same_start: bool
    difference: str | None

    @property
    def is_same(self) -> bool:
        """Whether every request was made again as it was, and every run ended as it did."""
        ends = [(each.status, each.summary) for each in self.outcomes] == [
            (each.status, each.summary) for each in self.recorded
        ]
        return self.difference is None and not self.left and ends


async def replay_recording(
    path: Path | str,
    *,
    work_dir: Path,
    sandbox: Sandbox,
    exact: bool = False,
    secrets: Sequence[str] = (),
) -> Replayed:
    """Run the recorded tasks again, on a copy of `work_dir`, with the recorded replies.

    The tools really run. A request that differs from the recorded one ends the replay, as the replies after it answer
    something else. Runs that waited for a person are replayed up to there.

    Args:
        path: a recording that `Recorder` made.
        work_dir: a directory as it was when the recording began; it is not touched.
        sandbox: where commands run; of the recorded kind, which the model knows. A recording never chooses it:
            what it makes run are programs.
        exact: whether to compare what differs between any two runs, too: times, durations, numbers of processes
            (`VOLATILE`). Where the work directory lies never is.
        secrets: the texts that were kept out of the recording.

    Raises:
        ScriptError: it is no recording, not of a conversation from its beginning, of another sandbox, or of an agent
            whose file tools might leave the directory.
        SettingsError: the directory cannot be copied.
    """
    tape = await asyncio.to_thread(load_tape, path)
    events = events_of(tape)
    _require_replayable(tape, str(path), sandbox)
    with tempfile.TemporaryDirectory(prefix="codepilot-replay-") as scratch:
        copy = Path(scratch) / "workspace"
        await asyncio.to_thread(_copied, work_dir, copy)
        places = {str(tape.about["work_dir"]), sandbox.seen_as(copy), str(copy)}
        place = (re.compile("|".join(re.escape(each) for each in sorted(places, key=len, reverse=True))), PLACE)
        provider = ReplayProvider(path, masks=(place, _NETWORK, *(() if exact else VOLATILE)), secrets=secrets)
        started = [event for event in events if isinstance(event, Started)]
        recorded_agent = agent_of(tape, provider=provider, work_dir=copy, sandbox=sandbox)
        delegation = recorded_agent.delegation
        agent = replace(
            recorded_agent,
            delegation=delegation and replace(delegation, provider=provider.children()),
            clock_and_random=_clock_and_random(tape),
            # The first messages show what they showed then, whichever machine is the faster one.
            index_seconds=_INDEX_SECONDS if any(event.indexed for event in started) else 0.0,
        )
        same = await asyncio.to_thread(_digest, agent) == tape.about["workspace"]
        outcomes = await _run(agent, provider, events)
    # How the recorded runs ended, up to the first that waited.
    upto = next((at for at, event in enumerate(events) if isinstance(event, Paused | Parked)), len(events))
    recorded = [event.outcome for event in events[:upto] if isinstance(event, Ended)]
    if upto < len(events) and (waits := RunProgress(events[: upto + 1]).read().outcome) is not None:
        recorded.append(waits)
    return Replayed(
        requests=provider.replayed,
        left=provider.remaining,
        outcomes=tuple(outcomes),
        recorded=tuple(recorded),
        same_start=same,
        difference=provider.departure,
    )


async def compare_recording(path: Path | str) -> Comparison:
    """Make every recorded request again with the current code, and compare; see `comparing.compare`.

    Raises:
        ScriptError: it is no recording, or holds no events.
    """
    tape = await asyncio.to_thread(load_tape, path)
    with tempfile.TemporaryDirectory(prefix="codepilot-compare-") as scratch:
        # Nothing is ever run here: the place only lets the tools say what they are.
        sandbox = pick("local", SandboxSettings())
        recorded = agent_of(tape, provider=ScriptedProvider([]), work_dir=Path(scratch), sandbox=sandbox)
        agent = replace(recorded, transport="tools" if calls_tools(tape) else "blocks")
        state = RunState(InMemorySession(), HookSystem())
        toolbox = Toolbox(agent, state, ask=Gate(state).question)
        try:
            _serve_recorded(toolbox.registry, events_of(tape))
            read = toolbox.open_transport().read
            return compare(
                tape,
                system=toolbox.system_prompt,
                tools=toolbox.schemas,
                read=read,
                max_entry_chars=agent.memory.max_context_tokens,
            )
        finally:
            await toolbox.close()


def agent_of(tape: Tape, *, provider: Provider, work_dir: Path, sandbox: Sandbox) -> Agent:
    """The agent that was recorded, with another model and in another place.

    Raises:
        ScriptError: the recording does not say who worked, or says it in words of another version.
    """
    try:
        told = dict(cast("Mapping[str, Any]", tape.about["agent"]))
        policy, memory, tools = told.pop("policy"), told.pop("memory"), told.pop("tools")
        delegation = None
        if (bounds := told.pop("delegation", None)) is not None:
            personas = tuple(
                Persona(**{**each, "tools": each["tools"] and tuple(each["tools"]), "denied": _rules(each["denied"])})
                for each in bounds["personas"]
            )
            delegation = Delegation(**{**bounds, "personas": personas})
        return Agent(
            provider=provider,
            work_dir=work_dir,
            sandbox=sandbox,
            memory=MemorySettings(**memory),
            policy=Policy(**{**policy, "rules": _rules(policy["rules"]), "limits": RunLimits(**policy["limits"])}),
            tools=None if tools is None else tuple(tools),
            delegation=delegation,
            **told,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ScriptError(
            f"The recording does not describe the agent in a form that this version reads ({error!r}). "
            "Record with `Recorder`, and replay with the same version."
        ) from error


def _rules(told: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    return tuple(Rule(**{**rule, "paths": tuple(rule["paths"]), "commands": tuple(rule["commands"])}) for rule in told)


def _require_replayable(tape: Tape, source: str, sandbox: Sandbox) -> None:
    agent = agent_of(tape, provider=ScriptedProvider([]), work_dir=Path(), sandbox=sandbox)
    if Note(kind=HISTORY, value=0) not in tape.entries:
        raise ScriptError(
            f"The recording {source} starts in the middle of a conversation, so it cannot be replayed. "
            f"Compare it instead (codepilot replay --compare)."
        )
    if not tape.about.get("work_dir") or not tape.about.get("workspace"):
        raise ScriptError(f"The recording {source} does not contain the agent's directory; record with `Recorder`.")
    if tape.about.get("sandbox") != sandbox.level:
        raise ScriptError(
            f"The recording {source} was made with the sandbox {tape.about.get('sandbox')!r}, and this one is "
            f"{sandbox.level!r}; replay it with the same (codepilot replay --sandbox)."
        )
    if agent.unsafe_mode:
        # A recording is a file that anybody may have written, and these tools run in our own process.
        raise ScriptError(
            f"The recording {source} is of an agent in unsafe mode, whose file tools may leave the directory; "
            f"such runs are never replayed. Compare it instead (codepilot replay --compare)."
        )


def _clock_and_random(tape: Tape) -> ClockAndRandom:
    """The recorded clock and dice; a run that asks them more often than the recorded one has left the recording."""
    notes = [each for each in tape.entries if isinstance(each, Note)]
    noted = {kind: iter([each for each in notes if each.kind == kind]) for kind in (DIGITS, TIME)}

    def next_of(kind: str) -> str:
        note = next(noted[kind], None)
        if note is None:
            raise ScriptError("The run reads the clock or random numbers more often than the recorded one.")
        return str(note.value)

    return ClockAndRandom(
        now=lambda: datetime.fromisoformat(next_of(TIME)), token=lambda _size: next_of(DIGITS), sleep=_no_wait
    )


async def _no_wait(_seconds: float) -> None:
    """What the recorded run waited for is over."""


def _copied(work_dir: Path, copy: Path) -> None:
    try:
        shutil.copytree(work_dir, copy, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise SettingsError(f"The directory {work_dir} cannot be copied for a replay: {error}") from error


def _serve_recorded(registry: Registry, events: Sequence[Recorded]) -> None:
    """Have the tools of MCP servers answer as they did then; no server is started for a replay."""
    answers = {
        tool.name: iter([each for each in events if isinstance(each, ToolReturned) and each.tool == tool.name])
        for event in events
        if isinstance(event, ToolsListed)
        for tool in event.tools
    }

    async def serve(served: ServedTool, _arguments: dict[str, Plain]) -> ToolResult:
        answer = next(answers[served.name], None)
        if answer is None:
            raise ScriptError(f"The run calls {served.name} more often than the recorded one.")
        if not answer.ok:
            told = answer.value.get("kind") if isinstance(answer.value, dict) else None
            kind: ToolErrorKind = next((each for each in get_args(ToolErrorKind) if each == told), "RuntimeError")
            raise ToolError(answer.text, kind=kind, value=answer.value)
        return ToolResult(value=answer.value, text=answer.text)

    for event in events:
        if isinstance(event, ToolsListed):
            declare(registry, event, serve)


async def _run(agent: Agent, replay: ReplayProvider, events: Sequence[Recorded]) -> list[Outcome]:
    """Run the tasks one after another, until one waits for a person, or leaves the recording."""
    left = deque(event for event in events if isinstance(event, Started | MessageInjected))
    before = takewhile(lambda event: not isinstance(event, Paused), events)
    said = [each.value for each in before if isinstance(each, ToolReturned) and each.tool == "ask_user" and each.ok]
    answers, outcomes = iter(said), list[Outcome]()
    async with AsyncRuntime(agent) as runtime:

        def send(event: Event) -> None:
            while isinstance(event, StepStarted) and left and isinstance(sent := left[0], MessageInjected):
                if sent.step > event.step:
                    break
                left.popleft()
                runtime.send_message(sent.text, id=sent.id)

        runtime.hooks.add(send)
        runtime.hooks.register("ask_user", lambda **_: next(answers, None))
        _serve_recorded(runtime.registry, events)
        while left:
            if isinstance(task := left.popleft(), Started):
                outcomes.append(await runtime.run(task.task, facts=task.facts))
                stopped = {Status.PAUSED, Status.MODEL_UNAVAILABLE, Status.SANDBOX_FAILED}
                if outcomes[-1].status in stopped or replay.departure is not None:
                    break
    return outcomes


def _digest(agent: Agent) -> str:
    workspace = Workspace(agent.work_dir, seen_as=agent.sandbox.seen_as(agent.work_dir))
    try:
        return Manifest.of(workspace).digest
    finally:
        workspace.close()
