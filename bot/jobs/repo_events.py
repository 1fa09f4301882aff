"""Events of a repository that are not commands: dropped on receipt, or turned into jobs, stops and invalidations.

They are not answered. `Receipt` drops an event before it is stored if nothing could follow from it; `handle_event`
does the rest. A push invalidates what was requested and allowed for the commit before it; a label or an assignment
asks for a fix; all failures on one commit become one job.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import datetime
from typing import Literal, assert_never

from bot.domain.access import LabelGrant, can_command, text_binding
from bot.domain.commands import (
    AccessLost,
    AssignEvent,
    ChecksFailed,
    CloseEvent,
    Explain,
    Fix,
    LabelEvent,
    PushEvent,
    RecipeDue,
    RepoEvent,
    Review,
    ReviewEvent,
)
from bot.domain.job import TRANSITIONS, Actor, Job, JobState, Origin, Thread
from bot.events.delivery import job_id
from bot.jobs import reports, waiting
from bot.jobs.access import PhaseReader, check_access
from bot.jobs.admission import resume_base
from bot.jobs.automatic import is_automatic_review
from bot.jobs.context import Ending, JobContext, KnownConfigs, ShortReply
from bot.jobs.recipes import enqueue, start_after_run, start_for_label, start_scheduled
from bot.jobs.repo_settings import lately_on_default_branch, on_default_branch
from bot.jobs.status import StatusReporter
from bot.jobs.steering import LIVE, stop_all
from bot.permissions.levels import Refusal
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import code
from bot.queue.protocols import JobIndex, Ledger
from bot.queue.records import Signal, StoredJob

log = logging.getLogger(__name__)
_RAISING = frozenset({"ask", "auto"})
"""Levels that a label may raise a run to, and so are bound to a commit."""


async def handle_event(context: JobContext, command: RepoEvent) -> Ending:
    """Take in what happened."""
    match command:
        case LabelEvent():
            return await _labelled(context, command)
        case AssignEvent(assignee_id=assignee_id):
            if assignee_id == (await context.github.accounts.me()).id:
                await context.queue.accept(fix_for(context.job, "assignment"))
        case PushEvent(head_sha=head_sha):
            return await _pushed(context, head_sha)
        case CloseEvent(how=how):
            await stop_all(context, await _jobs(context), f"The thread was {how}.")
        case AccessLost(repo_ids=repo_ids):
            installation = context.job.installation
            for each in () if installation is None else await context.queue.live_jobs(installation, repo_ids):
                await _end_or_stop(context, each, "The App was removed from this repository, or suspended.")
        case RecipeDue():
            return await start_scheduled(context, command)
        case ChecksFailed():
            return await start_ci_fix(context, command)
        case other:
            assert_never(other)
    return Ending(state=JobState.DONE)


async def _labelled(context: JobContext, command: LabelEvent) -> Ending:
    """Keep who set a permission label on what.

    The repository's own start label asks for a fix in the thread's words, if these are still what it was set on.
    """
    job, config = context.job, await lately_on_default_branch(context)
    names = config.labels
    if names.is_start(command.label) or any(each.is_started_by(command.label) for each in config.recipes):
        thread = await context.github.threads.get(job.repo.full_name, job.thread.number)
        if text_binding(thread.title, thread.body) != (command.words or command.bound_to):
            reason = f"The text has changed since {code(command.label)} was set. Review it, and set the label again."
            silent = not (await check_access(context.github, job, bounds=context.services.bounds)).may_command
            return await context.refuse(Refusal(reason=reason, cause="edited-since-label", silent=silent))
        words = replace(job.thread, title=thread.title, body=thread.body, author=thread.author)
        asked = replace(job, thread=words)
        if names.is_start(command.label):
            await context.queue.accept(fix_for(asked, "label"))
        await start_for_label(context, command.label, asked)
    elif names.is_known(command.label):
        try:
            at = datetime.fromisoformat(command.at).timestamp()
        except ValueError:  # GitHub does not say
            at = time.time()
        label = LabelGrant(
            repo_id=job.repo.id,
            number=job.thread.number,
            name=command.label,
            labeller=job.actor,
            bound_to=command.bound_to,
            at=at,
        )
        await context.ledger.save_label(label)
    return Ending(state=JobState.DONE)


async def _pushed(context: JobContext, head_sha: str) -> Ending:
    """Invalidate what was requested and allowed for the previous commit; the bot's own commits invalidate nothing."""
    job = context.job
    if job.actor.id == (await context.github.accounts.me()).id:
        return Ending(state=JobState.DONE)
    for each in await _working_on(context):
        if each.state in LIVE and await resume_base(context.about(each.job)) != head_sha:
            await waiting.void_alike(context.of(each.job))
        asked = await waiting.awaited(context.of(each.job)) if each.state is JobState.WAITING else None
        if asked is not None and not await _holds(context, asked.bound_to, head_sha):
            why = f"The pull request moved to {head_sha[:10]}, so the request is no longer valid."
            await context.queue.send(each.job.id, Signal(kind="stop", text=why, by=job.actor.login, id=job.id))
            await context.queue.wake(each.job.id)
    if (await lately_on_default_branch(context)).is_review_enabled("push", context.services.bounds.review_on):
        review = review_of_push(job)
        for each in await _jobs(context):
            if each.state in LIVE and each.job.id != review.id and is_automatic_review(each.job):
                await _end_or_stop(context, each, f"Commit {head_sha[:10]} was pushed and is reviewed instead.")
        # Held for a moment: of a storm of pushes the last one is reviewed, and nobody is asked about the others.
        await enqueue(context, review, held_seconds=context.services.push_pause)
    kept = await context.ledger.labels(job.repo.id, job.thread.key)
    if not kept:
        return Ending(state=JobState.DONE)
    path = context.services.conventions.repo_file
    config = await on_default_branch(PhaseReader(context.github), job.repo.full_name, path)
    raising = [each for each in kept if config.labels.level_of(each.name) in _RAISING]
    gone = [each.name for each in raising if not await _holds(context, each.bound_to, head_sha)]
    await context.void(gone)
    if not gone or not await context.ledger.claim_notice(job.repo.id, job.thread.number, "label-void", by=job.id):
        return Ending(state=JobState.DONE)
    names = ", ".join(map(code, gone))
    text = (
        f"I removed {names}: it was set for another commit than {head_sha[:10]}. Review what was pushed, and set it "
        "again."
    )
    return Ending(state=JobState.DONE, view=ShortReply(text=text))


