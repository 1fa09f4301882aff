"""The life of a job: admission, work, publication and report.

Start with `Worker.handle`, which maps each outcome or error to a disposition for the queue, and `run_job`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from agent_runtime import (
    AgentError,
    Policy,
    SessionError,
    SessionInUseError,
    SessionNewerError,
    SessionUnavailableError,
    Status,
    traced,
)
from bot.domain.commands import (
    Approve,
    BareCommand,
    Continue,
    Deny,
    Help,
    Remember,
    ReplyEvent,
    RepoEvent,
    Resolve,
    StartRecipe,
    Steering,
    Talk,
    Unclear,
    Undo,
    Work,
)
from bot.domain.errors import BotError, OtherVersionError, QueueError, StorageError, WrongInputError
from bot.domain.grammar import find_missing_input
from bot.domain.job import Job, JobState
from bot.git.errors import CloneError, GitError, WorkspaceError
from bot.git.merge import Merge
from bot.git.mirror import Source
from bot.github.rate_limit import Urgency
from bot.github.types import GitHubError
from bot.jobs import reports, waiting
from bot.jobs.access import ThreadSnapshot, check_access, confirm_refusal, fetch_snapshot
from bot.jobs.actions import list_results
from bot.jobs.admission import (
    Assignment,
    CommandEditedError,
    base_source,
    check_permissions,
    check_rules,
    decide,
    find_branch,
    head_source,
    pin_base,
    read_format,
    requested_base,
    reserve_budget,
    resume_base,
    settle,
    settled,
)
from bot.jobs.agent_files import choose_persona, personas_text
from bot.jobs.agent_run import abandon_run, run_agent
from bot.jobs.automatic import early_skip_reason, skip_outcome
from bot.jobs.context import JobContext, JobContextFactory
from bot.jobs.faults import Fault, Patience, classify, public_text
from bot.jobs.handover import handle_steering
from bot.jobs.memory import offer_rule, remember
from bot.jobs.merges import plan_merge, publish_merge
from bot.jobs.posts import JobCheckRun
from bot.jobs.recipes import recipes_text, start_recipe, typical_costs_text
from bot.jobs.record import StoredRecord, has_answer, stored_steps
from bot.jobs.repo_events import handle_event
from bot.jobs.repo_settings import default_settings, fetch_repo_settings, load_output_schema
from bot.jobs.results import resolve_undo_target, revert_commit
from bot.jobs.setup import RepoSettings
from bot.jobs.status import close_notices, notice_text, notify, status_view
from bot.jobs.steering import answer_question, answer_to, ask_about, is_answer
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS, resolve_command
from bot.permissions.repo_config import RepoConfig, RepoConfigError
from bot.publishing.markdown import code, one_line
from bot.publishing.outcome import Failed, Finished, JobOutcome, Refused, Stopped, Waiting
from bot.queue.protocols import MAX_DEATHS, Disposition, JobAttempt, JobEnded, JobParked, JobReleased, PendingReport
from bot.queue.tracing import bind_job

log = logging.getLogger(__name__)
_SESSION_SECONDS = 5.0
_PUBLISHING_DEATHS = MAX_DEATHS + 3
"""Maximum worker deaths for publishing finished work."""
_KEEPING_DEATHS = _PUBLISHING_DEATHS + 2
"""Maximum worker deaths for reporting partial work; later only the failure is reported."""
_LATE_CHARS = 200
_AtOnce = Remember | StartRecipe | Steering | Talk


class Worker:
    """Run jobs through the pipeline and report their endings."""

    def __init__(self, contexts: JobContextFactory, patience: Patience) -> None:
        self._contexts = contexts
        self._patience = patience

    async def report(self, report: PendingReport) -> bool:
        with bind_job(report.job) if report.job is not None else nullcontext():
            return await reports.post_pending(self._contexts, report)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        job = attempt.job
        attributes: dict[str, str | int] = {
            "codepilot.job.id": job.id,
            "codepilot.job.attempt": attempt.number,
            "codepilot.job.command": job.command.verb,
            "codepilot.repository.id": job.repo.id,
        }
        with bind_job(job, attempt=attempt.number), traced("job", attributes) as span:
            log.info("attempt %d", attempt.number)
            disposition: Disposition | None
            try:
                disposition = await self._run_and_report(attempt)
            except (SessionInUseError, SessionUnavailableError) as error:
                log.warning(
                    "job %s: its log cannot be kept now; trying again in %.0f s: %s", job.id, _SESSION_SECONDS, error
                )
                disposition = JobReleased(held_seconds=_SESSION_SECONDS)
            except (OtherVersionError, SessionNewerError) as error:
                # What another version wrote is for its workers, which run beside this one while a version is deployed.
                seconds = self._patience.longest_pause
                log.warning("trying again in %.0f s: %s", seconds, error)
                disposition = JobReleased(held_seconds=seconds)
            except CommandEditedError:
                disposition = JobReleased()
            except QueueError:
                raise
            except Exception as error:  # one job must not take the worker, and so all the others, with it
                disposition = await self._put_off(job, error)
                if disposition is None:
                    log.exception("given up")
                    reason = str(error) if isinstance(error, BotError) else "The bot has an internal error."
                    reason = public_text(error) if isinstance(error, GitHubError) else reason
                    await reports.store_fault(self._contexts, job, reason)
                    await self._contexts.services.store_log(job)
                    disposition = JobEnded(state=JobState.FAILED, reason=reason, report_delay=0.0)
            span.set_attribute("codepilot.job.state", _state_after(disposition).value)
            return disposition

    async def _put_off(self, job: Job, error: Exception) -> Disposition | None:
        """Return to the queue after a fault that is not the job's; None after the patience, and for other errors."""
        record, fault = StoredRecord(self._contexts.queue, job.id), classify(error)
        outage = None if fault is None else (await record.read()).service_outage
        # The attempt itself may have recorded the fault, just before the end of the patience.
        pause = 0.0 if outage is None else outage.retry_at - time.time()
        seconds = pause if pause > 0 else await self._patience.pause(record, fault)
        if seconds is None:
            return None
        log.warning("%s; trying again in %.0f s", str(error).rstrip("."), seconds)
        return JobReleased(held_seconds=seconds)

    async def _run_and_report(self, attempt: JobAttempt) -> Disposition:
        async with self._contexts.open(attempt.job) as context:
            state = context.state
            if (report := (await state.record.read()).ending) is not None:
                state.phases.begin("publish")
                delay = await reports.post_ending(context)
                return JobEnded(state=report.state, reason="reported by a later attempt", report_delay=delay)
            state.phases.begin("admit")
            steps = stored_steps(state.record, lambda: state.progress.steps)
            async with attempt.listen(state.inbox.put), steps, settled(context):
                outcome = await self._run_until_outcome(context, attempt)
                warnings = await settle(context)
                record = await state.record.read()
                if outcome.is_silent and record.is_shown:
                    outcome = replace(outcome, is_silent=False)  # a comment or check run shows a running job
                if not isinstance(outcome, Waiting):
                    outcome = replace(outcome, notes=(*outcome.notes, *warnings))
                    # Of a run that came to no result, whose session is still there. Meanwhile, messages are heard.
                    await context.services.store_log(context.job)
                    if record.service_outage is not None:
                        await _discard_files(context)
            state.phases.begin("publish")
            context.github.raise_priority(Urgency.RESULT)
            outcome = await offer_rule(context, add_late_messages(context, outcome))
            log.info(": ".join(filter(None, (outcome.state, outcome.cause))))
            self._contexts.on_view(status_view(context, outcome))
            if isinstance(outcome, Waiting):
                return await self._park(context, outcome)
            delay = await reports.report_outcome(context, outcome)
            return JobEnded(state=outcome.state, reason=outcome.cause, report_delay=delay)

    async def _park(self, context: JobContext, outcome: Waiting) -> Disposition:
        state, view = context.state, status_view(context, outcome)
        request_id = outcome.pending.request_id if outcome.pending is not None else ""
        try:
            if await restore_check(context) is not None and state.check is not None:
                await state.check.show(view)
            state.comment.is_quiet = state.comment.is_quiet and outcome.pending is None
            await state.comment.show(view)
            if state.comment.edited_at:
                await waiting.record_shown(state.record, at=state.comment.edited_at)
            await notify(context, f"waiting-{request_id}", notice_text(view, state.notify), view)
        except GitHubError as error:
            if await self._patience.pause(state.record, classify(error)) is not None:
                raise  # the job is to be taken up again to tell it
            log.warning("the job's request could not be shown: %s", error)
        if state.inbox.stop_reason:
            return JobReleased()
        return JobParked(until=outcome.until, has_answer=has_answer(request_id))

    async def _run_until_outcome(self, context: JobContext, attempt: JobAttempt) -> JobOutcome:
        try:
            is_finished = attempt.is_exhausted and (await context.record.read()).result is not None
            if not attempt.is_exhausted or (is_finished and attempt.deaths < _PUBLISHING_DEATHS):
                return await run_job(context)
            # Its workers keep dying while running it: report as much of what it did as is possible without dying again.
            reason = "The bot's process died several times while this job was running, so the job was ended."
            remedy = f"The operator finds the cause in the log under job `{attempt.job.id}`; then ask again."
            outcome = await abandon_job(context, f"{reason} {remedy}") if attempt.deaths < _KEEPING_DEATHS else None
            return outcome or await fail_job(context, reason, remedy, unproven=True)
        except (SessionInUseError, SessionUnavailableError, QueueError, CommandEditedError):
            raise  # nothing is wrong with the job
        except Exception as error:  # the last line: a fault of ours must still reach the person who waits, and the log
            if isinstance(error, SessionNewerError) and context.services.is_long_running:
                raise
            fault = classify(error)
            # A job that is to stop, e.g. since the App is gone, waits only for an answer that is sure to come, to keep
            # its work.
            stop = context.state.inbox.stop_reason
            if stop and fault is not None and not (fault.certainty == "passing" and await _has_work(context)):
                failure = await fail_job(context, stop)
                return Stopped(reason=stop, remedy=failure.remedy, patch=failure.patch, is_silent=failure.is_silent)
            if await self._patience.pause(context.record, fault) is not None:
                await show_outage(context)
                raise
            return await fail_for(context, error, fault)


