"""The events of a run as calls of handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from agent_runtime.core import events
from agent_runtime.core.values import Connection, Task

_NOT_ANNOUNCED = {
    # Ends the wait for a step's text.
    events.Replied,
    # People are asked by the gate, which needs the answers.
    events.PermissionAsked,
    events.QuestionAsked,
    # The log's own bookkeeping; its effects are announced.
    events.Archived,
    events.ChildRecorded,
    events.ChildResult,
    events.ChildWatched,
    events.Observed,
    events.Recovered,
    events.ReplyBroken,
    events.Resumed,
    events.Revealed,
    events.Shrunk,
    events.Summarised,
    events.Imported,
    events.ToolsListed,
    events.BaselineTaken,
    events.InstructionsShown,
}


def test_every_event_has_a_hook_or_is_named_as_one_that_has_none() -> None:
    missing = {*get_args(events.Event)} - {*events.Announced.__subclasses__()} - _NOT_ANNOUNCED
    assert not missing, "let it inherit from `Announced`, or name it here"


def test_a_hooks_arguments_are_the_attributes_that_the_event_names() -> None:
    calls = events.ToolReturned(
        number=1, tool="find", args={"a": 1}, value=2, text="two", ok=True, seconds=0.5, label="find a"
    ).hook_calls()
    arguments = {"tool": "find", "result": "two", "args": {"a": 1}, "ok": True, "value": 2, "seconds": 0.5, "number": 1}
    assert [*calls] == [(events.EventType.TOOL_RESULT, arguments)]
    started = events.Started(task=Task(goal="Fix it"), opening="[Task 1] Fix it")
    assert [*started.hook_calls()] == [(events.EventType.START, {"task": "Fix it"})]


def test_a_refused_connection_is_a_security_error_and_a_permitted_one_is_not() -> None:
    refused = Connection(host="a.example", port=443, allowed=False)
    assert list(events.NetworkUsed(connection=refused).hook_calls()) == [
        (events.EventType.SECURITY_ERROR, {"error": f"network: {refused}"})
    ]
    assert not list(events.NetworkUsed(connection=replace(refused, allowed=True)).hook_calls())
