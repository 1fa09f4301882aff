"""Views of a run as raw values: the status comment, the progress, the record of publications, and the run's log.

`render` makes Markdown of a `StatusView`. `Progress` is the fold of a run's events, `RunLog` their extract for the page
of the run. `Published` records what has been sent to GitHub, `Withheld` what was not, and why.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from agent_runtime import (
    ChildRecorded,
    ChildWatched,
    Ended,
    Event,
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
from bot.git.change import FileChange
from bot.github.types import PullLink
from bot.publishing.checks import Check, Edits, Rerun, Verdict, checking, judged, step_lines
from bot.publishing.markdown import Allowed, clean, duration, one_line

State = Literal["queued", "working", "waiting", "parked", "done", "stopped", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that the agent did or does, e.g. `read src/app.py`."""

    label: str
    state: Literal["doing", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCall:
    """A call that needed a person, in a run that can ask nobody.

    Attributes:
        tool: the tool's name, e.g. `execute`.
        asked: what it would have done, as text: the command, the question.
        reason: why it needed a person.
        setting: what would allow it: `allow-commands` (an input of the Action, and `allow` in the repository's file),
            `level` (an input, and a key of that file), `label` where neither counts, or `label-off` where a label
            lowers the level, whatever these say; empty for a question.
        value: of that setting, e.g. the pattern of the command.
    """

    tool: str
    asked: str
    reason: str
    setting: Literal["allow-commands", "level", "label", "label-off", ""] = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """One of several attempts at a fix.

    Attributes:
        number: from 1.
        ended: how its run ended, e.g. `finished`.
        verdict: what the host saw of it.
        files: how many files it changed.
        lines: how many lines it added and removed; None where that is not known.
        steps: model replies.
        usage: tokens and money.
        summary: what the agent says of it.
        taken: whether its change became the job's.
    """

    number: int
    ended: str
    verdict: Verdict
    files: int
    lines: int | None
    steps: int
    usage: Usage
    summary: str
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingView:
    """What waits for a person.

    Attributes:
        kind: a call that needs a permission, a question, a change that needs an approval to be published, or a plan.
        request_id: names it.
        trigger: the word that answers begin with.
        reason: why it waits; for a question, the question.
        preview: what would happen, whole: a diff or a command; may be empty.
        parts: the pages of the comments that show it, where it does not fit into the job's own.
        language: of the preview, e.g. `diff` or `bash`.
        like: patterns of what an approval of others like it would allow, too; empty where there is none.
        expires: until when it can be answered, e.g. `25 November 2026, 05:00 UTC`.
    """

    kind: Literal["permission", "question", "publication", "plan"]
    request_id: str
    trigger: str
    reason: str = ""
    preview: str = ""
    parts: tuple[str, ...] = ()
    language: Literal["diff", "bash", ""] = ""
    like: tuple[str, ...] = ()
    expires: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """Everything that the comment says, raw; rendering makes it harmless.

    Attributes:
        state: where the job stands.
        asked: the command as it was given, e.g. `/codepilot fix`.
        allowed: who asked, in which thread, on which server.
        job_id: for the log.
        marker: from `render.marker`.
        seconds: since the command was given.
        at: when this was so, in seconds since the epoch; 0 where that is not told.
        stop: the command that stops it while it works; empty where none can be given.
        asker: who asked, as Markdown, where it was not the person in `allowed`.
        unasked: what is done and on which event, where nobody gave a command, e.g. `Review of this pull request, on
            push`; empty for red CI, too.
        verdict: what the run came to, for one that is `done` and was to change or to test something, or whose setup
            failed; None for all others.
        setup_failed: the setup command that failed before the agent started, and how.
        failed: the workflow or the check whose failure began the job, when nobody asked; empty when somebody did.
        failed_url: its page; may be empty.
        run_url: the page of the run, e.g. the check run's or the workflow's.
        pending: what waits for a person.
        activities: what the agent did, oldest first.
        completion: the agent's final text.
        reason: why it failed, stopped or was refused.
        remedy: what to do about that.
        withheld: what was not published, and why.
        withheld_diff: what that is, whole, as a diff; empty where it cannot be shown.
        partial: whether everything else was published, without a check on it alone.
        kept: where the work is that was not published, and for how long.
        would: for a dry run: what would have been sent.
        warning: what went wrong and did not end the job.
        notes: what else to know, a sentence or two each: an option that was reduced, a label that no longer counts.
        files: what changed.
        checks: commands the agent ran whose exit codes say whether something is right, oldest first.
        denied: calls that needed a person where nobody could be asked, oldest first.
        attempts: for a fix with candidates: all of them.
        commit_sha: of the commit that was made.
        commit_url: its page.
        pull_number: of the pull request that was opened.
        pull_url: its page.
        pull_draft: whether it is a draft.
        review_url: the page of the review that was made.
        wip_url: the page that shows unfinished work on a branch of its own.
        ci_note: that no checks begin by themselves on what was pushed, and how to begin them.
        steps: model replies so far.
        usage: tokens and money, or None before the first reply.
        model: which model worked.
        sandbox: the level the agent's commands ran at, e.g. `bubblewrap, no network`.
        level: how much the run might do unasked, e.g. `ask`.
    """

    state: State
    asked: str
    allowed: Allowed
    job_id: str
    marker: str
    seconds: float
    at: float = 0.0
    stop: str = ""
    asker: str = ""
    unasked: str = ""
    verdict: Verdict | None = None
    setup_failed: str = ""
    failed: str = ""
    failed_url: str = ""
    run_url: str = ""
    pending: PendingView | None = None
    activities: tuple[Activity, ...] = ()
    completion: str | None = None
    reason: str = ""
    remedy: str = ""
    withheld: str = ""
    withheld_diff: str = ""
    partial: bool = False
    kept: str = ""
    would: str = ""
    warning: str = ""
    notes: tuple[str, ...] = ()
    files: tuple[FileChange, ...] = ()
    checks: tuple[Check, ...] = ()
    denied: tuple[DeniedCall, ...] = ()
    attempts: tuple[CandidateView, ...] = ()
    commit_sha: str | None = None
    commit_url: str | None = None
    pull_number: int | None = None
    pull_url: str | None = None
    pull_draft: bool = False
    review_url: str | None = None
    wip_url: str | None = None
    ci_note: str = ""
    steps: int = 0
    usage: Usage | None = None
    model: str = ""
    sandbox: str = ""
    level: str = ""


_MOST_DENIED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run so far.

    Attributes:
        activities: what the agent did, oldest first.
        checks: commands it ran whose exit codes say whether something is right: the host's account, not the model's.
        running: checks that went on after the agent had stopped waiting for them, by their terminals.
        edits: when it changed files, as far as that is known.
        places: where its terminals are, by their names.
        failing: for a job that failed checks began: the commands of the workflow's steps that failed.
        rerun: what the command that failed comes to after the change; None where nothing is to be proven.
        denied: calls that needed a person where nobody could be asked, each once, oldest first.
        steps: model replies asked for.
        usage: tokens and money of the replies so far.
        run_id: the newest run that `usage` includes; empty before the agent starts.
        network_lost: why the sandbox has no network any more; empty while it has what it was given.
        servers_down: MCP servers that did not answer a call, each once.
        reach: what the agent's commands may reach, for the comment; empty before that is known.
        awaits: what the run waits for to go on, or empty.
        warning: what the comment says of what went wrong before the agent started, or empty.
        setup_failed: the setup command that failed before the agent started, and how, or empty.
        attempts: for a fix with candidates: all of them, once they have ended.
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
    attempts: tuple[CandidateView, ...] = ()

    @property
    def judged(self) -> tuple[Check, ...]:
        """The checks, each with what it says of the files as they are now."""
        return judged(self.checks, self.edits)

    @property
    def warnings(self) -> str:
        """All that went wrong and ended nothing."""
        named = ", ".join(f"`{each}`" for each in self.servers_down)
        down = f"MCP servers did not answer a call: {named}. The agent continued without them." if named else ""
        return "\n\n".join(filter(None, (self.warning, down)))

    @property
    def shown(self) -> tuple[Activity, ...]:
        """What the agent did, and what it waits for."""
        return (*self.activities, Activity(label=self.awaits, state="doing")) if self.awaits else self.activities

    def told(self, activity: Activity) -> Progress:
        """The progress once something that no agent does began, or ended."""
        begun = self.activities and self.activities[-1] == replace(activity, state="doing")
        return replace(self, activities=(*(self.activities[:-1] if begun else self.activities), activity))

    def without(self, call: DeniedCall) -> Progress:
        """The progress once a call was denied because nobody could be asked."""
        if call in self.denied or len(self.denied) >= _MOST_DENIED:
            return self
        return replace(self, denied=(*self.denied, call))

    def edited(self, edits: Edits | None) -> Progress:
        """The progress once it is known when files were changed, whatever changed them."""
        return replace(self, edits=Edits.joined(self.edits, edits))

    def resumed(self, log: Iterable[Event]) -> Progress:
        """What it is once another process, which began the run, has recorded all of `log`; this is how it began."""
        done = reduce(Progress.after, log, self)
        # The attempt that kept this ended with its process before it could drop the log of the run that it gave up.
        return replace(done, usage=self.usage) if self.run_id and self.run_id == done.run_id else done

    def after(self, event: Event) -> Progress:
        """The progress once `event` has happened."""
        changed: dict[str, Any] = {}
        match event:
            case Started():
                changed = {"run_id": event.run_id}
            case StepStarted():
                changed = {"steps": event.step}
            case Replied():
                changed = {"usage": self.usage + event.usage, "steps": event.step, "awaits": ""}
            # What several attempts spend counts, until one of them is taken.
            case (
                ReplyBroken(usage=spent)
                | Summarised(usage=spent)
                | ChildWatched(event=Replied(usage=spent) | ReplyBroken(usage=spent) | Summarised(usage=spent))
            ):
                changed = {"usage": self.usage + spent}
            case ChildWatched(task=task, event=ToolReturned(label=label, ok=ok)):
                label = f"attempt {task.removeprefix('t')}: {label}"
                return self.told(Activity(label=label, state="done" if ok else "failed"))
            case ModelAwaited():
                again = duration(event.seconds)
                changed = {"awaits": f"the model service does not answer; trying again in {again}"}
            case NetworkLost():
                changed = {"network_lost": event.reason}
            case ToolCalled():
                return self.told(Activity(label=event.label, state="doing"))
            case ToolReturned():
                return self._returned(event)
            case _:
                return self
        return replace(self, **changed)

    def _returned(self, event: ToolReturned) -> Progress:
        """The progress once a tool has run: what it checked, and whether it changed a file."""
        progress = self.told(Activity(label=event.label, state="done" if event.ok else "failed"))
        if event.server_down:
            return replace(progress, servers_down=tuple(dict.fromkeys((*self.servers_down, event.server_down))))
        at = event.file_time
        if event.tool == "write_file":
            return progress.edited(Edits(first=at, last=at)) if event.ok else progress
        value = event.value if isinstance(event.value, dict) else {}
        terminal = str(event.args.get("session_id", ""))
        if "status" not in value:  # nothing was run
            return progress
        places = {**dict(self.places), terminal: str(value.get("cwd", ""))}
        progress = replace(progress, places=tuple(places.items()))
        begun = self._begun(event) if event.tool == "execute" else dict(self.running).get(terminal)
        running = tuple(each for each in self.running if each[0] != terminal)
        if begun is None:
            return replace(progress, running=running) if event.tool == "execute" else progress
        code, seconds = value.get("exit_code"), begun.seconds
        if event.tool != "execute":
            seconds += max(0.0, at - begun.ended)
            # Of a pipe only the last stage is told then.
            code = None if "|" in begun.command else code
        check = replace(begun, exit_code=code if isinstance(code, int) else None, seconds=seconds, ended=at)
        checks = [each for each in self.checks if each != begun]
        if value["status"] == "running":
            running = (*running, (terminal, check))
        return replace(progress, checks=(*checks, check), running=running)

    def _begun(self, event: ToolReturned) -> Check | None:
        """The check that a command is; None where its exit code proves nothing."""
        command = str(event.args.get("command", ""))
        # The very line of the step that failed needs no declaration. Of a pipe only `check=True` knows every stage.
        is_step = "|" not in command and command.strip() in step_lines(self.failing)
        declared = event.args.get("check") is True or is_step
        if checking(command, declared=declared) is None:
            return None
        directory = dict(self.places).get(str(event.args.get("session_id", "")), "")
        return Check(command=command, exit_code=None, seconds=event.seconds, declared=declared, directory=directory)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRef:
    """A commit on a branch."""

    sha: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What has been sent.

    Attributes:
        commit: the commit.
        pull: the pull request that it is in.
        onto: the commit onto which the change was replayed last.
        review_requested: whether a review was sent, of which GitHub has not told the page yet.
        review_url: the page of the review.
    """

    commit: CommitRef | None = None
    pull: PullLink | None = None
    onto: str | None = None
    review_requested: bool = False
    review_url: str | None = None


class RecordPart(Protocol[T]):
    """A part of what is recorded of one job, kept over restarts."""

    async def read(self) -> T:
        """What is recorded now."""
        ...

    async def update(self, change: Callable[[T], T]) -> T:
        """Record what the pure `change` makes of it; it is on disk when this returns."""
        ...


WithheldCause = Literal[
    "branch-moved",
    "default-branch",
    "denied",
    "large-file",
    "left-out",
    "needs-approval",
    "no-pull-request",
    "no-reversal",
    "other-commit",
    "published-already",
    "read-only",
    "refused",
    "secret",
    "unfinished",
    "unproven",
    "weak-proof",
    "workflows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """What was not published, and why.

    Attributes:
        cause: names the rule.
        reason: for the comment: one or more sentences.
    """

    cause: WithheldCause
    reason: str


_MOST_TEXT = 8_000
_MOST_TITLE = 300
_MOST_ENTRIES = 2_000
_MOST_BEFORE = 200
_MOST_CHARACTERS = 1_000_000
_MOST_BYTES = 16 * 1024 * 1024

EntryKind = Literal["reply", "call", "message", "wait", "answer", "note", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One thing that happened in a run.

    Attributes:
        kind: a reply of the model, a call of a tool, a message of a person, a wait for one, their answer, a note about
            the run, or its end.
        title: one line.
        text: the whole, with the middle of long texts left out.
        ok: whether it succeeded.
        seconds: how long it took; 0 where that is not known.
        at: when it ended, in seconds since the epoch; 0 where that is not known.
        terminal: whether the text is the output of a command.
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
    """The log of a run, bounded.

    Attributes:
        entries: what happened, oldest first.
        left_out: how many entries are missing in the middle.
        head: how many entries stand before these.
        usage: tokens and money of the replies so far.
        run_id: names the run.
        before: how many of the first entries are of attempts before it.
        spent: tokens and money of those attempts, which `usage` includes.
    """

    entries: tuple[RunEntry, ...] = ()
    left_out: int = 0
    head: int = 0
    usage: Usage = field(default_factory=Usage)
    run_id: str = ""
    before: int = 0
    spent: Usage = field(default_factory=Usage)


_LOG = TypeAdapter(RunLog)
_ANEW = RunEntry(kind="note", title="The run started again from the beginning: its earlier work was lost", ok=False)


def log_of(events: Iterable[Event], redact: Callable[[str], str]) -> RunLog:
    """What there is to show of the events of a session.

    Args:
        events: what is recorded, oldest first.
        redact: takes secrets out of text.
    """
    events = tuple(events)
    entries = [each for event in events for each in _entries(event)]
    head, room = 0, _MOST_CHARACTERS // 2
    while head < min(len(entries), _MOST_ENTRIES // 2) and (room := room - _shown(entries[head])) >= 0:
        head += 1
    first, room = len(entries), _MOST_CHARACTERS // 2
    while (
        first > head and len(entries) - first < _MOST_ENTRIES // 2 and (room := room - _shown(entries[first - 1])) >= 0
    ):
        first -= 1
    # Redacting takes most of the time, so it is done for these only; before texts are cut, since the parts of a secret
    # may be too short to be known.
    kept: list[RunEntry] = []
    for each in (*entries[:head], *entries[first:]):
        text = clean(redact(each.text))
        if len(text) > _MOST_TEXT:
            begins, ends = _MOST_TEXT // 4, _MOST_TEXT * 3 // 4
            text = f"{text[:begins]}\n… {len(text) - begins - ends:,} characters are left out …\n{text[-ends:]}"
        kept.append(replace(each, title=one_line(redact(each.title), _MOST_TITLE), text=text))
    return RunLog(
        entries=tuple(kept),
        left_out=first - head,
        head=head,
        usage=sum(map(_usage, events), Usage()),
        run_id=next((event.run_id for event in events if isinstance(event, Started)), ""),
    )


def following(log: RunLog, kept: RunLog | None) -> RunLog:
    """A log with what is kept of the attempts at the same job that were lost before it began.

    Args:
        log: the newest.
        kept: what was stored last: of this run, or of the one before; None where nothing was.
    """
    if kept is None:
        return log
    if kept.run_id == log.run_id:
        before, spent = kept.entries[: kept.before], kept.spent
    else:
        before, spent = (*kept.entries[-_MOST_BEFORE:], _ANEW), kept.usage
    return replace(
        log,
        entries=(*before, *log.entries),
        head=len(before) + log.head,
        usage=spent + log.usage,
        before=len(before),
        spent=spent,
    )


def pack_log(log: RunLog) -> bytes:
    """A log as it is stored."""
    return zlib.compress(_LOG.dump_json(log))


def unpack_log(body: bytes) -> RunLog | None:
    """A log as it was stored; None where this version cannot read it."""
    opened = zlib.decompressobj()
    try:
        text = opened.decompress(body, _MOST_BYTES)
        return _LOG.validate_json(text) if opened.eof else None
    except (zlib.error, ValidationError):
        return None


def _shown(entry: RunEntry) -> int:
    return min(len(entry.text), _MOST_TEXT)


def _usage(event: Event) -> Usage:
    if isinstance(event, ChildRecorded):
        return _usage(event.event)
    return event.usage if isinstance(event, Replied | ReplyBroken | Summarised) else Usage()


def _entries(event: Event) -> Iterator[RunEntry]:
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
            asked = "asks a question" if pending.kind == "question" else f"requires approval of {pending.tool}"
            yield RunEntry(kind="wait", title=f"The agent {asked}", text=f"{pending.reason}\n{pending.preview}")
        case Resumed():
            said = "Answered" if event.approved else "Denied or not answered"
            yield RunEntry(kind="answer", title=said, text=event.note, ok=event.approved)
        case ReplyBroken() | Parked():
            title = "The model service failed" if isinstance(event, Parked) else "A reply of the model broke off"
            yield RunEntry(kind="note", title=title, text=event.reason, ok=False)
        case Recovered():
            yield RunEntry(kind="note", title="The run was resumed after its process had ended", text=event.text)
        case ChildRecorded(task=task, event=inner):
            yield from (replace(each, title=f"{task}: {each.title}") for each in _entries(inner))
        case Ended(outcome=outcome):
            title = f"The run ended: {outcome.status.value.replace('_', ' ')}"
            ok = outcome.status.value in {"finished", "answered"}
            yield RunEntry(kind="end", title=title, text=str(outcome), ok=ok, seconds=outcome.seconds)
        case _:
            return
