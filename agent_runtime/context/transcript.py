"""Turn a session's events into the messages that the model reads, and estimate their tokens. Pure.

History is append-only: the messages for one request are a prefix of those for the next, byte for byte, so that the
provider's cache stays warm. Only a recorded `Shrunk` or `Summarised` makes requests begin with something else, and
since what it leaves out is recorded with it, a log always tells the same conversation.

Beside `Transcript` there are the settings of its length (`MemorySettings`), the tasks of a log (`tasks`), and what is
needed to replace its oldest part by a summary (`boundary`, `usable`, `mechanical`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import mul

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.events import (
    Archived,
    Ended,
    MessageInjected,
    Observed,
    Recorded,
    Recovered,
    Replied,
    Revealed,
    Role,
    Shrunk,
    Started,
    Summarised,
    Told,
    ToolReturned,
)
from agent_runtime.core.text import replace_surrogates
from agent_runtime.core.values import IMAGE_TOKENS, Image, ToolAnswer, ToolRequest, Usage, append_requests, join_answers
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import Message

_LEAST_CONTEXT = 4_000
_LEAST_SUMMARY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How much conversation a session may hold, and what happens when that is reached.

    Attributes:
        max_context_tokens: what one request may hold, status and reply aside; the model must take at least that.
        global_summary_threshold: the share of it (above 0, at most 1) from which on the oldest part is summarised.
        global_summary_max_tokens: length of such a summary; a twentieth of what it replaces, if that is more.

    Raises:
        SettingsError: a value cannot work.
    """

    max_context_tokens: int = 120_000
    global_summary_threshold: float = 0.9
    global_summary_max_tokens: int = 500

    def __post_init__(self) -> None:
        if self.max_context_tokens < _LEAST_CONTEXT:
            raise SettingsError(
                f"memory.max_context_tokens is {self.max_context_tokens}; use at least {_LEAST_CONTEXT}: "
                "the system prompt alone takes about 1,500."
            )
        if not 0 < self.global_summary_threshold <= 1:
            raise SettingsError(
                f"memory.global_summary_threshold is {self.global_summary_threshold}; "
                "it is a share of max_context_tokens: above 0, at most 1, e.g. 0.9."
            )
        if not _LEAST_SUMMARY <= self.global_summary_max_tokens <= self.max_context_tokens // 4:
            raise SettingsError(
                f"memory.global_summary_max_tokens is {self.global_summary_max_tokens}; use {_LEAST_SUMMARY} to "
                f"{self.max_context_tokens // 4}, a quarter of max_context_tokens."
            )

    @property
    def threshold_tokens(self) -> int:
        """Tokens in a request from which on the oldest part is summarised."""
        return int(self.max_context_tokens * self.global_summary_threshold)


_ID_CHARS = 50
"""Of the id of a call, where another one had it before: services take 64 with what tells the two apart."""
_LATEST = 40
"""Pieces of the conversation that tell how fast it grows: about twenty steps."""

_ALONE: tuple[list[Role], ...] = (["assistant", "user"], ["assistant", "user", "assistant"])
"""Who says what stands before results that are a message of their own, they, and what stands behind them."""


