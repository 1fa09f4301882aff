"""The life of one job, top to bottom: taken from the queue, admitted, worked on, published, reported.

`Worker.handle` gets each job from the queue and turns every way in which it can end into a disposition for the queue.
In between, `JobPipeline.run` decides whether the job may be done (`admission`), has it done (`agent_run`, `results`)
or answers it (`steering`, `repo_events`, `recipes`). `Acknowledger` is a courtesy beside that path: it sets the 👀 and
posts the first comment of a command that still waits for others.
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
from bot.jobs.repo_events import handle_event
from bot.jobs.repo_settings import fetch_repo_settings, on_default_branch, output_schema_of
from bot.jobs.results import resolve_undo_target, undo
from bot.jobs.setup import RepoSettings
from bot.jobs.status import JobCheckRun, StatusComment, StatusReporter, notice_of, notify
from bot.jobs.steering import answer_to
from bot.jobs.waiting import Patience
from bot.permissions.levels import Grant, Refusal
from bot.permissions.permissions import NO_WRITE_ACCESS, resolve_command
from bot.permissions.repo_config import Notify, RepoConfig, RepoConfigError
from bot.publishing.markdown import code, one_line
from bot.publishing.status_view import StatusView
from bot.queue.protocols import MAX_DEATHS, Disposition, JobAttempt, JobEnded, JobParked, JobReleased, PendingReport
from bot.queue.records import Signal, StoredRecord
from bot.queue.tracing import bind_job

log = logging.getLogger(__name__)
_SESSION_SECONDS = 5.0
_PUBLISHING_DEATHS = MAX_DEATHS + 3
"""Up to how many deaths it is tried to publish work that is finished."""
_KEEPING_DEATHS = _PUBLISHING_DEATHS + 2
"""Up to how many it is tried to find out what a job did; from then on it only gets its last words."""


class Worker:
    """Runs each job through the pipeline, and sees to it that its end is told.

    Args:
        contexts: where jobs come from, and all that they share.
        patience: for how long GitHub may be silent before a job is given up.
    """

    def __init__(self, contexts: JobContextFactory, patience: Patience) -> None:
        self._contexts = contexts
        self._patience = patience

    async def report(self, report: PendingReport) -> bool:
        """See `JobHandler.tell`."""
        with bind_job(report.job) if report.job is not None else nullcontext():
            return await reports.tell_late(self._contexts, report)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        """See `JobHandler.handle`."""
        job = attempt.job
        about: dict[str, str | int] = {
            "codepilot.job.id": job.id,
            "codepilot.job.attempt": attempt.number,
            "codepilot.job.command": job.command.verb,
            "codepilot.repository.id": job.repo.id,
        }
        with bind_job(job, attempt=attempt.number), traced("job", about) as span:
            log.info("attempt %d", attempt.number)
            disposition: Disposition
            try:
                disposition = await self._see_through(attempt)
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
                await reports.keep_fault(self._contexts, job, reason)
                await self._contexts.services.keep_log(job)
                disposition = JobEnded(state=JobState.FAILED, reason=reason, report_delay=0.0)
            span.set_attribute("codepilot.job.state", _state_after(disposition).value)
            return disposition

    async def _see_through(self, attempt: JobAttempt) -> Disposition:
        """Run a job and tell its ending."""
        job = attempt.job
        async with self._contexts.opened(job) as context:
            record = context.record
            pipeline = JobPipeline(context)
            if (ended := (await record.read()).ending) is not None:
                context.phases.begin("publish")
                owed = await reports.tell(context, comment=pipeline.comment)
                return JobEnded(state=ended.state, reason="reported by a later attempt", report_delay=owed)
            context.phases.begin("admit")
            async with attempt.listen(pipeline.handle_signal, lambda: pipeline.steps):
                ending = await self._ending(pipeline, context, attempt)
                ending = await pipeline.with_status_view(ending)
                # Of a run that came to no result, whose session is still there. This takes a while: messages are heard.
                if ending.state is not JobState.WAITING:
                    await context.services.keep_log(job)
            context.phases.begin("publish")
            context.github.hurry(Urgency.ENDING)
            ending = pipeline.with_late_message_notes(ending)
            log.info(": ".join(filter(None, (ending.state, ending.reason))))
            if ending.state is JobState.WAITING:
                self._contexts.ended(ending)
                try:
                    await pipeline.show_check(ending)
                    if (body := await reports.body_of(context, ending)) is not None:
                        await pipeline.comment.put(body)
                    if pipeline.comment.told_at:
                        await waiting.note_shown(record, at=pipeline.comment.told_at)
                    await notify(context, f"waiting-{ending.request_id}", notice_of(ending, pipeline.notify))
                except GitHubError as error:
                    if await self._patience.pause(record, error) is not None:
                        raise  # the job is to be taken up again to tell it
                    log.warning("the job's request could not be shown: %s", error)
                if pipeline.is_to_stop:
                    return JobReleased()
                return JobParked(until=ending.until, request_id=ending.request_id)
            self._contexts.ended(ending)
            final = await reports.recorded(context, ending, checked=await pipeline.checked(), wanted=pipeline.notify)
            await reports.keep(record, final)
            unpublished = ending.patch and not ending.partial
            if not unpublished and ending.view is not None and ending.state is not JobState.REFUSED:
                await asyncio.to_thread(self._contexts.services.work.narrow, job.id, ending.patch)
            # What GitHub does not take now is told later.
            owed = await reports.tell(context, comment=pipeline.comment, check=pipeline.check)
            return JobEnded(state=ending.state, reason=ending.reason, report_delay=owed)

    async def _ending(self, pipeline: JobPipeline, context: JobContext, attempt: JobAttempt) -> Ending:
        """Run the pipeline; every failure in it becomes an ending."""
        try:
            finished = attempt.is_exhausted and (await context.record.read()).result is not None
            if not attempt.is_exhausted or (finished and attempt.deaths < _PUBLISHING_DEATHS):
                return await pipeline.run()
            # Its workers keep dying while running it: report as much of what it did as is possible without dying again.
            reason = "The bot's process died several times while this job was running, so the job was ended."
            remedy = f"The operator finds the cause in the log under job `{attempt.job.id}`; then ask again."
            ending = await pipeline.give_up(f"{reason} {remedy}") if attempt.deaths < _KEEPING_DEATHS else None
            return ending or await pipeline.failed(reason, remedy, unproven=True)
        except GitHubError as error:
            # A job that is to stop, e.g. since the App is gone, waits for nothing; its end is told when it can be.
            stops = pipeline.is_to_stop and error.unsettled
            if not stops and await self._patience.pause(context.record, error) is not None:
                raise
            ending = await pipeline.failed(str(error), unproven=True)
            return replace(ending, misconfigured=error.lacks_permission)
        except (WorkspaceError, RepoConfigError) as error:
            return await pipeline.failed(error.reason, error.remedy)
        except (SessionInUseError, SessionUnavailableError, QueueError):
            raise  # nothing is wrong with the job
        except (BotError, AgentError) as error:
            if isinstance(error, StorageError) and not pipeline.is_to_stop:
                raise  # nothing is lost: what is stored can be read when the store is back
            if isinstance(error, SessionNewerError) and context.services.is_long_running:
                raise
            return replace(await pipeline.failed(str(error)), misconfigured=isinstance(error, WrongInputError))
        except Exception as error:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("an internal error of the bot, or a fault of its machine")
            said = error.strerror if isinstance(error, OSError) else ""
            reason = f"The machine that the bot runs on failed: {said}." if said else "The bot has an internal error."
            return await pipeline.failed(reason, f"The operator finds it in the log under job `{attempt.job.id}`.")


def _state_after(disposition: Disposition) -> JobState:
    if isinstance(disposition, JobEnded):
        return disposition.state
    return JobState.WAITING if isinstance(disposition, JobParked) else JobState.QUEUED


_SHORT_LINE = 3
"""With more writes than this in line, a comment that only says that a job waits would keep others from their ends."""
_LATE_CHARS = 200


class JobPipeline:
    """Runs one job.

    Attributes:
        comment: the job's one comment.
        check: its one check run, once it has one.
        notify: what its asker is told in comments of their own, once the repository's file is read.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self.comment = StatusComment(context.github, context.record.comment, context.job, marker=context.marker)
        self.check: JobCheckRun | None = None
        self._reporter = StatusReporter(context)
        self._agent_run: AgentRun | None = None
        self._heard: list[Signal] = []
        self._access: AccessCheck | None = None
        self._shown_at = 0.0
        self.notify: tuple[Notify, ...] = ()

    async def run(self) -> Ending:
        """Take the job from permission to publication.

        Raises:
            GitHubError: GitHub failed in a way that may pass; the job can be run again.
        """
        context, command = self._context, self._context.job.command
        if isinstance(command, RepoEvent):
            return await handle_event(context, command)
        if why := await early_skip_reason(context):
            return Ending(state=JobState.REFUSED, reason=why)
        access = self._access = context.access_checks.take(context.job.id, context.github) or await self._check_access()
        if not access.may_command and await resume_base(context) is None:
            return await context.refuse(NO_WRITE_ACCESS)
        here = await self._load_snapshot(access)
        if isinstance(command, StartRecipe | Talk):
            return await self._answer(command)
        if isinstance(command, Steering):
            return await handle_steering(context, command, here)
        aim = await resolve_undo_target(context, here) if isinstance(command, Undo) else here
        return await context.refuse(aim) if isinstance(aim, Refusal) else await self._begin(aim)

    async def _check_access(self) -> AccessCheck:
        context = self._context
        self._access = await check_access(context.github, context.job, bounds=context.services.bounds)
        return self._access

    async def _load_snapshot(self, access: AccessCheck) -> ThreadSnapshot:
        await self._reporter.since_asked()
        return fetch_snapshot(self._context.job, access)

    async def _answer(self, command: StartRecipe | Talk) -> Ending:
        """Do what concerns no job that there is."""
        context = self._context
        if isinstance(command, StartRecipe):
            refusal = await start_recipe(context, command)
            return Ending(state=JobState.DONE) if refusal is None else await context.refuse(refusal)
        recipes = await recipes_text(context) if isinstance(command, Help) else ""
        told = answer_to(command, trigger=context.job.trigger, recipes=recipes)
        return Ending(state=JobState.DONE, view=ShortReply(text=told))

    async def _begin(self, here: ThreadSnapshot) -> Ending:
        """Work, when that may be; else say why not."""
        decision = await self._may_begin(here)
        if isinstance(decision, Refusal):
            return await self._finish_partial_work(here, decision.reason) or await self._context.refuse(decision)
        try:
            return await self._work(here)
        except WorkspaceError:
            # Whatever git could not do, the next attempt shall not fail for a token that serves no more.
            self._context.github.tokens.forget(here.repo.full_name)
            raise

    async def _may_begin(self, here: ThreadSnapshot) -> Grant | Refusal:
        """Decide before anything is fetched or said; most of what the repository itself asks for comes later."""
        context, again = self._context, await resume_base(self._context) is not None
        decision = await decide(context, here, RepoConfig(), is_resumed=again)
        if isinstance(decision, Refusal) and decision.cause == "read-only":
            # The labels that allow more may have names of the repository's own.
            path = context.services.conventions.repo_file
            config = await on_default_branch(here.reader, here.repo.full_name, path)
            decision = await decide(context, here, config, is_resumed=again)
        return decision

    async def _work(self, here: ThreadSnapshot) -> Ending:
        context, unasked = self._context, self._context.job.is_from_event
        if not unasked:
            # The greeter may not have done this.
            record = await context.record.read()
            if not record.seen and await context.react("eyes"):
                await context.record.update(lambda record: replace(record, seen=True))
            if record.greeted_at is None:
                await self.comment.show(self._reporter.now())
            self._shown_at = record.greeted_at or time.time()
        elif isinstance(context.job.command, Review):
            if why := await review_skip_reason(context, here):
                return Ending(state=JobState.REFUSED, reason=why)
        elif (skipped := await ci_skip_ending(context, here)) is not None:
            return skipped
        source = await head_source(context, here)
        base = await base_source(context, here, source)
        path = context.services.conventions.repo_file
        found = await fetch_repo_settings(
            here.reader, context.services.workspaces, here.repo.full_name, here.repo.id, base, path
        )
        self.notify = found.asked.config.notify
        asked = replace(
            found.asked, config=found.asked.config.model_copy(update={"base": requested_base(context, found.asked)})
        )
        place = await continue_pull(context, await move_to_base(context, here, asked.config.base), asked.config)
        grant = await decide(context, place, asked.config, is_resumed=await resume_base(context) is not None)
        here = here if isinstance(place, Refusal) else place
        if isinstance(grant, Refusal):
            if (ending := await self._finish_partial_work(here, grant.reason)) is not None:
                return ending
            await context.void(grant.voided)
            if unasked:
                return Ending(state=JobState.REFUSED, reason=grant.reason)
            view = self._reporter.now(state="refused", reason=grant.reason)
            return Ending(state=JobState.REFUSED, reason=grant.reason, view=view)
        self._reporter.begin(grant, warning=found.warning, continues=here.pull_link)
        await context.void(grant.voided)
        grant = await pin_base(context, grant)
        source = replace(await head_source(context, here), sha=grant.bound_to_sha)
        return await self._granted(here, grant, asked, source)

    async def _granted(self, here: ThreadSnapshot, grant: Grant, asked: RepoSettings, source: Source) -> Ending:
        context = self._context
        command = resolve_command(context.job.command, kind=context.job.thread.kind, config=asked.config)
        if context.services.is_long_running:
            self.check = self._check_run(grant.bound_to_sha)
            if warning := await self.check.begin(self._reporter.now()):
                self._reporter.warn(warning)
            posted = (await context.record.read()).check.posted
            self._reporter.run_url = posted.url if posted is not None else ""
        seconds = context.services.edit_seconds
        # Without a thread there is only the check run, which was just made.
        stale = context.job.thread.has_comments and time.time() - self._shown_at >= seconds
        async with self.comment.kept_fresh(self._reporter.now, seconds=seconds, stale=stale, check=self.check):
            if isinstance(command, Undo):
                return await undo(context, self._reporter, here, grant, source)
            if not isinstance(command, Work):
                raise TypeError(f"{command.verb} is no work")  # a bug of ours: `run` has dealt with all else
            schema = await output_schema_of(context, here.repo.id, replace(source, sha=asked.base_sha))
            assignment = Assignment(
                command=command, snapshot=here, grant=grant, settings=asked, source=source, output_schema=schema
            )
            self._agent_run = AgentRun(context, self._reporter, assignment)
            for signal in self._heard:
                self._agent_run.handle_signal(signal)
            return await self._agent_run.go()

    def _check_run(self, head_sha: str) -> JobCheckRun:
        context = self._context
        return JobCheckRun(context.github, context.record.check, context.job, head_sha=head_sha)

    async def give_up(self, reason: str) -> Ending | None:
        """End a job that its workers keep dying of, with what it did so far; None when it never came so far."""
        return await self._finish_partial_work(
            await self._load_snapshot(await self._check_access()), reason, Status.FAILED
        )

    async def _finish_partial_work(
        self, here: ThreadSnapshot, why: str, status: Status = Status.STOPPED
    ) -> Ending | None:
        """End a job that was begun and may not go on, and keep what it did; None when there is nothing of it."""
        context = self._context
        command = resolve_command(context.job.command, kind=context.job.thread.kind, config=RepoConfig())
        base = await resume_base(context)
        if base is None or not isinstance(command, Work):
            return None
        nothing = Grant(policy=Policy(limits=context.services.bounds.limits), publish="nothing", bound_to_sha=base)
        assignment = Assignment(
            command=command,
            snapshot=here,
            grant=nothing,
            settings=RepoSettings(config=RepoConfig(), base_sha=base),
            source=replace(await head_source(context, here), sha=base),
            closing=why,
        )
        try:
            return await AgentRun(context, self._reporter, assignment).abandon(status)
        except WorkspaceError:  # it had not come so far as to have files
            return None

    async def failed(self, reason: str, remedy: str = "", *, unproven: bool = False) -> Ending:
        """The ending of a job that failed; nothing new is shown to people who may not give commands.

        Args:
            reason: what went wrong.
            remedy: what to do about it.
            unproven: whether GitHub could not be asked who commands: the code that reports the ending asks first.
        """
        may_command = self._access is not None and self._access.may_command
        proven = may_command or (await self._context.record.read()).is_shown
        unproven = unproven and self._access is None and not self._context.job.is_from_event
        if not (proven or unproven):
            return Ending(state=JobState.FAILED, reason=reason)
        done = await self._context.services.work.find(self._context.job.id, self._context.record)
        patch = await asyncio.to_thread(self._context.services.work.patch, self._context.job.id) if done else ""
        kept = self._context.kept if patch else ""
        view = self._reporter.now(state="failed", reason=reason, remedy=remedy, kept_work=kept)
        return Ending(state=JobState.FAILED, reason=reason, view=view, patch=patch, proven=proven)

    async def with_status_view(self, ending: Ending) -> Ending:
        """The ending with words where nobody is owed any, but the job's comment or check run says that it goes on."""
        if ending.view is not None or not (await self._context.record.read()).is_shown:
            return ending
        return replace(ending, view=self._reporter.now(state=ending.state.value, reason=ending.reason))

    def with_late_message_notes(self, ending: Ending) -> Ending:
        """The ending with a word to everybody whose message came too late; one that waits will still be told."""
        if ending.state is JobState.WAITING or not isinstance(ending.view, StatusView):
            return ending
        messages = [signal for signal in self._heard if signal.kind == "message"]
        late = messages if self._agent_run is None else self._agent_run.undelivered
        notes = [
            f"This message came too late; send it again: {code(one_line(each.text, _LATE_CHARS))}" for each in late
        ]
        return replace(ending, view=replace(ending.view, notes=(*ending.view.notes, *notes)))

    def handle_signal(self, signal: Signal) -> None:
        """Take in what somebody says to the job while it runs."""
        self._heard.append(signal)
        if self._agent_run is not None:
            self._agent_run.handle_signal(signal)

    @property
    def is_to_stop(self) -> bool:
        """Whether somebody has told the job to stop."""
        return any(signal.kind == "stop" for signal in self._heard)

    @property
    def steps(self) -> int:
        """How many steps the agent has made."""
        return self._reporter.progress.steps

    async def checked(self) -> str | None:
        """The commit that the job's check run stands on; None when it has none."""
        head = (await self._context.record.read()).check.head_sha
        if self.check is None and head is not None:  # of an attempt that died
            self.check = self._check_run(head)
        return None if self.check is None or self.check.given_up else self.check.head_sha

    async def show_check(self, ending: Ending) -> None:
        """Let the check run, if there is one, say how the job ended, or that it waits."""
        if await self.checked() is None or self.check is None or not isinstance(ending.view, StatusView):
            return
        await self.check.show(ending.view, status=ending.status, patch=ending.patch, review=ending.review)

    async def acknowledge(self) -> AccessCheck | None:
        """React at once to a command that counts: the job itself may have to wait for others.

        Returns:
            What was asked of GitHub; None where nobody is to be answered.
        """
        context = self._context
        if context.job.lane != "work" or context.job.is_from_event:
            return None
        access = await self._check_access()
        if not access.may_command:
            return None
        if await context.react("eyes"):
            await context.record.update(lambda record: replace(record, seen=True))
        context.access_checks.put(context.job.id, access)
        return access

    async def post_queued_comment(self, access: AccessCheck) -> None:
        """Make the comment of a job that may begin, unless many others wait to write; then its worker makes it."""
        context = self._context
        if context.github.waiting > _SHORT_LINE or not isinstance(
            await self._may_begin(await self._load_snapshot(access)), Grant
        ):
            return
        stored = await context.queue.get(context.job.id)
        if stored is None or not TRANSITIONS[stored.state]:
            return
        await self.comment.show(self._reporter.now(state="queued"))
        now = time.time()
        record = await context.record.update(lambda record: replace(record, greeted_at=now))
        # The job may have been cancelled meanwhile, and this comment must not hide that.
        stored = await context.queue.get(context.job.id)
        if record.ending is not None:
            await self.comment.put(record.ending.body)
        elif stored is not None and not TRANSITIONS[stored.state]:
            await self.comment.show(self._reporter.now(state=stored.state.value, reason=stored.reason))