async def _discard_files(context: JobContext) -> None:
    """Discard the files that were kept until the end of an outage; the sweep of ended jobs tries again."""
    try:
        await context.services.workspaces.discard(context.job.id)
    except (BotError, OSError) as error:
        log.warning("the job's files are not removed yet: %s", error)


async def show_outage(context: JobContext) -> None:
    """Show that the job waits for a service. During an outage of GitHub itself, only the dashboard and `status` can."""
    state = context.state
    record = await state.record.read()
    outage = record.service_outage
    if outage is None or not record.is_shown or (outage.service == "GitHub" and outage.doubtful_since is None):
        return
    reason = waiting.describe_service_outage(outage)
    view = status_view(context, Waiting(until=outage.until, service=outage.service, reason=reason))
    try:
        await state.comment.show(view)
        if await restore_check(context) is not None and state.check is not None:
            await state.check.show(view)
    except GitHubError as error:
        log.warning("the wait is not shown: %s", error)


async def fail_for(context: JobContext, error: Exception, fault: Fault | None) -> JobOutcome:
    """Return the outcome of a job that failed with `error`, in words for the public."""
    advice = f"The operator finds the error in the log under job `{context.job.id}`."
    if not context.services.is_long_running:
        advice = f"The log of [this workflow run]({context.services.run_url}) has the error."
    if isinstance(error, GitHubError):
        failure = await fail_job(context, public_text(error), unproven=True)
        return replace(failure, misconfigured=error.lacks_permission)
    if fault is not None and (fault.is_operators or isinstance(error, GitError)):
        log.error("the job ends for a fault that is not its own", exc_info=error)
        outcome = None
        try:
            outcome = await abandon_job(context, f"{fault.public} {advice}")
        except QueueError:
            raise
        except (AgentError, BotError, OSError) as trouble:  # perhaps the same fault
            log.warning("the work so far is not reported: %s", trouble)
        return outcome or await fail_job(context, fault.public, advice)
    if isinstance(error, CloneError):
        error = await confirm_refusal(context.github, context.job.repo.full_name, error)
    if isinstance(error, WorkspaceError | RepoConfigError):
        return await fail_job(context, error.reason, error.remedy)
    if isinstance(error, BotError | AgentError):
        return replace(await fail_job(context, str(error)), misconfigured=isinstance(error, WrongInputError))
    log.error("an internal error of the bot, or a fault of its machine", exc_info=error)
    text = error.strerror if isinstance(error, OSError) else ""
    reason = f"The machine that the bot runs on failed: {text}." if text else "The bot has an internal error."
    return await fail_job(context, reason, advice)