class Transcript:
    """The conversation that a growing log tells; each event is rendered once, so that late steps cost no more.

    Results that are left out later are rendered again, in place where they are a message of their own. Whatever else is
    told in another way is rendered again with what stands behind it.

    Attributes:
        entries: the pieces of the conversation, in order.
        upto: position in the log; events before it are told by a summary. 0 when there is none.
    """

    def __init__(
        self, *, max_entry_chars: int | None = None, sees_images: bool = True, calls_tools: bool = True
    ) -> None:
        """Start with an empty conversation.

        Args:
            max_entry_chars: the most that one event may tell; what is longer loses its middle. None for no bound.
            sees_images: whether tasks and results show their images; a model that does not see is told that there were
                some.
            calls_tools: whether requests for calls and their answers are told as such; else as text, since a service
                refuses them where no tools are declared.
        """
        self._max, self._sees_images, self._calls_tools = max_entry_chars, sees_images, calls_tools
        self._newest: Recorded | None = None
        self._forget()

    def messages(self, events: Sequence[Recorded]) -> tuple[Message, ...]:
        """The conversation so far, roles alternating, starting with `user`.

        The model's own words are never rewritten. An empty reply, which no provider accepts back, is named instead.

        Args:
            events: the log from its beginning; what an earlier call saw of it is unchanged, or all of it is new.
        """
        self.update(events)
        return tuple(self._told)

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log."""
        if self._taken and (len(events) < self._taken or events[self._taken - 1] is not self._newest):
            self._forget()
        if len(events) == self._taken:
            return
        changed = [position for event in events[self._taken :] for position in self._decides(event)]
        if not all(self._retell(position, events[position]) for position in changed):
            self._rewind(min(changed))
        for event in events[self._taken :]:
            self._tell(event)
            self._taken += 1
        self._newest = events[-1]
        self._again.clear()

    @property
    def tokens(self) -> int:
        """Estimated tokens of the conversation so far."""
        return self._running[-1]

    @property
    def growth(self) -> int:
        """Estimated tokens that a step adds, by the latest ones."""
        latest = self.entries[-_LATEST:]
        steps = sum(1 for entry in latest if entry.role == "assistant")
        return (self._running[-1] - self._running[-1 - len(latest)]) // max(1, steps)

    @property
    def pending(self) -> dict[int, str]:
        """Summaries of tasks that were archived, by number, where something else is in the conversation yet."""
        return {task: text for task, text in self._summaries.items() if self._archived.get(task) != text}

    def tokens_before(self, index: int) -> int:
        """Estimated tokens of the entries before one."""
        return self._running[index]

    def index(self, position: int) -> int | None:
        """Which entry tells the event at a position in the log; None when none does (any more)."""
        found = bisect_left(self.entries, position, key=lambda entry: entry.position)
        return found if found < len(self.entries) and self.entries[found].position == position else None

    def _forget(self) -> None:
        self._summaries: dict[int, str] = {}
        self._archived: dict[int, str] = {}
        self._outputs: set[int] = set()
        self._summary = ""
        self.upto = 0
        self.entries: list[TranscriptEntry] = []
        self._running = [0]
        self._told: list[Message] = []
        self._marks: dict[int, _Mark] = {}
        self._begun: list[int] = []
        self._again: dict[int, TranscriptEntry] = {}
        self._taken = 0
        self._newest = None
        self._ids: dict[str, str] = {}
        self._rewind(0)

    def _mark(self) -> None:
        self._marks[self._taken] = _Mark(
            entries=len(self.entries),
            told=len(self._told),
            last=self._told[-1] if self._told else None,
            task=self._task,
            opening=self._opening,
            is_summarised=self._is_summarised,
            calls=tuple(self._calls),
            ids=len(self._ids),
        )

    def _rewind(self, position: int) -> None:
        """Go back to before an event that has a mark, or to the log's beginning; what was decided about it stays."""
        mark = self._marks[position] if position else _Mark(is_summarised=self.upto > 0)
        self._again = {entry.position: entry for entry in self.entries[mark.entries :]}
        del self.entries[mark.entries :], self._running[mark.entries + 1 :], self._told[mark.told :]
        if mark.last is not None:
            self._told[-1] = mark.last
        for at in range(position, self._taken):
            self._marks.pop(at, None)
        del self._begun[mark.task :]
        self._taken = position
        self._task, self._opening = mark.task, mark.opening
        self._is_summarised, self._calls = mark.is_summarised, [*mark.calls]
        while len(self._ids) > mark.ids:
            self._ids.popitem()

    def _retell(self, position: int, event: Recorded) -> bool:
        """Render an event again in place, where that can be done: results which are a message of their own."""
        mark = self._marks[position] if position else _Mark()
        beside = self.entries[mark.entries : mark.entries + 2]
        if (
            not isinstance(event, Observed)
            or mark.last is None
            or mark.task in self._archived
            or [mark.last.role, *(each.role for each in beside)] not in _ALONE
            or beside[0].position != position
        ):
            return False
        message = self._answering(self._results(event, position, mark.calls), mark.last)
        before, self._told[mark.told] = self._told[mark.told], message
        self.entries[mark.entries] = self._entry(message, position, mark.task)
        sizes = (each.tokens for each in self.entries[mark.entries :])
        self._running[mark.entries :] = accumulate(sizes, initial=self._running[mark.entries])
        for at in range(position + 1, self._taken):
            if (later := self._marks.get(at)) is not None:
                if later.last is not before:
                    break
                self._marks[at] = replace(later, last=message)
        return True

    def _decides(self, event: Recorded) -> Sequence[int]:
        """Note what an event says about others; positions of those that were told already and change."""
        match event:
            case Archived():
                self._summaries[event.task] = event.summary
            case Revealed():
                self._summaries.pop(event.task, None)
            case Shrunk():
                known = self._summaries
                self._archived |= {task: known[task] for task in event.tasks if task in known}
                self._outputs |= set(event.outputs)
                begun = [self._begun[task - 1] for task in event.tasks if 0 < task <= len(self._begun)]
                return [position for position in (*event.outputs, *begun) if position in self._marks]
            case Summarised():
                self.upto, self._summary = event.upto, event.text
                return [0]
            case _:
                pass
        return []

    def _tell(self, event: Recorded) -> None:
        if self._is_summarised and self._taken >= self.upto:
            self._is_summarised = False
            self._add("user", notes.global_summary(self._summary), task=0)
            if self._opening is not None and not isinstance(event, Started):
                self._add("user", *self._opening)
        match event:
            case Started():
                self._mark()
                self._begun.append(self._taken)
                self._task += 1
                self._opening = self._opened(event)
                self._add("user", *self._opening)
            case ToolReturned():
                self._calls.append(event.label or event.tool)
            case Observed():
                self._mark()
                self._add_message(self._results(event, self._taken, self._calls), part=True)
                self._calls = []
            case Replied():
                self._replied(event)
            case MessageInjected():
                self._add("user", notes.user_message(event.text), part=True)
            case Told():
                self._add(event.role, event.text, part=True)
            case Recovered():
                self._add("user", event.text, part=True)
            case _:
                pass

    def _replied(self, event: Replied) -> None:
        if event.requests and self._calls_tools:
            requests, reasoning = tuple(map(self._named, event.requests)), replace_surrogates(event.reasoning)
            if (share := self._share([each.arguments for each in requests])) is not None:
                requests = tuple(replace(each, arguments=notes.cut(each.arguments, share)) for each in requests)
            if self._max is not None and len(reasoning) > self._max:
                reasoning = ""  # a service takes it back whole or not at all
            self._add_message(
                Message(role="assistant", text=event.text, requests=requests, reasoning=reasoning), part=True
            )
            return
        text = append_requests(event.text, event.requests)
        self._add("assistant", text if text.strip() else notes.EMPTY_REPLY, part=True)

    def _named(self, request: ToolRequest) -> ToolRequest:
        """A request as it can be sent: ids must be unique in a conversation, and some services repeat them."""
        name, number = request.id, len(self._ids)
        while name in self._ids:
            name, number = f"{request.id[:_ID_CHARS]}_{number}", number + 1
        self._ids[name] = request.id
        arguments = replace_surrogates(request.arguments)
        is_same = name == request.id and arguments is request.arguments
        return request if is_same else replace(request, id=name, arguments=arguments)

    def _results(self, event: Observed, position: int, calls: Sequence[str]) -> Message:
        """What a step of these calls showed, unless it is left out."""
        text, answers = event.text, event.answers
        if position in self._outputs:
            text = notes.left_out(len(join_answers(text, answers)), calls)
            answers = tuple(replace(each, text=notes.ANSWER_LEFT_OUT, images=()) for each in answers)
        if not self._calls_tools:
            return Message(role="user", text=join_answers(text, answers))
        if not self._sees_images:
            answers = tuple(
                replace(each, text=notes.without_images(each.text, each.images), images=()) for each in answers
            )
        # What can be sent of them; those of a step that told too much are cut.
        sent = [replace_surrogates(each.text) for each in answers]
        if (share := self._share(sent)) is not None:
            sent = [notes.cut(text, share) for text in sent]
        both = zip(answers, sent, strict=True)
        answers = tuple(each if cut is each.text else replace(each, text=cut) for each, cut in both)
        return Message(role="user", text=text, answers=answers)

    def _share(self, texts: Sequence[str]) -> int | None:
        """How long each text of one event may be; None where they are not too long together."""
        return None if self._max is None or sum(map(len, texts)) <= self._max else self._max // len(texts)

    def _opened(self, event: Started) -> tuple[str, tuple[Image, ...]]:
        """The text and the images that a task begins with."""
        archived, images = self._archived.get(self._task), event.task.images
        if archived is not None:
            return notes.archived_task(self._task, archived), ()
        if not self._sees_images:
            return notes.without_images(event.opening, images), ()
        return event.opening, images

    def _add(
        self, role: Role, text: str, images: tuple[Image, ...] = (), *, part: bool = False, task: int | None = None
    ) -> None:
        """Add a piece that is text and images."""
        self._add_message(Message(role=role, text=text, images=images), part=part, task=task)

    def _add_message(self, message: Message, *, part: bool = False, task: int | None = None) -> None:
        """Add a piece, unless a summary tells it: that of the whole beginning, or for a `part` that of its task.

        Two messages in a row from the same side become one, since providers want them to alternate.
        """
        if self._is_summarised or (part and self._task in self._archived):
            return
        told = self._told
        last = told[-1] if told else None
        if last is not None and last.requests and message.role == "assistant":
            told.append(self._answering(Message(role="user", text=""), last))
            last = told[-1]
        message = self._answering(message, last)
        entry = self._entry(message, self._taken, self._task if task is None else task)
        self.entries.append(entry)
        self._running.append(self._running[-1] + entry.tokens)
        if last is not None and last.role == message.role:
            told[-1] = replace(
                last,
                text="\n\n".join(filter(None, [last.text, message.text])),
                images=last.images + message.images,
                requests=message.requests,
                reasoning=message.reasoning,
            )
            return
        if last is None and message.role == "assistant":
            told.append(Message(role="user", text=notes.BEGINNING))
        told.append(message)

    def _answering(self, message: Message, last: Message | None) -> Message:
        """A message as it can be sent behind another.

        Providers want an answer to each request, in the next message: one that has none, because its step was cut off,
        gets a note.
        """
        text, answers = replace_surrogates(message.text), message.answers
        text = text if self._max is None else notes.cut(text, self._max)
        if last is not None and last.requests:
            known = {each.id: each for each in answers}
            nothing = ToolAnswer(id="", text=notes.UNANSWERED, ok=False)
            both = [(known.get(self._ids[each.id], nothing), each.id) for each in last.requests]
            answers = tuple(each if each.id == name else replace(each, id=name) for each, name in both)
        elif answers:
            text, answers = join_answers(text, answers), ()
        is_same = text is message.text and answers == message.answers
        return message if is_same else replace(message, text=text, answers=answers)

    def _entry(self, message: Message, position: int, task: int) -> TranscriptEntry:
        """The piece that an event tells."""
        text, before = message.worded, self._again.get(position)
        tokens = before.tokens if before is not None and before.text == text else estimate_message(message)
        return TranscriptEntry(position=position, task=task, role=message.role, text=text, tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """A piece of the conversation that one event tells.

    Attributes:
        position: of the event in the log.
        task: number of the task that it belongs to; 0 for what belongs to none.
        role: who says it.
        text: as the model reads it.
        tokens: an estimate, with the images that stand beside the text.
    """

    position: int
    task: int
    role: Role
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """How far the conversation was before an event that may be told otherwise one day.

    Attributes:
        entries: how many pieces there were.
        told: how many messages there were.
        last: the last of them, to which more may be added since.
        task: number of the latest task.
        opening: what that begins with.
        is_summarised: whether a summary told what came before.
        calls: labels of the step's calls so far.
        ids: how many calls were asked for.
    """

    entries: int = 0
    told: int = 0
    last: Message | None = None
    task: int = 0
    opening: tuple[str, tuple[Image, ...]] | None = None
    is_summarised: bool = False
    calls: tuple[str, ...] = ()
    ids: int = 0


def messages(events: Sequence[Recorded]) -> tuple[Message, ...]:
    """The conversation that a log tells; see `Transcript`."""
    return Transcript().messages(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task of a log: all events from a `Started` to the next.

    Archiving a task permits its summary to replace it. The conversation changes with the `Shrunk` that names the task,
    since each such change costs the provider's cache; until then, `Revealed` costs nothing. Afterwards the result of
    `reveal_context` repeats the messages at the end: putting them back in place would cost the cache again.

    Attributes:
        number: from 1.
        start: position of its `Started`.
        end: position after its last event.
        summary: what stands for it, or is to; None when it was not archived, or was taken back.
        applied: whether a summary stands in its place in the conversation.
        summarised: whether the summary of the whole beginning tells it.
    """

    number: int
    start: int
    end: int
    summary: str | None = None
    applied: bool = False
    summarised: bool = False


def tasks(events: Sequence[Recorded]) -> list[TaskRecord]:
    """The tasks of a log, oldest first; the last one is the current one."""
    starts = [position for position, event in enumerate(events) if isinstance(event, Started)]
    summaries: dict[int, str] = {}
    applied: set[int] = set()
    upto = 0
    for event in events:
        match event:
            case Archived():
                summaries[event.task] = event.summary
            case Revealed():
                summaries.pop(event.task, None)
            case Shrunk():
                applied |= set(event.tasks)
            case Summarised():
                upto = event.upto
            case _:
                pass
    return [
        TaskRecord(
            number=number,
            start=start,
            end=end,
            summary=summaries.get(number),
            applied=number in applied,
            summarised=end <= upto,
        )
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(events)], strict=True), start=1)
    ]


def original(events: Sequence[Recorded], task: TaskRecord, *, max_chars: int) -> str:
    """A task's messages as they were, who said them in front of each; the middle left out where they are too long."""
    told = messages(events[task.start : task.end])
    text = "\n\n".join(
        f"[{'YOU' if message.role == 'assistant' else 'USER'}]\n{notes.without_images(message.worded, message.images)}"
        for message in told
    )
    return notes.cut(text, max_chars)


def savings(events: Sequence[Recorded], task: TaskRecord) -> int:
    """Tokens that its summary saves in each request; an estimate."""
    told = messages(events[task.start : task.end])
    return sum(map(estimate_message, told)) - estimate(notes.archived_task(task.number, task.summary or ""))


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


_SAFETY = 1.04
"""An estimate that is too low costs more than one that is too high."""
_LEAST_SAMPLE = 200
"""Below this many tokens, a service's own additions outweigh what the text itself tells."""
_LEAST_RATIO, _MOST_RATIO = 0.5, 4.0

_SCRIPTS = (
    (0x00, "."),
    (0x80, "~"),  # the rest of a character that began before
    (0xC2, "l"),  # Latin letters with marks
    (0xCD, "c"),  # Greek, Cyrillic, Hebrew, Arabic
    (0xE0, "i"),  # Indic scripts, Thai, Vietnamese
    (0xE2, "s"),  # typographic marks, arrows, box drawing
    (0xE3, "k"),  # kana
    (0xE4, "h"),  # Chinese characters
    (0xEA, "g"),  # Hangul
    (0xEE, "s"),
    (0xF0, "e"),  # emoji
)
"""First byte of a character in UTF-8 → the script that it is of."""
_ASCII_WEIGHTS: dict[bytes, float] = {
    **dict.fromkeys((b" a", b".a", b"0a"), 0.834),  # a word begins
    **dict.fromkeys((b" 0", b".0", b"a0"), 1.222),  # a number begins
    **dict.fromkeys((b"a.", b"0.", b" ."), 0.965),  # punctuation begins
    b"a": 0.045,
    b"0": 0.2,
    b".": 0.02,
    b"  ": 0.066,
}
_WEIGHTS: dict[bytes, float] = {
    **_ASCII_WEIGHTS,
    b"~.": 0.965,
    b"l": 1.052,
    b"c": 0.345,
    b"i": 0.392,
    b"s": 1.408,
    b"k": 0.67,
    b"h": 0.723,
    b"g": 0.667,
    b"e": 0.8,
}
_CASE_WEIGHTS: dict[bytes, float] = {b"aA": 0.834, b"AA": 0.312}
"""Tokens for each feature of a text at which tokenizers cut, in its UTF-8 bytes.

Fitted (least squares, no negative weights) to o200k, the vocabulary of OpenAI's models, over 45 texts: English prose,
Python, C, TypeScript, HTML, CSS, TOML, JSON, diffs, test output, listings, hashes, translations into 19 languages. With
`_SAFETY`, the error is -7 to +13 % for English prose and code, -9 to +23 % for other languages, and 16 % either way for
base64 and hashes, for which a fourth of the characters is up to 64 % too low. Other vocabularies cut finer, Claude's
since 4.7 by about a third: `Meter` learns that from the first reply.
"""


@lru_cache(maxsize=1)  # of what a step showed, two ask
def estimate(text: str) -> int:
    """About how many tokens a text has."""
    data = b" " + text.encode("utf-8", "surrogatepass")  # so that the first word begins like any other
    weighed = 0.0
    for table, weights in ((_TABLE, _ASCII_WEIGHTS if text.isascii() else _WEIGHTS), (_CASE_TABLE, _CASE_WEIGHTS)):
        classes = data.translate(table)
        weighed += sum(map(mul, map(classes.count, weights), weights.values()))
    return round(weighed * _SAFETY)


def estimate_message(message: Message) -> int:
    """About how many tokens a message has, its frame aside; of each image the most that one has."""
    images = len(message.images) + sum(len(each.images) for each in message.answers)
    calls = [*(f"{each.name}{each.arguments}" for each in message.requests), message.reasoning]
    beside = join_answers("\n\n".join(filter(None, calls)), message.answers)
    return sum(estimate(each) for each in (message.text, beside) if each.strip()) + IMAGE_TOKENS * images


@dataclass(slots=True)
class Meter:
    """Turns estimates into what the model in use counts, by what its service counted last.

    Attributes:
        ratio: the service's tokens for each estimated one.
    """

    ratio: float = 1.0

    def expect(self, estimated: int) -> int:
        """Tokens that the service will count for a request of `estimated` tokens."""
        return round(estimated * self.ratio)

    def correct(self, estimated: int, usage: Usage) -> None:
        """Learn from a reply: what its request was estimated at, and what the service says was used.

        A request too small to tell, a service that counts nothing, and numbers that cannot be of the same request (the
        sum of several, say) teach nothing.
        """
        sent = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
        if estimated < _LEAST_SAMPLE or not sent or usage.requests != 1:
            return
        ratio = sent / estimated
        if _LEAST_RATIO <= ratio <= _MOST_RATIO:
            self.ratio = ratio


def _class_of(byte: int, *, case: bool) -> int:
    character = chr(byte)
    if character.isascii() and character.isalnum():
        return ord("0" if character.isdigit() else "A" if case and character.isupper() else "a")
    if character in " \t\r\n":
        return ord(" ")
    return ord(max(entry for entry in _SCRIPTS if entry[0] <= byte)[1])


_TABLE = bytes(_class_of(byte, case=False) for byte in range(256))
_CASE_TABLE = bytes(_class_of(byte, case=True) for byte in range(256))
