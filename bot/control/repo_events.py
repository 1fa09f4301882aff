"""Events of a repository that are not commands: they are not answered, and only narrow what the bot may do."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from bot.control.automatic_review import is_unasked_review
from bot.control.failed_checks import start_ci_fix
from bot.control.recipes import start_labelled, start_scheduled
from bot.control.retry import fix_for, review_of_push
from bot.control.steering import LIVE, stop_all
from bot.domain.access import LabelGrant, text_binding
from bot.domain.commands import AccessLost, Assigned, ChecksFailed, Closed, Labelled, Pushed, RecipeDue, RepoEvent
from bot.domain.job import JobState
from bot.engine.records import Signal, Stored
from bot.gate.decision import Refusal
from bot.jobs import approvals
from bot.jobs.context import Ending, JobContext, ShortReply
from bot.jobs.phase_reader import PhaseReader
from bot.jobs.repo_settings import lately_on_default_branch, on_default_branch
from bot.jobs.resume_base import resume_base
from bot.jobs.run_logs import keep_log
from bot.jobs.snapshot import check_access
from bot.publishing.text import code
from bot.reporting import endings
from bot.reporting.reporter import StatusReporter

log = logging.getLogger(__name__)

_RAISING = frozenset({"ask", "auto"})
"""Levels that a label may raise a run to, and so are bound to a commit."""


async def handle_event(context: JobContext, command: RepoEvent) -> Ending:
    """Take in what happened."""
    match command:
        case Labelled():
            return await _labelled(context, command)
        case Assigned(assignee_id=assignee_id):
            if assignee_id == (await context.github.accounts.me()).id:
                await context.queue.accept(fix_for(context.job, "assignment"))
        case Pushed(head_sha=head_sha):
            return await _pushed(context, head_sha)
        case Closed(how=how):
            await stop_all(context, await _jobs(context), f"The thread was {how}.")
        case AccessLost(repo_ids=repo_ids):
            await _access_lost(context, repo_ids)
        case RecipeDue():
            return await start_scheduled(context, command)
        case ChecksFailed():
            return await start_ci_fix(context, command)
        case other:
            assert_never(other)
    return Ending(state=JobState.DONE)


async def _access_lost(context: JobContext, repo_ids: tuple[int, ...]) -> None:
    if context.job.installation is not None:
        for each in await context.queue.live_of(context.job.installation, repo_ids):
            await _end_or_stop(context, each, "The App was removed from this repository, or suspended.")


async def _labelled(context: JobContext, command: Labelled) -> Ending:
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
        await start_labelled(context, command.label, asked)
    elif names.means_something(command.label):
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
        await context.ledger.keep_label(label)
    return Ending(state=JobState.DONE)


async def _pushed(context: JobContext, head_sha: str) -> Ending:
    """Invalidate what was requested and allowed for the previous commit; the bot's own commits invalidate nothing."""
    job = context.job
    if job.actor.id == (await context.github.accounts.me()).id:
        return Ending(state=JobState.DONE)
    for each in await _working_on(context):
        if each.state in LIVE and await resume_base(context.about(each.job)) != head_sha:
            await approvals.void_alike(context.of(each.job))
        asked = await approvals.awaited(context.of(each.job)) if each.state is JobState.WAITING else None
        if asked is not None and not await _holds(context, asked.bound_to, head_sha):
            why = f"The pull request moved to {head_sha[:10]}, so the request is no longer valid."
            await context.queue.send(each.job.id, Signal(kind="stop", text=why, by=job.actor.login, id=job.id))
            await context.queue.wake(each.job.id)
    if (await lately_on_default_branch(context)).reviews("push", context.services.bounds.review_on):
        review = review_of_push(job)
        for each in await _jobs(context):
            if each.state in LIVE and each.job.id != review.id and is_unasked_review(each.job):
                await _end_or_stop(context, each, f"Commit {head_sha[:10]} was pushed and is reviewed instead.")
        # Held for a moment: of a storm of pushes the last one is reviewed, and nobody is asked about the others.
        await context.queue.accept(review, held_seconds=context.services.push_pause)
        await context.record.update(lambda record: replace(record, leads_to=review.id))
    kept = await context.ledger.labels(job.repo.id, job.thread.key)
    if not kept:
        return Ending(state=JobState.DONE)
    path = context.services.conventions.repo_file
    config = await on_default_branch(PhaseReader(context.github), job.repo.full_name, path)
    raising = [each for each in kept if config.labels.level_of(each.name) in _RAISING]
    gone = [each.name for each in raising if not await _holds(context, each.bound_to, head_sha)]
    await context.void(gone)
    if not gone or not await context.ledger.may_tell(job.repo.id, job.thread.number, "label-void", by=job.id):
        return Ending(state=JobState.DONE)
    names = ", ".join(map(code, gone))
    text = (
        f"I removed {names}: it was set for another commit than {head_sha[:10]}. Review what was pushed, and set it "
        "again."
    )
    return Ending(state=JobState.DONE, view=ShortReply(text=text))


async def _holds(context: JobContext, bound_to: str, pushed: str) -> bool:
    """Whether what is bound to a commit outlasts a push: deliveries come in any order, and it may be the newer head."""
    now = await context.github.pulls.get(context.job.repo.full_name, context.job.thread.number)
    return bound_to in {pushed, now.head_sha}


async def _end_or_stop(context: JobContext, live: Stored, why: str) -> None:
    """End a job that waits at once, and tell that where people see it, if they do; have one that runs stop."""
    other = context.about(live.job)
    record, ending = await other.record.read(), None
    if record.is_shown:
        view = StatusReporter(other).now(state="stopped", reason=why)
        stopped = Ending(state=JobState.STOPPED, reason=why, view=view)
        ending = await endings.recorded(other, stopped, checked=record.check.head_sha)
    if await context.queue.cancel(live.job.id, JobState.STOPPED, why, ending=ending):
        await keep_log(other.services, other.job)
        await context.services.workspaces.discard(live.job.id)
    else:
        await context.queue.send(live.job.id, Signal(kind="stop", text=why, by="GitHub", id=context.job.id))


async def _working_on(context: JobContext) -> tuple[Stored, ...]:
    """The jobs of a pull request, and those of issues whose work goes on in it."""
    job, jobs = context.job, await _jobs(context)
    if job.installation is None:  # a workflow's run knows only its own thread
        return jobs
    found = [each for each in await context.queue.live_of(job.installation, (job.repo.id,)) if each not in jobs]
    there = [each for each in found if (await context.of(each.job).read()).continues == job.thread.number]
    return (*jobs, *there)


async def _jobs(context: JobContext) -> tuple[Stored, ...]:
    return await context.queue.of_thread(context.job.repo.id, context.job.thread.key)
