"""Report on a job while it runs and at its end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_runtime import Event
from bot.domain.commands import Command, Fix, Test
from bot.domain.errors import QueueError
from bot.gate.network import reach
from bot.gate.permissions import Grant
from bot.github import PullLink
from bot.jobs.context import JobContext
from bot.publishing.progress import Progress
from bot.publishing.proof import RunReport
from bot.publishing.verdict import Edits, Verdict, verdict_of
from bot.publishing.view import Activity, DeniedCall, StatusView
from bot.publishing.wording import asker_of, unasked_of
from bot.workspace.change import Change

log = logging.getLogger(__name__)


class StatusReporter:
    """Keeps count of one job, and gives the view of it at any moment.

    Attributes:
        progress: what the agent did so far.
        grant: what the job may do, once that is decided.
        run_url: the page of its check run, once there is one, or of the workflow's run.
        continues: the pull request in which it continues.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._asked_at = time.time()
        self.progress = Progress()
        self.grant: Grant | None = None
        self.run_url = context.services.run_url
        self.continues: PullLink | None = None

    async def since_asked(self) -> None:
        """Count the time from when the command was stored, over all attempts."""
        stored = await self._context.queue.get(self._context.job.id)
        if stored is not None:
            self._asked_at = stored.enqueued_at

    def begin(self, grant: Grant, *, warning: str, continues: PullLink | None = None) -> None:
        """Take in what the job may do and where, and what was wrong with what the repository asks for."""
        self.grant, self.continues = grant, continues
        self.warn(warning)

    def warn(self, warning: str) -> None:
        """Tell something that went wrong and ends nothing."""
        said = "\n\n".join(filter(None, (self.progress.warning, warning)))
        self.progress = replace(self.progress, warning=said)

    def listen(self, event: Event) -> None:
        """Take in an event of the run."""
        self.progress = self.progress.after(event)

    def tell(self, activity: Activity) -> None:
        """Take in what no agent does."""
        self.progress = self.progress.told(activity)

    def prepared(self, reached: str, *, setup_failed: str, failing: tuple[str, ...]) -> None:
        """Take in what is there when the agent starts; see `Progress`."""
        self.progress = replace(self.progress, reach=reached, setup_failed=setup_failed, failing=failing)

    async def denied(self, call: DeniedCall) -> None:
        """Take in, and store at once, a call that was denied since nobody could be asked: the session does not tell."""
        self.progress = self.progress.without(call)
        try:
            await self.keep_denied()
        except QueueError as error:  # the run's end stores it, or fails
            log.warning("a denied call is not stored yet: %s", error)

    async def keep_denied(self) -> None:
        """Store which calls were denied."""
        if denied := self.progress.denied:
            await self._context.record.update(lambda record: replace(record, denied=denied))

    def edited(self, change: Change) -> Progress:
        """Take in when the files of a change were written, whatever wrote them."""
        if change.touched is not None:
            first, last = change.touched
            self.progress = self.progress.edited(Edits(first=first, last=last))
        return self.progress

    def replayed(self) -> None:
        """Take in that the change was made again on other files: no check ran on these."""
        self.progress = self.progress.edited(Edits(first=math.inf, last=math.inf))

    def report(self, command: Command, *, changed: bool, partial: bool = False) -> RunReport:
        """What the host saw of the run, for those who read its change.

        Args:
            command: what was to be done.
            changed: whether there is a change.
            partial: whether files were left out of it after the checks had run.
        """
        return RunReport(
            verdict=self.verdict(command, changed=changed, partial=partial) or Verdict.UNCHANGED,
            checks=self.progress.judged,
            setup_failed=self.progress.setup_failed,
            denied=self.progress.denied,
            rerun=self.progress.rerun,
            partial=partial,
        )

    def verdict(self, command: Command, *, changed: bool, partial: bool = False) -> Verdict | None:
        """What a finished run came to; None where nothing was to be changed or tested, and setup did not fail."""
        failed = bool(self.progress.setup_failed)
        if isinstance(command, (Fix, Test)):
            changed = changed or not isinstance(command, Fix)
            return verdict_of(self.progress.judged, changed=changed, setup_failed=failed, partial=partial)
        return Verdict.SETUP_FAILED if failed else None

    async def keep(self) -> None:
        """Store what is known when the agent starts; of the rest the session tells a process that resumes the job."""
        progress = self.progress
        await self._context.record.update(lambda record: replace(record, progress=progress))

    async def recall(self) -> None:
        """Go on from where an earlier attempt, or leg, came.

        Raises:
            SessionError: its session cannot be read.
        """
        record, services, job = await self._context.record.read(), self._context.services, self._context.job
        begun = record.progress or self.progress
        begun = replace(begun, denied=record.denied or begun.denied)
        # Long logs take a while.
        self.progress = await asyncio.to_thread(lambda: begun.resumed(services.session_events(job)))

    def now(self, **changes: Any) -> StatusView:  # noqa: ANN401 - whatever a StatusView takes
        """The view of the job as it stands."""
        services, job, progress, grant = self._context.services, self._context.job, self.progress, self.grant
        reached = progress.reach or reach(services.network)
        lost = f", which was lost: {progress.network_lost}" if progress.network_lost else ""
        # The command as it was given; a workflow's file gives the verb alone.
        asked = job.trigger if job.command.verb == "bare" else f"{job.trigger} {job.command.verb}"
        if job.origin.kind in {"workflow", "recipe"}:
            asked = job.command.verb
        if job.recipe is not None:
            asked = f"{asked.removesuffix(job.command.verb)}run {job.recipe.name}"
        now = time.time()
        told: Mapping[str, Any] = {
            "state": "working",
            "asked": asked,
            "allowed": services.allowed(job),
            "asker": asker_of(job),
            "unasked": unasked_of(job),
            "job_id": job.id,
            "marker": services.status_marker(job),
            "seconds": max(0.0, now - self._asked_at),
            "at": now,
            "stop": f"{job.trigger} stop" if job.thread.has_comments else "",
            "activities": progress.shown,
            "checks": progress.judged,
            "denied": progress.denied,
            "attempts": progress.attempts,
            "steps": progress.steps,
            "usage": progress.usage,
            "warning": progress.warnings,
            "setup_failed": progress.setup_failed,
            "model": grant.model if grant else services.bounds.model,
            "level": grant.level if grant else "",
            "notes": grant.notes if grant else (),
            "run_url": self.run_url,
            "pull_number": self.continues.number if self.continues else None,
            "pull_url": self.continues.html_url if self.continues else None,
            "sandbox": f"{services.sandbox}, {reached}{lost}",
        }
        # What failed, when that is what began the job.
        page = f"{services.server_url}/{job.repo.full_name}/"
        began = {
            "failed": job.origin.name or "CI",
            "failed_url": job.origin.url if job.origin.url.startswith(page) else "",
        }
        texts: dict[str, Any] = {**told, **(began if job.origin.kind == "ci" else {}), **changes}
        for name in texts.keys() & {"reason", "remedy", "warning", "setup_failed"}:
            texts[name] = services.without_places(texts[name])
        for name in texts.keys() & {"reason", "remedy"}:
            texts[name] = services.named(texts[name])
        texts["notes"] = tuple(map(services.named, texts["notes"]))
        return StatusView(**texts)