async def _has_work(context: JobContext) -> bool:
    """Whether an attempt has done work that its end must keep, or may have, if that cannot be read now."""
    try:
        return await resume_base(context) is not None
    except (OSError, SessionError, StorageError):
        return True


def _state_after(disposition: Disposition) -> JobState:
    if isinstance(disposition, JobEnded):
        return disposition.state
    return JobState.WAITING if isinstance(disposition, JobParked) else JobState.QUEUED


async def run_job(context: JobContext) -> JobOutcome:
    """Run a job from permission to publication. After a GitHubError, the job can be repeated."""
    job, command, state = context.job, context.job.command, context.state
    if isinstance(command, RepoEvent):
        return await handle_event(context, command)
    if isinstance(command, ReplyEvent):
        return await answer_question(context, command)
    if reason := await early_skip_reason(context):
        return Refused(reason=reason, is_silent=True)
    access = context.access_checks.take(job.id, context.github)
    access = state.access = access or await check_access(context.github, job, bounds=context.services.bounds)
    if not access.may_command and await resume_base(context) is None:
        return await context.refuse(NO_WRITE_ACCESS)
    # A yes or no may also be about a finished plan, as `continue` is.
    needed = "continue" if isinstance(command, Approve | Deny) and command.word else command.verb
    if missing := find_missing_input(needed, context.services.place):
        reason = f"{code(command.verb)} does not work in this workflow, which lacks the input {code(missing)}."
        return await context.refuse(Refusal(reason=reason, cause="no-input"))
    await restore_start(context)
    snapshot, left_out = fetch_snapshot(job, access), ""
    if job.left_out:
        left_out = f"Only the first command of a comment is done. Not done: {code(job.left_out)}. Write it in another."
        state.warn(left_out)
    outcome = await _dispatch(context, command, snapshot)
    if left_out and (outcome.reply or outcome.is_silent):  # without a status comment, which has the warning
        reply = "\n\n".join(filter(None, (outcome.reply, left_out)))
        outcome = replace(outcome, reply=reply, is_silent=False)
    return outcome


