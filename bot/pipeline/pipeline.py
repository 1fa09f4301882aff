"""The corridor: one job from permission to publication. Reads top to bottom as the job walks."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from agent_runtime import Policy, Status
from bot.control.automatic_review import unasked_for, unfit_for_review
from bot.control.help import answer_to
from bot.control.repo_events import happen
from bot.control.resume_artifact import steered
from bot.control.undo import aimed, undo
from bot.domain.commands import Happening, Review, Steering, Talk, Undo, Work
from bot.domain.job import JobState
from bot.engine.queue import Signal
from bot.gate.decision import Grant, Refusal
from bot.gate.permissions import NO_WRITE_ACCESS, resolved
from bot.gate.repo_config import RepoConfig
from bot.jobs.admission import decide
from bot.jobs.assignment import Assignment
from bot.jobs.context import Case, Ending, Reply
from bot.jobs.repo_settings import configured, on_default_branch
from bot.jobs.resume_base import begun_before, begun_on
from bot.jobs.setup import Asked
from bot.jobs.snapshot import Here, Visit, arrive, look
from bot.pipeline.agent_run import Errand
from bot.pipeline.ci_failure import left_alone
from bot.pipeline.own_pull import going_on
from bot.pipeline.structured_output import output_schema_of
from bot.pipeline.work_sources import at_base, base_of, source_of, wanted_base
from bot.publishing.text import code, one_line
from bot.publishing.view import StatusView
from bot.reporting.check_run import CHECKED, CheckRun
from bot.reporting.reporter import Account
from bot.reporting.status_comment import StatusComment
from bot.workspace import Source, WorkspaceError

log = logging.getLogger(__name__)

_SEEN = "seen"
"""The fact that a command has its reaction."""
_GREETED = "greeted"
"""The fact that keeps when the job's comment was made before the job was taken up, in seconds since the epoch."""
_SHORT_LINE = 3
"""With more writes than this in line, a comment that only says that a job waits would keep others from their ends."""
_LATE_CHARS = 200


