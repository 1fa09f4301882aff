"""The life of a job: admission, work, publication and report.

Start with `Worker.handle`, which maps each ending or error to a disposition for the queue, and `JobPipeline.run`. The
`Acknowledger` reacts and comments before a worker is free.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace

from agent_runtime import (
    AgentError,
    Policy,
    SessionInUseError,
    SessionNewerError,
    SessionUnavailableError,
    Status,
    traced,
)
from bot.domain.commands import Help, RepoEvent, Review, StartRecipe, Steering, Talk, Undo, Work
from bot.domain.errors import BotError, OtherVersionError, QueueError, StorageError, WrongInputError
from bot.domain.job import TRANSITIONS, Job, JobState
from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.github.rate_limit import Urgency
from bot.github.types import GitHubError
from bot.jobs import reports, waiting
from bot.jobs.access import AccessCheck, ThreadSnapshot, check_access, fetch_snapshot
from bot.jobs.admission import (
    Assignment,
    base_source,
    continue_pull,
    decide,
    head_source,
    move_to_base,
    pin_base,
    requested_base,
    resume_base,
)
from bot.jobs.agent_run import AgentRun
from bot.jobs.automatic import ci_skip_ending, early_skip_reason, review_skip_reason
from bot.jobs.context import Ending, JobContext, JobContextFactory, ShortReply
from bot.jobs.handover import handle_steering
from bot.jobs.recipes import recipes_text, start_recipe
from bot.jobs.record import StoredRecord, has_answer, stored_steps
from bot.jobs.repo_events import handle_event
from bot.jobs.repo_settings import default_settings, fetch_repo_settings, load_output_schema
from bot.jobs.results import resolve_undo_target, revert_commit
from bot.jobs.setup import RepoSettings
from bot.jobs.status import JobCheckRun, StatusComment, StatusReporter, notice_text, notify
from bot.jobs.steering import answer_to
from bot.jobs.waiting import Patience
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS, resolve_command
from bot.permissions.repo_config import Notify, RepoConfig, RepoConfigError
from bot.publishing.markdown import code, one_line
from bot.publishing.status_view import StatusView
from bot.queue.protocols import MAX_DEATHS, Disposition, JobAttempt, JobEnded, JobParked, JobReleased, PendingReport
from bot.queue.records import Signal
from bot.queue.tracing import bind_job

log = logging.getLogger(__name__)
_SESSION_SECONDS = 5.0
_PUBLISHING_DEATHS = MAX_DEATHS + 3
"""Maximum worker deaths for publishing finished work."""
_KEEPING_DEATHS = _PUBLISHING_DEATHS + 2
"""Maximum worker deaths for reporting partial work; later only the failure is reported."""


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
            disposition: Disposition
            try:
                disposition = await self._run_and_report(attempt)
            except GitHubError as error:
                # What could not be asked or told now is asked or told when the job is resumed.
                pause = await self._patience.pause(StoredRecord(self._contexts.queue, job.id), error)
                seconds = self._patience.longest_pause if pause is None else pause
                log.exception("GitHub is not reachable; trying again in %.0f s", seconds)
                disposition = JobReleased(held_seconds=seconds)
            except (SessionInUseError, SessionUnavailableError) as error:
                log.warning(
                    "job %s: its log cannot be kept now; trying again in %.0f s: %s", job.id, _SESSION_SECONDS, error
                )
                disposition = JobReleased(held_seconds=_SESSION_SECONDS)
            except (StorageError, OtherVersionError, SessionNewerError) as error:
                # What another version wrote is for its workers, which run beside this one while a version is deployed.
                seconds = self._patience.longest_pause
                log.warning("trying again in %.0f s: %s", seconds, error)
                disposition = JobReleased(held_seconds=seconds)
            except QueueError:
                raise
            except Exception as error:  # one job must not take the worker, and so all the others, with it
                log.exception("given up")
                reason = str(error) if isinstance(error, BotError) else "The bot has an internal error; see the log."
                await reports.store_fault(self._contexts, job, reason)
                await self._contexts.services.store_log(job)
                disposition = JobEnded(state=JobState.FAILED, reason=reason, report_delay=0.0)
            span.set_attribute("codepilot.job.state", _state_after(disposition).value)
            return disposition

    async def _run_and_report(self, attempt: JobAttempt) -> Disposition:
        job = attempt.job
        async with self._contexts.open(job) as context:
            record = context.record
            pipeline = JobPipeline(context)
            if (ended := (await record.read()).ending) is not None:
                context.phases.begin("publish")
                owed = await reports.post_ending(context, comment=pipeline.comment)
                return JobEnded(state=ended.state, reason="reported by a later attempt", report_delay=owed)
            context.phases.begin("admit")
            async with attempt.listen(pipeline.handle_signal), stored_steps(record, lambda: pipeline.steps):
                ending = await self._run_pipeline(pipeline, context, attempt)
                ending = await pipeline.with_status_view(ending)
                # Of a run that came to no result, whose session is still there. This takes a while: messages are heard.
                if ending.state is not JobState.WAITING:
                    await context.services.store_log(job)
            context.phases.begin("publish")
            context.github.raise_priority(Urgency.RESULT)
            ending = pipeline.with_late_message_notes(ending)
            log.info(": ".join(filter(None, (ending.state, ending.reason))))
            if ending.state is JobState.WAITING:
                self._contexts.ended(ending)
                try:
                    await pipeline.show_check(ending)
                    if (body := await reports.render_body(context, ending)) is not None:
                        await pipeline.comment.put(body)
                    if pipeline.comment.edited_at:
                        await waiting.record_shown(record, at=pipeline.comment.edited_at)
                    await notify(context, f"waiting-{ending.request_id}", notice_text(ending, pipeline.notify))
                except GitHubError as error:
                    if await self._patience.pause(record, error) is not None:
                        raise  # the job is to be taken up again to tell it
                    log.warning("the job's request could not be shown: %s", error)
                if pipeline.is_stopped:
                    return JobReleased()
                return JobParked(until=ending.until, has_answer=has_answer(ending.request_id))
            self._contexts.ended(ending)
            head = await pipeline.check_head()
            final = await reports.render_ending(context, ending, head_sha=head, notify_on=pipeline.notify)
            await reports.store_ending(record, final)
            unpublished = ending.patch and not ending.partial
            if not unpublished and ending.view is not None and ending.state is not JobState.REFUSED:
                await asyncio.to_thread(self._contexts.services.work.reduce, job.id, ending.patch)
            # What GitHub does not take now is told later.
            owed = await reports.post_ending(context, comment=pipeline.comment, check=pipeline.check)
            return JobEnded(state=ending.state, reason=ending.reason, report_delay=owed)

    async def _run_pipeline(self, pipeline: JobPipeline, context: JobContext, attempt: JobAttempt) -> Ending:
        try:
            finished = attempt.is_exhausted and (await context.record.read()).result is not None
            if not attempt.is_exhausted or (finished and attempt.deaths < _PUBLISHING_DEATHS):
                return await pipeline.run()
            # Its workers keep dying while running it: report as much of what it did as is possible without dying again.
            reason = "The bot's process died several times while this job was running, so the job was ended."
            remedy = f"The operator finds the cause in the log under job `{attempt.job.id}`; then ask again."
            ending = await pipeline.abandon(f"{reason} {remedy}") if attempt.deaths < _KEEPING_DEATHS else None
            return ending or await pipeline.fail(reason, remedy, unproven=True)
        except GitHubError as error:
            # A job that is to stop, e.g. since the App is gone, waits for nothing; its end is told when it can be.
            stops = pipeline.is_stopped and error.may_be_transient
            if not stops and await self._patience.pause(context.record, error) is not None:
                raise
            ending = await pipeline.fail(str(error), unproven=True)
            return replace(ending, misconfigured=error.lacks_permission)
        except (WorkspaceError, RepoConfigError) as error:
            return await pipeline.fail(error.reason, error.remedy)
        except (SessionInUseError, SessionUnavailableError, QueueError):
            raise  # nothing is wrong with the job
        except (BotError, AgentError) as error:
            if isinstance(error, StorageError) and not pipeline.is_stopped:
                raise  # nothing is lost: what is stored can be read when the store is back
            if isinstance(error, SessionNewerError) and context.services.is_long_running:
                raise
            return replace(await pipeline.fail(str(error)), misconfigured=isinstance(error, WrongInputError))
        except Exception as error:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("an internal error of the bot, or a fault of its machine")
            said = error.strerror if isinstance(error, OSError) else ""
            reason = f"The machine that the bot runs on failed: {said}." if said else "The bot has an internal error."
            return await pipeline.fail(reason, f"The operator finds it in the log under job `{attempt.job.id}`.")


def _state_after(disposition: Disposition) -> JobState:
    if isinstance(disposition, JobEnded):
        return disposition.state
    return JobState.WAITING if isinstance(disposition, JobParked) else JobState.QUEUED


_SHORT_LINE = 3
"""With more writes waiting than this, the queued comment would delay reports."""
_LATE_CHARS = 200


class JobPipeline:
    """Run one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.comment = StatusComment(context.github, context.record.comment, context.job, marker=context.marker)
        self.check: JobCheckRun | None = None
        self._reporter = StatusReporter(context)
        self._agent_run: AgentRun | None = None
        self._signals: list[Signal] = []
        self._access: AccessCheck | None = None
        self._posted_at = 0.0
        self.notify: tuple[Notify, ...] = ()

    async def run(self) -> Ending:
        """Run the job from permission to publication. After a GitHubError, the job can be repeated."""
        context, command = self._context, self._context.job.command
        if isinstance(command, RepoEvent):
            return await handle_event(context, command)
        if reason := await early_skip_reason(context):
            return Ending(state=JobState.REFUSED, reason=reason)
        access = self._access = context.access_checks.take(context.job.id, context.github) or await self._check_access()
        if not access.may_command and await resume_base(context) is None:
            return await context.refuse(NO_WRITE_ACCESS)
        snapshot = await self._load_snapshot(access)
        if isinstance(command, StartRecipe | Talk):
            return await self._answer(command)
        if isinstance(command, Steering):
            return await handle_steering(context, command, snapshot)
        target = await resolve_undo_target(context, snapshot) if isinstance(command, Undo) else snapshot
        return await context.refuse(target) if isinstance(target, Refusal) else await self._start(target)

    async def _check_access(self) -> AccessCheck:
        context = self._context
        self._access = await check_access(context.github, context.job, bounds=context.services.bounds)
        return self._access

    async def _load_snapshot(self, access: AccessCheck) -> ThreadSnapshot:
        await self._reporter.restore_start()
        return fetch_snapshot(self._context.job, access)

    async def _answer(self, command: StartRecipe | Talk) -> Ending:
        context = self._context
        if isinstance(command, StartRecipe):
            refusal = await start_recipe(context, command)
            return Ending(state=JobState.DONE) if refusal is None else await context.refuse(refusal)
        recipes = await recipes_text(context) if isinstance(command, Help) else ""
        text = answer_to(command, trigger=context.job.trigger, recipes=recipes)
        return Ending(state=JobState.DONE, view=ShortReply(text=text))

    async def _start(self, snapshot: ThreadSnapshot) -> Ending:
        decision = await self._decide_early(snapshot)
        if isinstance(decision, Refusal):
            return await self._finish_partial_work(snapshot, decision.reason) or await self._context.refuse(decision)
        try:
            return await self._work(snapshot)
        except WorkspaceError:
            # Whatever git could not do, the next attempt shall not fail for a token that serves no more.
            self._context.github.tokens.forget(snapshot.repo.full_name)
            raise

    async def _decide_early(self, snapshot: ThreadSnapshot) -> Grant | Refusal:
        """Decide with default settings before the repository's are fetched."""
        context, again = self._context, await resume_base(self._context) is not None
        decision = await decide(context, snapshot, RepoConfig(), is_resumed=again)
        if isinstance(decision, Refusal) and decision.cause == "read-only":
            # The labels that allow more may have names of the repository's own.
            path = context.services.conventions.repo_file
            config = await default_settings(snapshot.reader, snapshot.repo.full_name, path)
            decision = await decide(context, snapshot, config, is_resumed=again)
        return decision

    async def _work(self, snapshot: ThreadSnapshot) -> Ending:
        context, is_automatic = self._context, self._context.job.is_from_event
        if not is_automatic:
            # The greeter may not have done this.
            record = await context.record.read()
            if not record.is_acknowledged and await context.react("eyes"):
                await context.record.update(lambda record: replace(record, is_acknowledged=True))
            if record.greeted_at is None:
                await self.comment.show(self._reporter.view())
            self._posted_at = record.greeted_at or time.time()
        elif isinstance(context.job.command, Review):
            if reason := await review_skip_reason(context, snapshot):
                return Ending(state=JobState.REFUSED, reason=reason)
        elif (skipped := await ci_skip_ending(context, snapshot)) is not None:
            return skipped
        source = await head_source(context, snapshot)
        base = await base_source(context, snapshot, source)
        path = context.services.conventions.repo_file
        fetched = await fetch_repo_settings(
            snapshot.reader, context.services.workspaces, snapshot.repo.full_name, snapshot.repo.id, base, path
        )
        self.notify = fetched.settings.config.notify
        config = fetched.settings.config.model_copy(update={"base": requested_base(context, fetched.settings)})
        settings = replace(fetched.settings, config=config)
        moved = await continue_pull(context, await move_to_base(context, snapshot, config.base), config)
        grant = await decide(context, moved, settings.config, is_resumed=await resume_base(context) is not None)
        snapshot = snapshot if isinstance(moved, Refusal) else moved
        if isinstance(grant, Refusal):
            if (ending := await self._finish_partial_work(snapshot, grant.reason)) is not None:
                return ending
            await context.remove_labels(grant.voided)
            if is_automatic:
                return Ending(state=JobState.REFUSED, reason=grant.reason)
            view = self._reporter.view(state="refused", reason=grant.reason)
            return Ending(state=JobState.REFUSED, reason=grant.reason, view=view)
        self._reporter.set_grant(grant, warning=fetched.warning, continues=snapshot.pull_link)
        await context.remove_labels(grant.voided)
        grant = await pin_base(context, grant)
        source = replace(await head_source(context, snapshot), sha=grant.bound_to_sha)
        return await self._execute(snapshot, grant, settings, source)

    async def _execute(self, snapshot: ThreadSnapshot, grant: Grant, settings: RepoSettings, source: Source) -> Ending:
        context = self._context
        command = resolve_command(context.job.command, kind=context.job.thread.kind, config=settings.config)
        if context.services.is_long_running:
            self.check = self._check_run(grant.bound_to_sha)
            if warning := await self.check.create(self._reporter.view()):
                self._reporter.warn(warning)
            posted = (await context.record.read()).check.posted
            self._reporter.run_url = posted.url if posted is not None else ""
        seconds = context.services.edit_seconds
        # Without a thread there is only the check run, which was just made.
        stale = context.job.thread.has_comments and time.time() - self._posted_at >= seconds
        async with self.comment.refreshing(self._reporter.view, seconds=seconds, stale=stale, check=self.check):
            if isinstance(command, Undo):
                return await revert_commit(context, self._reporter, snapshot, grant, source)
            if not isinstance(command, Work):
                raise TypeError(f"{command.verb} is no work")  # a bug of ours: `run` has dealt with all else
            schema = await load_output_schema(context, snapshot.repo.id, replace(source, sha=settings.base_sha))
            assignment = Assignment(
                command=command, snapshot=snapshot, grant=grant, settings=settings, source=source, output_schema=schema
            )
            self._agent_run = AgentRun(context, self._reporter, assignment)
            for signal in self._signals:
                self._agent_run.handle_signal(signal)
            return await self._agent_run.go()

    def _check_run(self, head_sha: str) -> JobCheckRun:
        context = self._context
        return JobCheckRun(context.github, context.record.check, context.job, head_sha=head_sha)

    async def abandon(self, reason: str) -> Ending | None:
        """End a job whose workers keep dying, with its partial work; None without any."""
        return await self._finish_partial_work(
            await self._load_snapshot(await self._check_access()), reason, Status.FAILED
        )

    async def _finish_partial_work(
        self, snapshot: ThreadSnapshot, reason: str, status: Status = Status.STOPPED
    ) -> Ending | None:
        context = self._context
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
            return await AgentRun(context, self._reporter, assignment).abandon(status)
        except WorkspaceError:  # it had not come so far as to have files
            return None

    async def fail(self, reason: str, remedy: str = "", *, unproven: bool = False) -> Ending:
        """Return the ending of a failed job. Users without access get no new comment.

        Args:
            unproven: report after a later access check, if there was none.
        """
        may_command = self._access is not None and self._access.may_command
        proven = may_command or (await self._context.record.read()).is_shown
        unproven = unproven and self._access is None and not self._context.job.is_from_event
        if not (proven or unproven):
            return Ending(state=JobState.FAILED, reason=reason)
        result = await self._context.services.work.find(self._context.job.id, self._context.record)
        patch = await asyncio.to_thread(self._context.services.work.excerpt, self._context.job.id) if result else ""
        patch_note = self._context.patch_note if patch else ""
        view = self._reporter.view(state="failed", reason=reason, remedy=remedy, kept_work=patch_note)
        return Ending(state=JobState.FAILED, reason=reason, view=view, patch=patch, proven=proven)

    async def with_status_view(self, ending: Ending) -> Ending:
        """Add a status view if a comment or check run still shows a running job."""
        if ending.view is not None or not (await self._context.record.read()).is_shown:
            return ending
        return replace(ending, view=self._reporter.view(state=ending.state.value, reason=ending.reason))

    def with_late_message_notes(self, ending: Ending) -> Ending:
        """Add a note about each message that arrived after the agent finished."""
        if ending.state is JobState.WAITING or not isinstance(ending.view, StatusView):
            return ending
        messages = [signal for signal in self._signals if signal.kind == "message"]
        late = messages if self._agent_run is None else self._agent_run.undelivered
        notes = [
            f"This message came too late; send it again: {code(one_line(message.text, _LATE_CHARS))}"
            for message in late
        ]
        return replace(ending, view=replace(ending.view, notes=(*ending.view.notes, *notes)))

    def handle_signal(self, signal: Signal) -> None:
        self._signals.append(signal)
        if self._agent_run is not None:
            self._agent_run.handle_signal(signal)

    @property
    def is_stopped(self) -> bool:
        return any(signal.kind == "stop" for signal in self._signals)

    @property
    def steps(self) -> int:
        return self._reporter.progress.steps

    async def check_head(self) -> str | None:
        head = (await self._context.record.read()).check.head_sha
        if self.check is None and head is not None:  # of an attempt that died
            self.check = self._check_run(head)
        return None if self.check is None or self.check.is_refused else self.check.head_sha

    async def show_check(self, ending: Ending) -> None:
        if await self.check_head() is None or self.check is None or not isinstance(ending.view, StatusView):
            return
        await self.check.show(ending.view, status=ending.status, patch=ending.patch, review=ending.review)

    async def acknowledge(self) -> AccessCheck | None:
        """React to a permitted command before its job runs; return the access check, or None if no comment is due."""
        context = self._context
        if context.job.lane != "work" or context.job.is_from_event:
            return None
        access = await self._check_access()
        if not access.may_command:
            return None
        if await context.react("eyes"):
            await context.record.update(lambda record: replace(record, is_acknowledged=True))
        context.access_checks.put(context.job.id, access)
        return access

    async def post_queued_comment(self, access: AccessCheck) -> None:
        """Post the comment of a permitted job, unless many writes wait."""
        context = self._context
        if context.github.waiting_writes > _SHORT_LINE or not isinstance(
            await self._decide_early(await self._load_snapshot(access)), Grant
        ):
            return
        stored = await context.queue.get(context.job.id)
        if stored is None or not TRANSITIONS[stored.state]:
            return
        await self.comment.show(self._reporter.view(state="queued"))
        now = time.time()
        record = await context.record.update(lambda record: replace(record, greeted_at=now))
        # The job may have been cancelled meanwhile, and this comment must not hide that.
        stored = await context.queue.get(context.job.id)
        if record.ending is not None:
            await self.comment.put(record.ending.body)
        elif stored is not None and not TRANSITIONS[stored.state]:
            await self.comment.show(self._reporter.view(state=stored.state.value, reason=stored.reason))


