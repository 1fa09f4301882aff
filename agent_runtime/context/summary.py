"""The summary that replaces the oldest part of a conversation which has become too long. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_runtime.context.archive import TaskRecord, tasks
from agent_runtime.context.estimate import estimate
from agent_runtime.context.transcript import TranscriptEntry
from agent_runtime.core.events import Ended, MessageInjected, Recorded, Replied, Started, Summarised, ToolReturned
from agent_runtime.prompts import notes

_SHARE = 0.05
"""Of what a summary replaces: a finding takes some 35 tokens, and a window of 120,000 holds about a hundred."""
_LEAST_WORDS = 5
ASIDE_CHARS = 200
"""Of a summary that stands beside an act: a shorter text only announces the act."""
_GOAL_CHARS = 200
_END_CHARS = 400
_LAST_CALLS = 12
_PLACE_CHARS = 80


def boundary(
    events: Sequence[Recorded], entries: Sequence[TranscriptEntry], *, keep: int, least: int, most: int
) -> int | None:
    """Where the part that a summary replaces ends.

    What stays are whole steps and tasks from the end of the conversation, as many as fit, and at least the last one;
    more where the model cannot be shown all that would go.

    Args:
        events: the log.
        entries: the conversation that it tells.
        keep: tokens that may stay.
        least: tokens that must go; what is not worth a summary is left as it is.
        most: tokens that the model can be shown; beyond them only as much goes as makes a summary worth it.

    Returns:
        A position in the log, of a reply or of a task's start; None when too little would go.
    """
    chosen, going, passed = None, 0, 0
    left = sum(entry.tokens for entry in entries)
    openings: dict[int, int] = {}
    for entry in entries:
        event = events[entry.position]
        if entry.position > entries[0].position and isinstance(event, Replied | Started):
            if passed > most and going >= least:
                break
            # The opening of a task that goes on behind the place stays; with images, it may be most of what is before.
            chosen, going = entry, passed - (0 if isinstance(event, Started) else openings.get(entry.task, 0))
            if left <= keep and going >= least:
                break
        openings.setdefault(entry.task, entry.tokens)
        passed += entry.tokens
        left -= entry.tokens
    return chosen.position if chosen is not None and going >= least else None


def place(entries: Sequence[TranscriptEntry], position: int) -> str:
    """How the model is told up to where its summary has to go."""
    first = next(entry for entry in entries if entry.position >= position)
    words = " ".join(first.text.split())[:_PLACE_CHARS]
    return f'{"your reply" if first.role == "assistant" else "the message"} that begins with "{words}"'


def length(entries: Sequence[TranscriptEntry], position: int, *, least: int) -> int:
    """Tokens that a summary may have: more than `least` where it replaces much.

    Args:
        entries: the conversation.
        position: in the log, where the part that it replaces ends.
        least: what a summary of little may have.
    """
    return max(least, round(_SHARE * sum(entry.tokens for entry in entries if entry.position < position)))


def usable(words: str, *, max_tokens: int, aside: bool = False) -> str | None:
    """The summary in what a reply says, cut to its length; None when it says too little.

    Args:
        words: the reply without what is no plain text.
        max_tokens: its length.
        aside: whether there was something else in the reply.
    """
    text = words.strip().removeprefix("[GLOBAL SUMMARY]").strip()
    if len(re.findall(r"[^\W\d_]{2,}", text)) < _LEAST_WORDS or (aside and len(text) < ASIDE_CHARS):
        return None
    return _fitted(text, max_tokens)


def mechanical(events: Sequence[Recorded], upto: int, *, max_tokens: int, failure: str = "") -> str:
    """A summary without a model: what each task was asked, and how it ended or what was done for it so far.

    Args:
        events: the log.
        upto: position in the log; what comes before is told.
        max_tokens: its length.
        failure: why the model wrote none, where that is known.
    """
    earlier = next((event for event in reversed(events) if isinstance(event, Summarised)), None)
    why = f" ({_one_line(failure, _GOAL_CHARS)})" if failure else ""
    lines = [f"(From the record, since the model wrote no summary{why}.)"]
    if earlier is not None:
        lines.append(_fitted(earlier.text, max_tokens // 2))
    since = 0 if earlier is None else earlier.upto
    lines += [_told(events, task, upto) for task in tasks(events) if task.start < upto and task.end > since]
    return _fitted("\n".join(lines), max_tokens)


def _told(events: Sequence[Recorded], task: TaskRecord, upto: int) -> str:
    """One task in one line; of one that goes on, what people said meanwhile as well."""
    started = events[task.start]
    goal = started.task.goal if isinstance(started, Started) else ""
    span, said = events[task.start : min(task.end, upto)], list[str]()
    ended = next((event.outcome for event in reversed(span) if isinstance(event, Ended)), None)
    if task.summary is not None:
        end = task.summary
    elif ended is not None:
        end = f"{ended.status}: {ended}"
    else:
        calls = [event.label or event.tool for event in span if isinstance(event, ToolReturned)]
        end = f"calls so far, the last of {len(calls)}: {'; '.join(calls[-_LAST_CALLS:]) or 'none'}"
        said = [notes.user_message(event.text) for event in span if isinstance(event, MessageInjected)]
    told = f"Task {task.number}: {_one_line(goal, _GOAL_CHARS)} -> {_one_line(end, _END_CHARS)}"
    return "\n".join([told, *(_one_line(each, _END_CHARS) for each in said)])


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: 10 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _fitted(text: str, max_tokens: int) -> str:
    tokens = estimate(text)
    return text if tokens <= max_tokens else notes.cut(text, len(text) * max_tokens // tokens)
