"""Hooks of a run: listeners of events, handlers by event type, and default handlers for a terminal."""

from __future__ import annotations

import inspect
import logging
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agent_runtime.core.events import Announced, Event, EventType, Replied, StepStarted, Streamed, StreamReset
from agent_runtime.core.values import PendingCall

Listener = Callable[[Event], None]
Handler = Callable[..., object]
H = TypeVar("H", bound=Handler)

log = logging.getLogger(__name__)


_ANSWERED_TYPES = frozenset({EventType.ASK_USER, EventType.PERMISSION_REQUEST})
_ASYNC_TYPES = _ANSWERED_TYPES | {EventType.COMPLETION}
# Types whose decorators add handlers, as in CodePilot 0.9.1.
_ADDING_TYPES = {EventType.ASK_USER, EventType.USER_MESSAGE_QUEUED, EventType.USER_MESSAGE_INJECTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Answer of an `ASK_USER` handler if there will be none, so that the run continues.

    `why` is the end of a sentence for the model.
    """

    why: str = ""


NOBODY_ANSWERS = "nobody can be asked in this run; decide for yourself, and say in the completion what you decided"


class HookSystem:
    """Handlers by event type, and listeners of all events.

    Exceptions are logged and reported as `RUNTIME_ERROR`; they never break the run.
    """

    def __init__(self, *listeners: Listener, answers_from: HookSystem | None = None) -> None:
        """Create the hooks; `answers_from` are a parent's, for permissions and answers."""
        self._answers_from = answers_from
        self._listeners = list(listeners)
        self._handlers: dict[EventType, list[Handler]] = {}
        self._defaults: dict[EventType, list[Handler]] = {}
        self._by_arguments: list[Handler] = []
        self._reporting = False

    def add(self, listener: Listener) -> None:
        """Add a listener of all events (`agent_runtime.core.events`)."""
        self._listeners.append(listener)

    def register(
        self,
        event_type: EventType | str,
        handler: Handler,
        *,
        default: bool = False,
        by_arguments: bool = False,
        replace: bool = False,
    ) -> None:
        """Add a handler for an event type, or `replace` all with it.

        `default` handlers are replaced by any other. A permission handler that decides `by_arguments` needs no preview.

        Raises:
            ValueError: unknown event type, or an async handler of another type.
        """
        kind = EventType(event_type)
        if inspect.iscoroutinefunction(handler) and kind not in _ASYNC_TYPES:
            text = "only those of questions, permissions and completions can"
            raise ValueError(f"a handler of {kind} cannot be async; {text}")
        if replace:
            self.clear(kind)
        (self._defaults if default else self._handlers).setdefault(kind, []).append(handler)
        if by_arguments:
            self._by_arguments.append(handler)

    def clear(self, event_type: EventType | str) -> None:
        """Remove an event type's handlers and its printing default."""
        kind = EventType(event_type)
        removed = self._handlers.pop(kind, [])
        self._by_arguments = [handler for handler in self._by_arguments if handler not in removed]
        if kind not in _ANSWERED_TYPES:  # a terminal is still asked
            self._defaults.pop(kind, None)

    def handlers(self, event_type: EventType) -> tuple[Handler, ...]:
        """Return the registered handlers of an event type, or the defaults."""
        if self._answers_from is not None and event_type in _ANSWERED_TYPES:
            return self._answers_from.handlers(event_type)
        return tuple(self._handlers.get(event_type) or self._defaults.get(event_type) or ())

    def argument_handlers(self) -> tuple[Handler, ...]:
        """Return permission handlers that need no preview."""
        if self._answers_from is not None:
            return self._answers_from.argument_handlers()
        return tuple(h for h in self.handlers(EventType.PERMISSION_REQUEST) if h in self._by_arguments)

    def emit(self, event_type: EventType | str, **arguments: object) -> object:
        """Call the handlers of an event type; return the last answer, or whether all permit.

        Raises:
            ValueError: unknown event type.
        """
        kind, answers = EventType(event_type), list[object]()
        for handler in self.handlers(kind):
            try:
                result = handler(**arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a handler's error must not end the run
                self.report_failure(handler, kind, error)
                result = False if kind is EventType.PERMISSION_REQUEST else None
            answers += [] if result is None else [result]
        if kind is EventType.PERMISSION_REQUEST and answers:
            return all(answer is True for answer in answers)
        return answers[-1] if answers else None

    def notify(self, event: Event) -> None:
        """Notify listeners in order of registration."""
        for listener in self._listeners:
            try:
                listener(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                self.report_failure(listener, type(event).__name__, error)

    def report_failure(self, handler: Handler, source: str, error: BaseException) -> None:
        """Report an exception of a handler."""
        log.error("a handler failed on %s", source, exc_info=error)
        if not self._reporting:
            self._reporting = True
            try:
                name = getattr(handler, "__qualname__", repr(handler))
                self.emit(
                    EventType.RUNTIME_ERROR, error=f"handler {name} failed on {source}: {type(error).__name__}: {error}"
                )
            finally:
                self._reporting = False


class HasHooks(Protocol):
    """A runtime with hooks."""

    @property
    def hooks(self) -> HookSystem:
        """Its hooks."""


class _Decorator(Protocol):
    def __call__(self, runtime: HasHooks, *, add: bool = ...) -> Callable[[H], H]: ...


def _decorator(kind: EventType) -> _Decorator:
    adds = kind in _ADDING_TYPES

    def on(runtime: HasHooks, *, add: bool = adds) -> Callable[[H], H]:
        def register(handler: H) -> H:
            runtime.hooks.register(kind, handler, replace=not add)
            return handler

        return register

    on.__name__ = on.__qualname__ = f"on_{kind}"
    on.__doc__ = (
        f"Register the function below for `EventType.{kind.name}` of a runtime, "
        f"{'beside' if adds else 'instead of'} earlier handlers{'' if adds else ' unless `add` is set'}."
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
on_completion = _decorator(EventType.COMPLETION)
on_completion_withdrawn = _decorator(EventType.COMPLETION_WITHDRAWN)
on_model_awaited = _decorator(EventType.MODEL_AWAITED)
on_finish = _decorator(EventType.FINISH)
on_max_steps = _decorator(EventType.MAX_STEPS)
on_paused = _decorator(EventType.PAUSED)
on_end = _decorator(EventType.END)
on_user_message_queued = _decorator(EventType.USER_MESSAGE_QUEUED)
on_user_message_injected = _decorator(EventType.USER_MESSAGE_INJECTED)
on_session_reset = _decorator(EventType.SESSION_RESET)


class Announcer:
    """Listener that calls the handlers of events."""

    def __init__(self, hooks: HookSystem, *, stream: bool) -> None:
        self._emit = hooks.emit
        self._stream = stream
        self._text: list[str] = []
        self._is_complete = False
        """Whether the step's reply is complete, so that further text is passed on as it comes."""

    def __call__(self, event: Event) -> None:
        """Call the handlers of an event, except questions, which the gate asks."""
        match event:
            case StepStarted() | StreamReset():
                self._text.clear()
                self._is_complete = False
            case Streamed(text=text) if not (self._stream or self._is_complete):
                self._text.append(text)
                return
            case Replied():
                self._is_complete = True
                self._flush_text()
            case _:
                pass
        if isinstance(event, Announced):
            for kind, arguments in event.hook_calls():
                self._emit(kind, **arguments)

    def _flush_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text.strip():
            self._emit(EventType.STREAM, text=text)


_RESULT_CHARS = 200


def install_defaults(hooks: HookSystem) -> Callable[[str], str | None] | None:
    """Register default handlers; return a function that asks questions, or None without input.

    Piped input answers questions but approves nothing: its author saw no call.
    """
    for kind, handler in (
        (EventType.STREAM, _print_text),
        (EventType.TOOL_CALL, _print_call),
        (EventType.TOOL_RESULT, _print_result),
        (EventType.ASK_USER, _print_question),
        (EventType.SECURITY_ERROR, _print_error),
        (EventType.RUNTIME_ERROR, _print_error),
        (EventType.COMPLETION_WITHDRAWN, _print_withdrawal),
        (EventType.MODEL_AWAITED, _print_wait),
        (EventType.MAX_STEPS, _print_max_steps),
        (EventType.PAUSED, _print_pause),
        (EventType.END, _print_end),
    ):
        hooks.register(kind, handler, default=True)
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        hooks.register(EventType.PERMISSION_REQUEST, _ask_permission, default=True)
        return _read_line
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin is not None else 0
    except (OSError, ValueError):  # closed, or no file
        return None
    return _read_line if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def _print_text(text: str, **_: object) -> None:
    _print(text, end="")


def _print_call(tool: str, label: str = "", **_: object) -> None:
    _print(f"\n[{tool}] {label or tool}")


def _print_result(result: str, **_: object) -> None:
    _print(result if len(result) <= _RESULT_CHARS else f"{result[:_RESULT_CHARS]}…")


def _print_question(question: str, **_: object) -> None:
    _print(f"\n{question}")


def _print_error(error: str, **_: object) -> None:
    _print(f"\n{error}")


def _print_wait(reason: str, seconds: float, **_: object) -> None:
    _print(f"\nNo reply: {reason}; trying again in {seconds:.0f} s")


def _print_max_steps(**_: object) -> None:
    _print("\nThe step limit was reached.")


def _print_withdrawal(**_: object) -> None:
    _print("\nThat step failed or was not accepted, so its completion does not count.")


def _print_pause(pending: PendingCall, **_: object) -> None:
    request = "an answer" if pending.kind == "question" else f"approval of {pending.tool}"
    _print(f"\nWaiting for {request} (request {pending.request_id}):\n{pending.preview}")


def _print_end(**_: object) -> None:
    _print("")


def _ask_permission(tool: str, preview: str, pending: PendingCall, **_: object) -> bool:
    _print(f"\n{tool} asks for permission: {pending.reason}\n{preview}")
    return (_read_line("Allow? [y/N] ") or "").strip().lower() in {"y", "yes"}


def _read_line(prompt: str) -> str | None:
    try:
        return input(f"{prompt.rstrip()} " if prompt.endswith("] ") else "> ")
    except EOFError:
        return None


def _print(text: str, end: str = "\n") -> None:
    """Print text with control codes and invisible characters escaped."""
    chars = (char if char.isprintable() or char in "\n\t\u00a0\u200d" else repr(char)[1:-1] for char in text)
    sys.stdout.write("".join(chars) + end)
    sys.stdout.flush()
