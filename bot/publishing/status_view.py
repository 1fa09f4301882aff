"""Values of a run before rendering: status comment, progress, publication record and run log.

`render` turns a `StatusView` into Markdown. `Progress` and `RunLog` are folds of a run's events.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from agent_runtime import (
    ChildRecorded,
    ChildWatched,
    Ended,
    Event,
    InstructionsShown,
    MessageInjected,
    ModelAwaited,
    NetworkLost,
    Parked,
    Paused,
    Recovered,
    Replied,
    ReplyBroken,
    Resumed,
    Started,
    StepStarted,
    Summarised,
    ToolCalled,
    ToolReturned,
    Usage,
)
from bot.domain.actions import ActionError, Proposal, append_proposal, parse_action
from bot.git.change import FileChange
from bot.github.types import PullLink
from bot.prompt.reading import Unread
from bot.publishing.checks import Check, Edits, Rerun, Verdict, judge_checks, parse_check, step_lines
from bot.publishing.markdown import Allowlist, clean, code, duration, one_line
from bot.publishing.outcome import (
    ActionView,
    Failed,
    Finished,
    JobOutcome,
    PendingView,
    Published,
    Refused,
    Stopped,
    Waiting,
)

State = Literal["queued", "working", "waiting", "parked", "done", "stopped", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    label: str
    state: Literal["doing", "done", "failed"]


def has_failed(call: ToolReturned) -> bool:
    """Whether a call failed, or its command did; without `check=True` the call itself succeeds then."""
    code = call.value.get("exit_code") if isinstance(call.value, dict) else None
    return not call.ok or (isinstance(code, int) and code != 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCall:
    """A tool call denied because the run cannot ask anyone.

    Attributes:
        setting: would allow it; `label-off` is a label that lowers the level. Empty for a question.
    """

    tool: str
    request: str
    reason: str
    setting: Literal["allow-commands", "level", "label", "label-off", ""] = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    number: int
    ended: str
    verdict: Verdict
    files: int
    lines: int | None
    steps: int
    usage: Usage
    summary: str
    is_selected: bool = False


_MAX_DENIED_CALLS, _MAX_INSTRUCTIONS = 50, 10
_MAX_PROGRAMS, _PROGRAM_CHARS = 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of a run, folded from its events.

    Attributes:
        running: checks that outlived the agent's wait, by terminal.
        places: working directory of each terminal.
        written: paths that the agent's own tool wrote.
        ended_programs: command lines of programs that ran when the agent ended.
        proposals: actions that the agent proposes.
        instructions: files whose text the agent was shown; of `shortened` ones not all of it.
        unread: the changed files that a finished run has not read; None where it had no difference to read.
    """

    activities: tuple[Activity, ...] = ()
    checks: tuple[Check, ...] = ()
    running: tuple[tuple[str, Check], ...] = ()
    edits: Edits | None = None
    places: tuple[tuple[str, str], ...] = ()
    failing: tuple[str, ...] = ()
    rerun: Rerun | None = None
    denied: tuple[DeniedCall, ...] = ()
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    run_id: str = ""
    network_lost: str = ""
    servers_down: tuple[str, ...] = ()
    reach: str = ""
    warning: str = ""
    awaits: str = ""
    setup_failed: str = ""
    written: tuple[str, ...] = ()
    ended_programs: tuple[str, ...] = ()
    attempts: tuple[CandidateView, ...] = ()
    unread: Unread | None = None
    proposals: tuple[Proposal, ...] = ()
    instructions: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()

    @property
    def judged_checks(self) -> tuple[Check, ...]:
        return judge_checks(self.checks, self.edits)

    @property
    def warnings(self) -> str:
        """Problems that did not end the run."""
        names = ", ".join(f"`{server}`" for server in self.servers_down)
        outage = f"MCP servers did not answer a call: {names}. The agent continued without them." if names else ""
        programs = [code(one_line(program, _PROGRAM_CHARS)) for program in self.ended_programs]
        more = f" and {len(programs) - _MAX_PROGRAMS} more programs" if len(programs) > _MAX_PROGRAMS else ""
        was = "were" if len(programs) > 1 else "was"
        listed = ", ".join(programs[:_MAX_PROGRAMS])
        ended = f"{listed}{more} still ran and {was} ended before the change was read." if programs else ""
        return "\n\n".join(filter(None, (self.warning, outage, ended)))

    @property
    def instruction_names(self) -> Iterator[str]:
        for words, paths in (("instructions", self.instructions), ("cut for length", self.shortened)):
            rest = f" and {len(paths) - _MAX_INSTRUCTIONS} more" if len(paths) > _MAX_INSTRUCTIONS else ""
            if paths:
                yield f"{words}: {', '.join(map(code, paths[:_MAX_INSTRUCTIONS]))}{rest}"

    @property
    def all_activities(self) -> tuple[Activity, ...]:
        return (*self.activities, Activity(label=self.awaits, state="doing")) if self.awaits else self.activities

    def with_activity(self, activity: Activity) -> Progress:
        is_started = self.activities and self.activities[-1] == replace(activity, state="doing")
        return replace(self, activities=(*(self.activities[:-1] if is_started else self.activities), activity))

    def with_denied_call(self, call: DeniedCall) -> Progress:
        if call in self.denied or len(self.denied) >= _MAX_DENIED_CALLS:
            return self
        return replace(self, denied=(*self.denied, call))

    def with_proposal(self, values: Mapping[str, object]) -> Progress:
        """Add a proposal from the arguments of a call that succeeded."""
        fields = {name: value for name, value in values.items() if name != "action"}
        try:
            action = parse_action(str(values.get("action")), fields)
        except ActionError:  # a secret in it was removed from the record
            return self
        return replace(self, proposals=append_proposal(self.proposals, action))

    def with_edits(self, edits: Edits | None) -> Progress:
        return replace(self, edits=Edits.merge(self.edits, edits))

    def replay_log(self, log: Iterable[Event]) -> Progress:
        """Apply the session log of an earlier process to the progress at the agent's start."""
        progress = reduce(Progress.apply_event, log, self)
        # The earlier process ended before it could discard the log of an abandoned run, whose usage is already counted.
        return replace(progress, usage=self.usage) if self.run_id and self.run_id == progress.run_id else progress

    def apply_event(self, event: Event) -> Progress:
        changes: dict[str, Any] = {}
        match event:
            case Started():
                changes = {"run_id": event.run_id}
            case StepStarted():
                changes = {"steps": event.step}
            case Replied():
                changes = {"usage": self.usage + event.usage, "steps": event.step, "awaits": ""}
            # The usage of all attempts counts until one of them is selected.
            case (
                ReplyBroken(usage=usage)
                | Summarised(usage=usage)
                | ChildWatched(event=Replied(usage=usage) | ReplyBroken(usage=usage) | Summarised(usage=usage))
            ):
                changes = {"usage": self.usage + usage}
            case ChildWatched(task=task, event=ToolReturned() as call):
                label = f"attempt {task.removeprefix('t')}: {call.label}"
                return self.with_activity(Activity(label=label, state="failed" if has_failed(call) else "done"))
            case ToolCalled():
                return self.with_activity(Activity(label=event.label, state="doing"))
            case ToolReturned():
                return self._apply_tool_result(event)
            case _:
                return self._apply_condition(event)
        return replace(self, **changes)

    def _apply_condition(self, event: Event) -> Progress:
        match event:
            case ModelAwaited():
                delay = duration(event.seconds)
                return replace(self, awaits=f"the model service does not answer; trying again in {delay}")
            case NetworkLost():
                return replace(self, network_lost=event.reason)
            case ChildWatched(event=InstructionsShown() as shown):
                return self._apply_condition(shown)
            case InstructionsShown():
                instructions = tuple(dict.fromkeys((*self.instructions, *event.paths)))
                shortened = tuple(dict.fromkeys((*self.shortened, *event.incomplete)))
                return replace(self, instructions=instructions, shortened=shortened)
            case _:
                return self

    def _apply_tool_result(self, event: ToolReturned) -> Progress:
        progress = self.with_activity(Activity(label=event.label, state="failed" if has_failed(event) else "done"))
        if event.server_down:
            return replace(progress, servers_down=tuple(dict.fromkeys((*self.servers_down, event.server_down))))
        if event.tool == "propose" and event.ok:
            return progress.with_proposal(event.args)
        at = event.file_time
        if event.tool == "write_file":
            names = [posixpath.normpath(literal_eval(literal)) for literal in _WRITTEN.findall(event.text)]
            written = tuple(dict.fromkeys((*self.written, *names)))
            return replace(progress, written=written).with_edits(Edits(first=at, last=at)) if event.ok else progress
        value = event.value if isinstance(event.value, dict) else {}
        terminal = str(event.args.get("session_id", ""))
        if "status" not in value:  # nothing was run
            return progress
        places = {**dict(self.places), terminal: str(value.get("cwd", ""))}
        progress = replace(progress, places=tuple(places.items()))
        unfinished = self._parse_check(event) if event.tool == "execute" else dict(self.running).get(terminal)
        running = tuple(entry for entry in self.running if entry[0] != terminal)
        if unfinished is None:
            return replace(progress, running=running) if event.tool == "execute" else progress
        code, seconds = value.get("exit_code"), unfinished.seconds
        if event.tool != "execute":
            seconds += max(0.0, at - unfinished.ended)
            # Without `check=True`, only a pipe's last stage has an exit code here.
            code = None if "|" in unfinished.command else code
        before = value.get("failed_before")
        check = replace(
            unfinished,
            exit_code=code if isinstance(code, int) else None,
            seconds=seconds,
            ended=at,
            failed_before=tuple(map(str, before)) if isinstance(before, list | tuple) else (),
        )
        checks = [entry for entry in self.checks if entry != unfinished]
        if value["status"] == "running":
            running = (*running, (terminal, check))
        return replace(progress, checks=(*checks, check), running=running)

    def _parse_check(self, event: ToolReturned) -> Check | None:
        command = str(event.args.get("command", ""))
        # The exact line of a failed step needs no declaration. Only `check=True` covers every stage of a pipe.
        is_step = "|" not in command and command.strip() in step_lines(self.failing)
        declared = event.args.get("check") is True or is_step
        if parse_check(command, declared=declared) is None:
            return None
        directory = dict(self.places).get(str(event.args.get("session_id", "")), "")
        return Check(command=command, exit_code=None, seconds=event.seconds, declared=declared, directory=directory)


