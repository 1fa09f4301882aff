"""Events without a command: drop them on receipt, or start, stop and invalidate jobs.

Start with `handle_event`; `EventFilter` drops irrelevant events before they are stored. All failures of one commit
become one job.
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
    ReplyEvent,
    RepoEvent,
    Resolve,
    Review,
    ReviewEvent,
)
from bot.domain.job import LIVE_STATES, Actor, Job, JobState, Origin, Thread
from bot.events.delivery import job_id
from bot.jobs import waiting
from bot.jobs.access import PhaseReader, check_access, fetch_snapshot
from bot.jobs.admission import decide, resume_base
from bot.jobs.automatic import is_automatic_review
from bot.jobs.context import ConfigCache, JobContext
from bot.jobs.recipes import enqueue, start_after_run, start_for_label, start_scheduled
from bot.jobs.record import ApprovalAnswer
from bot.jobs.repo_settings import cached_default_settings, decode_config, default_settings, read_own_prefixes
from bot.jobs.results import pending_view
from bot.jobs.steering import approval_refusal, cancel_job, stop_all
from bot.permissions.levels import Grant, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import code
from bot.publishing.outcome import Finished, JobOutcome
from bot.publishing.render import answer_commands
from bot.queue.protocols import JobEngine, Ledger
from bot.queue.records import Signal, StoredJob

log = logging.getLogger(__name__)
_RAISED_LEVELS = frozenset({"ask", "auto"})
"""Levels that a label can raise a run to."""


async def handle_event(context: JobContext, command: RepoEvent) -> JobOutcome:
    match command:
        case LabelEvent():
            return await _handle_label(context, command)
        case AssignEvent(assignee_id=assignee_id):
            if assignee_id == (await context.github.accounts.me()).id:
                await context.queue.accept(build_fix(context.job, "assignment"))
        case PushEvent(head_sha=head_sha):
            return await _handle_push(context, head_sha)
        case CloseEvent(how=how, merged_into=branch):
            await stop_all(context, await _jobs(context), f"The thread was {how}.")
            await _start_merges(context, branch)
        case AccessLost(repo_ids=repo_ids):
            installation = context.job.installation
            for each in () if installation is None else await context.queue.live_jobs(installation, repo_ids):
                await _cancel_or_stop(context, each, "The App was removed from this repository, or suspended.")
        case RecipeDue():
            return await start_scheduled(context, command)
        case ChecksFailed():
            return await start_ci_fix(context, command)
        case other:
            assert_never(other)
    return Finished(is_silent=True)


async def _handle_label(context: JobContext, command: LabelEvent) -> JobOutcome:
    """Store a permission label, or start the fix or recipe of another one if the thread's text is unchanged since."""
    job, config = context.job, await cached_default_settings(context)
    names = config.labels
    if names.is_start(command.label) or any(recipe.is_started_by(command.label) for recipe in config.recipes):
        thread = await context.github.threads.get(job.repo.full_name, job.thread.number)
        if text_binding(thread.title, thread.body) != (command.words or command.bound_to):
            reason = f"The text has changed since {code(command.label)} was set. Review it, and set the label again."
            silent = not (await check_access(context.github, job, bounds=context.services.bounds)).may_command
            return await context.refuse(Refusal(reason=reason, cause="edited-since-label", silent=silent))
        words = replace(job.thread, title=thread.title, body=thread.body, author=thread.author.login)
        event_job = replace(job, thread=words)
        if names.is_start(command.label):
            await context.queue.accept(build_fix(event_job, "label"))
        await start_for_label(context, command.label, event_job)
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
        if names.level_of(command.label) == "auto":
            return await _raise_level(context, command.label, config)
    return Finished(is_silent=True)