class Corridor:
    """Walks one job.

    Attributes:
        comment: the job's one comment.
        check: its one check run, once it has one.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self.comment = StatusComment(case.github, case.memory, case.job, marker=case.marker)
        self.check: CheckRun | None = None
        self._account = Account(case)
        self._errand: Errand | None = None
        self._heard: list[Signal] = []
        self._visit: Visit | None = None
        self._shown_at = 0.0

    async def walk(self) -> Ending:
        """Take the job from permission to publication.

        Raises:
            GitHubError: GitHub failed in a way that may pass; the job can be walked again.
        """
        case, command = self._case, self._case.job.command
        if isinstance(command, Happening):
            return await happen(case, command)
        if why := await unasked_for(case):
            return Ending(state=JobState.REFUSED, reason=why)
        visit = case.visits.take(case.job.id)
        visit = await self._arrive() if visit is None else self._arrived(visit)
        if not visit.may_command and await begun_before(case) is None:
            return await case.refuse(NO_WRITE_ACCESS)
        here = await self._look(visit)
        if isinstance(command, Talk):
            return Ending(state=JobState.DONE, view=Reply(text=answer_to(command, trigger=case.job.trigger)))
        if isinstance(command, Steering):
            return await steered(case, command, here)
        aim = await aimed(case, here) if isinstance(command, Undo) else here
        return await case.refuse(aim) if isinstance(aim, Refusal) else await self._begin(aim)

    async def _begin(self, here: Here) -> Ending:
        """Work, when that may be; else say why not."""
        decision = await self._may_begin(here)
        if isinstance(decision, Refusal):
            return await self._wind_up(here, decision.reason) or await self._case.refuse(decision)
        try:
            return await self._work(here)
        except WorkspaceError:
            # Whatever git could not do, the next attempt shall not fail for a token that serves no more.
            self._case.github.forget_tokens(here.repo.full_name)
            raise

    async def give_up(self, reason: str) -> Ending | None:
        """End a job that its workers keep dying of, with what it did so far; None when it never came so far."""
        return await self._wind_up(await self._look(await self._arrive()), reason, Status.FAILED)

    async def greet(self) -> Visit | None:
        """React at once to a command that counts: the job itself may have to wait for others.

        Returns:
            What was asked of GitHub; None where nobody is to be answered.
        """
        case = self._case
        if case.job.lane != "work" or case.job.is_unasked:
            return None
        visit = await self._arrive()
        if not visit.may_command:
            return None
        if await case.react("eyes"):
            await case.memory.remember(_SEEN, "yes")
        case.visits.keep(case.job.id, visit)
        return visit

    async def announce(self, visit: Visit) -> None:
        """Make the comment of a job that may begin, unless many others wait to write; then its worker makes it."""
        if self._case.github.waiting > _SHORT_LINE:
            return
        if isinstance(await self._may_begin(await self._look(visit)), Grant):
            await self.comment.show(self._account.now(state="queued"))
            await self._case.memory.remember(_GREETED, str(time.time()))

    @property
    def is_to_stop(self) -> bool:
        """Whether somebody has told the job to stop."""
        return any(signal.kind == "stop" for signal in self._heard)

    @property
    def steps(self) -> int:
        """How many steps the agent has made."""
        return self._account.progress.steps

    def hear(self, signal: Signal) -> None:
        """Take in what somebody says to the job while it is walked."""
        self._heard.append(signal)
        if self._errand is not None:
            self._errand.hear(signal)

    def heard_out(self, ending: Ending) -> Ending:
        """The ending with a word to everybody whose message came too late; one that waits will still be told."""
        if ending.state is JobState.WAITING or not isinstance(ending.view, StatusView):
            return ending
        messages = [signal for signal in self._heard if signal.kind == "message"]
        late = messages if self._errand is None else self._errand.untold
        notes = [
            f"This came too late for the run, say it again: {code(one_line(each.text, _LATE_CHARS))}" for each in late
        ]
        return replace(ending, view=replace(ending.view, notes=(*ending.view.notes, *notes)))

    async def failed(self, reason: str, remedy: str = "", *, told: bool = False, unproven: bool = False) -> Ending:
        """The ending of a job that something went wrong with; not a word of it to who may not even command.

        Args:
            reason: what went wrong.
            remedy: what to do about it.
            told: whether an earlier attempt has answered already.
            unproven: whether GitHub could not be asked who commands: whoever tells the ending asks first.
        """
        proven = told or self._may_be_answered
        unproven = unproven and self._visit is None and not self._case.job.is_unasked
        if not (proven or unproven):
            return Ending(state=JobState.FAILED, reason=reason)
        done = await self._case.house.work.find(self._case.job.id, self._case.memory)
        patch = await asyncio.to_thread(self._case.house.work.patch, self._case.job.id) if done else ""
        kept = self._case.kept if patch else ""
        view = self._account.now(state="failed", reason=reason, remedy=remedy, kept=kept)
        return Ending(state=JobState.FAILED, reason=reason, view=view, patch=patch, proven=proven)

    async def _arrive(self) -> Visit:
        case = self._case
        visit = await arrive(case.github, case.job, bounds=case.house.bounds)
        return self._arrived(visit)

    def _arrived(self, visit: Visit) -> Visit:
        self._visit = visit
        return visit

    @property
    def _may_be_answered(self) -> bool:
        return self._visit is not None and self._visit.may_command

    async def _look(self, visit: Visit) -> Here:
        await self._account.since_asked()
        return look(self._case.job, visit)

    async def _may_begin(self, here: Here) -> Grant | Refusal:
        """Decide before anything is fetched or said; most of what the repository itself asks for comes later."""
        case, again = self._case, await begun_before(self._case) is not None
        decision = await decide(case, here, RepoConfig(), again=again)
        if isinstance(decision, Refusal) and decision.cause == "read-only":
            # The labels that allow more may have names of the repository's own.
            path = case.house.conventions.repo_file
            config = await on_default_branch(case.github, here.repo.full_name, path)
            decision = await decide(case, here, config, again=again)
        return decision

    async def _work(self, here: Here) -> Ending:
        case, unasked = self._case, self._case.job.is_unasked
        if unasked and (ending := await self._left_alone(here)) is not None:
            return ending
        if not unasked:
            await self._greet_late()
        source = await source_of(case, here)
        base = await base_of(case, here, source)
        path = case.house.conventions.repo_file
        found = await configured(case.github, case.house.workspaces, here.repo.full_name, here.repo.id, base, path)
        asked = replace(found.asked, config=replace(found.asked.config, base=wanted_base(case, found.asked)))
        place = await going_on(case, await at_base(case, here, asked.config.base), asked.config)
        grant = await decide(case, place, asked.config, again=await begun_before(case) is not None)
        here = here if isinstance(place, Refusal) else place
        if isinstance(grant, Refusal):
            if (ending := await self._wind_up(here, grant.reason)) is not None:
                return ending
            await case.void(grant.voided)
            if unasked:
                return Ending(state=JobState.REFUSED, reason=grant.reason)
            view = self._account.now(state="refused", reason=grant.reason)
            return Ending(state=JobState.REFUSED, reason=grant.reason, view=view)
        self._account.begin(grant, warning=found.warning, continues=here.pull_link)
        await case.void(grant.voided)
        grant = await begun_on(case, grant)
        source = replace(await source_of(case, here), sha=grant.bound_to_sha)
        return await self._granted(here, grant, asked, source)

    async def _left_alone(self, here: Here) -> Ending | None:
        """The ending of what nobody gave a command for when nothing is done about it; None when something is."""
        if not isinstance(self._case.job.command, Review):
            return await left_alone(self._case, here)
        why = await unfit_for_review(self._case, here)
        return Ending(state=JobState.REFUSED, reason=why) if why else None

    async def _granted(self, here: Here, grant: Grant, asked: Asked, source: Source) -> Ending:
        case = self._case
        command = resolved(case.job.command, kind=case.job.thread.kind, config=asked.config)
        await self._begin_check(grant.bound_to_sha)
        beside = (self.check,) if self.check else ()
        seconds = case.house.edit_seconds
        stale = time.time() - self._shown_at >= seconds
        async with self.comment.kept_fresh(self._account.now, seconds=seconds, stale=stale, beside=beside):
            if isinstance(command, Undo):
                return await undo(case, self._account, here, grant, source)
            if not isinstance(command, Work):
                raise TypeError(f"{command.verb} is no work")  # a bug of ours: `walk` has dealt with all else
            schema = await output_schema_of(case, here.repo.id, replace(source, sha=asked.base_sha))
            begun = Assignment(command=command, here=here, grant=grant, asked=asked, source=source)
            assignment = replace(begun, output_schema=schema)
            self._errand = Errand(case, self._account, assignment)
            for signal in self._heard:
                self._errand.hear(signal)
            return await self._errand.go()

    async def _wind_up(self, here: Here, why: str, status: Status = Status.STOPPED) -> Ending | None:
        """End a job that was begun and may not go on, and keep what it did; None when there is nothing of it."""
        case = self._case
        command = resolved(case.job.command, kind=case.job.thread.kind, config=RepoConfig())
        base = await begun_before(case)
        if base is None or not isinstance(command, Work):
            return None
        nothing = Grant(policy=Policy(limits=case.house.bounds.limits), publish="nothing", bound_to_sha=base)
        assignment = Assignment(
            command=command,
            here=here,
            grant=nothing,
            asked=Asked(config=RepoConfig(), base_sha=base),
            source=replace(await source_of(case, here), sha=base),
            closing=why,
        )
        try:
            return await Errand(case, self._account, assignment).give_up(status)
        except WorkspaceError:  # it had not come so far as to have files
            return None

    async def checked(self) -> str | None:
        """The commit that the job's check run stands on; None when it has none."""
        head = await self._case.memory.recall(CHECKED)
        if self.check is None and head is not None:  # of an attempt that died
            self.check = CheckRun(self._case.github, self._case.memory, self._case.job, head_sha=head)
        return None if self.check is None or self.check.given_up else self.check.head_sha

    async def show_check(self, ending: Ending) -> None:
        """Let the check run, if there is one, say how the job ended, or that it waits."""
        if await self.checked() is None or self.check is None or not isinstance(ending.view, StatusView):
            return
        await self.check.show(ending.view, status=ending.status, patch=ending.patch, review=ending.review)

    async def _begin_check(self, head_sha: str) -> None:
        if not self._case.house.checks:
            return
        self.check = CheckRun(self._case.github, self._case.memory, self._case.job, head_sha=head_sha)
        if warning := await self.check.begin(self._account.now()):
            self._account.warn(warning)
        self._account.run_url = (await self._case.memory.recall("check") or "").partition(" ")[2]

    async def _greet_late(self) -> None:
        """Do what the greeter has not done."""
        case = self._case
        if await case.memory.recall(_SEEN) is None and await case.react("eyes"):
            await case.memory.remember(_SEEN, "yes")
        greeted = await case.memory.recall(_GREETED)
        if greeted is None:
            await self._show()
        else:
            self._shown_at = float(greeted)

    async def _show(self) -> None:
        await self.comment.show(self._account.now())
        self._shown_at = time.time()