async def _dispatch(
    context: JobContext, command: Work | BareCommand | Undo | _AtOnce, snapshot: ThreadSnapshot
) -> JobOutcome:
    if isinstance(command, BareCommand) and context.job.trigger.startswith("@") and await is_answer(context):
        outcome = await handle_steering(context, Continue(message=command.goal), snapshot)
        return replace(outcome, reply=outcome.reply or "The run that asked goes on with your answer.", is_silent=False)
    if isinstance(command, BareCommand | Unclear) and await resume_base(context) is None:
        doubt = await ask_about(context, command)
        if doubt is not None:
            return await context.refuse(doubt)
    if isinstance(command, _AtOnce):
        return await _run_at_once(context, command, snapshot)
    target = await resolve_undo_target(context, snapshot) if isinstance(command, Undo) else snapshot
    return await context.refuse(target) if isinstance(target, Refusal) else await _start(context, target)


async def _run_at_once(context: JobContext, command: _AtOnce, snapshot: ThreadSnapshot) -> JobOutcome:
    if isinstance(command, Remember):
        return await remember(context, command, snapshot)
    if isinstance(command, Steering):
        return await handle_steering(context, command, snapshot)
    if isinstance(command, StartRecipe):
        refusal = await start_recipe(context, command)
        return Finished(is_silent=True) if refusal is None else await context.refuse(refusal)
    texts: list[str] = []
    if isinstance(command, Help):
        texts = [await recipes_text(context), await personas_text(context), await typical_costs_text(context)]
    place = context.services.place
    return Finished(
        reply=answer_to(command, trigger=context.job.trigger, place=place, recipes="\n\n".join(filter(None, texts)))
    )


async def restore_start(context: JobContext) -> None:
    """Measure time from the command's storage, over all attempts."""
    stored = await context.queue.get(context.job.id)
    if stored is not None:
        context.state.started_at = stored.enqueued_at


async def _start(context: JobContext, snapshot: ThreadSnapshot) -> JobOutcome:
    decision = await decide_early(context, snapshot)
    if isinstance(decision, Refusal):
        return await _end_partial_work(context, snapshot, decision.reason) or await context.refuse(decision)
    try:
        return await _work(context, snapshot)
    except WorkspaceError:
        # Whatever git could not do, the next attempt shall not fail for a token that serves no more.
        context.github.tokens.forget(snapshot.repo.full_name)
        raise


