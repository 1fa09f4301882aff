"""Call handlers by kind of event. Pure, but for the handlers that it calls."""

from __future__ import annotations

from typing import assert_never

from agent_runtime.core.events import (
    Archived,
    ChildRecorded,
    ChildResult,
    ChildWatched,
    CompletionWithdrawn,
    Ended,
    Event,
    Faulted,
    Live,
    MessageInjected,
    MessageQueued,
    ModelAwaited,
    NetworkLost,
    NetworkUsed,
    Observed,
    Parked,
    Paused,
    PermissionAsked,
    QuestionAsked,
    Recorded,
    Recovered,
    Refused,
    Replied,
    ReplyBroken,
    Resumed,
    Revealed,
    SessionReset,
    Shrunk,
    Started,
    StepStarted,
    Streamed,
    StreamReset,
    Summarised,
    Told,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
    ToolsListed,
)
from agent_runtime.core.outcome import Outcome, Status
from agent_runtime.run.hooks import EventType, HookSystem


class Announcer:
    """Tells hooks of a runtime's events; a listener like any other."""

    def __init__(self, hooks: HookSystem, *, stream: bool) -> None:
        """Announce to `hooks`.

        Args:
            hooks: whose handlers are called.
            stream: whether text is passed on as it comes, or once a reply is complete.
        """
        self._hooks = hooks
        self._stream = stream
        self._text: list[str] = []
        self._complete = False
        """Whether the step's reply is complete, so that what follows is passed on as it comes."""

    def __call__(self, event: Event) -> None:
        """Call the handlers of an event's kind. Questions are put by the gate, which needs the answers."""
        if isinstance(event, Live):
            self._live(event)
        else:
            self._recorded(event)

    def _live(self, event: Live) -> None:  # noqa: C901, PLR0912 - one case for each kind of event, nothing else
        emit = self._hooks.emit
        match event:
            case StepStarted(step=step, max_steps=max_steps):
                self._text.clear()
                self._complete = False
                emit(EventType.STEP, step=step, max_steps=max_steps)
            case Streamed(text=text):
                if self._stream or self._complete:
                    emit(EventType.STREAM, text=text)
                else:
                    self._text.append(text)
            case StreamReset(attempt=attempt):
                self._text.clear()
                emit(EventType.STREAM_RESET, attempt=attempt)
            case ModelAwaited(reason=reason, seconds=seconds):
                emit(EventType.MODEL_AWAITED, reason=reason, seconds=seconds)
            case ToolCalled(tool=tool, args=args, label=label, number=number):
                emit(EventType.TOOL_CALL, tool=tool, args=args, label=label, number=number)
            case ToolProgressed(tool=tool, text=text, number=number):
                emit(EventType.TOOL_PROGRESS, tool=tool, text=text, number=number)
            case Refused(error=error):
                emit(EventType.SECURITY_ERROR, error=error)
            case Faulted(error=error):
                emit(EventType.RUNTIME_ERROR, error=error)
            case NetworkUsed(connection=connection):
                if not connection.allowed:
                    emit(EventType.SECURITY_ERROR, error=f"network: {connection}")
            case NetworkLost(reason=reason):
                emit(EventType.RUNTIME_ERROR, error=f"The sandbox has lost its network: {reason}.")
            case CompletionWithdrawn(step=step):
                emit(EventType.COMPLETION_WITHDRAWN, step=step)
            case MessageQueued(text=text):
                emit(EventType.USER_MESSAGE_QUEUED, message=text)
            case SessionReset():
                emit(EventType.SESSION_RESET)
            case PermissionAsked() | QuestionAsked() | ChildWatched():
                pass
            case other:
                assert_never(other)

    def _recorded(self, event: Recorded) -> None:
        emit = self._hooks.emit
        match event:
            case Started():
                emit(EventType.START, task=event.task.goal)
            case Replied():
                self._said_all()
            case ToolReturned():
                emit(
                    EventType.TOOL_RESULT,
                    tool=event.tool,
                    result=event.text,
                    args=event.args,
                    ok=event.ok,
                    value=event.value,
                    seconds=event.seconds,
                    number=event.number,
                )
            case MessageInjected(text=text):
                emit(EventType.USER_MESSAGE_INJECTED, message=text)
            case Paused(pending=pending):
                emit(EventType.PAUSED, pending=pending)
            case Parked(reason=reason):
                emit(EventType.RUNTIME_ERROR, error=reason)
            case Ended(outcome=outcome):
                self._ended(outcome)
            case Observed() | Told() | Resumed() | Recovered() | Archived() | Revealed() | Shrunk() | Summarised():
                pass
            case ReplyBroken() | ChildRecorded() | ChildResult() | ToolsListed():
                pass  # the first is told by what follows: another attempt, or the run's end
            case other:
                assert_never(other)

    def _said_all(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        self._complete = True
        if text.strip():
            self._hooks.emit(EventType.STREAM, text=text)

    def _ended(self, outcome: Outcome) -> None:
        if outcome.status is Status.FINISHED:
            self._hooks.emit(EventType.FINISH, summary=outcome.summary)
        elif outcome.status is Status.MAX_STEPS:
            self._hooks.emit(EventType.MAX_STEPS)
        elif outcome.status in {Status.FAILED, Status.SANDBOX_FAILED}:
            self._hooks.emit(EventType.RUNTIME_ERROR, error=outcome.reason)
        self._hooks.emit(EventType.END, outcome=outcome)
