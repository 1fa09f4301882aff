"""The events of a run.

The log of a session is a list of `Recorded` events, which `agent_runtime.sessions.codec` writes and reads; watchers
of a run get these and the `Live` ones. A field that is added to a recorded event needs a default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent_runtime.core.values import Connection, Outcome, PendingCall, Plain, Task, ToolAnswer, ToolRequest, Usage

Role = Literal["user", "assistant"]

TICK_SECONDS = 0.01
"""How far the times that the kernel gives to files may lag behind its clock, in seconds. Where a command begins that
much later than what was written before it (`Agent.separates_commands`), the time of a file tells whether it saw it."""

SERVER_DOWN = "server_down"
"""The key of a failed call's value that names the MCP server which was not there to answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run began. Recorded.

    Attributes:
        task: the task.
        opening: the first message of the run as the model reads it: goal, quotes, orientation.
        run_id: names the run; random. A paused run keeps it when it goes on.
        facts: the caller's statements about the workspace, one line each.
        indexed: whether the code index was ready for the first message.
        python_path: the directory, from where commands start, in which Python has to look for the project's modules.
    """

    task: Task
    opening: str
    run_id: str = ""
    facts: tuple[str, ...] = ()
    indexed: bool = False
    python_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTool:
    """A tool of an MCP server, as the model knows it.

    Attributes:
        name: how it is called.
        served_as: the server's own name for it.
        description: what the server says of it: one line, cleaned and cut.
        parameters: the JSON schema of its arguments, cleaned and cut.
    """

    name: str
    served_as: str
    description: str
    parameters: dict[str, Plain]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsListed:
    """The tools of an MCP server, for the rest of the session. Recorded.

    Attributes:
        server: its name.
        tools: those that the agent has.
    """

    server: str
    tools: tuple[ServedTool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A model request is about to be sent. Live only."""

    step: int
    max_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """Some text for people: prose before the control block, or completion text. Live only.

    The completion of a reply that makes calls is told after them, whole, and only if it counts.
    """

    text: str
    completion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReset:
    """The text streamed in this step is void: the reply broke off and is being asked for again. Live only."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's whole reply, verbatim. Recorded.

    Attributes:
        requests: the calls that it asks for by the service's own tool calls.
        reasoning: what the service wants back with it, opaque; see `ReplyEnd`.
    """

    step: int
    text: str
    usage: Usage
    requests: tuple[ToolRequest, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAwaited:
    """The model service does not answer, and is asked again in a while. Live only.

    Attributes:
        reason: what went wrong last.
        seconds: how long the pause is.
    """

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBroken:
    """A reply broke off after the service had begun to work on it; it is asked for again. Recorded.

    Attributes:
        reason: what went wrong.
        usage: an estimate of what the service has charged for it.
    """

    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool is about to run. Live only."""

    number: int
    tool: str
    args: dict[str, Plain]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed:
    """A tool that is running says how far it is. Live only."""

    number: int
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """A tool has run. Recorded: the host's own account of what was done, with the middle of long texts left out.

    Attributes:
        value: what the control block got; when the call raised, what is known of the failure, or None.
        text: the result as the model would read it, or the error's text.
        ok: False when the call raised.
        label: a few words for people watching.
        ended: when, in seconds since 1970.
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
        """The MCP server that was not there to answer the call; empty for every other call."""
        known = self.value if isinstance(self.value, dict) and not self.ok else {}
        return str(known.get(SERVER_DOWN, ""))

    @property
    def file_time(self) -> float:
        """When it ended, to be compared with the times of files: none that is written later has an earlier one."""
        return self.ended - TICK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The output of a step, as the model reads it next. Recorded.

    Attributes:
        ok: whether nothing was raised.
        unfit: whether the step would have ended the task, but its completion does not fit the output schema.
        withdrew: whether its completion was withdrawn because it failed; an empty one repeats that.
        answers: to the reply's requests; the text stands behind them.
    """

    step: int
    text: str
    ok: bool
    unfit: bool = False
    withdrew: bool = False
    answers: tuple[ToolAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued:
    """Someone sent a message to the agent; it is not in the conversation yet. Live only."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInjected:
    """A message that was sent to the agent entered the conversation, at the start of a step. Recorded.

    Attributes:
        step: at whose start.
        text: the message.
        id: what its sender calls it; empty when they did not say.
    """

    step: int
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A message of an imported history, which no run of this library made. Recorded."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The run waits for a person. Recorded.

    Attributes:
        pending: the call that waits, and how it is shown to people.
        state: all that is needed to go on at that call in another process; opaque text.
        signature: HMAC over `state`, hexadecimal; a state without its signature is never gone on with.
    """

    pending: PendingCall
    state: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The person has answered; the run goes on. Recorded, before the call is made.

    Attributes:
        request_id: which request was answered.
        approved: whether the call may be made; for a question, whether there is an answer.
        note: what the person said with it: the answer to a question, or the reason of a denial.
    """

    request_id: str
    approved: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The run waits for a model service that is down, between two steps. Recorded.

    Attributes:
        reason: what the service said last, or that it said nothing.
        retry_after: seconds it asked to be left alone, if it said.
        seconds: wall time that the run has used.
        files: the files that the agent knows, and their versions.
        terminals: names of the terminals that were alive.
    """

    reason: str
    retry_after: float | None = None
    seconds: float = 0.0
    files: dict[str, str | None] = field(default_factory=dict)
    terminals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The run went on after its process had died in the middle of a step. Recorded.

    Attributes:
        text: what the model is told.
    """

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The agent put a finished task aside. Recorded.

    Attributes:
        task: the task's number: the first `Started` of a session is task 1.
        summary: what stands in its place from now on.
    """

    task: int
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """The agent took an archived task back into the conversation. Recorded."""

    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The conversation was made shorter; requests after this one begin with another prefix. Recorded.

    What is left out is decided once and kept here, so that a log always tells the same conversation.

    Attributes:
        tasks: numbers of the archived tasks whose summaries replace them from now on.
        outputs: positions in the log of `Observed` events whose text is replaced by a note of what they held.
        reason: why it was worth it, for people.
    """

    tasks: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarised:
    """The oldest part of the conversation was replaced by a summary that the model wrote. Recorded.

    Attributes:
        upto: position in the log; events before it are told by `text` alone.
        text: the summary.
        usage: what the request for it used.
    """

    upto: int
    text: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecorded:
    """An event in the log of a child run, except that it paused. Recorded.

    Attributes:
        task: the delegated task that the child run works on.
        event: the event; of a child's own child, another one of this kind.
    """

    task: str
    event: Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """A child run is over, and this is what it changed in its copy of the workspace. Recorded.

    Attributes:
        task: the delegated task.
        changes: each file that it changed, and how.
        diff: the same as a unified diff, cut at a bound.
        lines: how many lines it added and removed; None where that is not known, e.g. for what is no text.
    """

    task: str
    changes: tuple[str, ...]
    diff: str
    lines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWatched:
    """An event of a child run that is not recorded. Live only."""

    task: str
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked:
    """A call waits for approval, and handlers are asked. Live only."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """The agent asks the user something, and handlers are asked for the answer. Live only."""

    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An attempt that is not allowed: a call that the policy denies, a block that is not run. Live only."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """A failure that does not end the run, e.g. a control block that raised. Live only."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUsed:
    """A connection that a program in the sandbox asked for is over, or was refused. Live only."""

    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLost:
    """The network of the sandbox has gone away; what programs ask for there is refused by the kernel. Live only.

    The run ends with its step: as `finished` when that finishes the task, else as `network_lost`.

    Attributes:
        reason: why, for people.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReset:
    """The session was emptied. Live only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWithdrawn:
    """A completion does not count: its step failed, or it does not fit the output schema. Live only."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over. Recorded."""

    outcome: Outcome


Recorded = (
    Started
    | ToolsListed
    | Replied
    | ReplyBroken
    | ToolReturned
    | Observed
    | MessageInjected
    | Told
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
"""The events of a session's log."""

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
"""The events that only watchers get."""

Event = Recorded | Live
