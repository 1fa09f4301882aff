"""One job with its client, its record and its services; and how it ended."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256

from agent_runtime import Status
from bot.domain.job import Job, JobState
from bot.engine.job_record import StoredRecord
from bot.engine.protocols import JobEngine, Ledger
from bot.gate.decision import Refusal
from bot.github import GitHub, GitHubError, Reaction, ReviewDraft, Spot, Urgency
from bot.jobs.phases import Phases
from bot.jobs.services import JobServices
from bot.jobs.snapshot_cache import AccessChecks
from bot.publishing.view import StatusView

log = logging.getLogger(__name__)


def spot_of(job: Job) -> Spot:
    """Where the job is answered: in the thread about the lines that it came from, else below the issue."""
    if job.origin.kind == "review_comment":
        return Spot(kind="review_thread", number=job.thread.number, root=job.origin.root or job.origin.id)
    return Spot(kind="thread", number=job.thread.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortReply:
    """A short answer in a comment of its own.

    Attributes:
        text: Markdown; rendering makes it harmless.
        refused: whether it says no.
    """

    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended, or that it waits now; no view for what nobody is to be told in words.

    Attributes:
        state: the state it goes to.
        reason: why, for the queue and the log.
        view: what its comment says.
        until: for `WAITING`: when it is too late to answer, or when the job is tried again, in seconds since the epoch.
        request_id: for `WAITING`: the request that somebody has to answer; empty when the job waits for the model.
        status: how the agent's run ended, when there was one.
        patch: the change that was not published, when there is one.
        partial: whether that is only what was left out of what was published.
        review: the comments on lines that were made.
        proven: whether the asker is known to have access; else nobody is told before that is.
        misconfigured: whether it failed for a permission that the bot does not have.
        output_json: the result that fits the operator's output schema, as compact JSON, where one was asked for.
    """

    state: JobState
    reason: str = ""
    view: StatusView | ShortReply | None = None
    until: float = 0.0
    request_id: str = ""
    status: Status | None = None
    patch: str = ""
    partial: bool = False
    review: ReviewDraft | None = None
    proven: bool = True
    misconfigured: bool = False
    output_json: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContextFactory:
    """Makes the context of each job from what all jobs have in common.

    Attributes:
        services: what all jobs share.
        queue: where they come from.
        ledger: what is kept of threads beside their jobs.
        github_for: the client that may act for a job.
        access_checks: what was asked of GitHub for jobs that are about to begin.
        ended: told how each job ended, or that it waits, before people are.
    """

    services: JobServices
    queue: JobEngine
    ledger: Ledger
    github_for: Callable[[Job], GitHub]
    access_checks: AccessChecks = field(default_factory=AccessChecks)
    ended: Callable[[Ending], None] = lambda _ending: None

    @asynccontextmanager
    async def opened(self, job: Job) -> AsyncIterator[JobContext]:
        """The context of a job, with a client that acts for it until the body ends."""
        async with self.github_for(job) as github:
            if job.lane == "steer":
                github.hurry(Urgency.ANSWER)
            context = JobContext(
                job=job,
                services=self.services,
                github=github,
                queue=self.queue,
                ledger=self.ledger,
                record=StoredRecord(self.queue, job.id),
                access_checks=self.access_checks,
                marker=self.services.marker(job),
            )
            with context.phases:
                yield context


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """One job with all that is needed to run it.

    Attributes:
        job: the job.
        services: what all jobs share.
        github: the client that may act for it.
        queue: where it came from, and the other jobs of its thread are.
        ledger: what is kept of threads beside their jobs.
        record: what this job has done so far.
        access_checks: what was asked of GitHub for jobs that are about to begin.
        marker: the signed mark of its comment.
        phases: what is being done for it.
    """

    job: Job
    services: JobServices
    github: GitHub
    queue: JobEngine
    ledger: Ledger
    record: StoredRecord
    access_checks: AccessChecks
    marker: str
    phases: Phases = field(default_factory=Phases)

    @property
    def spot(self) -> Spot:
        """Where in the thread the job is answered."""
        return spot_of(self.job)

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer what a run asks: in a thread, to a bot that is still there then."""
        return self.services.can_wait and self.job.thread.has_comments

    @property
    def kept(self) -> str:
        """Where the patch of work that was not published is, for the comment."""
        if not self.services.comes_back:
            return "The patch is in the summary of this workflow run."
        where = "attached to the check run, and " if self.services.checks else ""
        return (
            f"The patch is {where}stored by the operator for {self.services.keep_days} days, as `{self.job.id}.patch`."
        )

    def about(self, other: Job) -> JobContext:
        """Another job, with the client of this one."""
        return replace(self, job=other, record=self.of(other), marker=self.services.marker(other))

    def of(self, other: Job) -> StoredRecord:
        """What another job has done so far."""
        return StoredRecord(self.queue, other.id)

    async def react(self, content: Reaction) -> bool:
        """Answer the command with a reaction. It may be deleted by now; no job fails, and nobody is told, for that.

        Returns:
            Whether it is there, or there is nothing to react to.
        """
        origin = self.job.origin
        if origin.kind not in {"comment", "review_comment", "description"}:
            return True
        try:
            await self.github.comments.react(self.job.repo.full_name, self.spot, origin.id, content)
        except GitHubError as error:
            log.warning("no reaction: %s", error)
            return False
        return True

    async def void(self, names: Iterable[str]) -> None:
        """Take labels off that count no more; they raise nothing, whether GitHub does it or not."""
        repo, number = self.job.repo, self.job.thread.number
        for name in names:
            await self.ledger.drop_label(repo.id, number, name)
            try:
                await self.github.threads.remove_label(repo.full_name, number, name)
            except GitHubError as error:
                log.warning("the label %s was not removed: %s", name, error)

    async def refuse(self, refusal: Refusal) -> Ending:
        """Refuse the request: in one short reply, at most once per cause and hour in a thread; else by a reaction."""
        which = sha256(refusal.because.encode()).hexdigest()[:16] if refusal.because else ""  # it may be long
        told = (self.job.repo.id, self.job.thread.key, f"{refusal.cause} {which}".rstrip())
        await self.void(refusal.voided)
        silent = refusal.silent or self.job.is_unasked
        if silent and self.job.origin.kind == "description":
            # A template may hold the command, and put it into every stranger's issue.
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        if silent or not await self.ledger.may_tell(*told, by=self.job.id):
            await self.react("confused")
            return Ending(state=JobState.REFUSED, reason=refusal.reason)
        view = ShortReply(text=refusal.reason, refused=True)
        return Ending(state=JobState.REFUSED, reason=refusal.reason, view=view)
