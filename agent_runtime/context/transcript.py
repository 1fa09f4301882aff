"""The conversion of a session's events to messages, and the estimate of their tokens. Pure.

History is append-only: a request's messages are a byte-exact prefix of the next one's, for the provider's cache. Only a
recorded `Shrunk` or `Summarised` changes earlier messages.
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
    Imported,
    InstructionsShown,
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
    """Limits on the length of a conversation.

    Attributes:
        max_context_tokens: of a request, without status and reply.
        global_summary_threshold: the share of it from which on the oldest part is summarised, up to 1.
        global_summary_max_tokens: or a twentieth of the replaced part, if that is more.
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
        return int(self.max_context_tokens * self.global_summary_threshold)


_ID_CHARS = 50
"""Length of a repeated call id; services take 64 characters with the suffix that distinguishes it."""
_LATEST = 40
"""Entries from which `growth` is computed: about twenty steps."""

_ALONE: tuple[list[Role], ...] = (["assistant", "user"], ["assistant", "user", "assistant"])
"""Roles before, of and after results that are a message of their own."""


class Transcript:
    """The conversation of a growing log; each event is rendered once, and again when it changes."""

    def __init__(
        self, *, max_entry_chars: int | None = None, sees_images: bool = True, calls_tools: bool = True
    ) -> None:
        """Start with an empty conversation.

        Args:
            max_entry_chars: of one event; a longer one loses its middle. None for no bound.
            calls_tools: else calls and answers become text, as services demand where no tools are declared.
        """
        self._max_chars, self._sees_images, self._calls_tools = max_entry_chars, sees_images, calls_tools
        self._newest: Recorded | None = None
        self._forget()

    def messages(self, events: Sequence[Recorded]) -> tuple[Message, ...]:
        """Return the conversation, roles alternating from `user`; a note stands for an empty reply."""
        self.update(events)
        return tuple(self._messages)

    def update(self, events: Sequence[Recorded]) -> None:
        if self._read_events and (len(events) < self._read_events or events[self._read_events - 1] is not self._newest):
            self._forget()
        if len(events) == self._read_events:
            return
        positions = [position for event in events[self._read_events :] for position in self._record_decision(event)]
        if not all(self._render_again(position, events[position]) for position in positions):
            self._rewind(min(positions))
        for event in events[self._read_events :]:
            self._render(event)
            self._read_events += 1
        self._newest = events[-1]
        self._previous_entries.clear()

    @property
    def tokens(self) -> int:
        return self._running[-1]

    @property
    def growth(self) -> int:
        """Estimated tokens of a step, averaged over the latest ones."""
        latest = self.entries[-_LATEST:]
        steps = sum(1 for entry in latest if entry.role == "assistant")
        return (self._running[-1] - self._running[-1 - len(latest)]) // max(1, steps)

    @property
    def pending(self) -> dict[int, str]:
        """Summaries of archived tasks, by number, that the conversation does not contain yet."""
        return {task: text for task, text in self._summaries.items() if self._archived.get(task) != text}

    def tokens_before(self, index: int) -> int:
        return self._running[index]

    def index(self, position: int) -> int | None:
        index = bisect_left(self.entries, position, key=lambda entry: entry.position)
        return index if index < len(self.entries) and self.entries[index].position == position else None

    def _forget(self) -> None:
        self._summaries: dict[int, str] = {}
        self._archived: dict[int, str] = {}
        self._outputs: set[int] = set()
        self._summary = ""
        self.upto = 0
        self.entries: list[TranscriptEntry] = []
        self._running = [0]
        self._messages: list[Message] = []
        self._marks: dict[int, _Mark] = {}
        self._starts: list[int] = []
        self._previous_entries: dict[int, TranscriptEntry] = {}
        self._read_events = 0
        self._newest = None
        self._ids: dict[str, str] = {}
        self._rewind(0)

    def _mark(self) -> None:
        self._marks[self._read_events] = _Mark(
            entries=len(self.entries),
            messages=len(self._messages),
            last=self._messages[-1] if self._messages else None,
            task=self._task,
            opening=self._opening,
            is_summarised=self._is_summarised,
            calls=tuple(self._calls),
            ids=len(self._ids),
        )

    def _rewind(self, position: int) -> None:
        """Return to the state before an event with a mark, or to the log's beginning; decisions about events stay."""
        mark = self._marks[position] if position else _Mark(is_summarised=self.upto > 0)
        self._previous_entries = {entry.position: entry for entry in self.entries[mark.entries :]}
        del self.entries[mark.entries :], self._running[mark.entries + 1 :], self._messages[mark.messages :]
        if mark.last is not None:
            self._messages[-1] = mark.last
        for at in range(position, self._read_events):
            self._marks.pop(at, None)
        del self._starts[mark.task :]
        self._read_events = position
        self._task, self._opening = mark.task, mark.opening
        self._is_summarised, self._calls = mark.is_summarised, [*mark.calls]
        while len(self._ids) > mark.ids:
            self._ids.popitem()

    def _render_again(self, position: int, event: Recorded) -> bool:
        """Render results in place, if they are a separate message; return whether they are."""
        mark = self._marks[position] if position else _Mark()
        neighbours = self.entries[mark.entries : mark.entries + 2]
        if (
            not isinstance(event, Observed)
            or mark.last is None
            or mark.task in self._archived
            or [mark.last.role, *(entry.role for entry in neighbours)] not in _ALONE
            or neighbours[0].position != position
        ):
            return False
        message = self._complete_answers(self._render_results(event, position, mark.calls), mark.last)
        before, self._messages[mark.messages] = self._messages[mark.messages], message
        self.entries[mark.entries] = self._make_entry(message, position, mark.task)
        sizes = (entry.tokens for entry in self.entries[mark.entries :])
        self._running[mark.entries :] = accumulate(sizes, initial=self._running[mark.entries])
        for at in range(position + 1, self._read_events):
            if (later := self._marks.get(at)) is not None:
                if later.last is not before:
                    break
                self._marks[at] = replace(later, last=message)
        return True

    def _record_decision(self, event: Recorded) -> Sequence[int]:
        """Record an event's decisions about others; return the positions of rendered events that change."""
        match event:
            case Archived():
                self._summaries[event.task] = event.summary
            case Revealed():
                self._summaries.pop(event.task, None)
            case Shrunk():
                summaries = self._summaries
                self._archived |= {task: summaries[task] for task in event.tasks if task in summaries}
                self._outputs |= set(event.outputs)
                starts = [self._starts[task - 1] for task in event.tasks if 0 < task <= len(self._starts)]
                return [position for position in (*event.outputs, *starts) if position in self._marks]
            case Summarised():
                self.upto, self._summary = event.upto, event.text
                return [0]
            case _:
                pass
        return []

    def _render(self, event: Recorded) -> None:
        if self._is_summarised and self._read_events >= self.upto:
            self._is_summarised = False
            self._add("user", notes.global_summary(self._summary), task=0)
            if self._opening is not None and not isinstance(event, Started):
                self._add("user", *self._opening)
        match event:
            case Started():
                self._mark()
                self._starts.append(self._read_events)
                self._task += 1
                self._opening = self._render_opening(event)
                self._add("user", *self._opening)
            case ToolReturned():
                self._calls.append(event.label or event.tool)
            case Observed():
                self._mark()
                self._add_message(self._render_results(event, self._read_events, self._calls), part=True)
                self._calls = []
            case Replied():
                self._add_reply(event)
            case MessageInjected():
                self._add("user", notes.user_message(event.text), part=True)
            case Imported():
                self._add(event.role, event.text, part=True)
            case Recovered(text=text) | InstructionsShown(text=text) if text:
                self._add("user", text, part=True)
            case _:
                pass

    def _add_reply(self, event: Replied) -> None:
        if event.requests and self._calls_tools:
            requests, reasoning = tuple(map(self._with_unique_id, event.requests)), replace_surrogates(event.reasoning)
            if (share := self._share([request.arguments for request in requests])) is not None:
                requests = tuple(
                    replace(request, arguments=notes.shorten(request.arguments, share)) for request in requests
                )
            if self._max_chars is not None and len(reasoning) > self._max_chars:
                reasoning = ""  # services accept it whole or not at all
            self._add_message(
                Message(role="assistant", text=event.text, requests=requests, reasoning=reasoning), part=True
            )
            return
        text = append_requests(event.text, event.requests)
        self._add("assistant", text if text.strip() else notes.EMPTY_REPLY, part=True)

    def _with_unique_id(self, request: ToolRequest) -> ToolRequest:
        """Return a request with a unique id: some services repeat ids, and all refuse duplicates."""
        name, number = request.id, len(self._ids)
        while name in self._ids:
            name, number = f"{request.id[:_ID_CHARS]}_{number}", number + 1
        self._ids[name] = request.id
        arguments = replace_surrogates(request.arguments)
        is_same = name == request.id and arguments is request.arguments
        return request if is_same else replace(request, id=name, arguments=arguments)

    def _render_results(self, event: Observed, position: int, calls: Sequence[str]) -> Message:
        text, answers = event.text, event.answers
        if position in self._outputs:
            text = notes.omitted_results(len(join_answers(text, answers)), calls)
            answers = tuple(replace(answer, text=notes.ANSWER_LEFT_OUT, images=()) for answer in answers)
        if not self._calls_tools:
            return Message(role="user", text=join_answers(text, answers))
        if not self._sees_images:
            answers = tuple(
                replace(answer, text=notes.omit_images(answer.text, answer.images), images=()) for answer in answers
            )
        # Cut the answers of a step that are too long together.
        texts = [replace_surrogates(answer.text) for answer in answers]
        if (share := self._share(texts)) is not None:
            texts = [notes.shorten(text, share) for text in texts]
        pairs = zip(answers, texts, strict=True)
        answers = tuple(answer if cut is answer.text else replace(answer, text=cut) for answer, cut in pairs)
        return Message(role="user", text=text, answers=answers)

    def _share(self, texts: Sequence[str]) -> int | None:
        """Return the limit for each text of an event; None if they fit."""
        return (
            None
            if self._max_chars is None or sum(map(len, texts)) <= self._max_chars
            else self._max_chars // len(texts)
        )

    def _render_opening(self, event: Started) -> tuple[str, tuple[Image, ...]]:
        archived, images = self._archived.get(self._task), event.task.images
        if archived is not None:
            return notes.archived_task(self._task, archived), ()
        if not self._sees_images:
            return notes.omit_images(event.opening, images), ()
        return event.opening, images

    def _add(
        self, role: Role, text: str, images: tuple[Image, ...] = (), *, part: bool = False, task: int | None = None
    ) -> None:
        self._add_message(Message(role=role, text=text, images=images), part=part, task=task)

    def _add_message(self, message: Message, *, part: bool = False, task: int | None = None) -> None:
        """Add a message, unless a summary replaces it: of the whole beginning, or for a `part` of its task.

        Consecutive messages of one role are merged, since providers demand alternation.
        """
        if self._is_summarised or (part and self._task in self._archived):
            return
        messages = self._messages
        last = messages[-1] if messages else None
        if last is not None and last.requests and message.role == "assistant":
            messages.append(self._complete_answers(Message(role="user", text=""), last))
            last = messages[-1]
        message = self._complete_answers(message, last)
        entry = self._make_entry(message, self._read_events, self._task if task is None else task)
        self.entries.append(entry)
        self._running.append(self._running[-1] + entry.tokens)
        if last is not None and last.role == message.role:
            messages[-1] = replace(
                last,
                text="\n\n".join(filter(None, [last.text, message.text])),
                images=last.images + message.images,
                requests=message.requests,
                reasoning=message.reasoning,
            )
            return
        if last is None and message.role == "assistant":
            messages.append(Message(role="user", text=notes.BEGINNING))
        messages.append(message)

    def _complete_answers(self, message: Message, last: Message | None) -> Message:
        """Return a message with an answer to each request; a note stands for a missing one."""
        text, answers = replace_surrogates(message.text), message.answers
        text = text if self._max_chars is None else notes.shorten(text, self._max_chars)
        if last is not None and last.requests:
            by_id = {answer.id: answer for answer in answers}
            nothing = ToolAnswer(id="", text=notes.UNANSWERED, ok=False)
            pairs = [(by_id.get(self._ids[answer.id], nothing), answer.id) for answer in last.requests]
            answers = tuple(answer if answer.id == name else replace(answer, id=name) for answer, name in pairs)
        elif answers:
            text, answers = join_answers(text, answers), ()
        is_same = text is message.text and answers == message.answers
        return message if is_same else replace(message, text=text, answers=answers)

    def _make_entry(self, message: Message, position: int, task: int) -> TranscriptEntry:
        text, before = message.full_text, self._previous_entries.get(position)
        tokens = before.tokens if before is not None and before.text == text else estimate_message(message)
        return TranscriptEntry(position=position, task=task, role=message.role, text=text, tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """The rendering of one event; `tokens` include the images."""

    position: int
    task: int
    role: Role
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The state of the transcript before an event that may be rendered again."""

    entries: int = 0
    messages: int = 0
    last: Message | None = None
    task: int = 0
    opening: tuple[str, tuple[Image, ...]] | None = None
    is_summarised: bool = False
    calls: tuple[str, ...] = ()
    ids: int = 0


def render_messages(events: Sequence[Recorded]) -> tuple[Message, ...]:
    return Transcript().messages(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task of a log: all events from a `Started` to the next.

    Archiving permits the summary to replace the task; a later `Shrunk` does, since each change costs the provider's
    cache. Until then `Revealed` is free; afterwards `reveal_context` repeats the messages.

    Attributes:
        end: position after its last event.
        summary: None unless archived.
        applied: whether the summary stands in the conversation.
        summarised: whether the global summary covers the task.
    """

    number: int
    start: int
    end: int
    summary: str | None = None
    applied: bool = False
    summarised: bool = False


def list_tasks(events: Sequence[Recorded]) -> list[TaskRecord]:
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


def render_original(events: Sequence[Recorded], task: TaskRecord, *, max_chars: int) -> str:
    """Return a task's original messages with their roles; the middle left out beyond `max_chars`."""
    conversation = render_messages(events[task.start : task.end])
    text = "\n\n".join(
        f"[{'YOU' if message.role == 'assistant' else 'USER'}]\n{notes.omit_images(message.full_text, message.images)}"
        for message in conversation
    )
    return notes.shorten(text, max_chars)


def estimate_savings(events: Sequence[Recorded], task: TaskRecord) -> int:
    """Estimate the tokens that a task's summary saves in each request."""
    conversation = render_messages(events[task.start : task.end])
    return sum(map(estimate_message, conversation)) - estimate(notes.archived_task(task.number, task.summary or ""))


_SHARE = 0.05
"""Of the replaced tokens: a finding takes some 35, and a window of 120,000 holds about a hundred."""
_LEAST_WORDS = 5
ASIDE_CHARS = 200
"""Shorter text beside a call only announces the call."""
_GOAL_CHARS = 200
_END_CHARS = 400
_LAST_CALLS = 12
_PLACE_CHARS = 80


def find_boundary(
    events: Sequence[Recorded], entries: Sequence[TranscriptEntry], *, keep: int, least: int, most: int
) -> int | None:
    """Return the position up to which a summary replaces the log; None if too little would go.

    Whole steps and tasks stay, at least the last one.

    Args:
        keep: tokens that may stay.
        least: tokens that must go.
        most: tokens that the model can be shown.
    """
    chosen, going, passed = None, 0, 0
    remaining = sum(entry.tokens for entry in entries)
    openings: dict[int, int] = {}
    for entry in entries:
        event = events[entry.position]
        if entry.position > entries[0].position and isinstance(event, Replied | Started):
            if passed > most and going >= least:
                break
            # The opening of a task that continues after the boundary stays; images can make it the largest part.
            chosen, going = entry, passed - (0 if isinstance(event, Started) else openings.get(entry.task, 0))
            if remaining <= keep and going >= least:
                break
        openings.setdefault(entry.task, entry.tokens)
        passed += entry.tokens
        remaining -= entry.tokens
    return chosen.position if chosen is not None and going >= least else None


def describe_place(entries: Sequence[TranscriptEntry], position: int) -> str:
    first = next(entry for entry in entries if entry.position >= position)
    words = " ".join(first.text.split())[:_PLACE_CHARS]
    return f'{"your reply" if first.role == "assistant" else "the message"} that begins with "{words}"'


def summary_length(entries: Sequence[TranscriptEntry], position: int, *, least: int) -> int:
    """Return the tokens of a summary: more than `least` where it replaces much."""
    return max(least, round(_SHARE * sum(entry.tokens for entry in entries if entry.position < position)))


def extract_summary(words: str, *, max_tokens: int, aside: bool = False) -> str | None:
    """Return the summary in a reply, cut to its length; None when it is too short."""
    text = words.strip().removeprefix("[GLOBAL SUMMARY]").strip()
    if len(re.findall(r"[^\W\d_]{2,}", text)) < _LEAST_WORDS or (aside and len(text) < ASIDE_CHARS):
        return None
    return _fit(text, max_tokens)


def build_summary(events: Sequence[Recorded], upto: int, *, max_tokens: int, failure: str = "") -> str:
    """Build a summary without a model: each task's goal, and its outcome or latest calls."""
    earlier = next((event for event in reversed(events) if isinstance(event, Summarised)), None)
    reason = f" ({_one_line(failure, _GOAL_CHARS)})" if failure else ""
    lines = [f"(From the record, since the model wrote no summary{reason}.)"]
    if earlier is not None:
        lines.append(_fit(earlier.text, max_tokens // 2))
    since = 0 if earlier is None else earlier.upto
    lines += [
        _summarise_task(events, task, upto) for task in list_tasks(events) if task.start < upto and task.end > since
    ]
    return _fit("\n".join(lines), max_tokens)


def _summarise_task(events: Sequence[Recorded], task: TaskRecord, upto: int) -> str:
    """Summarise a task in one line; an unfinished one with people's messages."""
    started = events[task.start]
    goal = started.task.goal if isinstance(started, Started) else ""
    span, injected = events[task.start : min(task.end, upto)], list[str]()
    ended = next((event.outcome for event in reversed(span) if isinstance(event, Ended)), None)
    if task.summary is not None:
        end = task.summary
    elif ended is not None:
        end = f"{ended.status}: {ended}"
    else:
        calls = [event.label or event.tool for event in span if isinstance(event, ToolReturned)]
        end = f"calls so far, the last of {len(calls)}: {'; '.join(calls[-_LAST_CALLS:]) or 'none'}"
        injected = [notes.user_message(event.text) for event in span if isinstance(event, MessageInjected)]
    line = f"Task {task.number}: {_one_line(goal, _GOAL_CHARS)} -> {_one_line(end, _END_CHARS)}"
    return "\n".join([line, *(_one_line(text, _END_CHARS) for text in injected)])


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: 10 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _fit(text: str, max_tokens: int) -> str:
    tokens = estimate(text)
    return text if tokens <= max_tokens else notes.shorten(text, len(text) * max_tokens // tokens)


_SAFETY = 1.04
"""A low estimate costs more than a high one."""
_LEAST_SAMPLE = 200
"""Below this many tokens, a service's own additions outweigh the text."""
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
"""First byte of a character in UTF-8 → its script."""
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
    data = b" " + text.encode("utf-8", "surrogatepass")  # so that the first word begins like any other
    weighed = 0.0
    for table, weights in ((_TABLE, _ASCII_WEIGHTS if text.isascii() else _WEIGHTS), (_CASE_TABLE, _CASE_WEIGHTS)):
        classes = data.translate(table)
        weighed += sum(map(mul, map(classes.count, weights), weights.values()))
    return round(weighed * _SAFETY)


def estimate_message(message: Message) -> int:
    """Estimate a message's tokens without its frame; for an image, the maximum."""
    images = len(message.images) + sum(len(part.images) for part in message.answers)
    calls = [*(f"{part.name}{part.arguments}" for part in message.requests), message.reasoning]
    rest = join_answers("\n\n".join(filter(None, calls)), message.answers)
    return sum(estimate(part) for part in (message.text, rest) if part.strip()) + IMAGE_TOKENS * images


@dataclass(slots=True)
class Meter:
    """The ratio of a service's token counts to our estimates."""

    ratio: float = 1.0

    def expect(self, estimated: int) -> int:
        return round(estimated * self.ratio)

    def correct(self, estimated: int, usage: Usage) -> None:
        """Learn from a reply's usage. Small requests, missing counts and implausible numbers teach nothing."""
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