async def decide_early(context: JobContext, snapshot: ThreadSnapshot) -> Grant | Refusal:
    """Decide with default settings before the repository's are fetched."""
    is_resumed = await resume_base(context) is not None
    decision = await decide(context, snapshot, RepoConfig(), is_resumed=is_resumed)
    if isinstance(decision, Refusal) and decision.cause == "read-only":
        # The labels that allow more may have names of the repository's own.
        path = context.services.conventions.repo_file
        config = await default_settings(snapshot.reader, snapshot.repo.full_name, path)
        decision = await decide(context, snapshot, config, is_resumed=is_resumed)
    return decision


async def _work(context: JobContext, snapshot: ThreadSnapshot) -> JobOutcome:
    state, is_automatic = context.state, context.job.is_from_event
    if not is_automatic:
        # The acknowledgement may have failed.
        record = await state.record.read()
        if not record.is_acknowledged and await context.react("eyes"):
            await state.record.update(lambda record: replace(record, is_acknowledged=True))
        if record.greeted_at is None:
            await state.comment.show(status_view(context))
            await state.record.update(lambda record: replace(record, greeted_at=time.time()))
            state.is_shown = True
    elif (skipped := await skip_outcome(context, snapshot)) is not None:
        return skipped
    try:
        await close_notices(context)
    except GitHubError as error:  # the report of the end tries again
        log.warning("a notice still says that a request waits: %s", error)
    source = await head_source(context, snapshot)
    base = await base_source(context, snapshot, source)
    path = context.services.conventions.repo_file
    fetched = await fetch_repo_settings(
        snapshot.reader, context.services.workspaces, snapshot.repo.full_name, snapshot.repo.id, base, path
    )
    state.notify = fetched.settings.config.notify
    persona = await choose_persona(context, snapshot.repo.id, base, fetched.settings.personas)
    choices = {
        "base": requested_base(context, fetched.settings),
        "persona": None if isinstance(persona, Refusal) else persona,
    }
    config = fetched.settings.config.model_copy(update=choices)
    settings = replace(fetched.settings, config=config)
    moved = persona if isinstance(persona, Refusal) else await find_branch(context, snapshot, config)
    grant = await decide(context, moved, settings.config, is_resumed=await resume_base(context) is not None)
    if not isinstance(moved, Refusal) and not isinstance(grant, Refusal):
        command = resolve_command(context.job.command, kind=context.job.thread.kind, config=config)
        commit_format = await read_format(context, settings)
        grant = await check_rules(context, moved, grant, commit_format, merges=isinstance(command, Resolve))
        is_new = await resume_base(context) is None
        if isinstance(grant, Grant) and isinstance(command, Work) and is_new:
            # Before the setup. When the agent starts, it gets what is left then.
            fitted = await reserve_budget(context, grant, config, command, snapshot.labels)
            grant = fitted if isinstance(fitted, Refusal) else grant
    snapshot = snapshot if isinstance(moved, Refusal) else moved
    if isinstance(grant, Refusal):
        if (outcome := await _end_partial_work(context, snapshot, grant.reason)) is not None:
            return outcome
        await context.remove_labels(grant.voided)
        return Refused(reason=grant.reason, is_silent=is_automatic)
    state.grant, state.continues = grant, snapshot.pull_link
    state.warn(fetched.warning)
    await context.remove_labels(grant.voided)
    grant = await pin_base(context, grant)
    source = replace(await head_source(context, snapshot), sha=grant.bound_to_sha)
    return await _execute(context, snapshot, grant, settings, source)


async def _execute(
    context: JobContext, snapshot: ThreadSnapshot, grant: Grant, settings: RepoSettings, source: Source
) -> JobOutcome:
    state = context.state
    if (problem := await check_permissions(context, snapshot.repo.full_name, grant)) is not None:
        return replace(await fail_job(context, *problem), misconfigured=True)
    command = resolve_command(context.job.command, kind=context.job.thread.kind, config=settings.config)
    if context.services.is_long_running:
        state.check = _check_run(context, grant.bound_to_sha)
        if warning := await state.check.create(status_view(context)):
            state.warn(warning)
        posted = (await state.record.read()).check.posted
        state.run_url = posted.url if posted is not None else ""
    view, seconds = partial(status_view, context), context.services.edit_seconds
    # Without a thread there is only the check run, which is just made.
    stale = context.job.thread.has_comments and not state.is_shown
    async with state.comment.refreshing(view, seconds=seconds, stale=stale, check=state.check):
        if isinstance(command, Undo):
            return await revert_commit(context, snapshot, grant, settings, source)
        if not isinstance(command, Work):
            raise TypeError(f"{command.verb} is no work")  # a bug of ours: `run_job` has dealt with all else
        merge = None
        if isinstance(command, Resolve):
            planned = await plan_merge(context, snapshot, source, settings.base_sha)
            if not isinstance(planned, Merge):
                return planned
            merge, source = planned, replace(source, sha=planned.commit)
            grant = replace(grant, bound_to_sha=merge.head)
        assignment = Assignment(
            command=command,
            snapshot=snapshot,
            grant=grant,
            settings=settings,
            source=source,
            merge=merge,
            output_schema=await load_output_schema(context, snapshot.repo.id, replace(source, sha=settings.base_sha)),
        )
        if merge is not None and not merge.conflicts:
            return await publish_merge(context, assignment, merge)
        return await run_agent(context, assignment)


