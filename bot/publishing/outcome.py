"""The outcome of a job (`JobOutcome`), and its publication on GitHub (`Published`).

The comment, the check run, the queue and the end of a workflow's step are made from a `JobOutcome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from typing_extensions import override

from agent_runtime import Outcome
from bot.domain.job import JobState
from bot.git.change import FileChange
from bot.github.types import PullLink, ReviewDraft
from bot.publishing.checks import Verdict

OmissionCause = Literal[
    "branch-moved",
    "conflicts",
    "default-branch",
    "denied",
    "edited",
    "large-file",
    "left-out",
    "needs-approval",
    "no-pull-request",
    "no-reversal",
    "other-commit",
    "published-already",
    "read-only",
    "refused",
    "secret",
    "too-large",
    "unfinished",
    "unproven",
    "weak-proof",
    "workflows",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """Reason to withhold a part of a publication."""

    cause: OmissionCause
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRef:
    sha: str
    branch: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A job's publications; the job's record stores the part that is on GitHub.

    Attributes:
        onto: commit of the latest replay of the change.
        review_requested: set before the request, whose response may be lost.
        wip_url: comparison page of a branch without a pull request.
        replayed: whether the change was applied to other files.
    """

    commit: CommitRef | None = None
    pull: PullLink | None = None
    onto: str | None = None
    review_requested: bool = False
    review_url: str | None = None
    wip_url: str = ""
    withheld: Omission | None = None
    note: str = ""
    replayed: bool = False
    dry_run_note: str = ""


ActionState = Literal["proposed", "waiting", "applied", "denied", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """A proposal of the agent, and its result.

    Attributes:
        sentence: plain text that names the action.
        note: the reason that it was not applied, or the name of what it created.
        url: of what it created.
    """

    number: int
    sentence: str
    state: ActionState = "proposed"
    note: str = ""
    url: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the agent wanted more than was done, and no person denied it."""
        return self.state in {"refused", "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingView:
    """A request that waits for a user's answer.

    Attributes:
        part_urls: comments with a preview too long for the status comment.
        like: patterns of further calls that an approval could allow.
        takes_replies: whether a comment without a command can answer.
    """

    kind: Literal["permission", "question", "publication", "plan", "actions"]
    request_id: str
    trigger: str
    reason: str = ""
    preview: str = ""
    part_urls: tuple[str, ...] = ()
    language: Literal["diff", "bash", ""] = ""
    like: tuple[str, ...] = ()
    expires: str = ""
    takes_replies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Facts of every outcome.

    Attributes:
        reply: a short answer in Markdown, in place of the status comment.
        is_silent: whether nothing is reported, unless people already see the job.
        run: the agent's outcome, if it ran.
        completion: the agent's final text.
        patch: the unpublished change.
        partial: whether the published change was not checked without the withheld files.
        actions: the agent's proposals, if the run came to an end.
        leftovers: the patch of small files that build and test tools left.
        offer: the command that keeps a person's correction as a rule.
    """

    reason: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    reply: str = ""
    is_silent: bool = False
    run: Outcome | None = None
    completion: str | None = None
    files: tuple[FileChange, ...] = ()
    published: Published = field(default_factory=Published)
    review: ReviewDraft | None = None
    patch: str = ""
    partial: bool = False
    actions: tuple[ActionView, ...] = ()
    withheld_diff: str = ""
    leftovers: str = ""
    offer: str = ""

    @property
    def is_news(self) -> bool:
        """Whether something changed, was published or failed, or a person is needed."""
        return True

    @property
    def cause(self) -> str:
        """The reason in the queue and in a workflow: of the outcome, or of what a job without a run withheld."""
        withheld = self.published.withheld if self.run is None else None
        return self.reason or (withheld.reason if withheld else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(_Outcome):
    """The agent finished, or the command needed no agent; `verdict` is of a command that changes or tests."""

    state: ClassVar[JobState] = JobState.DONE
    verdict: Verdict | None = None

    @property
    @override
    def is_news(self) -> bool:
        is_red = self.verdict in {Verdict.RED, Verdict.SETUP_FAILED}
        return bool(self.reply or self.files or self.actions or is_red) or self.published != Published()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(_Outcome):
    """The job waits without a worker.

    Attributes:
        until: the deadline or the next attempt, in seconds since the epoch.
        pending: the request to a person; None while a service is unavailable.
        service: that is unavailable, such as `the model service`.
    """

    state: ClassVar[JobState] = JobState.WAITING
    until: float
    pending: PendingView | None = None
    service: str = ""

    @property
    @override
    def cause(self) -> str:
        return self.reason or (self.pending.reason if self.pending is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_Outcome):
    state: ClassVar[JobState] = JobState.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Outcome):
    """The job could not be done.

    Attributes:
        is_proven: whether the requester's access was checked; otherwise it is before the report.
        misconfigured: whether the bot lacked a permission.
    """

    state: ClassVar[JobState] = JobState.FAILED
    is_proven: bool = True
    misconfigured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(_Outcome):
    state: ClassVar[JobState] = JobState.STOPPED


JobOutcome = Finished | Waiting | Refused | Failed | Stopped

ENDED: Mapping[JobState, type[Finished | Refused | Failed | Stopped]] = {
    each.state: each for each in (Finished, Refused, Failed, Stopped)
}
