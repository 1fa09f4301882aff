"""Events of a repository that are not commands: they are not answered, and only narrow what the bot may do."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from bot.domain.access import LabelGrant, may_command, text_binding
from bot.domain.commands import (
    AccessLost,
    Assigned,
    ChecksFailed,
    Closed,
    Explain,
    Fix,
    Labelled,
    Pushed,
    RecipeDue,
    RepoEvent,
)
from bot.domain.job import TRANSITIONS, Actor, Job, JobState, Origin, Thread
from bot.events.delivery import job_id
from bot.git.mirror import Source
from bot.jobs import approvals, endings
from bot.jobs.admission import resume_base
from bot.jobs.approvals import keep_log
from bot.jobs.context import Ending, JobContext, PhaseReader, ShortReply, ThreadSnapshot, check_access
from bot.jobs.recipes import start_after_run, start_labelled, start_scheduled
from bot.jobs.repo_settings import lately_on_default_branch, on_default_branch
from bot.jobs.retry import fix_for, is_unasked_review, review_of_push
from bot.jobs.status import StatusReporter
from bot.jobs.steering import LIVE, stop_all
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import code
from bot.publishing.plan import Publication, plan_undo
from bot.publishing.publish import Target, publish
from bot.publishing.view import CommitRef, Withheld
from bot.queue.records import Signal, Stored

# ---- Failed checks: whether fixes are enabled, and one job for all failures on a commit.


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
        for each in await context.queue.of_thread(context.job.repo.id, thread.key)
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
    await context.queue.accept(job)
    await context.record.update(lambda record: replace(record, leads_to=job.id))
    return Ending(state=JobState.DONE)


async def _thread(context: JobContext, command: ChecksFailed, config: RepoConfig) -> Thread | None:
    """Where the work is to be; None where nobody wants any."""
    everywhere = not context.services.checks and "fix_ci" not in config.model_fields_set
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
        return None if number is None else Thread.numbered("pull", number)
    if command.pull:
        wanted = pulls or await _is_labelled(context, command.pull, config)
        return Thread.numbered("pull", command.pull) if wanted else None
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
    return context.services.bounds.hears(who.login) and may_command(
        await context.github.accounts.role_of(repo.full_name, who.id, who.login)
    )


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


# ---- Revert the bot's last commit of a thread with a new commit.


_OWN_BRANCH = re.compile(r"(?:(?:issue|pull)-([0-9]+)|branch|fix-ci)-[a-z0-9-]+$")


async def aimed(context: JobContext, here: ThreadSnapshot) -> ThreadSnapshot | Refusal:
    """The place with the branch and the commit that are to be taken back, or why there is nothing to undo."""
    before = (await context.record.read()).undoing
    aim = before or await _last_commit(context, here)
    if aim is None:
        return Refusal(cause="nothing-to-undo", reason="There is no commit of mine in this thread to revert.")
    sha, branch = aim.sha, aim.branch
    if before is None:
        head = await context.github.repos.branch_head(here.repo.full_name, branch)
        if head is None:
            return Refusal(cause="undo-gone", reason=f"The branch `{branch}` with my commit has been deleted.")
        if head != sha:
            reason = (
                f"`{branch}` has moved on to {head[:10]} since my commit {sha[:10]}. I only revert the last "
                f"commit of a branch; use `git revert {sha[:10]}`."
            )
            return Refusal(cause="undo-moved", reason=reason)
        await context.record.update(lambda record: replace(record, undoing=aim))
    thread = replace(here.thread, head_sha=sha, head_ref=branch, head_repo_id=here.repo.id)
    return replace(here, thread=thread)


async def undo(
    context: JobContext, reporter: StatusReporter, here: ThreadSnapshot, grant: Grant, source: Source
) -> Ending:
    """Make the opposite commit."""
    async with context.services.workspaces.open(context.job.id, here.repo.id, source) as tree:
        change = await tree.reversal(grant.bound_to_sha)
        publication = plan_undo(
            context.job,
            grant,
            change,
            branch=here.thread.head_ref,
            undone=grant.bound_to_sha,
            title=await tree.title(grant.bound_to_sha),
            run_url=reporter.run_url,
        )
        # Git may have taken minutes, in which people lose their role.
        access = await check_access(context.github, context.job, bounds=context.services.bounds)
        if not access.may_command:
            withheld = Withheld(cause="refused", reason=NO_WRITE_ACCESS.reason)
            publication = Publication(commit=None, pull_request=None, withheld=withheld)
        delivered = await publish(
            context.github,
            context.record.published,
            publication,
            job=context.job,
            target=Target.of(access.repo, context.services.conventions.branch_prefix),
            pusher=tree,
            redactor=context.services.redactor,
            dry_run=grant.dry_run,
        )
    why = delivered.withheld.reason if delivered.withheld else ""
    view = reporter.now(
        state="failed" if why else "done",
        completion=None if why or delivered.would else f"I reverted commit {code(grant.bound_to_sha[:10])}.",
        withheld=why,
        would=delivered.would,
        files=change.files,
        commit_sha=delivered.commit_sha,
        commit_url=delivered.commit_url,
        ci_note=context.services.ci_note if delivered.commit_sha else "",
    )
    return Ending(state=JobState.FAILED if why else JobState.DONE, reason=why, view=view)


async def _last_commit(context: JobContext, here: ThreadSnapshot) -> CommitRef | None:
    """The commit of the newest job of this thread that made one.

    In a pull request of the bot's own also of the jobs on its branch that were asked for in another thread.
    """
    job, thread = context.job, here.thread
    jobs = list(await context.queue.of_thread(job.repo.id, job.thread.key))
    is_ours = thread.head_ref.startswith(context.services.conventions.branch_prefix)
    is_here = job.thread.kind == "pull" and thread.head_repo_id == here.repo.id
    own = _OWN_BRANCH.search(thread.head_ref) if is_ours and is_here else None
    if own is not None:
        asked_in = int(own[1]) if own[1] else Thread.of_branch(thread.base_ref).key
        jobs += await context.queue.of_thread(job.repo.id, asked_in, limit=100)
    for each in sorted(jobs, key=lambda stored: stored.enqueued_at, reverse=True):
        noted = (await context.of(each.job).read()).published.commit
        if noted is not None and each.job.id != job.id and (own is None or noted.branch == thread.head_ref):
            return noted
    return None
