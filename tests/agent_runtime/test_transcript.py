from __future__ import annotations

from agent_runtime.context.transcript import Transcript, messages
from agent_runtime.events import Ended, Event, Observed, Replied, Started
from agent_runtime.outcome import Outcome, Status, Usage
from agent_runtime.task import Task

LOG: list[Event] = [
    Started(task=Task(goal="a"), opening="do a"),
    Replied(step=1, text="  \n", usage=Usage()),
    Observed(step=1, text="seen", ok=True),
    Observed(step=1, text="more", ok=True),
    Replied(step=2, text="done ", usage=Usage()),
    Ended(outcome=Outcome(status=Status.FINISHED)),
    Started(task=Task(goal="b"), opening="do b"),
]


def test_roles_alternate_and_words_are_kept() -> None:
    assert [(message.role, message.text) for message in messages(LOG)] == [
        ("user", "do a"),
        ("assistant", "(empty reply)"),
        ("user", "seen\n\nmore"),
        ("assistant", "done "),
        ("user", "do b"),
    ]


def test_a_log_that_grows_tells_the_same_as_one_read_at_once() -> None:
    growing = Transcript()
    for end in range(len(LOG) + 1):
        assert growing.messages(LOG[:end]) == messages(LOG[:end])


def test_what_was_told_is_told_again_without_a_new_look() -> None:
    growing = Transcript()
    first = growing.messages(LOG)
    second = growing.messages(LOG)
    assert all(a is b for a, b in zip(first, second, strict=True))
