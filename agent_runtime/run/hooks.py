"""Hooks of a run: listeners of typed events, handlers by kind of event, and the default handlers of a terminal.

`HookSystem` holds them. `Announcer` translates the events of a run into calls of handlers, by one table (`_ANNOUNCED`).
The kinds `ask_user` and `permission_request` have answers: `run.approvals` calls their handlers. `install` registers
defaults that print to standard output and ask on the terminal.
"""

from __future__ import annotations

import inspect
import logging
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from agent_runtime.core.events import (
    CompletionWithdrawn,
    Ended,
    Event,
    Faulted,
    MessageInjected,
    MessageQueued,
    ModelAwaited,
    NetworkLost,
    NetworkUsed,
    Parked,
    Paused,
    Refused,
    Replied,
    SessionReset,
    Started,
    StepStarted,
    Streamed,
    StreamReset,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
)
from agent_runtime.core.values import Outcome, PendingCall, Status

Listener = Callable[[Event], None]
Handler = Callable[..., object]
H = TypeVar("H", bound=Handler)

log = logging.getLogger(__name__)


class EventType(StrEnum):
    """Kinds of events, and the keyword arguments of their handlers. Accept `**_`: later versions may add arguments."""

    START = "start"
    """task: the run starts."""
    STEP = "step"
    """step, max_steps: before a model request is sent."""
    STREAM = "stream"
    """text: a part of the model's text for people, without control blocks and file contents."""
    STREAM_RESET = "stream_reset"
    """attempt: discard the text streamed in this step; the request is sent again."""
    MODEL_AWAITED = "model_awaited"
    """reason, seconds: the model service does not answer; the next attempt is in this many seconds."""
    TOOL_CALL = "tool_call"
    """tool, args, label, number: before a tool runs."""
    TOOL_PROGRESS = "tool_progress"
    """tool, text, number: a running tool reports progress."""
    TOOL_RESULT = "tool_result"
    """tool, result, args, ok, value, seconds, number: after a tool has run or failed."""
    ASK_USER = "ask_user"
    """question, pending: the agent asks; a handler returns the answer, or `NoAnswer` if there will be none."""
    PERMISSION_REQUEST = "permission_request"
    """tool, description, preview, pending: a call needs approval; a handler returns True, False, a reason, or None."""
    SECURITY_ERROR = "security_error"
    """error: the model tried something that is not allowed, and it was prevented."""
    RUNTIME_ERROR = "runtime_error"
    """error: the model service, the sandbox, its network, a reply or a control block failed."""
    COMPLETION_WITHDRAWN = "completion_withdrawn"
    """step: a completion, which was not streamed, does not count: its step failed, or it does not fit the schema."""
    FINISH = "finish"
    """summary: the task is done; the text of the completion."""
    MAX_STEPS = "max_steps"
    """No arguments: the run ended at its step limit."""
    PAUSED = "paused"
    """pending: the run waits for a person."""
    END = "end"
    """outcome: the run has ended for any reason; not sent for a pause."""
    USER_MESSAGE_QUEUED = "user_message_queued"
    """message: `send_message` was called."""
    USER_MESSAGE_INJECTED = "user_message_injected"
    """message: a sent message was added to the conversation."""
    SESSION_RESET = "session_reset"
    """No arguments: the session was deleted."""


