"""The status of a job as people see it: one comment, one check run, and short notices.

`StatusReporter` has the view of the job at any moment. The comment and the check run are each made once and found
again after a restart: the intention is recorded before the request, so that a lost answer leads to a look, not to a
second one. GitHub notifies nobody of an edit; a notice mentions the person who asked.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from agent_runtime import Event, Status
from bot.domain.commands import Command, Fix, Test
from bot.domain.errors import QueueError
from bot.domain.job import Job, JobState
from bot.git.change import Change
from bot.github.client import GitHub
from bot.github.types import CheckDraft, CheckFacts, CommentFacts, GitHubError, PullLink, ReviewDraft, Spot
from bot.jobs.context import Ending, JobContext, spot_of
from bot.permissions.levels import Grant, describe_network
from bot.permissions.repo_config import Notify
from bot.publishing.checks import Edits, Verdict, verdict_of
from bot.publishing.markdown import code, duration
from bot.publishing.plan import event_review_label, requester_of
from bot.publishing.render import RunReport, render_check, render_notice, render_part, render_status, sign_marker
from bot.publishing.screening import split_diff
from bot.publishing.status_view import Activity, DeniedCall, Progress, RecordPart, StatusView
from bot.queue.records import CheckRecord, CommentRecord, GitHubPost

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
        self.progress = self.progress.apply_event(event)

    def tell(self, activity: Activity) -> None:
        """Take in what no agent does."""
        self.progress = self.progress.with_activity(activity)

    def prepared(self, reached: str, *, setup_failed: str, failing: tuple[str, ...]) -> None:
        """Take in what is there when the agent starts; see `Progress`."""
        self.progress = replace(self.progress, reach=reached, setup_failed=setup_failed, failing=failing)

    async def denied(self, call: DeniedCall) -> None:
        """Take in, and store at once, a call that was denied since nobody could be asked: the session does not tell."""
        self.progress = self.progress.with_denied_call(call)
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
            self.progress = self.progress.with_edits(Edits(first=first, last=last))
        return self.progress

    def replayed(self) -> None:
        """Take in that the change was made again on other files: no check ran on these."""
        self.progress = self.progress.with_edits(Edits(first=math.inf, last=math.inf))

    def report(self, command: Command, *, changed: bool, partial: bool = False) -> RunReport:
        """What the host saw of the run, for those who read its change.

        Args:
            command: what was to be done.
            changed: whether there is a change.
            partial: whether files were left out of it after the checks had run.
        """
        return RunReport(
            verdict=self.verdict(command, changed=changed, partial=partial) or Verdict.UNCHANGED,
            checks=self.progress.judged_checks,
            setup_failed=self.progress.setup_failed,
            denied_calls=self.progress.denied,
            rerun=self.progress.rerun,
            partial=partial,
        )

    def verdict(self, command: Command, *, changed: bool, partial: bool = False) -> Verdict | None:
        """What a finished run came to; None where nothing was to be changed or tested, and setup did not fail."""
        failed = bool(self.progress.setup_failed)
        if isinstance(command, (Fix, Test)):
            changed = changed or not isinstance(command, Fix)
            return verdict_of(self.progress.judged_checks, changed=changed, setup_failed=failed, partial=partial)
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
        self.progress = await asyncio.to_thread(lambda: begun.replay_log(services.session_events(job)))

    def now(self, **changes: Any) -> StatusView:  # noqa: ANN401 - whatever a StatusView takes
        """The view of the job as it stands."""
        services, job, progress, grant = self._context.services, self._context.job, self.progress, self.grant
        reached = progress.reach or describe_network(services.network)
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
            "command": asked,
            "allowed": services.allowed(job),
            "requester": requester_of(job),
            "event_label": event_review_label(job),
            "job_id": job.id,
            "marker": services.status_marker(job),
            "seconds": max(0.0, now - self._asked_at),
            "at": now,
            "stop": f"{job.trigger} stop" if job.thread.has_comments else "",
            "activities": progress.all_activities,
            "checks": progress.judged_checks,
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
            "failed_check": job.origin.name or "CI",
            "failed_url": job.origin.url if job.origin.url.startswith(page) else "",
        }
        texts: dict[str, Any] = {**told, **(began if job.origin.kind == "ci" else {}), **changes}
        for name in texts.keys() & {"reason", "remedy", "warning", "setup_failed"}:
            texts[name] = services.strip_local_paths(texts[name])
        for name in texts.keys() & {"reason", "remedy"}:
            texts[name] = services.rename_settings_to_inputs(texts[name])
        texts["notes"] = tuple(map(services.rename_settings_to_inputs, texts["notes"]))
        return StatusView(**texts)


_BESIDE = 3
"""The check run is edited every so many times that the comment is."""
_SHARE_OF_AGE = 4.0
_MOST_PAUSES = 6.0
_CLOCK_SECONDS = 60.0
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})
_TWICE = 2


class StatusComment:
    """The comment of one job, found again after a restart by its stored id, else by its signed marker.

    A job without a thread has none: what would be said there is said in the check run and in the step's summary.

    Attributes:
        marker: is in each of its texts.
        told_at: when it was last made or edited, by GitHub's clock (ISO 8601, UTC); empty before.
    """

    def __init__(self, github: GitHub, record: RecordPart[CommentRecord], job: Job, *, marker: str) -> None:
        self._github = github
        self._record = record
        self._job = job
        self.marker = marker
        self._spot = spot_of(job)
        self._id: int | None = None
        self._body = ""
        self.told_at = ""

    async def show(self, view: StatusView) -> None:
        """Make the comment say `view`; see `put`."""
        # Making a hostile text harmless may take a second.
        await self.put(await asyncio.to_thread(render_status, view))

    async def put(self, body: str) -> None:
        """Make the comment's text `body`; nothing is sent when it is that already.

        Raises:
            GitHubError: GitHub refused or stayed silent.
        """
        if body == self._body or not self._job.thread.has_comments:
            return
        if self._id is None:  # an earlier attempt may have made it, and died before it could note its id
            noted = await self._record.read()
            if noted.below:
                self._spot = Spot(kind="thread", number=self._job.thread.number)
            if noted.posted is not None:
                self._id = noted.posted.id
            elif noted.requests and (found := await self._find()) is not None:
                await self._note(found)
        if self._id is None or not await self._edited(self._id, body):
            # Noted first: who is stopped between the asking and the noting of the id must look for it the next time.
            await self._record.update(_requested)
            try:
                made = await self._once(body)
            except GitHubError as error:
                if self._spot.kind == "thread" or error.status not in _GONE:
                    raise
                # The comment that asked is gone, and its thread with it; its asker still wants an answer.
                await self._record.update(lambda noted: replace(noted, below=True))
                self._spot = Spot(kind="thread", number=self._job.thread.number)
                made = await self._once(body)
            self.told_at = made.updated_at
            await self._note(made)
        self._body = body

    @asynccontextmanager
    async def kept_fresh(
        self, view: Callable[[], StatusView], *, seconds: float, stale: bool = False, check: JobCheckRun | None = None
    ) -> AsyncIterator[None]:
        """Show `view()` now and then while the body of the `with` runs; trouble with it never stops the work.

        Args:
            view: how the job is doing now.
            seconds: between two looks at it, at first; see `edit_pause`.
            stale: whether what the comment says is old already.
            check: the check run that says the same, less often.
        """
        every = _BESIDE if self._job.thread.has_comments else 1

        async def refresh() -> None:
            shown, begun, edits = None if stale else view(), time.monotonic(), 0
            while True:
                if shown is not None:
                    await asyncio.sleep(edit_pause(time.monotonic() - begun, seconds, self._github.spread))
                await self._github.lull()
                now = view()
                # The clock alone is no news, but once a minute: every edit counts against the installation's budget.
                if shown is not None and (
                    now.seconds - shown.seconds < _CLOCK_SECONDS
                    and now == replace(shown, seconds=now.seconds, at=now.at)
                ):
                    continue
                shown, edits = now, edits + 1
                for place in (self, check if edits % every == 0 else None):
                    try:
                        if place is not None:
                            await place.show(now)
                    except GitHubError:
                        log.warning("the job's status was not updated", exc_info=True)

        async with background(refresh()):
            yield

    async def _edited(self, comment_id: int, body: str) -> bool:
        """Whether it was there to be edited: somebody may have deleted it, and its asker still wants an answer."""
        repo = self._job.repo.full_name
        try:
            edited = await self._github.comments.edit(repo, self._spot, comment_id, body)
        except GitHubError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise
            # GitHub says so for a hiccup of its own, too, and then a second comment would be one too many.
            found = await self._find()
            if found is None:
                return False
            await self._note(found)
            edited = await self._github.comments.edit(repo, self._spot, found.id, body)
        self.told_at = edited.updated_at
        return True

    async def fold_late(self) -> bool:
        """Let copies of this comment that GitHub made long after it was asked to say where the one that counts is.

        Returns:
            Whether there may be such copies, now or later: an answer was lost, and so another comment made.
        """
        noted = await self._record.read()
        if noted.requests < _TWICE or noted.posted is None:
            return False
        said = f"<sub>GitHub created this comment late; see [the other one]({noted.posted.url}).</sub>"
        for each in await self._found():
            if each.id != noted.posted.id:
                await self._github.comments.edit(self._job.repo.full_name, self._spot, each.id, said)
        return True

    async def _note(self, comment: CommentFacts) -> None:
        self._id, posted = comment.id, GitHubPost(id=comment.id, url=comment.html_url)
        await self._record.update(lambda noted: replace(noted, posted=posted))

    async def _once(self, body: str) -> CommentFacts:
        repo = self._job.repo.full_name
        try:
            return await self._github.comments.create(repo, self._spot, body)
        except GitHubError as error:
            # The answer was lost, but the comment may be there: look before asking a second time.
            if not error.may_be_done:
                raise
            if (found := await self._find()) is not None:
                return found
            await self._record.update(_requested)
            return await self._github.comments.create(repo, self._spot, body)

    async def _find(self) -> CommentFacts | None:
        found = await self._found()
        return found[0] if found else None

    async def _found(self) -> tuple[CommentFacts, ...]:
        me = await self._github.accounts.me()
        return await self._github.comments.find(self._job.repo.full_name, self._spot, self.marker, me.id)


def edit_pause(age: float, seconds: float, spread: float) -> float:
    """How long to wait before the next edit: the older a run is, the less a minute more matters to who watches it.

    Args:
        age: of the run, in seconds.
        seconds: the pause of a run that has just begun; it grows to six times as long.
        spread: how many times rarer edits must be for GitHub's budget to last.
    """
    return min(max(seconds, age / _SHARE_OF_AGE), _MOST_PAUSES * seconds) * spread


def _requested(noted: CommentRecord) -> CommentRecord:
    return replace(noted, requests=noted.requests + 1)


def further_comment(context: JobContext, name: str) -> StatusComment:
    """Another comment of the job, found again in the same way.

    Args:
        context: the job.
        name: names it among all of this job: letters, digits, `-`, `_` and spaces.
    """
    job, key = context.job, context.services.marker_key
    own = sign_marker(f"{name.replace(' ', '-')}-{job.id}", job.repo.id, job.thread.number, key=key)
    return StatusComment(context.github, context.record.part(name), job, marker=own)


class JobCheckRun:
    """Made once, found again after a restart, updated when there is something new. Only an App can have one.

    Args:
        github: acts for the job.
        record: what earlier attempts did.
        job: what was asked.
        head_sha: the commit it stands on: the pull request's head, or the default branch's for an issue.

    Attributes:
        head_sha: as given.
        given_up: whether GitHub refused it for good.
        missing: why there is none, for the comment; empty while nothing stands against it.
    """

    def __init__(self, github: GitHub, record: RecordPart[CheckRecord], job: Job, *, head_sha: str) -> None:
        self._github = github
        self._record = record
        self._job = job
        self.head_sha = head_sha
        self._id: int | None = None
        self._shown: CheckDraft | None = None
        self.given_up = False
        self.missing = ""

    async def begin(self, view: StatusView) -> str:
        """Make the check run; where GitHub does not, give back what the comment, which then is alone, says of that."""
        await self._record.update(lambda noted: replace(noted, head_sha=self.head_sha))
        try:
            await self.show(view)
        except GitHubError as error:
            log.warning("no check run yet: %s", error)
            return f"GitHub did not create the check run, so only this comment reports on the job. {error}"
        return self.missing

    async def show(
        self,
        view: StatusView,
        *,
        status: Status | None = None,
        patch: str = "",
        review: ReviewDraft | None = None,
    ) -> None:
        """Make the check run say `view`; see `publishing.check.render_check` for the rest.

        A refusal is no error: a missing permission is told in `missing`, all else in the log.

        Raises:
            GitHubError: GitHub failed in a way that may pass.
        """
        if self.given_up:
            return
        draft = await asyncio.to_thread(
            render_check,
            view,
            job=self._job,
            head_sha=self.head_sha,
            status=status,
            patch=patch,
            review=review,
        )
        await self.put(draft)

    async def put(self, draft: CheckDraft) -> None:
        """Make the check run what `draft` says; see `show`."""
        if self.given_up or draft == self._shown:
            return
        try:
            await self._put(draft)
        except GitHubError as error:
            if error.may_be_told_later and not error.lacks_permission:
                raise
            log.warning("no check run: %s", error)
            self.given_up = True
            if error.status == HTTPStatus.FORBIDDEN:
                self.missing = f"This job has no check run: the App may not create one. {error.remedy}"
        else:
            self._shown = draft

    async def fold_late(self, draft: CheckDraft) -> bool:
        """Let check runs of this job that GitHub made long after it was asked to end like the one that counts.

        Returns:
            Whether there may be such check runs, now or later: an answer was lost, and so another one made.
        """
        noted = await self._record.read()
        if self.given_up or noted.requests < _TWICE:
            return False
        repo, url = self._job.repo.full_name, noted.posted.url if noted.posted is not None else ""
        summary = f"GitHub created this check run late; see [the other one]({url}) for the result."
        for each in await self._github.checks.find(repo, draft):
            if each.id != self._id:
                await self._github.checks.update(
                    repo, each.id, replace(draft, summary=summary, text="", annotations=(), buttons=())
                )
        return True

    async def _put(self, draft: CheckDraft, *, again: bool = False) -> None:
        repo = self._job.repo.full_name
        if self._id is None:  # an earlier attempt may have made it
            noted = await self._record.read()
            if noted.posted is not None:
                self._id = noted.posted.id
            elif noted.requests and (found := await self._github.checks.find(repo, draft)):
                await self._note(found[0])
        if self._id is not None:
            await self._github.checks.update(repo, self._id, draft)
            return
        # Noted first: who is stopped between the making and the noting of the id must look for it the next time.
        await self._record.update(lambda noted: replace(noted, requests=noted.requests + 1))
        try:
            await self._note(await self._github.checks.create(repo, draft))
        except GitHubError as error:
            # The answer was lost, but the check run may be there: look before asking a second time.
            if again or not error.may_be_done:
                raise
            await self._put(draft, again=True)

    async def _note(self, made: CheckFacts) -> None:
        self._id, posted = made.id, GitHubPost(id=made.id, url=made.html_url)
        await self._record.update(lambda noted: replace(noted, posted=posted))


LONG_SECONDS = 120.0
"""Who waits for less than this most likely still looks at the page."""
_ENDED = {JobState.DONE: "has finished", JobState.FAILED: "has failed"}


def notice_of(ending: Ending, wanted: tuple[Notify, ...]) -> str:
    """The words for the asker about an ending, or about a run that begins to wait for a person; empty for nothing.

    Args:
        ending: how the job ended, or what it waits for.
        wanted: what the repository wants people to be told.
    """
    view = ending.view
    if not isinstance(view, StatusView) or not view.allowed.login:
        return ""
    if ending.state is JobState.WAITING:
        until = datetime.fromtimestamp(ending.until, UTC)
        told = f"{code(view.command)} is waiting for an answer until {until.day} {until:%B, %H:%M} UTC"
        return told if "waiting" in wanted and ending.request_id else ""
    if "done" not in wanted or ending.state not in _ENDED or view.seconds <= LONG_SECONDS:
        return ""
    return f"{code(view.command)} {_ENDED[ending.state]} after {duration(view.seconds)}"


async def notify(context: JobContext, event: str, text: str) -> None:
    """Say it in a comment of its own, once however often a worker dies; nothing without a text, or a thread.

    Args:
        context: the job.
        event: names the event among all of this job; letters, digits, `-` and `_`.
        text: from `notice_of`.

    Raises:
        GitHubError: GitHub refused or stayed silent.
    """
    job, name = context.job, f"notice {event}"
    record = await context.record.read()
    if not text or not job.thread.has_comments or (name in record.parts and record.parts[name].posted is not None):
        return
    url = record.comment.posted.url if record.comment.posted is not None else ""
    comment, allowed = further_comment(context, name), context.services.allowed(job)
    await comment.put(await asyncio.to_thread(render_notice, text, allowed, url=url, marker=comment.marker))


async def show_parts(context: JobContext, view: StatusView) -> tuple[str, ...]:
    """Show what waits in as many comments as it takes, once however often a worker dies; their pages.

    Without a thread there are none, and then nobody is asked.

    Args:
        context: the job.
        view: its status, with what waits.

    Raises:
        GitHubError: GitHub refused or stayed silent; nobody is asked then.
    """
    pending = view.pending
    if pending is None or not context.job.thread.has_comments:
        return ()
    texts = split_diff(pending.preview)
    counted = replace(pending, part_urls=("",) * len(texts))
    places = []
    for number, text in enumerate(texts, 1):
        name = f"part {pending.request_id} {number}"
        part = context.record.part(name)
        if (await part.read()).posted is None:
            comment = further_comment(context, name)
            shown = replace(view, pending=counted, marker=comment.marker)
            await comment.put(await asyncio.to_thread(render_part, shown, number, text))
        posted = (await part.read()).posted
        places.append(posted.url if posted is not None else "")
    return tuple(places)


def lacking(context: JobContext, permission: str) -> str:
    """What to do about a permission to read that is missing: the App's, or the workflow's in YAML."""
    if not context.services.is_long_running:
        return f"The workflow's token cannot read {permission}: add `{permission}: read` to its `permissions:`."
    return (
        f"The App is missing the permission *{permission.capitalize()}: read-only*. Grant it in the App's settings, "
        "then accept it in the installation."
    )


@asynccontextmanager
async def background(*work: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Do all of it at the same time while the body runs; what has not ended is cancelled with it.

    Raises:
        Exception: what one of them raised, at the end.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        # After `await task`, nobody could tell the end of that task from a cancellation of this one.
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