async def _raise_level(context: JobContext, label: str, config: RepoConfig) -> JobOutcome:
    """Resume runs whose call needs no approval at the level `auto`, and name the requests that still need an answer.

    The label counts for a call as an approval by its setter does: shown before, of the same commit.
    """
    access = await check_access(context.github, context.job, bounds=context.services.bounds)
    if not access.may_command:
        return Finished(is_silent=True)
    name, texts, waits = code(label), list[str](), list[str]()
    for entry in await _jobs(context):
        target = context.for_job(entry.job)
        approvals = (await target.record.read()).approvals
        request = approvals.open_request if entry.state is JobState.WAITING else None
        if request is None or request.request_id not in approvals.request_views:
            continue
        current = await check_access(context.github, entry.job, bounds=context.services.bounds)
        grant = await decide(target, fetch_snapshot(entry.job, current), config, is_resumed=True)
        is_raised = isinstance(grant, Grant) and grant.level == "auto" and request.kind == "permission"
        snapshot = fetch_snapshot(context.job, access)
        if is_raised and await approval_refusal(context, snapshot, entry.job, request) is None:
            note = f"The label {label} was set."
            answer = ApprovalAnswer(request_id=request.request_id, approved=True, note=note, by=context.job.actor)
            await waiting.store_answer(target.record, answer)
            await context.queue.wake(entry.job.id)
            texts.append(f"The run that waited for {code(request.request_id)} goes on, since {name} is set.")
        else:
            waits += answer_commands(pending_view(target, request))
    if waits:
        texts.append("\n\n".join([f"{name} applies from the next run. This one still needs an answer:", *waits]))
    return Finished(reply="\n\n".join(texts), is_silent=not texts)


async def _handle_push(context: JobContext, head_sha: str) -> JobOutcome:
    """Invalidate requests and labels of the previous commit, unless the bot pushed."""
    job = context.job
    if job.actor.id == (await context.github.accounts.me()).id:
        return Finished(is_silent=True)
    for entry in await _jobs_of_pull(context):
        if entry.state in LIVE_STATES and await resume_base(context.for_job(entry.job)) != head_sha:
            await waiting.revoke_patterns(context.record_of(entry.job))
        # A job that runs asks again for the new commit.
        waits = entry.state in {JobState.WAITING, JobState.QUEUED}
        request = (await context.record_of(entry.job).read()).approvals.open_request if waits else None
        if request is not None and not await _is_still_bound(context, request.bound_to, head_sha):
            reason = f"The pull request moved to {head_sha[:10]}, so the request is no longer valid."
            await context.queue.send(entry.job.id, Signal(kind="stop", text=reason, by=job.actor.login, id=job.id))
    if (await cached_default_settings(context)).is_review_enabled("push", context.services.bounds.review_on):
        review = build_push_review(job)
        for entry in await _jobs(context):
            if entry.state in LIVE_STATES and entry.job.id != review.id and is_automatic_review(entry.job):
                await _cancel_or_stop(context, entry, f"Commit {head_sha[:10]} was pushed and is reviewed instead.")
        # Held for a moment: of a storm of pushes the last one is reviewed, and nobody is asked about the others.
        await enqueue(context, review, held_seconds=context.services.push_pause)
    labels = await context.ledger.labels(job.repo.id, job.thread.key)
    if not labels:
        return Finished(is_silent=True)
    path = context.services.conventions.repo_file
    config = await default_settings(PhaseReader(context.github), job.repo.full_name, path)
    raising = [entry for entry in labels if config.labels.level_of(entry.name) in _RAISED_LEVELS]
    removed = [entry.name for entry in raising if not await _is_still_bound(context, entry.bound_to, head_sha)]
    await context.remove_labels(removed)
    if not removed or not await context.ledger.claim_notice(job.repo.id, job.thread.number, "label-void", by=job.id):
        return Finished(is_silent=True)
    names = ", ".join(map(code, removed))
    text = (
        f"I removed {names}: it was set for another commit than {head_sha[:10]}. Review what was pushed, and set it "
        "again."
    )
    return Finished(reply=text)


async def _cancel_or_stop(context: JobContext, live: StoredJob, reason: str) -> None:
    """End a waiting job and report it, or signal a running one."""
    if not await cancel_job(context, live.job, reason):
        await context.queue.send(live.job.id, Signal(kind="stop", text=reason, by="GitHub", id=context.job.id))


async def _jobs_of_pull(context: JobContext) -> tuple[StoredJob, ...]:
    """Return the jobs of a pull request, including those of issues that continue in it."""
    job, jobs = context.job, await _jobs(context)
    if job.installation is None:  # a workflow's run knows only its own thread
        return jobs
    live = [entry for entry in await context.queue.live_jobs(job.installation, (job.repo.id,)) if entry not in jobs]
    related = [entry for entry in live if (await context.record_of(entry.job).read()).continues == job.thread.number]
    return (*jobs, *related)


