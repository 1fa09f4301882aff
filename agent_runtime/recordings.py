"""Recordings of runs as regression tests.

A recording (`agent_runtime.providers.recording`) holds the exchanges with the model, the agent's settings and the
events of the session. `replay_recording` runs the recorded tasks again on a copy of the workspace, with the recorded
replies. `compare_recording` runs no tool: it makes every request again from the recorded events.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from agent_runtime.agent.agent import Agent, ClockAndRandom
from agent_runtime.agent.delegation import Delegation, Persona
from agent_runtime.context.transcript import MemorySettings, Transcript
from agent_runtime.core.errors import FormatError, ScriptError, SessionError, SettingsError, ToolError, ToolErrorKind
from agent_runtime.core.events import (
    BaselineTaken,
    ChildRecorded,
    Ended,
    Event,
    MessageInjected,
    Observed,
    Parked,
    Paused,
    Recorded,
    Replied,
    ServedTool,
    Started,
    StepStarted,
    Summarised,
    ToolReturned,
    ToolsListed,
)
from agent_runtime.core.values import Outcome, Plain, Status, Task, ToolRequest, ToolResult
from agent_runtime.index.store import has_sources
from agent_runtime.policy.policy import Policy, Rule, RunLimits
from agent_runtime.providers.protocol import Provider, ReplyEnd, ReplyStart, Request, StopReason, TextChunk, ToolSchema
from agent_runtime.providers.recording import (
    DIGITS,
    EVENT,
    HISTORY,
    TIME,
    VOLATILE,
    Entry,
    Note,
    RecordingProvider,
    ReplayProvider,
    Tape,
    TapedReply,
    TapedRequest,
    diff_requests,
    has_images,
    has_tools,
    load_tape,
)
from agent_runtime.providers.scripted import ScriptedProvider
from agent_runtime.run.approvals import Gate
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.mcp import register_tools
from agent_runtime.run.runtime import AsyncRuntime, Runtime
from agent_runtime.run.state import RunProgress, RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sandbox.protocol import Sandbox, SandboxSettings
from agent_runtime.sandbox.select import pick_sandbox
from agent_runtime.sessions.codec import decode, encode
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.tools.tool import Registry
from agent_runtime.workspace.files import Workspace
from agent_runtime.workspace.state import Manifest

T = TypeVar("T")
PLACE = "<work dir>"
_FORMAT_ERROR = "[Format error"


class Recorder:
    """Records an agent's exchanges with its model, and the events of its session.

    Example:
        ```python
        recorder = Recorder(agent, Path("run.jsonl"))
        async with AsyncRuntime(recorder.agent) as runtime:
            recorder.follow(runtime)
            await runtime.run("Make the tests pass")
        ```

    The file holds the conversation and all files in it; only its owner may read it.

    Attributes:
        agent: the agent with a provider that records; use it in place of the original.
    """

    def __init__(self, agent: Agent, path: Path | str, *, secrets: Sequence[str] = ()) -> None:
        """Create the file, which must not exist.

        Args:
            secrets: texts that must not reach the file.

        Raises:
            SettingsError: the file exists, or cannot be created.
        """
        # Who works, and where: what `agent_of` makes an agent from again.
        workspace = Workspace(agent.work_dir, agent_path=agent.sandbox.inner_path(agent.work_dir))
        try:
            digest = Manifest.scan(workspace).digest
            indexed = has_sources(workspace) if agent.indexed is None else agent.indexed
        finally:
            workspace.close()
        # Whose model delegated tasks have and where their copies lie is the replay's.
        delegation = agent.delegation
        bounds = delegation and asdict(replace(delegation, provider=None, copies=None))
        self._provider = RecordingProvider(
            agent.provider,
            path,
            about={
                "agent": {
                    "name": agent.name,
                    "role": agent.role,
                    "instructions": agent.instructions,
                    "tools": None if agent.tools is None else list(agent.tools),
                    "memory": asdict(agent.memory),
                    "chat": agent.chat,
                    "unsafe_mode": agent.unsafe_mode,
                    "repository_instructions": dict(agent.repository_instructions),
                    "max_output_chars": dict(agent.max_output_chars),
                    "policy": asdict(agent.policy),
                    "indexed": indexed,
                    **({"skills": dict(agent.skills)} if agent.skills else {}),
                    **({"start_in": agent.start_in} if agent.start_in else {}),
                    **({"transport": agent.transport} if agent.transport else {}),
                    **({} if agent.attended else {"attended": False}),
                    **({"delegation": bounds} if bounds else {}),
                },
                "sandbox": agent.sandbox.level,
                "work_dir": agent.sandbox.inner_path(agent.work_dir),
                "workspace": digest,
            },
            secrets=secrets,
        )
        if delegation is not None and delegation.provider is not None:  # child runs are recorded as well
            delegation = replace(delegation, provider=self._provider.attach(delegation.provider))
        around = agent.clock_and_random
        self.agent = replace(
            agent,
            provider=self._provider,
            delegation=delegation,
            indexed=indexed,
            clock_and_random=ClockAndRandom(
                now=lambda: self._noted(TIME, around.now(), datetime.isoformat),
                token=lambda size: self._noted(DIGITS, around.token(size), str),
                sleep=around.sleep,
            ),
        )

    def follow(self, runtime: AsyncRuntime | Runtime) -> None:
        """Record the session's events, present and future ones.

        A recording that begins in the middle of a conversation can be compared, but not replayed.
        """
        history = runtime.session.events
        self._provider.note(HISTORY, len(history))
        for event in history:
            self._note(event)
        runtime.hooks.add(self._note)

    def recorded(self, provider: Provider) -> Provider:
        """Return another model for the runtime, whose exchanges are recorded too."""
        return self._provider.attach(provider)

    def _noted(self, kind: str, value: T, serialize: Callable[[T], str]) -> T:
        self._provider.note(kind, serialize(value))
        return value

    def _note(self, event: Event) -> None:
        if isinstance(event, get_args(Recorded)):
            self._provider.note(EVENT, json.loads(encode(event)))


async def replay_recording(
    path: Path | str,
    *,
    work_dir: Path,
    sandbox: Sandbox,
    exact: bool = False,
    secrets: Sequence[str] = (),
) -> Replayed:
    """Run the recorded tasks again, on a copy of `work_dir`, with the recorded replies.

    The tools really run. A request that differs from the recorded one ends the replay. A run that waited for a person
    is replayed up to there.

    Args:
        path: the recording.
        work_dir: a directory in its state before the recording; it is not changed.
        sandbox: of the recorded kind; a recording never chooses it, because its programs are untrusted.
        exact: whether to compare times, durations and numbers of processes (`VOLATILE`), too.
        secrets: texts that were kept out of the recording.

    Raises:
        ScriptError: the recording is invalid, starts in the middle of a conversation, or is of another sandbox or of an
            agent whose file tools might leave the directory.
        SettingsError: the directory cannot be copied.
    """
    tape = await asyncio.to_thread(load_tape, path)
    events = events_of(tape)
    _require_replayable(tape, str(path), sandbox)
    with tempfile.TemporaryDirectory(prefix="codepilot-replay-") as scratch:
        copy = Path(scratch) / "workspace"
        await asyncio.to_thread(_copy_directory, work_dir, copy)
        places = {str(tape.about["work_dir"]), sandbox.inner_path(copy), str(copy)}
        place = (re.compile("|".join(re.escape(each) for each in sorted(places, key=len, reverse=True))), PLACE)
        provider = ReplayProvider(path, masks=(place, *(() if exact else VOLATILE)), secrets=secrets)
        recorded_agent = agent_of(tape, provider=provider, work_dir=copy, sandbox=sandbox)
        delegation = recorded_agent.delegation
        agent = replace(
            recorded_agent,
            delegation=delegation and replace(delegation, provider=provider.children()),
            clock_and_random=_clock_and_random(tape, events),
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
        remaining=provider.remaining,
        outcomes=tuple(outcomes),
        recorded=tuple(recorded),
        same_start=same,
        difference=provider.departure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Attributes:
        requests: number of requests that matched.
        remaining: number of recorded requests that were not made.
        outcomes: of the replayed runs.
        recorded: outcomes of the recorded runs.
        same_start: whether the directory was in its recorded state.
        difference: the first mismatch, with a unified diff, or None.
    """

    requests: int
    remaining: int
    outcomes: tuple[Outcome, ...]
    recorded: tuple[Outcome, ...]
    same_start: bool
    difference: str | None

    @property
    def is_same(self) -> bool:
        """Whether every request and every outcome matched."""
        ends = [(each.status, each.summary) for each in self.outcomes] == [
            (each.status, each.summary) for each in self.recorded
        ]
        return self.difference is None and not self.remaining and ends


