"""Events of a run.

A session's log holds `Recorded` events (`agent_runtime.sessions.codec`); watchers also get `Live` ones. A new field of
a recorded event needs a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.core.values import Connection, Outcome, PendingCall, Plain, Task, ToolAnswer, ToolRequest, Usage

Role = Literal["user", "assistant"]

TICK_SECONDS = 0.01
"""Maximum lag of file times behind the kernel's clock. After a pause of this length (`Agent.separates_commands`), a
file's time shows whether a command saw a write.
"""

SERVER_DOWN = "server_down"
"""Key in a failed call's value: the name of the unreachable MCP server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run began with the model's first message.

    Attributes:
        run_id: kept across pauses.
        python_path: import root of the project, relative to the commands' directory.
    """

    task: Task
    opening: str
    run_id: str = ""
    facts: tuple[str, ...] = ()
    indexed: bool = False
    python_path: str = ""


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
class StepStarted:
    """A model request is about to be sent."""

    step: int
    max_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """Text for people, a completion only if it counts."""

    text: str
    completion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReset:
    """The reply broke off and is requested again; discard the step's streamed text."""

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
class ModelAwaited:
    """The model service does not answer; the next attempt follows after a pause."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBroken:
    """A reply broke off and is requested again; `usage` is an estimate."""

    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool is about to run."""

    number: int
    tool: str
    args: dict[str, Plain]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed:
    """Progress of a running tool."""

    number: int
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """The host's record of a tool call, with long texts cut.

    Attributes:
        value: result in the control block, or details of a failure.
        text: result for the model.
    """

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
class MessageQueued:
    """A message for the agent that is not yet in the conversation."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInjected:
    """A queued message entered the conversation."""

    step: int
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A message of an imported history."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The run waits for a person; `signature` is an HMAC over the opaque `state`."""

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
class Parked:
    """The run waits between steps for an unavailable model service."""

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
class Refused:
    """A call denied by the policy, or a rejected block."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """A failure that does not end the run, e.g. of a control block."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUsed:
    """A connection of a sandboxed program ended or was refused."""

    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLost:
    """The sandbox's network is gone; the run ends after its step."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReset:
    """The session was emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWithdrawn:
    """A completion was rejected: its step failed, or its output is invalid."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over."""

    outcome: Outcome


Recorded = (
    Started
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