async def _jobs(context: JobContext) -> tuple[StoredJob, ...]:
    return await context.queue.jobs_in_thread(context.job.repo.id, context.job.thread.key)


async def _is_still_bound(context: JobContext, bound_to: str, pushed: str) -> bool:
    """Whether a binding survives a push. Deliveries are unordered, so it may be of the newer head."""
    pull = await context.github.pulls.get(context.job.repo.full_name, context.job.thread.number)
    return bound_to in {pushed, pull.head_sha}


def build_fix(event: Job, kind: Literal["label", "assignment"]) -> Job:
    return replace(
        event,
        id=job_id(kind, event.repo.id, event.id),
        delivery_id=f"{event.delivery_id}.{kind}",
        command=Fix(),
        origin=replace(event.origin, kind=kind),
    )


def build_push_review(push: Job) -> Job:
    """Return the review of a push; the id differs if a branch is reset to an earlier commit."""
    return replace(
        push,
        id=job_id("push", push.repo.id, push.id),
        delivery_id=f"{push.delivery_id}.review",
        command=Review(on="push"),
    )


async def _start_merges(context: JobContext, branch: str) -> None:
    """Start one merge of a branch's new commit into each of the bot's own pull requests against that branch."""
    if (
        not branch
        or not context.services.is_long_running
        or not (await cached_default_settings(context)).resolve_own_conflicts
    ):
        return
    event, repo, me = context.job, context.job.repo.full_name, await context.github.accounts.me()
    prefixes = await read_own_prefixes(context)
    tip = await context.github.repos.branch_head(repo, branch)
    for pull in await context.github.pulls.list_own_into(repo, branch, prefixes, author_id=me.id):
        await context.github.pulls.get(repo, pull.number)  # GitHub then computes whether it conflicts
        job = replace(
            event,
            id=job_id("merge", event.repo.id, f"{pull.number}:{tip}"),
            delivery_id=f"{event.delivery_id}.merge-{pull.number}",
            thread=Thread.from_number("pull", pull.number),
            actor=Actor(id=me.id, login=me.login),
            other_actors=(),
            origin=Origin(kind="event", id=0, at=event.origin.at, vouched=True),
            command=Resolve(),
            head_sha="",
        )
        await enqueue(context, job, held_seconds=context.services.push_pause)


async def start_ci_fix(context: JobContext, command: ChecksFailed) -> JobOutcome:
    """Start a fix of a commit's failed checks, if enabled by settings or label.

    Later failures of the commit start no other job.
    """
    config = await cached_default_settings(context)
    await start_after_run(context, command, config)
    thread = await _fix_thread(context, command, config)
    if thread is None:
        return Finished(reason="fixing failed checks is not enabled here", is_silent=True)
    siblings = [
        entry
        for entry in await context.queue.jobs_in_thread(context.job.repo.id, thread.key)
        if entry.job.origin.kind == "ci" and entry.job.head_sha == command.head_sha
    ]
    if any(entry.state in LIVE_STATES for entry in siblings):
        return Finished(reason="a job for this commit is already running", is_silent=True)
    event, me = context.job, await context.github.accounts.me()
    by_bot = all(account.login.endswith("[bot]") for account in (event.actor, *event.other_actors))
    # Nobody is behind the check of another App, and nobody with rights behind a fork's commit; the repository's own
    # configuration is what lets the bot look. What machines merge into the default branch is there by its rules.
    is_automatic = not command.run_id or bool(command.fork) or (thread.kind == "branch" and by_bot)
    job = Job(
        id=job_id("ci", event.repo.id, f"{thread.key}:{command.head_sha}:{len(siblings)}"),
        delivery_id=f"{event.delivery_id}.ci",
        repo=event.repo,
        thread=thread,
        actor=Actor(id=me.id, login=me.login) if is_automatic else event.actor,
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
        other_actors=() if is_automatic else event.other_actors,
        trigger=event.trigger,
        head_sha=command.head_sha,
    )
    await enqueue(context, job)
    return Finished(is_silent=True)