async def compare_recording(path: Path | str) -> Comparison:
    """Make every recorded request again with the current code, and compare; see `compare`.

    Raises:
        ScriptError: the file is no recording, or holds no events.
    """
    tape = await asyncio.to_thread(load_tape, path)
    with tempfile.TemporaryDirectory(prefix="codepilot-compare-") as scratch:
        # Nothing is ever run here: the place only lets the tools say what they are.
        sandbox = pick_sandbox("local", SandboxSettings())
        recorded = agent_of(tape, provider=ScriptedProvider([]), work_dir=Path(scratch), sandbox=sandbox)
        agent = replace(recorded, transport="tools" if has_tools(tape) else "blocks")
        state = RunState(InMemorySession(), HookSystem())
        toolbox = Toolbox(agent, state, ask=Gate(state).ask_question)
        try:
            _serve_recorded(toolbox.registry, events_of(tape))
            read = toolbox.open_transport().read_reply
            return compare(
                tape,
                system=toolbox.system_prompt,
                tools=toolbox.schemas,
                read=read,
                max_entry_chars=agent.memory.max_context_tokens,
            )
        finally:
            await toolbox.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        requests: number of compared requests.
        summaries: number of requests for a summary, which depend on the provider's cache and are not compared.
        differences: distinct differences in order, with unified diffs.
    """

    requests: int
    summaries: int
    differences: tuple[str, ...]


def compare(
    tape: Tape,
    *,
    system: str,
    tools: tuple[ToolSchema, ...] = (),
    read: Callable[[str, StopReason, Sequence[ToolRequest]], object],
    max_entry_chars: int | None = None,
) -> Comparison:
    """Make every request of a recording again, and compare.

    Replies and tool results are the recorded ones; system prompt, rendering and grammar are the current ones. The
    status, which no event holds, and requests of child runs are not compared.

    Args:
        system: the current system prompt.
        tools: as declared to the service.
        read: reads the replies of a run, in order; see `Transport.read_reply`.
        max_entry_chars: see `Transcript`.

    Raises:
        ScriptError: the recording holds no events, or an unreadable one.
    """
    events: list[Recorded] = []
    transcript = Transcript(max_entry_chars=max_entry_chars, sees_images=has_images(tape), calls_tools=bool(tools))
    differences: dict[str, None] = {}
    of_children = {each.number for each in tape.entries if isinstance(each, TapedRequest) and each.request.child}
    entries = [each for each in tape.entries if isinstance(each, Note) or each.number not in of_children]
    compared = summaries = 0
    for index, entry in enumerate(entries):
        following = entries[index + 1 :]
        match entry:
            case Note(kind=kind) if kind == EVENT:
                events.append(_event(entry))
            case TapedRequest(number=number, request=recorded):
                if _is_for_summary(recorded, following):
                    summaries += 1
                    continue
                compared += 1
                today = replace(recorded, system=system, messages=transcript.messages(events), tools=tools)
                differences |= dict.fromkeys(diff_requests(recorded, today))
            case TapedReply(number=number):
                text, requests, stop = _last_attempt(entry, following)
                if stop is not None and _was_understood(following):
                    try:
                        read(text, stop, requests)
                    except FormatError as error:
                        refused = f"reply {number} was accepted, and would be rejected now ({error.code}):\n{error}"
                        differences.setdefault(refused, None)
            case _:
                pass
    if not events:
        raise ScriptError("The recording contains no events, so there is nothing to compare; record with `Recorder`.")
    return Comparison(requests=compared, summaries=summaries, differences=tuple(differences))


def events_of(tape: Tape) -> list[Recorded]:
    """Return the session's events, in order.

    Raises:
        ScriptError: an event cannot be read.
    """
    return [_event(entry) for entry in tape.entries if isinstance(entry, Note) and entry.kind == EVENT]


def _event(note: Note) -> Recorded:
    try:
        return decode(json.dumps(note.value).encode())
    except (ValueError, SessionError) as error:
        raise ScriptError(f"The recording contains an event that cannot be read: {error}.") from error


def _is_for_summary(request: Request, following: Sequence[Entry]) -> bool:
    """Whether a request led to a summary, by the first event after it."""
    for entry in following:
        if isinstance(entry, TapedRequest) and entry.request != request:
            return False
        if isinstance(entry, Note) and entry.kind == EVENT:
            event = _event(entry)
            if isinstance(event, Summarised | Replied | Ended):
                return isinstance(event, Summarised)
    return False


def _last_attempt(
    answer: TapedReply, following: Sequence[Entry]
) -> tuple[str, tuple[ToolRequest, ...], StopReason | None]:
    """Return text, calls and stop reason of the last attempt; None for the reason when it broke off."""
    text, stop = "", None
    for chunk in answer.chunks:
        if isinstance(chunk, ReplyStart):
            text = ""
        elif isinstance(chunk, TextChunk):
            text += chunk.text
        elif isinstance(chunk, ReplyEnd):
            stop = chunk.stop
    events = (_event(entry) for entry in following if isinstance(entry, Note) and entry.kind == EVENT)
    requests = next((event.requests for event in events if isinstance(event, Replied)), ())
    return text, requests, stop


def _was_understood(following: Sequence[Entry]) -> bool:
    """Whether the step after a reply ran."""
    for entry in following:
        if isinstance(entry, TapedRequest):
            return False
        if isinstance(entry, Note) and entry.kind == EVENT:
            match _event(entry):
                case Observed(text=text):
                    return not text.startswith(_FORMAT_ERROR)
                case Ended():
                    return True
                case _:
                    pass
    return False


def agent_of(tape: Tape, *, provider: Provider, work_dir: Path, sandbox: Sandbox) -> Agent:
    """Return the recorded agent with another model and place.

    Raises:
        ScriptError: the recording has no agent, or one of another version.
    """
    try:
        settings = dict(cast("Mapping[str, Any]", tape.about["agent"]))
        policy, memory, tools = (settings.pop(name) for name in ("policy", "memory", "tools"))
        rules = {each: _rules(policy.get(each, ())) for each in ("rules", "floor")}
        delegation = None
        if (bounds := settings.pop("delegation", None)) is not None:
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
            policy=Policy(**{**policy, **rules, "limits": RunLimits(**policy["limits"])}),
            tools=None if tools is None else tuple(tools),
            delegation=delegation,
            **settings,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ScriptError(
            f"The recording does not describe the agent in a form that this version reads ({error!r}). "
            "Record with `Recorder`, and replay with the same version."
        ) from error


def _rules(recorded: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(**{**rule, "paths": tuple(rule["paths"]), "commands": tuple(rule["commands"])}) for rule in recorded
    )


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


def _clock_and_random(tape: Tape, events: Sequence[Recorded]) -> ClockAndRandom:
    """Return the recorded values; a run that reads more of them has left the recording."""
    starts = list(_starts(events))
    notes = [each for each in tape.entries if isinstance(each, Note)]
    noted = {kind: iter([each for each in notes if each.kind == kind]) for kind in (DIGITS, TIME)}

    def next_of(kind: str) -> str:
        note = next(noted[kind], None)
        if note is None:
            raise ScriptError("The run reads the clock or random numbers more often than the recorded one.")
        return str(note.value)

    def next_start(task: Task) -> Started | None:
        start = next((each for each in starts if each.task == task), None)
        if start is not None:
            starts.remove(start)
        return start

    def baseline_after(start: Started) -> BaselineTaken | None:
        later = [*dropwhile(lambda event: event is not start, events)][1:]  # nothing after the start of a child run
        own = takewhile(lambda event: not isinstance(event, Started), later)
        return next((event for event in own if isinstance(event, BaselineTaken)), None)

    return ClockAndRandom(
        now=lambda: datetime.fromisoformat(next_of(TIME)),
        token=lambda _size: next_of(DIGITS),
        sleep=_no_wait,
        recorded_start=next_start,
        recorded_baseline=baseline_after,
    )


def _starts(events: Iterable[Event]) -> Iterator[Started]:
    """Yield the starts of runs and, as they occur in any order, of their child runs."""
    for event in events:
        if isinstance(event, ChildRecorded):
            yield from _starts([event.event])
        elif isinstance(event, Started):
            yield event


async def _no_wait(_seconds: float) -> None: ...


def _copy_directory(work_dir: Path, copy: Path) -> None:
    try:
        shutil.copytree(work_dir, copy, symlinks=True)
    except (OSError, shutil.Error) as error:
        raise SettingsError(f"The directory {work_dir} cannot be copied for a replay: {error}") from error


def _serve_recorded(registry: Registry, events: Sequence[Recorded]) -> None:
    """Let the tools of MCP servers return their recorded results; a replay starts no server."""
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
            name = answer.value.get("kind") if isinstance(answer.value, dict) else None
            kind: ToolErrorKind = next((each for each in get_args(ToolErrorKind) if each == name), "RuntimeError")
            raise ToolError(answer.text, kind=kind, value=answer.value)
        return ToolResult(value=answer.value, text=answer.text)

    for event in events:
        if isinstance(event, ToolsListed):
            register_tools(registry, event, serve)


async def _run(agent: Agent, replay: ReplayProvider, events: Sequence[Recorded]) -> list[Outcome]:
    """Run the tasks in order, until one waits for a person or leaves the recording."""
    pending = deque(event for event in events if isinstance(event, Started | MessageInjected))
    before = takewhile(lambda event: not isinstance(event, Paused), events)
    calls = [each for each in before if isinstance(each, ToolReturned)]
    answers = iter([call.value for call in calls if call.tool == "ask_user" and call.ok])
    outcomes = list[Outcome]()
    async with AsyncRuntime(agent) as runtime:

        def send(event: Event) -> None:
            while isinstance(event, StepStarted) and pending and isinstance(sent := pending[0], MessageInjected):
                if sent.step > event.step:
                    break
                pending.popleft()
                runtime.send_message(sent.text, id=sent.id)

        runtime.hooks.add(send)
        runtime.hooks.register("ask_user", lambda **_: next(answers, None))
        _serve_recorded(runtime.registry, events)
        while pending:
            if isinstance(task := pending.popleft(), Started):
                outcomes.append(await runtime.run(task.task, facts=task.facts))
                stopped = {Status.PAUSED, Status.MODEL_UNAVAILABLE, Status.SANDBOX_FAILED}
                if outcomes[-1].status in stopped or replay.departure is not None:
                    break
    return outcomes


def _digest(agent: Agent) -> str:
    workspace = Workspace(agent.work_dir, agent_path=agent.sandbox.inner_path(agent.work_dir))
    try:
        return Manifest.scan(workspace).digest
    finally:
        workspace.close()
