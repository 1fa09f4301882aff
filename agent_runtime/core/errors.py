"""The errors that the library raises on purpose.

`SettingsError` is the caller's fault, `ModelError` the model service's, `SandboxError` the machine's. An `Interrupt` is
no fault: its text is the next message that the model reads. Anything else that escapes a run is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Literal


class AgentError(Exception):
    """Base of all errors that leave the library."""


class SettingsError(AgentError):
    """The caller's settings cannot work; the text names the setting and the remedy."""


class UsageError(AgentError):
    """A call in a place where it cannot work, e.g. a blocking one inside an event loop."""


class SessionError(AgentError):
    """The store of a session cannot be read or written, or another process works on the session."""


class SessionInUseError(SessionError):
    """Another process works on the session, or this one does elsewhere."""


class SessionUnavailableError(SessionError):
    """The database of the session cannot be used now; nothing in it was changed."""


class SessionNewerError(SessionError):
    """A newer version wrote the session; nothing of it was changed."""


class SessionDamagedError(SessionError):
    """The stored session cannot be read; nothing of it was changed."""


class ResumeCode(Enum):
    """Why a paused run cannot be resumed, with the text of the error."""

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
    """A paused run cannot be resumed: nothing waits, it was answered already, or something was altered since.

    Attributes:
        code: why.
        values: what its text names.
    """

    def __init__(self, code: ResumeCode, **values: object) -> None:
        super().__init__(code.value.format(**values))
        self.code = code
        self.values = values


class SandboxError(AgentError):
    """No sandbox, or it broke; the text names what is missing and the command that fixes it."""


class SandboxLimitError(SandboxError):
    """Programs in the sandbox exceeded its limits again and again; the text says which and how often."""


class McpServerError(AgentError):
    """An MCP server cannot be used, or a call of it failed; the text names the server and may quote it.

    Attributes:
        down: whether the server was not there to answer the call.
    """

    def __init__(self, message: str, *, down: bool = False) -> None:
        super().__init__(message)
        self.down = down


class BoundExceededError(AgentError):
    """Work on untrusted bytes exceeded its bound of time or memory; the text names the work and the bound.

    Attributes:
        bound: the bound; `result` if the result was too large.
    """

    def __init__(self, message: str, *, bound: Literal["seconds", "memory", "result"]) -> None:
        super().__init__(message)
        self.bound: Literal["seconds", "memory", "result"] = bound


class ModelError(AgentError):
    """The model service failed and trying again did not help."""


class ModelUnreachableError(ModelError):
    """The service gave no whole reply, and every retry failed too."""


class ModelOutageError(ModelUnreachableError):
    """The service is down, overloaded or limits its callers: waiting may help, and the same request may be sent again.

    Attributes:
        retry_after: seconds the service asked to be left alone, if it said.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRejectedError(ModelError):
    """The service refused the request for good: a bad key, an unknown model, too long a context, no credit."""


class ModelRefusedError(ModelError):
    """The model declined to answer (a content filter or a refusal)."""


class ContextOverflowError(ModelRejectedError):
    """The conversation is longer than the model takes."""


class ScriptError(ModelError):
    """A conversation left the script that a `scripted` provider replays."""


class Interrupt(Exception):  # noqa: N818 - not an error: a message to the model that travels as an exception
    """Stops a step; its text is the next message the model reads."""


FormatCode = Literal[
    "truncated",
    "payload_count",
    "multiple_control",
    "completion_first",
    "control_syntax",
    "ambiguous",
    "filename_mismatch",
    "empty",
]


class FormatError(Interrupt):
    """A reply that does not follow the protocol; nothing in it was run.

    Attributes:
        code: which rule was broken, one of `FormatCode`.
    """

    def __init__(self, code: FormatCode, message: str) -> None:
        super().__init__(message)
        self.code: FormatCode = code


class ControlError(Interrupt):
    """The control block raised and did not catch it; the text is its traceback."""


class LimitError(Interrupt):
    """A step went over a limit (time, memory, calls, bytes); the text names which and its value."""


class Suspend(Exception):  # noqa: N818 - not an error: an answer that is still missing
    """Raised by `CallTool` in place of an answer: suspend the step at this call. Control code never sees it."""


class ToolError(Exception):
    """A failed tool call, raised in the control block, which may catch it.

    Attributes:
        kind: the name of the Python exception that the control block sees.
        value: plain data about the failure for the host's record, e.g. a failed command's exit code.
    """

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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the most similar known one, then all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names)}."