async def _end_or_stop(context: JobContext, live: StoredJob, why: str) -> None:
    """End a job that waits at once, and tell that where people see it, if they do; have one that runs stop."""
    other = context.about(live.job)
    record, ending = await other.record.read(), None
    if record.is_shown:
        view = StatusReporter(other).now(state="stopped", reason=why)
        stopped = Ending(state=JobState.STOPPED, reason=why, view=view)
        ending = await reports.recorded(other, stopped, checked=record.check.head_sha)
    if await context.queue.cancel(live.job.id, JobState.STOPPED, why, ending=ending):
        await other.services.keep_log(other.job)
        await context.services.workspaces.discard(live.job.id)
    else:
        await context.queue.send(live.job.id, Signal(kind="stop", text=why, by="GitHub", id=context.job.id))


async def _working_on(context: JobContext) -> tuple[StoredJob, ...]:
    """The jobs of a pull request, and those of issues whose work goes on in it."""
    job, jobs = context.job, await _jobs(context)
    if job.installation is None:  # a workflow's run knows only its own thread
        return jobs
    found = [each for each in await context.queue.live_jobs(job.installation, (job.repo.id,)) if each not in jobs]
    there = [each for each in found if (await context.of(each.job).read()).continues == job.thread.number]
    return (*jobs, *there)


