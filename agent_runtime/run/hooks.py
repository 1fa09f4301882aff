"""Hooks of a run: typed listeners, handlers by kind of event, and the handlers that are asked."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from agent_runtime.core.events import Event

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
        ...


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
