"""Turn a session's events into the messages that the model reads. Pure.

History is append-only: the messages for one request are a prefix of those for the next, byte for byte, so that the
provider's cache stays warm. Only a recorded `Shrunk` or `Summarised` makes requests begin with something else, and
since what it leaves out is recorded with it, a log always tells the same conversation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from agent_runtime.context.estimate import estimate_message
from agent_runtime.core.calls import ToolAnswer, ToolRequest, with_answers, with_requests
from agent_runtime.core.events import (
    Archived,
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
from agent_runtime.core.images import Image
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import Message

_ID_CHARS = 50
"""Of the id of a call, where another one had it before: services take 64 with what tells the two apart."""
_LATEST = 40
"""Pieces of the conversation that tell how fast it grows: about twenty steps."""


_ALONE: tuple[list[Role], ...] = (["assistant", "user"], ["assistant", "user", "assistant"])
"""Who says what stands before results that are a message of their own, they, and what stands behind them."""


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
            requests, reasoning = tuple(map(self._named, event.requests)), sendable(event.reasoning)
            if (share := self._share([each.arguments for each in requests])) is not None:
                requests = tuple(replace(each, arguments=notes.cut(each.arguments, share)) for each in requests)
            if self._max is not None and len(reasoning) > self._max:
                reasoning = ""  # a service takes it back whole or not at all
            self._add_message(
                Message(role="assistant", text=event.text, requests=requests, reasoning=reasoning), part=True
            )
            return
        text = with_requests(event.text, event.requests)
        self._add("assistant", text if text.strip() else notes.EMPTY_REPLY, part=True)

    def _named(self, request: ToolRequest) -> ToolRequest:
        """A request as it can be sent: ids must be unique in a conversation, and some services repeat them."""
        name, number = request.id, len(self._ids)
        while name in self._ids:
            name, number = f"{request.id[:_ID_CHARS]}_{number}", number + 1
        self._ids[name] = request.id
        arguments = sendable(request.arguments)
        is_same = name == request.id and arguments is request.arguments
        return request if is_same else replace(request, id=name, arguments=arguments)

    def _results(self, event: Observed, position: int, calls: Sequence[str]) -> Message:
        """What a step of these calls showed, unless it is left out."""
        text, answers = event.text, event.answers
        if position in self._outputs:
            text = notes.left_out(len(with_answers(text, answers)), calls)
            answers = tuple(replace(each, text=notes.ANSWER_LEFT_OUT, images=()) for each in answers)
        if not self._calls_tools:
            return Message(role="user", text=with_answers(text, answers))
        if not self._sees_images:
            answers = tuple(
                replace(each, text=notes.without_images(each.text, each.images), images=()) for each in answers
            )
        # What can be sent of them; those of a step that told too much are cut.
        sent = [sendable(each.text) for each in answers]
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
        text, answers = sendable(message.text), message.answers
        text = text if self._max is None else notes.cut(text, self._max)
        if last is not None and last.requests:
            known = {each.id: each for each in answers}
            nothing = ToolAnswer(id="", text=notes.UNANSWERED, ok=False)
            both = [(known.get(self._ids[each.id], nothing), each.id) for each in last.requests]
            answers = tuple(each if each.id == name else replace(each, id=name) for each, name in both)
        elif answers:
            text, answers = with_answers(text, answers), ()
        is_same = text is message.text and answers == message.answers
        return message if is_same else replace(message, text=text, answers=answers)

    def _entry(self, message: Message, position: int, task: int) -> TranscriptEntry:
        """The piece that an event tells."""
        text, before = message.worded, self._again.get(position)
        tokens = before.tokens if before is not None and before.text == text else estimate_message(message)
        return TranscriptEntry(position=position, task=task, role=message.role, text=text, tokens=tokens)


def sendable(text: str) -> str:
    r"""A text without halves of characters (lone surrogates), which no request can carry.

    They come from `print("\ud83d")`, file names that are no UTF-8, and servers that stream an emoji in halves.
    Two that belong together become the character, any other the sign for what cannot be shown.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def messages(events: Sequence[Recorded]) -> tuple[Message, ...]:
    """The conversation that a log tells; see `Transcript`."""
    return Transcript().messages(events)