def _check_run(context: JobContext, head_sha: str) -> JobCheckRun:
    return JobCheckRun(context.github, context.record.check, context.job, head_sha=head_sha)


async def restore_check(context: JobContext) -> str | None:
    """Return the commit of the job's check run, also of an attempt that died; None without one."""
    state = context.state
    head = (await state.record.read()).check.head_sha
    if state.check is None and head is not None:
        state.check = _check_run(context, head)
    return None if state.check is None or state.check.is_refused else state.check.head_sha


async def abandon_job(context: JobContext, reason: str) -> JobOutcome | None:
    """End a job whose workers keep dying, with its partial work; None without any."""
    access = context.state.access = await check_access(context.github, context.job, bounds=context.services.bounds)
    await restore_start(context)
    return await _end_partial_work(context, fetch_snapshot(context.job, access), reason, Status.FAILED)


async def _end_partial_work(
    context: JobContext, snapshot: ThreadSnapshot, reason: str, status: Status = Status.STOPPED
) -> JobOutcome | None:
    command = resolve_command(context.job.command, kind=context.job.thread.kind, config=RepoConfig())
    base = await resume_base(context)
    if base is None or not isinstance(command, Work):
        return None
    nothing = Grant(policy=Policy(limits=context.services.bounds.limits), publish="nothing", bound_to_sha=base)
    assignment = Assignment(
        command=command,
        snapshot=snapshot,
        grant=nothing,
        settings=RepoSettings(config=RepoConfig(), base_sha=base),
        source=replace(await head_source(context, snapshot), sha=base),
        closing=reason,
    )
    try:
        if isinstance(command, Resolve):
            planned = await plan_merge(context, snapshot, assignment.source, base)
            if not isinstance(planned, Merge):
                return None
            assignment = replace(assignment, merge=planned, source=replace(assignment.source, sha=planned.commit))
        return await abandon_run(context, assignment, status)
    except WorkspaceError as error:
        if classify(error) is not None:
            raise
        return None  # it had not come so far as to have files


async def fail_job(context: JobContext, reason: str, remedy: str = "", *, unproven: bool = False) -> Failed:
    """Return the outcome of a failed job. Users without access get no new comment.

    Args:
        unproven: report after a later access check, if there was none.
    """
    access, job = context.state.access, context.job
    may_command = access is not None and access.may_command
    is_proven = may_command or (await context.record.read()).is_shown
    unproven = unproven and access is None and not job.is_from_event
    if not (is_proven or unproven):
        return Failed(reason=reason, is_silent=True)
    work, patch = context.services.work, ""
    try:
        if await work.find(job.id, context.record) is not None:
            patch = await asyncio.to_thread(work.excerpt, job.id)
    except (OSError, StorageError) as error:  # perhaps why the job fails
        log.warning("the patch of the job cannot be read: %s", error)
        remedy = f"{remedy} The change is stored; `codepilot patch {job.id}` prints it.".strip()
    actions = await list_results(context)
    return Failed(reason=reason, remedy=remedy, patch=patch, is_proven=is_proven, actions=actions)


def add_late_messages(context: JobContext, outcome: JobOutcome) -> JobOutcome:
    """Add a note about each message that arrived after the agent finished."""
    if isinstance(outcome, Waiting):
        return outcome
    notes = (
        f"This message came too late; send it again: {code(one_line(message.text, _LATE_CHARS))}"
        for message in context.state.inbox.undelivered
    )
    return replace(outcome, notes=(*outcome.notes, *notes))
