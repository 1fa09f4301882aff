"""The job pipeline: one job from permission to publication, top to bottom."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from agent_runtime import Policy, Status
from bot.control.automatic_review import early_skip_reason, review_skip_reason
from bot.control.help import answer_to
from bot.control.recipes import recipes_text, start_recipe
from bot.control.repo_events import handle_event
from bot.control.resume_artifact import steered
from bot.control.undo import aimed, undo
from bot.domain.commands import Help, RepoEvent, Review, StartRecipe, Steering, Talk, Undo, Work
from bot.domain.job import TRANSITIONS, JobState
from bot.engine.records import Signal
from bot.gate.decision import Grant, Refusal
from bot.gate.permissions import NO_WRITE_ACCESS, resolved
from bot.gate.repo_config import RepoConfig
from bot.gate.repo_keys import Notify
from bot.jobs.admission import decide
from bot.jobs.assignment import Assignment
from bot.jobs.context import Ending, JobContext, ShortReply
from bot.jobs.repo_settings import fetch_repo_settings, on_default_branch
from bot.jobs.resume_base import pin_base, resume_base
from bot.jobs.setup import RepoSettings
from bot.jobs.snapshot import AccessCheck, ThreadSnapshot, check_access, fetch_snapshot
from bot.pipeline.agent_run import AgentRun
from bot.pipeline.ci_failure import ci_skip_ending
from bot.pipeline.own_pull import continue_own_pull
from bot.pipeline.structured_output import output_schema_of
from bot.pipeline.work_sources import at_base, base_of, wanted_base, work_source
from bot.publishing.text import code, one_line
from bot.publishing.view import StatusView
from bot.reporting.check_run import JobCheckRun
from bot.reporting.reporter import StatusReporter
from bot.reporting.status_comment import StatusComment
from bot.workspace import Source, WorkspaceError

log = logging.getLogger(__name__)

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
        access = self._access = context.access_checks.take(context.job.id, context.github) or await self._arrive()
        if not access.may_command and await resume_base(context) is None:
            return await context.refuse(NO_WRITE_ACCESS)
        here = await self._look(access)
        if isinstance(command, StartRecipe | Talk):
            return await self._answer(command)
        if isinstance(command, Steering):
            return await steered(context, command, here)
        aim = await aimed(context, here) if isinstance(command, Undo) else here
        return await context.refuse(aim) if isinstance(aim, Refusal) else await self._begin(aim)

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
            return await self._wind_up(here, decision.reason) or await self._context.refuse(decision)
        try:
            return await self._work(here)
        except WorkspaceError:
            # Whatever git could not do, the next attempt shall not fail for a token that serves no more.
            self._context.github.tokens.forget(here.repo.full_name)
            raise

    async def give_up(self, reason: str) -> Ending | None:
        """End a job that its workers keep dying of, with what it did so far; None when it never came so far."""
        return await self._wind_up(await self._look(await self._arrive()), reason, Status.FAILED)

    async def greet(self) -> AccessCheck | None:
        """React at once to a command that counts: the job itself may have to wait for others.

        Returns:
            What was asked of GitHub; None where nobody is to be answered.
        """
        context = self._context
        if context.job.lane != "work" or context.job.is_unasked:
            return None
        access = await self._arrive()
        if not access.may_command:
            return None
        if await context.react("eyes"):
            await context.record.update(lambda record: replace(record, seen=True))
        context.access_checks.keep(context.job.id, access)
        return access

    async def announce(self, access: AccessCheck) -> None:
        """Make the comment of a job that may begin, unless many others wait to write; then its worker makes it."""
        context = self._context
        if context.github.waiting > _SHORT_LINE or not isinstance(
            await self._may_begin(await self._look(access)), Grant
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

    @property
    def is_to_stop(self) -> bool:
        """Whether somebody has told the job to stop."""
        return any(signal.kind == "stop" for signal in self._heard)

    @property
    def steps(self) -> int:
        """How many steps the agent has made."""
        return self._reporter.progress.steps

    def hear(self, signal: Signal) -> None:
        """Take in what somebody says to the job while it runs."""
        self._heard.append(signal)
        if self._agent_run is not None:
            self._agent_run.hear(signal)

    async def in_words(self, ending: Ending) -> Ending:
        """The ending with words where nobody is owed any, but the job's comment or check run says that it goes on."""
        if ending.view is not None or not (await self._context.record.read()).is_shown:
            return ending
        return replace(ending, view=self._reporter.now(state=ending.state.value, reason=ending.reason))

    def heard_out(self, ending: Ending) -> Ending:
        """The ending with a word to everybody whose message came too late; one that waits will still be told."""
        if ending.state is JobState.WAITING or not isinstance(ending.view, StatusView):
            return ending
        messages = [signal for signal in self._heard if signal.kind == "message"]
        late = messages if self._agent_run is None else self._agent_run.untold
        notes = [
            f"This message came too late; send it again: {code(one_line(each.text, _LATE_CHARS))}" for each in late
        ]
        return replace(ending, view=replace(ending.view, notes=(*ending.view.notes, *notes)))

    async def failed(self, reason: str, remedy: str = "", *, unproven: bool = False) -> Ending:
        """The ending of a job that failed; nothing new is shown to people who may not give commands.

        Args:
            reason: what went wrong.
            remedy: what to do about it.
            unproven: whether GitHub could not be asked who commands: the code that reports the ending asks first.
        """
        may_command = self._access is not None and self._access.may_command
        proven = may_command or (await self._context.record.read()).is_shown
        unproven = unproven and self._access is None and not self._context.job.is_unasked
        if not (proven or unproven):
            return Ending(state=JobState.FAILED, reason=reason)
        done = await self._context.services.work.find(self._context.job.id, self._context.record)
        patch = await asyncio.to_thread(self._context.services.work.patch, self._context.job.id) if done else ""
        kept = self._context.kept if patch else ""
        view = self._reporter.now(state="failed", reason=reason, remedy=remedy, kept=kept)
        return Ending(state=JobState.FAILED, reason=reason, view=view, patch=patch, proven=proven)

    async def _arrive(self) -> AccessCheck:
        context = self._context
        self._access = await check_access(context.github, context.job, bounds=context.services.bounds)
        return self._access

    async def _look(self, access: AccessCheck) -> ThreadSnapshot:
        await self._reporter.since_asked()
        return fetch_snapshot(self._context.job, access)

    async def _may_begin(self, here: ThreadSnapshot) -> Grant | Refusal:
        """Decide before anything is fetched or said; most of what the repository itself asks for comes later."""
        context, again = self._context, await resume_base(self._context) is not None
        decision = await decide(context, here, RepoConfig(), again=again)
        if isinstance(decision, Refusal) and decision.cause == "read-only":
            # The labels that allow more may have names of the repository's own.
            path = context.services.conventions.repo_file
            config = await on_default_branch(here.reader, here.repo.full_name, path)
            decision = await decide(context, here, config, again=again)
        return decision

    async def _work(self, here: ThreadSnapshot) -> Ending:
        context, unasked = self._context, self._context.job.is_unasked
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
        source = await work_source(context, here)
        base = await base_of(context, here, source)
        path = context.services.conventions.repo_file
        found = await fetch_repo_settings(
            here.reader, context.services.workspaces, here.repo.full_name, here.repo.id, base, path
        )
        self.notify = found.asked.config.notify
        asked = replace(
            found.asked, config=found.asked.config.model_copy(update={"base": wanted_base(context, found.asked)})
        )
        place = await continue_own_pull(context, await at_base(context, here, asked.config.base), asked.config)
        grant = await decide(context, place, asked.config, again=await resume_base(context) is not None)
        here = here if isinstance(place, Refusal) else place
        if isinstance(grant, Refusal):
            if (ending := await self._wind_up(here, grant.reason)) is not None:
                return ending
            await context.void(grant.voided)
            if unasked:
                return Ending(state=JobState.REFUSED, reason=grant.reason)
            view = self._reporter.now(state="refused", reason=grant.reason)
            return Ending(state=JobState.REFUSED, reason=grant.reason, view=view)
        self._reporter.begin(grant, warning=found.warning, continues=here.pull_link)
        await context.void(grant.voided)
        grant = await pin_base(context, grant)
        source = replace(await work_source(context, here), sha=grant.bound_to_sha)
        return await self._granted(here, grant, asked, source)

    async def _granted(self, here: ThreadSnapshot, grant: Grant, asked: RepoSettings, source: Source) -> Ending:
        context = self._context
        command = resolved(context.job.command, kind=context.job.thread.kind, config=asked.config)
        if context.services.checks:
            self.check = self._check_run(grant.bound_to_sha)
            if warning := await self.check.begin(self._reporter.now()):
                self._reporter.warn(warning)
            posted = (await context.record.read()).check.posted
            self._reporter.run_url = posted.url if posted is not None else ""
        beside = (self.check,) if self.check else ()
        seconds = context.services.edit_seconds
        # Without a thread there is only the check run, which was just made.
        stale = context.job.thread.has_comments and time.time() - self._shown_at >= seconds
        async with self.comment.kept_fresh(self._reporter.now, seconds=seconds, stale=stale, beside=beside):
            if isinstance(command, Undo):
                return await undo(context, self._reporter, here, grant, source)
            if not isinstance(command, Work):
                raise TypeError(f"{command.verb} is no work")  # a bug of ours: `run` has dealt with all else
            schema = await output_schema_of(context, here.repo.id, replace(source, sha=asked.base_sha))
            begun = Assignment(command=command, here=here, grant=grant, asked=asked, source=source)
            assignment = replace(begun, output_schema=schema)
            self._agent_run = AgentRun(context, self._reporter, assignment)
            for signal in self._heard:
                self._agent_run.hear(signal)
            return await self._agent_run.go()

    async def _wind_up(self, here: ThreadSnapshot, why: str, status: Status = Status.STOPPED) -> Ending | None:
        """End a job that was begun and may not go on, and keep what it did; None when there is nothing of it."""
        context = self._context
        command = resolved(context.job.command, kind=context.job.thread.kind, config=RepoConfig())
        base = await resume_base(context)
        if base is None or not isinstance(command, Work):
            return None
        nothing = Grant(policy=Policy(limits=context.services.bounds.limits), publish="nothing", bound_to_sha=base)
        assignment = Assignment(
            command=command,
            here=here,
            grant=nothing,
            asked=RepoSettings(config=RepoConfig(), base_sha=base),
            source=replace(await work_source(context, here), sha=base),
            closing=why,
        )
        try:
            return await AgentRun(context, self._reporter, assignment).give_up(status)
        except WorkspaceError:  # it had not come so far as to have files
            return None

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

    def _check_run(self, head_sha: str) -> JobCheckRun:
        context = self._context
        return JobCheckRun(context.github, context.record.check, context.job, head_sha=head_sha)