_WRITTEN = re.compile(r"^\[write_file\] ('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\") ", re.MULTILINE)
"""A path in the result of `write_file`."""
_STATES: Mapping[type[JobOutcome], State] = {Finished: "done", Refused: "refused", Failed: "failed", Stopped: "stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """Unescaped content of the status comment.

    Attributes:
        outcome: None until the job ends or waits.
        requester: as Markdown, if it is not the person in `allowed`.
        pull: the pull request of the change, or the one that the job continues.
        ci_note: instructions if the push starts no checks.
        patch_note: the location of the unpublished change.
    """

    command: str
    allowed: Allowlist
    job_id: str
    marker: str
    seconds: float
    at: float = 0.0
    is_queued: bool = False
    outcome: JobOutcome | None = None
    progress: Progress = field(default_factory=Progress)
    stop: str = ""
    requester: str = ""
    event_label: str = ""
    failed_check: str = ""
    failed_url: str = ""
    run_url: str = ""
    pull: PullLink | None = None
    ci_note: str = ""
    patch_note: str = ""
    notes: tuple[str, ...] = ()
    model: str = ""
    sandbox: str = ""
    level: str = ""

    @property
    def state(self) -> State:
        if self.outcome is None:
            return "queued" if self.is_queued else "working"
        if isinstance(self.outcome, Waiting):
            return "parked" if self.outcome.pending is None else "waiting"
        return _STATES[type(self.outcome)]

    @property
    def verdict(self) -> Verdict | None:
        return self.outcome.verdict if isinstance(self.outcome, Finished) else None

    @property
    def unreviewed(self) -> Unread | None:
        """The files that a finished review did not read; None if it read all."""
        unread = self.progress.unread
        is_review = isinstance(self.outcome, Finished) and self.outcome.review is not None
        return unread if is_review and unread is not None and unread.total else None

    @property
    def pending(self) -> PendingView | None:
        return self.outcome.pending if isinstance(self.outcome, Waiting) else None

    @property
    def steps(self) -> int:
        run = self.outcome.run if self.outcome is not None else None
        return self.progress.steps if run is None else run.steps

    @property
    def usage(self) -> Usage:
        run = self.outcome.run if self.outcome is not None else None
        return self.progress.usage if run is None else run.usage

    @property
    def published(self) -> Published:
        return Published() if self.outcome is None else self.outcome.published

    @property
    def files(self) -> tuple[FileChange, ...]:
        return () if self.outcome is None else self.outcome.files

    @property
    def actions(self) -> tuple[ActionView, ...]:
        """The agent's proposals, with their results once the run has ended."""
        if self.outcome is not None:
            return self.outcome.actions
        number, proposals = self.allowed.number, self.progress.proposals
        return tuple(ActionView(number=entry.number, sentence=entry.sentence(number)) for entry in proposals)


T = TypeVar("T")


class RecordPart(Protocol[T]):
    async def read(self) -> T: ...

    async def update(self, change: Callable[[T], T]) -> T: ...


_MAX_TEXT = 8_000
_MAX_TITLE = 300
_MAX_ENTRIES = 2_000
_MAX_EARLIER_ENTRIES = 200
_MAX_CHARACTERS = 1_000_000
_MAX_BYTES = 16 * 1024 * 1024

EntryKind = Literal["reply", "call", "message", "wait", "answer", "note", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """An entry of a run's timeline; times are 0 if unknown.

    Attributes:
        terminal: whether the text is command output.
    """

    kind: EntryKind
    title: str
    text: str = ""
    ok: bool = True
    seconds: float = 0.0
    at: float = 0.0
    terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Bounded timeline of a run: `left_out` entries are missing behind the first `head`."""

    entries: tuple[RunEntry, ...] = ()
    left_out: int = 0
    head: int = 0
    usage: Usage = field(default_factory=Usage)
    run_id: str = ""
    before: int = 0
    spent: Usage = field(default_factory=Usage)


_LOG = TypeAdapter(RunLog)
_RESTART = RunEntry(kind="note", title="The run started again from the beginning: its earlier work was lost", ok=False)


def build_log(events: Iterable[Event], redact: Callable[[str], str]) -> RunLog:
    events = tuple(events)
    entries = [entry for event in events for entry in _to_entries(event)]
    head, room, most = 0, _MAX_CHARACTERS // 2, _MAX_ENTRIES // 2
    while head < min(len(entries), most) and (room := room - _size(entries[head])) >= 0:
        head += 1
    first, room = len(entries), _MAX_CHARACTERS // 2
    while first > head and len(entries) - first < most and (room := room - _size(entries[first - 1])) >= 0:
        first -= 1
    # Redaction dominates the run time, so only these entries are redacted; before the cut, which could leave fragments
    # of a secret too short to recognize.
    shortened: list[RunEntry] = []
    for entry in (*entries[:head], *entries[first:]):
        text = clean(redact(entry.text))
        if len(text) > _MAX_TEXT:
            head_chars, omitted = _MAX_TEXT // 4, len(text) - _MAX_TEXT
            text = f"{text[:head_chars]}\n… {omitted:,} characters are left out …\n{text[head_chars + omitted :]}"
        shortened.append(replace(entry, title=one_line(redact(entry.title), _MAX_TITLE), text=text))
    return RunLog(
        entries=tuple(shortened),
        left_out=first - head,
        head=head,
        usage=sum(map(_event_usage, events), Usage()),
        run_id=next((event.run_id for event in events if isinstance(event, Started)), ""),
    )


def prepend_attempts(log: RunLog, stored: RunLog | None) -> RunLog:
    """Prepend earlier attempts whose work was lost, from the log stored last (of this run or the one before)."""
    if stored is None:
        return log
    if stored.run_id == log.run_id:
        before, spent = stored.entries[: stored.before], stored.spent
    else:
        before, spent = (*stored.entries[-_MAX_EARLIER_ENTRIES:], _RESTART), stored.usage
    return replace(
        log,
        entries=(*before, *log.entries),
        head=len(before) + log.head,
        usage=spent + log.usage,
        before=len(before),
        spent=spent,
    )


def pack_log(log: RunLog) -> bytes:
    return zlib.compress(_LOG.dump_json(log))


def unpack_log(body: bytes) -> RunLog | None:
    """Deserialize a log; None if this version cannot read it."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(body, _MAX_BYTES)
        return _LOG.validate_json(text) if decompressor.eof else None
    except (zlib.error, ValidationError):
        return None


def _size(entry: RunEntry) -> int:
    return min(len(entry.text), _MAX_TEXT)


def _event_usage(event: Event) -> Usage:
    if isinstance(event, ChildRecorded):
        return _event_usage(event.event)
    return event.usage if isinstance(event, Replied | ReplyBroken | Summarised) else Usage()


def _to_entries(event: Event) -> Iterator[RunEntry]:
    match event:
        case Replied():
            yield RunEntry(kind="reply", title=f"Step {event.step}", text=event.text)
        case ToolReturned():
            yield RunEntry(
                kind="call",
                title=event.label,
                text=event.text,
                ok=event.ok,
                seconds=event.seconds,
                at=event.ended,
                terminal="command" in event.args,
            )
        case MessageInjected():
            yield RunEntry(kind="message", title="Message to the agent", text=event.text)
        case Paused(pending=pending):
            request = "asks a question" if pending.kind == "question" else f"requires approval of {pending.tool}"
            yield RunEntry(kind="wait", title=f"The agent {request}", text=f"{pending.reason}\n{pending.preview}")
        case Resumed():
            title = "Answered" if event.approved else "Denied or not answered"
            yield RunEntry(kind="answer", title=title, text=event.note, ok=event.approved)
        case ReplyBroken() | Parked():
            title = "The model service failed" if isinstance(event, Parked) else "A reply of the model broke off"
            yield RunEntry(kind="note", title=title, text=event.reason, ok=False)
        case Recovered():
            yield RunEntry(kind="note", title="The run was resumed after its process had ended", text=event.text)
        case ChildRecorded(task=task, event=inner):
            yield from (replace(entry, title=f"{task}: {entry.title}") for entry in _to_entries(inner))
        case Ended(outcome=outcome):
            title = f"The run ended: {outcome.status.value.replace('_', ' ')}"
            ok = outcome.status.value in {"finished", "answered"}
            yield RunEntry(kind="end", title=title, text=str(outcome), ok=ok, seconds=outcome.seconds)
        case _:
            return
