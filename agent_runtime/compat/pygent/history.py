"""The history of an agent: the events of a session as messages of a chat, and back; and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_runtime.compat.pygent.growing import Growing
from agent_runtime.compat.pygent.openai_compat import Message, ToolCall, ToolCallFunction, as_dict, parse_message
from agent_runtime.compat.pygent.speaking import END_ID
from agent_runtime.core.calls import ToolAnswer, ToolRequest
from agent_runtime.core.errors import SessionError, ToolError
from agent_runtime.core.events import Ended, MessageInjected, Observed, Recorded, Recovered, Replied, Started, Told
from agent_runtime.core.outcome import Outcome, Status, Usage
from agent_runtime.core.task import Task
from agent_runtime.workspace.files import Workspace

Entry = Message | dict[str, Any]
"""A message of the model, or another one as a dictionary."""

_MOST_BYTES = 256 * 1024**2


def history_of(events: Iterable[Recorded], name_of: Callable[[str], str]) -> list[Entry]:
    """The messages that a session's log tells, without the system message.

    Args:
        events: the log.
        name_of: gives a tool's own name for the one in the log.
    """
    told: list[Entry] = []
    for event in events:
        match event:
            case Started(task=task):
                told.append({"role": "user", "content": task.goal})
            case MessageInjected(text=text):
                told.append({"role": "user", "content": text})
            case Replied(text=text, requests=requests):
                calls = [
                    ToolCall(each.id, "function", ToolCallFunction(name_of(each.name), each.arguments))
                    for each in requests
                    if each.id != END_ID
                ]
                told.append(Message("assistant", text or None, calls or None))
            case Observed(answers=answers, text=text):
                told += [
                    {"role": "tool", "content": each.text, "tool_call_id": each.id}
                    for each in answers
                    if each.id != END_ID
                ]
                if text:
                    told.append({"role": "system", "content": text})
            case Told(role=role, text=text):
                told.append({"role": "system", "content": text} if role == "user" else Message("assistant", text))
            case Recovered(text=text):
                told.append({"role": "system", "content": text})
            case _:
                pass
    return told


def events_of(history: Sequence[object], registered: Callable[[str], str]) -> list[Recorded]:
    """The log of a session that had this history.

    Args:
        history: messages; a system message that comes first is left out.
        registered: gives the name of a tool in the log for its own.

    Raises:
        SessionError: an entry is no message.
    """
    events: list[Recorded] = []
    answers: list[ToolAnswer] = []
    step = 0
    for number, entry in enumerate(history):
        role, text = _said(number, entry)
        if answers and role != "tool":
            events.append(Observed(step=step, text="", ok=True, answers=tuple(answers)))
            answers = []
        if role == "tool":
            id_ = entry.get("tool_call_id") if isinstance(entry, Mapping) else None
            answers.append(ToolAnswer(id=str(id_ or ""), text=text))
        elif role == "assistant":
            step += 1
            try:
                calls = parse_message(entry).tool_calls or ()
            except TypeError as error:
                raise SessionError(f"Entry {number} of the history is not a model's message: {error}") from error
            requests = tuple(
                ToolRequest(id=each.id, name=registered(each.function.name), arguments=each.function.arguments)
                for each in calls
            )
            events.append(Replied(step=step, text=text, usage=Usage(), requests=requests))
        elif role == "user":
            step = 0
            events.append(Started(task=Task(goal=text), opening=text))
        elif number:
            events.append(Told(role="user", text=text))
    if answers:
        events.append(Observed(step=step, text="", ok=True, answers=tuple(answers)))
    if any(isinstance(each, Started) for each in events):
        events.append(Ended(outcome=Outcome(status=Status.FINISHED)))
    return events


class HistoryFile:
    """A JSON file with a history. It is replaced as a whole, so that a crash leaves the old one or the new one."""

    def __init__(self, path: Path) -> None:
        """Keep a history at `path`."""
        self.path = path.expanduser().resolve()
        self._texts = Growing[Entry, str](lambda entry: json.dumps(as_dict(entry)))

    def load(self) -> list[object]:
        """What it holds; nothing if there is no file.

        Raises:
            SessionError: it cannot be read, or holds something else. It is left as it is.
        """
        if not self.path.exists():
            return []
        try:
            with Workspace(self.path.parent) as place:
                history = json.loads(place.read_bytes(self.path.name, _MOST_BYTES))
        except (OSError, ToolError, ValueError, RecursionError) as error:
            raise SessionError(f"The history file {self.path} cannot be read: {error}") from error
        if not isinstance(history, list):
            raise SessionError(f"The history file {self.path} contains no list of messages; name another file.")
        return history

    def save(self, history: Sequence[Entry]) -> None:
        """Replace what it holds. An entry that is the same object as in the last save, but for the first, is the same.

        Raises:
            SessionError: it cannot be written.
        """
        system = json.dumps(as_dict(history[0])) if history else ""
        data = f"[{', '.join([system, *self._texts(history[1:])])}]".encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with Workspace(self.path.parent) as place:
                place.write_bytes(self.path.name, data)
        except (OSError, ToolError) as error:
            raise SessionError(f"The history file {self.path} cannot be written: {error}") from error


def _said(number: int, entry: object) -> tuple[str, str]:
    """The role and the text of a message.

    Raises:
        SessionError: it is none.
    """
    told = as_dict(entry) if isinstance(entry, Message | Mapping) else {}
    role, text = told.get("role"), told.get("content")
    if role not in {"system", "user", "assistant", "tool"} or not isinstance(text, str | None):
        raise SessionError(
            f"Entry {number} of the history is not a chat message: it needs a `role` (system, user, assistant or "
            "tool), and a text as `content`."
        )
    return str(role), text or ""