async def _jobs(context: JobContext) -> tuple[StoredJob, ...]:
    return await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)


async def _holds(context: JobContext, bound_to: str, pushed: str) -> bool:
    """Whether what is bound to a commit outlasts a push: deliveries come in any order, and it may be the newer head."""
    now = await context.github.pulls.get(context.job.repo.full_name, context.job.thread.number)
    return bound_to in {pushed, now.head_sha}


def fix_for(happened: Job, kind: Literal["label", "assignment"]) -> Job:
    """The fix that somebody asked for by what they did, without a command."""
    return replace(
        happened,
        id=job_id(kind, happened.repo.id, happened.id),
        delivery_id=f"{happened.delivery_id}.{kind}",
        command=Fix(),
        origin=replace(happened.origin, kind=kind),
    )


def review_of_push(pushed: Job) -> Job:
    """The review of what was pushed; another job when a branch is set back to a commit that was pushed before."""
    return replace(
        pushed,
        id=job_id("push", pushed.repo.id, pushed.id),
        delivery_id=f"{pushed.delivery_id}.review",
        command=Review(on="push"),
    )


async def start_ci_fix(context: JobContext, command: ChecksFailed) -> Ending:
    """Begin work on a commit whose checks failed, where the repository or a label asks for it.

    All that fails on one commit comes together: whatever is told while the work waits or is under way begins no other.
    Where nobody asked for it, nobody is told.
    """
    config = await lately_on_default_branch(context)
    await start_after_run(context, command, config)
    thread = await _thread(context, command, config)
    if thread is None:
        return Ending(state=JobState.DONE, reason="fixing failed checks is not enabled here")
    beside = [
        each
        for each in await context.queue.jobs_in_thread(context.job.repo.id, thread.key)
        if each.job.origin.kind == "ci" and each.job.head_sha == command.head_sha
    ]
    if any(TRANSITIONS[each.state] for each in beside):
        return Ending(state=JobState.DONE, reason="a job for this commit is already running")
    event, me = context.job, await context.github.accounts.me()
    by_bot = all(who.login.endswith("[bot]") for who in (event.actor, *event.others))
    # Nobody is behind the check of another App, and nobody with rights behind a fork's commit; the repository's own
    # configuration is what lets the bot look. What machines merge into the default branch is there by its rules.
    nobody = not command.run_id or bool(command.fork) or (thread.kind == "branch" and by_bot)
    job = Job(
        id=job_id("ci", event.repo.id, f"{thread.key}:{command.head_sha}:{len(beside)}"),
        delivery_id=f"{event.delivery_id}.ci",
        repo=event.repo,
        thread=thread,
        actor=Actor(id=me.id, login=me.login) if nobody else event.actor,
        origin=Origin(
            kind="ci",
            id=command.run_id,
            at=event.origin.at,
            name=command.name,
            url=command.url,
            conclusion=command.conclusion,
        ),
        # In a fork's pull request it only reads, and nothing but the diagnosis leaves it.
        command=Explain() if command.fork else Fix(),
        installation=event.installation,
        others=() if nobody else event.others,
        trigger=event.trigger,
        head_sha=command.head_sha,
    )
    await enqueue(context, job)
    return Ending(state=JobState.DONE)


async def _thread(context: JobContext, command: ChecksFailed, config: RepoConfig) -> Thread | None:
    """Where the work is to be; None where nobody wants any."""
    everywhere = not context.services.is_long_running and "fix_ci" not in config.model_fields_set
    pulls = everywhere or "pull-requests" in config.fix_ci
    if command.fork:
        number = None
        if pulls:
            number = await context.github.pulls.of_fork(
                context.job.repo.full_name,
                fork=command.fork,
                fork_id=command.fork_id,
                branch=command.branch,
                sha=command.head_sha,
            )
        return None if number is None else Thread.from_number("pull", number)
    if command.pull:
        wanted = pulls or await _is_labelled(context, command.pull, config)
        return Thread.from_number("pull", command.pull) if wanted else None
    if not (everywhere or "default-branch" in config.fix_ci):
        return None
    return Thread.of_branch(command.branch)