MAX_CONCURRENT = 16
MAX_WAITING = 200
ACKNOWLEDGE_SECONDS = 6.0
HOLD_SECONDS = 15.0
"""Time to hold a job back so that its comment is posted once: longer than an acknowledgement and its late requests."""


class Acknowledger:
    """React to commands and post their comments in the background; the worker does whatever is missing.

    Args:
        comments: false without an agent, where the sandbox is unknown.
    """

    def __init__(self, contexts: JobContextFactory, *, comments: bool = True) -> None:
        self._contexts, self._comments = contexts, comments
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._tasks: set[asyncio.Task[None]] = set()

    def acknowledge(self, job: Job) -> None:
        """Acknowledge a job soon, unless too many are waiting."""
        if job.lane != "work":
            return
        if len(self._tasks) >= MAX_WAITING:
            task = asyncio.create_task(self._release_hold(job))
        else:
            task = asyncio.create_task(self._acknowledge(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _acknowledge(self, job: Job) -> None:
        try:
            async with asyncio.timeout(ACKNOWLEDGE_SECONDS), AsyncExitStack() as stack:
                async with self._slots:
                    context = await stack.enter_async_context(self._contexts.open(job))
                    pipeline = JobPipeline(context)
                    access = await pipeline.acknowledge()
                # A comment has to wait for its turn to write, and others for their reaction meanwhile.
                if access is not None and self._comments:
                    await pipeline.post_queued_comment(access)
        except TimeoutError:
            # GitHub may still do what it was asked: the job stays held until a worker would see that.
            log.warning("not acknowledged: GitHub did not answer in time")
            return
        except (BotError, AgentError) as error:
            log.warning("not acknowledged: %s", error)
        await self._release_hold(job)

    async def _release_hold(self, job: Job) -> None:
        try:
            await self._contexts.queue.release_hold(job.id)
        except QueueError as error:
            log.warning("the job begins only in some seconds: %s", error)
