"""The library's error classes.

`SettingsError` is the caller's fault, `ModelError` the model service's, `SandboxError` the machine's. Any other
exception that escapes a run is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Literal


class AgentError(Exception):
    """Base class of the library's errors."""


class SettingsError(AgentError):
    """Invalid settings; the text names the setting and the remedy."""


class UsageError(AgentError):
    """A call in an unsupported context, e.g. a blocking one in an event loop."""


class SessionError(AgentError):
    """The session's store cannot be read or written."""


class SessionInUseError(SessionError):
    """Another runtime works on the session."""


class SessionUnavailableError(SessionError):
    """The session's database is unavailable."""


class SessionNewerError(SessionError):
    """A newer version wrote the session."""


class SessionDamagedError(SessionError):
    pass


class ResumeCode(Enum):
    """Reason that a paused run cannot be resumed, with its error text."""

    NOTHING_WAITS = "Nothing is waiting in this session: start a task with run()."
    UNANSWERED = "Request {request} ({tool}) waits for an answer. Call resume(approve=True or False) or reset() first."
    OTHER_REQUEST = "Request {request} no longer waits; {now}. Review it again."
    NO_DECISION = "Request {request} asks for permission: pass approve=True or False."
    NO_ANSWER = "Request {request} is a question: answer it with note=, or pass approve=False."
    FILES_CHANGED = "Request {request}: the workspace has changed: {changed}. Restore it, or deny the call."
    ALTERED = "Request {request} was altered or has another signing key. Use its `state_key`, or reset the session."
    MOVED = "Request {request}: the {parts} in the session's log changed since the pause. Reset the session."
    FORMAT = "Request {request} has state format {found}, and this version reads {known}. Reset the session."
    VERSION = "The step was suspended by pydantic-monty {found}, not {installed}. Install {found}, or reset()."
    TRANSPORT = "The step was suspended with the transport `{found}`, not `{now}`. Set that again, or reset()."
    DAMAGED = "The saved state of the control block is damaged ({error}). Reset the session."
    TOOL_MISSING = "The run waits at {tool}, which is not one of its tools. Register it, or reset the session."


class ResumeError(AgentError):
    """A paused run cannot be resumed; `values` fill the text of `code`."""

    def __init__(self, code: ResumeCode, **values: object) -> None:
        super().__init__(code.value.format(**values))
        self.code = code
        self.values = values


class SandboxError(AgentError):
    """No usable sandbox; the text names a remedy."""


class SandboxLimitError(SandboxError):
    """Programs in the sandbox exceeded its limits repeatedly."""


class McpServerError(AgentError):
    """An MCP server failed, or was unreachable (`down`)."""

    def __init__(self, message: str, *, down: bool = False) -> None:
        super().__init__(message)
        self.down = down


class BoundExceededError(AgentError):
    """Work on untrusted bytes exceeded its bound."""

    def __init__(self, message: str, *, bound: Literal["seconds", "memory", "result"]) -> None:
        super().__init__(message)
        self.bound: Literal["seconds", "memory", "result"] = bound


class ModelError(AgentError):
    """The model service failed after all retries."""


class ModelUnreachableError(ModelError):
    """The service sent no reply that can be read."""


class ModelOutageError(ModelUnreachableError):
    """The service is down, overloaded, rate-limited or `offline` from here; retry after so many seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None, offline: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.offline = offline


class ModelRejectedError(ModelError):
    """The service refused permanently: bad key, unknown model, no credit."""


class ModelRefusedError(ModelError):
    """The model or a content filter declined to answer."""


class ContextOverflowError(ModelRejectedError):
    """The conversation exceeds the model's context window."""


class ScriptError(ModelError):
    """A conversation left the script of a `scripted` provider."""


class Interrupt(Exception):  # noqa: N818 - not an error: a message to the model that travels as an exception
    """Stops a step; its text is the model's next message."""

    is_escape = False
    """Whether control code tried to leave the interpreter."""


FormatCode = Literal[
    "truncated",
    "payload_count",
    "multiple_control",
    "completion_first",
    "control_syntax",
    "missing_tool",
    "ambiguous",
    "filename_mismatch",
    "empty",
]


class FormatError(Interrupt):
    """A reply that violates the protocol; `reason` replaces the transport's text for people."""

    def __init__(self, code: FormatCode, message: str, *, reason: str = "", is_escape: bool = False) -> None:
        super().__init__(message)
        self.is_escape = is_escape
        self.reason = reason
        self.code: FormatCode = code


class ControlError(Interrupt):
    """Traceback of an exception from the control block."""


class LimitError(Interrupt):
    """A step exceeded a limit; the text names it."""


class Suspend(Exception):  # noqa: N818 - not an error: an answer that is still missing
    """Raised by `CallTool` to suspend the step."""


class ToolError(Exception):
    """A failed tool call, which the control block may catch as `kind`; `value` is for the host's record."""

    def __init__(self, message: str, *, kind: ToolErrorKind = "RuntimeError", value: object = None) -> None:
        super().__init__(message)
        self.kind: ToolErrorKind = kind
        self.value = value


ToolErrorKind = Literal[
    "RuntimeError",
    "ValueError",
    "TypeError",
    "FileNotFoundError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
    "TimeoutError",
    "OSError",
]


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a hint for an unknown word: the closest known one, then all."""
    names = sorted(choices)
    matches = get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {matches[0]!r}? " if matches else ""
    return f"{hint}Known: {', '.join(names)}."
