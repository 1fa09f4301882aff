"""The events of a run as calls of handlers."""

from __future__ import annotations

import ast
import inspect
from typing import get_args

from agent_runtime.core import events
from agent_runtime.run import hooks

_NOT_ANNOUNCED = {
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
}


def test_every_event_is_announced_or_named_as_one_that_is_not() -> None:
    matched = {
        node.cls.id
        for node in ast.walk(ast.parse(inspect.getsource(hooks)))
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }
    known = {*hooks._HANDLER_ARGUMENTS, *_NOT_ANNOUNCED, *(getattr(events, name) for name in matched)}
    missing = {*get_args(events.Event)} - known
    assert not missing, "give it a row in _ANNOUNCED of run/hooks.py, or name it here"