async def _fix_thread(context: JobContext, command: ChecksFailed, config: RepoConfig) -> Thread | None:
    by_default = not context.services.is_long_running and "fix_ci" not in config.model_fields_set
    pulls = by_default or "pull-requests" in config.fix_ci
    if command.fork:
        number = None
        if pulls:
            number = await context.github.pulls.find_for_fork(
                context.job.repo.full_name,
                fork=command.fork,
                fork_id=command.fork_id,
                branch=command.branch,
                sha=command.head_sha,
            )
        return None if number is None else Thread.from_number("pull", number)
    if command.pull:
        is_enabled = pulls or await _is_labelled(context, command.pull, config)
        return Thread.from_number("pull", command.pull) if is_enabled else None
    if not (by_default or "default-branch" in config.fix_ci):
        return None
    return Thread.of_branch(command.branch)


async def _is_labelled(context: JobContext, number: int, config: RepoConfig) -> bool:
    """Whether a user with write access set the label for fixes."""
    repo = context.job.repo
    stored = [label for label in await context.ledger.labels(repo.id, number) if config.labels.is_fix_ci(label.name)]
    if not stored:
        return False
    current = (await context.github.threads.get(repo.full_name, number)).labels
    if not any(map(config.labels.is_fix_ci, current)):
        return False
    labeller = stored[0].labeller
    return context.services.bounds.is_allowed_user(labeller.login) and can_command(
        await context.github.accounts.get_role(repo.full_name, labeller.id, labeller.login)
    )


class EventFilter:
    """Decide before storage whether an event can have an effect. Sends no requests to GitHub."""

    def __init__(
        self,
        queue: JobEngine,
        ledger: Ledger,
        configs: ConfigCache,
        *,
        review_on: frozenset[ReviewEvent] = frozenset(),
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._configs = configs
        self._review_on = review_on

    async def drop_reason(self, job: Job) -> str:
        """Return why a job can be dropped; empty if it must be stored, as all user commands.

        Raises:
            QueueError: the database could not be read.
        """
        command = job.command
        if isinstance(command, Review) and command.on is not None:
            is_enabled = await self._may_be_reviewed(job.repo.id, command.on)
            return "" if is_enabled else "the repository wants no review for this"
        if isinstance(command, ReplyEvent):
            question = await waiting.find_question(self._queue, job, arrived=time.time())
            return "" if question else "the comment contains no command, and answers no question of the agent"
        return await self._event_drop_reason(job, command) if isinstance(command, RepoEvent) else ""

    async def _config(self, repo_id: int) -> RepoConfig | None:
        return self._configs.get(repo_id) or decode_config(await self._ledger.config(repo_id))

    async def _may_be_reviewed(self, repo_id: int, on: ReviewEvent) -> bool:
        config = await self._config(repo_id)
        return config is None or config.is_review_enabled(on, self._review_on)

    async def _event_drop_reason(self, job: Job, command: RepoEvent) -> str:
        repo_id, number = job.repo.id, job.thread.key
        match command:
            case LabelEvent(label=label):
                config = await self._config(repo_id)
                is_unknown = config is not None and not config.handles_label(label)
                return "the label has no meaning for the bot" if is_unknown else ""
            case PushEvent():
                idle = not await self._queue.is_live(repo_id, number) and not await self._ledger.labels(repo_id, number)
                idle = idle and not await self._may_be_reviewed(repo_id, "push")
                # Work of an issue may go on in this pull request.
                live = await self._queue.live_jobs(job.installation or 0, (repo_id,)) if idle else ()
                idle = idle and all(entry.job.thread.kind != "issue" for entry in live)
                return "no request is bound to the head of this pull request" if idle else ""
            case CloseEvent(merged_into=branch):
                config = await self._config(repo_id) if branch else None
                is_needed = bool(branch) and (config is None or config.resolve_own_conflicts)
                is_needed = is_needed or await self._queue.is_live(repo_id, number)
                return "" if is_needed else "no job is running in this thread"
            case AccessLost(repo_ids=repo_ids):
                return "" if await self._queue.live_jobs(job.installation or 0, repo_ids) else "no job is running there"
            case ChecksFailed():
                config = await self._config(repo_id)
                is_enabled = (
                    config is None or config.fix_ci or config.follows_runs or await self._ledger.labels(repo_id, number)
                )
                return "" if is_enabled else "fixing failed checks is not enabled here"
            case AssignEvent() | RecipeDue():
                return ""
            case other:
                assert_never(other)