_ASKED = frozenset({EventType.ASK_USER, EventType.PERMISSION_REQUEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """What a handler of `ASK_USER` returns where nobody will answer, so that the run goes on instead of pausing.

    Attributes:
        why: for the model, as the end of a sentence.
    """

    why: str = ""


class HookSystem:
    """Handlers by kind of event, and listeners that are told everything as typed values.

    Whatever a handler or a listener raises is reported, in the log and as `RUNTIME_ERROR`, and never breaks the run.
    """

    def __init__(self, *listeners: Listener, asked_by: HookSystem | None = None) -> None:
        """Begin with some listeners.

        Args:
            listeners: who is told everything.
            asked_by: whose handlers are asked for permissions and answers in place of own ones; for a child run.
        """
        self._asked_by = asked_by
        self._listeners = list(listeners)
        self._handlers: dict[EventType, list[Handler]] = {}
        self._defaults: dict[EventType, list[Handler]] = {}
        self._by_arguments: list[Handler] = []
        self._reporting = False

    def add(self, listener: Listener) -> None:
        """Tell `listener` of every event from now on, as the values of `agent_runtime.core.events`."""
        self._listeners.append(listener)

    def register(
        self, event_type: EventType | str, handler: Handler, *, default: bool = False, by_arguments: bool = False
    ) -> None:
        """Call `handler` with the keyword arguments of each event of that kind.

        Args:
            event_type: which kind.
            handler: sync; those of `ASK_USER` and `PERMISSION_REQUEST` may be async too.
            default: whether it gives way to the first handler that is registered otherwise.
            by_arguments: for `PERMISSION_REQUEST`: whether it decides by the arguments and shows nobody anything.
                Only such a handler is asked about a call that is too long to be shown.

        Raises:
            ValueError: there is no such kind, or an async handler for a kind that is only told.
        """
        kind = EventType(event_type)
        if inspect.iscoroutinefunction(handler) and kind not in _ASKED:
            raise ValueError(f"a handler of {kind} cannot be async; only those that are asked something can be")
        (self._defaults if default else self._handlers).setdefault(kind, []).append(handler)
        if by_arguments:
            self._by_arguments.append(handler)

    def handlers(self, event_type: EventType) -> tuple[Handler, ...]:
        """Those to call for a kind of event: what was registered, else the defaults."""
        if self._asked_by is not None and event_type in _ASKED:
            return self._asked_by.handlers(event_type)
        return tuple(self._handlers.get(event_type) or self._defaults.get(event_type) or ())

    def by_arguments(self) -> tuple[Handler, ...]:
        """Those that may decide on a call that is too long to be shown to anybody."""
        if self._asked_by is not None:
            return self._asked_by.by_arguments()
        return tuple(each for each in self.handlers(EventType.PERMISSION_REQUEST) if each in self._by_arguments)

    def emit(self, event_type: EventType | str, **arguments: object) -> object:
        """Call the handlers of a kind by hand; gives the last answer that is not None.

        Raises:
            ValueError: there is no such kind.
        """
        kind, answer = EventType(event_type), None
        for handler in self.handlers(kind):
            try:
                given = handler(**arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a stranger's handler does, the run goes on
                self.failed(handler, kind, error)
            else:
                answer = answer if given is None else given
        return answer

    def tell(self, event: Event) -> None:
        """Tell the listeners, in the order in which they were added."""
        for listener in self._listeners:
            try:
                listener(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                self.failed(listener, type(event).__name__, error)

    def failed(self, handler: Handler, what: str, error: BaseException) -> None:
        """Report a handler or listener that raised; one that raises at that is only logged."""
        log.error("a handler failed on %s", what, exc_info=error)
        if not self._reporting:
            self._reporting = True
            try:
                name = getattr(handler, "__qualname__", repr(handler))
                self.emit(
                    EventType.RUNTIME_ERROR, error=f"handler {name} failed on {what}: {type(error).__name__}: {error}"
                )
            finally:
                self._reporting = False


class Hooked(Protocol):
    """What decorators register with: a runtime."""

    @property
    def hooks(self) -> HookSystem:
        """Its hooks."""


def _decorator(kind: EventType) -> Callable[[Hooked], Callable[[H], H]]:
    def on(runtime: Hooked) -> Callable[[H], H]:
        def register(handler: H) -> H:
            runtime.hooks.register(kind, handler)
            return handler

        return register

    on.__name__ = on.__qualname__ = f"on_{kind}"
    on.__doc__ = (
        f"Register the function below for `EventType.{kind.name}` of a runtime, instead of the default handler."
    )
    return on


on_start = _decorator(EventType.START)
on_step = _decorator(EventType.STEP)
on_stream = _decorator(EventType.STREAM)
on_stream_reset = _decorator(EventType.STREAM_RESET)
on_tool_call = _decorator(EventType.TOOL_CALL)
on_tool_progress = _decorator(EventType.TOOL_PROGRESS)
on_tool_result = _decorator(EventType.TOOL_RESULT)
on_ask_user = _decorator(EventType.ASK_USER)
on_permission_request = _decorator(EventType.PERMISSION_REQUEST)
on_security_error = _decorator(EventType.SECURITY_ERROR)
on_runtime_error = _decorator(EventType.RUNTIME_ERROR)
on_completion_withdrawn = _decorator(EventType.COMPLETION_WITHDRAWN)
on_model_awaited = _decorator(EventType.MODEL_AWAITED)
on_finish = _decorator(EventType.FINISH)
on_max_steps = _decorator(EventType.MAX_STEPS)
on_paused = _decorator(EventType.PAUSED)
on_end = _decorator(EventType.END)
on_user_message_queued = _decorator(EventType.USER_MESSAGE_QUEUED)
on_user_message_injected = _decorator(EventType.USER_MESSAGE_INJECTED)
on_session_reset = _decorator(EventType.SESSION_RESET)


_ANNOUNCED: Mapping[type, tuple[EventType, str]] = {
    StepStarted: (EventType.STEP, "step max_steps"),
    StreamReset: (EventType.STREAM_RESET, "attempt"),
    ModelAwaited: (EventType.MODEL_AWAITED, "reason seconds"),
    ToolCalled: (EventType.TOOL_CALL, "tool args label number"),
    ToolProgressed: (EventType.TOOL_PROGRESS, "tool text number"),
    ToolReturned: (EventType.TOOL_RESULT, "tool result=text args ok value seconds number"),
    Refused: (EventType.SECURITY_ERROR, "error"),
    Faulted: (EventType.RUNTIME_ERROR, "error"),
    Parked: (EventType.RUNTIME_ERROR, "error=reason"),
    CompletionWithdrawn: (EventType.COMPLETION_WITHDRAWN, "step"),
    MessageQueued: (EventType.USER_MESSAGE_QUEUED, "message=text"),
    MessageInjected: (EventType.USER_MESSAGE_INJECTED, "message=text"),
    Paused: (EventType.PAUSED, "pending"),
    SessionReset: (EventType.SESSION_RESET, ""),
}
"""Event → the kind of its handlers, and their arguments: the event's attributes, renamed with `argument=attribute`."""


class Announcer:
    """Calls the handlers of a runtime's events; a listener like any other."""

    def __init__(self, hooks: HookSystem, *, stream: bool) -> None:
        """Announce to `hooks`.

        Args:
            hooks: whose handlers are called.
            stream: whether text is passed on as it comes, or once a reply is complete.
        """
        self._emit = hooks.emit
        self._stream = stream
        self._text: list[str] = []
        self._is_complete = False
        """Whether the step's reply is complete, so that further text is passed on as it comes."""

    def __call__(self, event: Event) -> None:
        """Call the handlers of an event. Questions are put by the gate, which needs the answers."""
        match event:
            case StepStarted() | StreamReset():
                self._text.clear()
                self._is_complete = False
            case Streamed(text=text) if self._stream or self._is_complete:
                self._emit(EventType.STREAM, text=text)
            case Streamed(text=text):
                self._text.append(text)
            case Replied():
                self._is_complete = True
                self._flush_text()
            case Started(task=task):
                self._emit(EventType.START, task=task.goal)
            case NetworkUsed(connection=connection) if not connection.allowed:
                self._emit(EventType.SECURITY_ERROR, error=f"network: {connection}")
            case NetworkLost(reason=reason):
                self._emit(EventType.RUNTIME_ERROR, error=f"The sandbox has lost its network: {reason}.")
            case Ended(outcome=outcome):
                self._announce_end(outcome)
            case _:
                pass
        if type(event) in _ANNOUNCED:
            kind, arguments = _ANNOUNCED[type(event)]
            names = [argument.partition("=") for argument in arguments.split()]
            self._emit(kind, **{name: getattr(event, attribute or name) for name, _, attribute in names})

    def _flush_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text.strip():
            self._emit(EventType.STREAM, text=text)

    def _announce_end(self, outcome: Outcome) -> None:
        if outcome.status is Status.FINISHED:
            self._emit(EventType.FINISH, summary=outcome.summary)
        elif outcome.status is Status.MAX_STEPS:
            self._emit(EventType.MAX_STEPS)
        elif outcome.status in {Status.FAILED, Status.SANDBOX_FAILED}:
            self._emit(EventType.RUNTIME_ERROR, error=outcome.reason)
        self._emit(EventType.END, outcome=outcome)


_RESULT_CHARS = 200


def install(hooks: HookSystem) -> Callable[[str], str | None] | None:
    """Register defaults that give way, kind by kind, to the first handler of the caller's own.

    Lines that are piped into the program answer questions. They approve nothing: their author saw no call.

    Returns:
        What asks a question that no handler answers; None when nobody can be asked.
    """
    for kind, handler in (
        (EventType.STREAM, _stream),
        (EventType.TOOL_CALL, _tool_call),
        (EventType.TOOL_RESULT, _tool_result),
        (EventType.ASK_USER, _question),
        (EventType.SECURITY_ERROR, _error),
        (EventType.RUNTIME_ERROR, _error),
        (EventType.COMPLETION_WITHDRAWN, _withdrawn),
        (EventType.MAX_STEPS, _max_steps),
        (EventType.PAUSED, _paused),
        (EventType.END, _end),
    ):
        hooks.register(kind, handler, default=True)
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        hooks.register(EventType.PERMISSION_REQUEST, _permission, default=True)
        return _input
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin is not None else 0
    except (OSError, ValueError):  # closed, or no file
        return None
    return _input if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def _stream(text: str, **_: object) -> None:
    _say(text, end="")


def _tool_call(tool: str, label: str = "", **_: object) -> None:
    _say(f"\n[{tool}] {label or tool}")


def _tool_result(result: str, **_: object) -> None:
    _say(result if len(result) <= _RESULT_CHARS else f"{result[:_RESULT_CHARS]}…")


def _question(question: str, **_: object) -> None:
    _say(f"\n{question}")


def _error(error: str, **_: object) -> None:
    _say(f"\n{error}")


def _max_steps(**_: object) -> None:
    _say("\nThe step limit was reached.")


def _withdrawn(**_: object) -> None:
    _say("\nThat step failed, so its completion does not count.")


def _paused(pending: PendingCall, **_: object) -> None:
    what = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
    _say(f"\nWaiting for {what} (request {pending.request_id}):\n{pending.preview}")


def _end(**_: object) -> None:
    _say("")


def _permission(tool: str, preview: str, pending: PendingCall, **_: object) -> bool:
    _say(f"\n{tool} asks for permission: {pending.reason}\n{preview}")
    return (_input("Allow? [y/N] ") or "").strip().lower() in {"y", "yes"}


def _input(prompt: str) -> str | None:
    """A line from the terminal; None when it was closed."""
    try:
        return input(f"{prompt.rstrip()} " if prompt.endswith("] ") else "> ")
    except EOFError:
        return None


def _say(text: str, end: str = "\n") -> None:
    """Print a text with its control codes and invisible characters escaped: none may hide or forge what follows it.

    Harmless are line breaks, tabs, the hard space, and the joiner inside an emoji.
    """
    shown = (each if each.isprintable() or each in "\n\t\u00a0\u200d" else repr(each)[1:-1] for each in text)
    sys.stdout.write("".join(shown) + end)
    sys.stdout.flush()
