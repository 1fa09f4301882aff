"""What happened in a run, as values. The log of a session is a list of these; watchers get the same values live."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.outcome import Outcome, Usage
from agent_runtime.task import Task
from agent_runtime.tools.protocol import Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run began. Recorded.

    Attributes:
        task: what it was asked to do.
        opening: the first message of the run as the model reads it: goal, quotes, orientation.
    """

    task: Task
    opening: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A model request is about to be sent. Live only."""

    step: int
    max_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """Some text for people: prose before the control block, or completion text. Live only."""

    text: str
    completion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReset:
    """The text streamed in this step is void: the reply broke off and is being asked for again. Live only."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The model's whole reply, verbatim. Recorded."""

    step: int
    text: str
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
    """

    number: int
    tool: str
    args: dict[str, Plain]
    value: Plain
    text: str
    ok: bool
    seconds: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the step showed, as the model reads it next. Recorded."""

    step: int
    text: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWithdrawn:
    """Completion text was streamed, but its step failed, so it does not count. Live only."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over. Recorded."""

    outcome: Outcome


Event = (
    Started
    | StepStarted
    | Streamed
    | StreamReset
    | Replied
    | ToolCalled
    | ToolProgressed
    | ToolReturned
    | Observed
    | CompletionWithdrawn
    | Ended
)
