"""Events of a run.

A session's log holds `Recorded` events (`agent_runtime.sessions.codec`); watchers also get `Live` ones. A new field of
a recorded event needs a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, Literal

from typing_extensions import override

from agent_runtime.core.values import (
    Connection,
    Outcome,
    PendingCall,
    Plain,
    Status,
    Task,
    ToolAnswer,
    ToolRequest,
    Usage,
)

Role = Literal["user", "assistant"]

TICK_SECONDS = 0.01
"""Maximum lag of file times behind the kernel's clock. After a pause of this length (`Agent.separates_commands`), a
file's time shows whether a command saw a write.
"""

SERVER_DOWN = "server_down"
"""Key in a failed call's value: the name of the unreachable MCP server."""


class EventType(StrEnum):
    """Event types, with the keyword arguments of their handlers. Accept `**_`: later versions may add arguments."""

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
    """error: the model service, the sandbox, its network, a reply or a control block failed; no syntax errors."""
    COMPLETION = "completion"
    """completion: before it ends the run; a handler returns an objection for the model, at most twice in a run."""
    COMPLETION_WITHDRAWN = "completion_withdrawn"
    """step: a completion, not streamed, does not count: its step or a command in it failed, or it was not accepted."""
    FINISH = "finish"
    """summary: the task is done; the completion, or for an answer `Agent replied. Standing by for next task.`"""
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


HookCall = tuple[EventType, dict[str, object]]


