"""Turn a session's events into the messages that the model reads. Pure.

History is append-only: the messages for one request are a prefix of those for the next, byte for byte, so that the
provider's cache stays warm. Only a recorded `Shrunk` or `Summarised` makes requests begin with something else, and
since what it leaves out is recorded with it, a log always tells the same conversation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.context.estimate import estimate
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
from agent_runtime.core.images import IMAGE_TOKENS, Image
from agent_runtime.prompts import notes
from agent_runtime.providers.protocol import Message

_LATEST = 40
"""Pieces of the conversation that tell how fast it grows: about twenty steps."""


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


class Transcript:
    """The conversation that a growing log tells; each event is rendered once, so that late steps cost no more.

    Attributes:
        entries: the pieces of the conversation, in order.
        upto: position in the log; events before it are told by a summary. 0 when there is none.
    """

    def __init__(self, *, max_entry_chars: int | None = None, sees_images: bool = True) -> None:
        """Start with an empty conversation.

        Args:
            max_entry_chars: the most that one event may tell; what is longer loses its middle. None for no bound.
            sees_images: whether tasks show their images; a model that does not see is told that there were some.
        """
        self._max, self._sees_images = max_entry_chars, sees_images
        self._forget()

    def messages(self, events: Sequence[Recorded]) -> tuple[Message, ...]:
        """The conversation so far, roles alternating, starting with `user`.

        The model's own words are never rewritten. An empty reply, which no provider accepts back, is named instead.

        Args:
            events: the log from its beginning; what an earlier call saw of it is unchanged. A shorter one is a new one.
        """
        self.update(events)
        return tuple(self._told)

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log."""
        if len(events) == self._taken:
            return
        if len(events) < self._taken:
            self._forget()
        new = events[self._taken :]
        rewritten = [self._decides(event) for event in new]
        if any(rewritten):
            self._rewind()
            new = events
        for event in new:
            self._tell(event)
            self._taken += 1

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
        """Summaries of tasks that were archived, by number, where something else stands in the conversation yet."""
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
        self._rewind()

    def _rewind(self) -> None:
        """Go back to the log's beginning; what was decided about it stays."""
        self.entries: list[TranscriptEntry] = []
        self._running = [0]
        self._told: list[Message] = []
        self._taken = 0
        self._task = 0
        self._opening: tuple[str, tuple[Image, ...]] | None = None
        self._is_summarised = self.upto > 0
        self._calls: list[str] = []

    def _decides(self, event: Recorded) -> bool:
        """Note what an event says about others; True when messages that were told already change."""
        match event:
            case Archived():
                self._summaries[event.task] = event.summary
            case Revealed():
                self._summaries.pop(event.task, None)
            case Shrunk():
                known = self._summaries
                self._archived |= {task: known[task] for task in event.tasks if task in known}
                self._outputs |= set(event.outputs)
                return True
            case Summarised():
                self.upto, self._summary = event.upto, event.text
                return True
            case _:
                pass
        return False

    def _tell(self, event: Recorded) -> None:
        if self._is_summarised and self._taken >= self.upto:
            self._is_summarised = False
            self._add("user", notes.global_summary(self._summary), task=0)
            if self._opening is not None and not isinstance(event, Started):
                self._add("user", *self._opening)
        match event:
            case Started():
                self._task += 1
                self._opening = self._opened(event)
                self._add("user", *self._opening)
            case ToolReturned():
                self._calls.append(event.label or event.tool)
            case Observed():
                note = notes.left_out(len(event.text), self._calls)
                self._add("user", note if self._taken in self._outputs else event.text, part=True)
                self._calls = []
            case Replied():
                self._add("assistant", event.text if event.text.strip() else notes.EMPTY_REPLY, part=True)
            case MessageInjected():
                self._add("user", notes.user_message(event.text), part=True)
            case Told():
                self._add(event.role, event.text, part=True)
            case Recovered():
                self._add("user", event.text, part=True)
            case _:
                pass

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
        """Add a piece, unless a summary tells it: that of the whole beginning, or for a `part` that of its task.

        Two messages in a row from the same side become one, since providers want them to alternate.
        """
        if self._is_summarised or (part and self._task in self._archived):
            return
        text = sendable(text)
        if self._max is not None:
            text = notes.cut(text, self._max)
        number = self._task if task is None else task
        tokens = estimate(text) + IMAGE_TOKENS * len(images)
        entry = TranscriptEntry(position=self._taken, task=number, role=role, text=text, tokens=tokens)
        self.entries.append(entry)
        self._running.append(self._running[-1] + entry.tokens)
        told = self._told
        if told and told[-1].role == role:
            told[-1] = Message(role=role, text=f"{told[-1].text}\n\n{text}", images=told[-1].images + images)
            return
        if not told and role == "assistant":
            told.append(Message(role="user", text=notes.BEGINNING))
        told.append(Message(role=role, text=text, images=images))


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
