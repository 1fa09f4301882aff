"""List the tasks of a log, and those that were put aside. Pure.

A task is everything from one `Started` to the next; the first is task 1. Archiving one only says that its summary may
stand in its place: the conversation itself changes when a `Shrunk` names the task, since every such change costs the
provider's cache. Until then, taking it back costs nothing. Afterwards its messages are shown again at the end of the
conversation, as the result of the call that asks for them: putting them back where they were would cost the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.context.estimate import estimate, estimate_message
from agent_runtime.context.transcript import messages
from agent_runtime.core.events import Archived, Recorded, Revealed, Shrunk, Started, Summarised
from agent_runtime.prompts import notes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task of a log.

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