class Announced:
    """An event with handlers; `argument=attribute` renames."""

    __slots__ = ()
    HOOK: ClassVar[EventType]
    ARGUMENTS: ClassVar[str] = ""

    def hook_calls(self) -> Iterable[HookCall]:
        names = [argument.partition("=") for argument in self.ARGUMENTS.split()]
        return [(self.HOOK, {name: attrgetter(path or name)(self) for name, _, path in names})]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Announced):
    """A run began with the model's first message.

    Attributes:
        run_id: kept across pauses.
        python_path: import root of the project, relative to the commands' directory.
    """

    HOOK = EventType.START
    ARGUMENTS = "task=task.goal"

    task: Task
    opening: str
    run_id: str = ""
    facts: tuple[str, ...] = ()
    indexed: bool = False
    python_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTaken:
    """Tests that failed before the agent began, with digests of their files; none of those that the task is about."""

    failures: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionsShown:
    """The model was shown the maintainers' instructions; `incomplete` files were cut or left out.

    Attributes:
        text: empty if it is in the first message.
    """

    paths: tuple[str, ...]
    incomplete: tuple[str, ...] = ()
    nonce: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    """A tool of an MCP server, named `served_as` there; texts are cleaned and cut."""

    name: str
    served_as: str
    description: str
    parameters: dict[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsListed:
    """The tools of an MCP server for the rest of the session."""

    server: str
    tools: tuple[ServedTool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Announced):
    """A model request is about to be sent."""

    HOOK = EventType.STEP
    ARGUMENTS = "step max_steps"

    step: int
    max_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed(Announced):
    """Text for people, a completion only if it counts."""

    HOOK = EventType.STREAM
    ARGUMENTS = "text"

    text: str
    completion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReset(Announced):
    """The reply broke off and is requested again; discard the step's streamed text."""

    HOOK = EventType.STREAM_RESET
    ARGUMENTS = "attempt"

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's complete reply; `reasoning` is opaque data to send back."""

    step: int
    text: str
    usage: Usage
    requests: tuple[ToolRequest, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAwaited(Announced):
    """The model service does not answer; the next attempt follows after a pause."""

    HOOK = EventType.MODEL_AWAITED
    ARGUMENTS = "reason seconds"

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBroken:
    """A reply broke off and is requested again; `usage` is an estimate."""

    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(Announced):
    """A tool is about to run."""

    HOOK = EventType.TOOL_CALL
    ARGUMENTS = "tool args label number"

    number: int
    tool: str
    args: dict[str, Plain]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed(Announced):
    """Progress of a running tool."""

    HOOK = EventType.TOOL_PROGRESS
    ARGUMENTS = "tool text number"

    number: int
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned(Announced):
    """The host's record of a tool call, with long texts cut.

    Attributes:
        value: result in the control block, or details of a failure.
        text: result for the model.
    """

    HOOK = EventType.TOOL_RESULT
    ARGUMENTS = "tool result=text args ok value seconds number"

    number: int
    tool: str
    args: dict[str, Plain]
    value: Plain
    text: str
    ok: bool
    seconds: float
    label: str
    ended: float = 0.0

    @property
    def server_down(self) -> str:
        """Name of the MCP server that was unreachable; else empty."""
        details = self.value if isinstance(self.value, dict) and not self.ok else {}
        return str(details.get(SERVER_DOWN, ""))

    @property
    def file_time(self) -> float:
        """Lower bound of the times of files that are written later."""
        return self.ended - TICK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The output of a step for the model, after the `answers`."""

    step: int
    text: str
    ok: bool
    unfit: bool = False
    withdrew: bool = False
    answers: tuple[ToolAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(Announced):
    """A message for the agent that is not yet in the conversation."""

    HOOK = EventType.USER_MESSAGE_QUEUED
    ARGUMENTS = "message=text"

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInjected(Announced):
    """A queued message entered the conversation."""

    HOOK = EventType.USER_MESSAGE_INJECTED
    ARGUMENTS = "message=text"

    step: int
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A message of an imported history."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Announced):
    """The run waits for a person; `signature` is an HMAC over the opaque `state`."""

    HOOK = EventType.PAUSED
    ARGUMENTS = "pending"

    pending: PendingCall
    state: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The person answered, by `note` for a question."""

    request_id: str
    approved: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(Announced):
    """The run waits between steps for an unavailable model service."""

    HOOK = EventType.RUNTIME_ERROR
    ARGUMENTS = "error=reason"

    reason: str
    retry_after: float | None = None
    seconds: float = 0.0
    files: dict[str, str | None] = field(default_factory=dict)
    terminals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The run resumed after its process died during a step; `text` tells the model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """A summary replaced a finished task, the session's nth `Started`."""

    task: int
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """The agent restored an archived task to the conversation."""

    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The conversation was shortened."""

    tasks: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """A summary replaced the conversation up to a log position."""

    upto: int
    text: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecorded:
    """An event of a child run's log, nested for deeper children."""

    task: str
    event: Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """Changes of a finished child run in its workspace copy; `lines` is None if unknown."""

    task: str
    changes: tuple[str, ...]
    diff: str
    lines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWatched:
    """A live event of a child run."""

    task: str
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked:
    """A call waits for approval by the handlers."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A question to the user waits for the handlers."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Announced):
    """A call denied, or an attempt to reach the host."""

    HOOK = EventType.SECURITY_ERROR
    ARGUMENTS = "error"

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted(Announced):
    """A failure that does not end the run, e.g. of a control block."""

    HOOK = EventType.RUNTIME_ERROR
    ARGUMENTS = "error"

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUsed(Announced):
    """A connection of a sandboxed program ended or was refused."""

    connection: Connection

    @override
    def hook_calls(self) -> Iterable[HookCall]:
        error = f"network: {self.connection}"
        return [] if self.connection.allowed else [(EventType.SECURITY_ERROR, {"error": error})]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLost(Announced):
    """The sandbox's network is gone; the run ends after its step."""

    reason: str

    @override
    def hook_calls(self) -> Iterable[HookCall]:
        return [(EventType.RUNTIME_ERROR, {"error": f"The sandbox has lost its network: {self.reason}."})]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReset(Announced):
    """The session was emptied."""

    HOOK = EventType.SESSION_RESET


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWithdrawn(Announced):
    """A completion was rejected: its step or a command in it failed, or its output is invalid."""

    HOOK = EventType.COMPLETION_WITHDRAWN
    ARGUMENTS = "step"

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Announced):
    """The run is over."""

    outcome: Outcome

    @override
    def hook_calls(self) -> Iterable[HookCall]:
        match self.outcome.status:
            case Status.FINISHED:
                yield EventType.FINISH, {"summary": self.outcome.summary}
            case Status.ANSWERED:
                yield EventType.FINISH, {"summary": "Agent replied. Standing by for next task."}
            case Status.MAX_STEPS:
                yield EventType.MAX_STEPS, {}
            case Status.FAILED | Status.SANDBOX_FAILED:
                yield EventType.RUNTIME_ERROR, {"error": self.outcome.reason}
            case _:
                pass
        yield EventType.END, {"outcome": self.outcome}


Recorded = (
    Started
    | BaselineTaken
    | InstructionsShown
    | ToolsListed
    | Replied
    | ReplyBroken
    | ToolReturned
    | Observed
    | MessageInjected
    | Imported
    | Paused
    | Parked
    | Resumed
    | Recovered
    | Archived
    | Revealed
    | Shrunk
    | Summarised
    | ChildRecorded
    | ChildResult
    | Ended
)
"""Events of a session's log."""

Live = (
    StepStarted
    | Streamed
    | StreamReset
    | ModelAwaited
    | ToolCalled
    | ToolProgressed
    | MessageQueued
    | PermissionAsked
    | QuestionAsked
    | Refused
    | Faulted
    | NetworkUsed
    | NetworkLost
    | ChildWatched
    | SessionReset
    | CompletionWithdrawn
)
"""Events for watchers only."""

Event = Recorded | Live
