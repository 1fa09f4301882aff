"""Distil the log of a run to what its page shows: each step with what was written, called and answered. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from agent_runtime import (
    ChildRecorded,
    Ended,
    Event,
    MessageInjected,
    Parked,
    Paused,
    Recovered,
    Replied,
    ReplyBroken,
    Resumed,
    Started,
    Summarised,
    ToolReturned,
    Usage,
)
from bot.publishing.text import clean, one_line

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
        run_id: names the run; empty in logs of earlier versions.
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