AT_ONCE = 16
WAITING = 200
GREET_SECONDS = 6.0
HELD_SECONDS = 15.0
"""How long a job is kept from the workers for its greeting, so that its comment is made once; it is longer than a
greeting may wait and take, since a request that is given up may still be on its way."""


class Acknowledger:
    """Reacts to commands and makes their comments, in the background. A courtesy: the worker does what it has not.

    Args:
        contexts: makes those of the jobs.
        comments: whether it makes comments; where no agent runs, it is not known what they say of the sandbox.
    """

    def __init__(self, contexts: JobContextFactory, *, comments: bool = True) -> None:
        self._contexts, self._comments = contexts, comments
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def acknowledge(self, job: Job) -> None:
        """Answer the job's command soon; with too many waiting, leave it to the worker."""
        if job.lane != "work":
            return
        if len(self._tasks) >= WAITING:
            task = asyncio.create_task(self._unhold(job))
        else:
            task = asyncio.create_task(self._acknowledge(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _acknowledge(self, job: Job) -> None:
        try:
            async with asyncio.timeout(GREET_SECONDS), AsyncExitStack() as stack:
                async with self._slots:
                    context = await stack.enter_async_context(self._contexts.opened(job))
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
        await self._unhold(job)

    async def _unhold(self, job: Job) -> None:
        try:
            await self._contexts.queue.release_hold(job.id)
        except QueueError as error:
            log.warning("the job begins only in some seconds: %s", error)