async def _is_labelled(context: JobContext, number: int, config: RepoConfig) -> bool:
    """Whether the label that asks for it is set, by somebody who may ask for work."""
    repo = context.job.repo
    kept = [each for each in await context.ledger.labels(repo.id, number) if config.labels.is_fix_ci(each.name)]
    if not kept:
        return False
    standing = (await context.github.threads.get(repo.full_name, number)).labels
    if not any(map(config.labels.is_fix_ci, standing)):
        return False
    who = kept[0].labeller
    return context.services.bounds.is_allowed_user(who.login) and can_command(
        await context.github.accounts.role_of(repo.full_name, who.id, who.login)
    )


class Receipt:
    """Says of a job, before it is stored, whether anything could follow from it.

    No request goes to GitHub: in a storm of labels or pushes, each event costs a few queries to the database.

    Args:
        queue: the jobs that there are.
        ledger: the labels that are kept, and what repositories ask for, as far as any process has looked lately.
        configs: what they ask for, as far as this process has.
        review_on: what starts a review without a command, where a repository does not say.
    """

    def __init__(
        self,
        queue: JobIndex,
        ledger: Ledger,
        configs: KnownConfigs,
        *,
        review_on: frozenset[ReviewEvent] = frozenset(),
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._configs = configs
        self._review_on = review_on

    async def unneeded(self, job: Job) -> str:
        """Why a job can be dropped; empty for one that must be kept, as every word of a person must.

        Raises:
            QueueError: the database could not be read.
        """
        command = job.command
        if isinstance(command, Review) and command.on is not None:
            wanted = await self._may_be_reviewed(job.repo.id, command.on)
            return "" if wanted else "the repository wants no review for this"
        return await self._nothing_follows(job, command) if isinstance(command, RepoEvent) else ""

    async def _config(self, repo_id: int) -> RepoConfig | None:
        return self._configs.of(repo_id) or await self._ledger.config(repo_id)

    async def _may_be_reviewed(self, repo_id: int, on: ReviewEvent) -> bool:
        config = await self._config(repo_id)
        return config is None or config.is_review_enabled(on, self._review_on)

    async def _nothing_follows(self, job: Job, command: RepoEvent) -> str:
        repo_id, number = job.repo.id, job.thread.key
        match command:
            case LabelEvent(label=label):
                config = await self._config(repo_id)
                means_nothing = config is not None and not config.handles_label(label)
                return "the label has no meaning for the bot" if means_nothing else ""
            case PushEvent():
                idle = not await self._queue.is_live(repo_id, number) and not await self._ledger.labels(repo_id, number)
                idle = idle and not await self._may_be_reviewed(repo_id, "push")
                # Work of an issue may go on in this pull request.
                live = await self._queue.live_jobs(job.installation or 0, (repo_id,)) if idle else ()
                idle = idle and all(each.job.thread.kind != "issue" for each in live)
                return "no request is bound to the head of this pull request" if idle else ""
            case CloseEvent():
                return "" if await self._queue.is_live(repo_id, number) else "no job is running in this thread"
            case AccessLost(repo_ids=repo_ids):
                return "" if await self._queue.live_jobs(job.installation or 0, repo_ids) else "no job is running there"
            case ChecksFailed():
                config = await self._config(repo_id)
                asked = (
                    config is None or config.fix_ci or config.follows_runs or await self._ledger.labels(repo_id, number)
                )
                return "" if asked else "fixing failed checks is not enabled here"
            case AssignEvent() | RecipeDue():
                return ""
            case other:
                assert_never(other)
