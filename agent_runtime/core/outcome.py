"""The outcome of a run: its status and its usage. Pure values."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Literal

from typing_extensions import override

from agent_runtime.core.calls import Plain


class Status(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """A completion block, and its step succeeded."""
    ANSWERED = "answered"
    """A conversational reply without a control block (chat only)."""
    PAUSED = "paused"
    """A call waits for a person; `pending` says which, and `resume` goes on at it."""
    STOPPED = "stopped"
    """Someone stopped it."""
    MAX_STEPS = "max_steps"
    """The step limit was reached first."""
    MAX_TOKENS = "max_tokens"
    """The token budget was reached first."""
    MAX_COST = "max_cost"
    """The budget of money was reached first."""
    TIMEOUT = "timeout"
    """The time limit was reached first."""
    REPEATED_CALLS = "repeated_calls"
    """The same call was made over and over, to the same end."""
    FORMAT_ERRORS = "format_errors"
    """Several replies in a row could not be understood."""
    INVALID_OUTPUT = "invalid_output"
    """The completion did not fit the task's output schema, however often it was asked for again."""
    FAILED = "failed"
    """The model service failed; `reason` says how."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox could not be started, or its programs went over its limits again and again; `reason` says which."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model service is down; `reason` says how. The run is not over: `resume` asks it again."""
    NETWORK_LOST = "network_lost"
    """The network that the run was given went away; `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What model calls used, summed over a run.

    Attributes:
        requests: model requests answered.
        input_tokens: tokens sent that were neither read from nor written to the provider's cache.
        cached_tokens: tokens read from the provider's cache.
        cache_write_tokens: tokens written to the provider's cache.
        output_tokens: tokens received, reasoning included.
        cost_usd: US dollars, or None when a model's price is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Sum two usages; an unknown cost makes the sum unknown."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )

    @property
    def total_tokens(self) -> int:
        """All tokens, sent and received."""
        return self.input_tokens + self.cached_tokens + self.cache_write_tokens + self.output_tokens


PendingKind = Literal["permission", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """The one tool call that waits for a person.

    Attributes:
        request_id: names this request in answers to it; random, 8 hexadecimal digits.
        kind: `permission` for a call that may only be made when somebody approves, `question` for `ask_user`.
        tool: the tool's name.
        args: by parameter name, whole; plain data.
        reason: why it waits, e.g. the rule that asks; for a question, the question.
        preview: what the call would do, whole, as text for people: a diff for a write, the command for a shell. Empty
            where that is too long; such a call never waits.
        workspace: a hash over the workspace's files, as they were when the call was shown.
    """

    request_id: str
    kind: PendingKind
    tool: str
    args: dict[str, Plain]
    reason: str
    preview: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one run, or of one leg of a run that paused. As text it is the summary, or else the reason.

    Attributes:
        status: how it ended.
        summary: the completion or answer, else None.
        reason: for every ending but `finished` and `answered`: why, and what to do.
        pending: for `paused`: the call that waits.
        steps: steps taken.
        usage: what the model calls used.
        seconds: wall time.
        retry_after: for `model_unavailable`: the seconds that the service asked to be left alone, if it said.
        output_json: for a task with an output schema that is `finished`: the result as compact JSON, else empty.
    """

    status: Status
    summary: str | None = None
    reason: str | None = None
    pending: PendingCall | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    retry_after: float | None = None
    output_json: str = ""

    @property
    def structured_output(self) -> Plain:
        """The result of a task with an output schema, as data; None without one."""
        found: Plain = json.loads(self.output_json) if self.output_json else None
        return found

    def to_dict(self) -> dict[str, Plain]:
        """All of it as plain data, which JSON takes."""
        data: dict[str, Plain] = asdict(self)
        return data | {"status": self.status.value}

    @override
    def __str__(self) -> str:
        """The text for the person who asked."""
        return self.summary or self.reason or ""

    @override
    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal. A text is never equal, and who compares with one is warned."""
        if isinstance(other, str):
            told = "An Outcome never equals a text; compare its `summary`, which is None unless the run has finished."
            warnings.warn(told, stacklevel=2)
        return isinstance(other, Outcome) and all(
            getattr(self, each.name) == getattr(other, each.name) for each in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # `pending` has a dictionary
