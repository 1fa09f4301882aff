"""The status of a job: a comment, a check run and notices.

Comment and check run are created once: the intent is stored before the request, so that a lost response leads to a
search, not to a duplicate. GitHub sends no notification for an edit, so a notice mentions the requester.
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
from bot.github.types import CheckDraft, CheckFacts, CommentFacts, CommentTarget, GitHubError, PullLink, ReviewDraft
from bot.jobs.context import Ending, JobContext, reply_target
from bot.jobs.record import CheckRecord, CommentRecord, GitHubPost
from bot.permissions.levels import Grant, describe_network
from bot.permissions.repo_config import Notify
from bot.publishing.checks import Edits, Verdict, verdict_of
from bot.publishing.markdown import code, duration
from bot.publishing.plan import event_review_label, requester_of
from bot.publishing.render import RunReport, render_check, render_notice, render_part, render_status, sign_marker
from bot.publishing.screening import split_diff
from bot.publishing.status_view import Activity, DeniedCall, Progress, RecordPart, StatusView

log = logging.getLogger(__name__)


class StatusReporter:
    """Track one job and render its current view.

    Attributes:
        grant: None until decided.
        continues: the pull request that the job continues.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._started_at = time.time()
        self.progress = Progress()
        self.grant: Grant | None = None
        self.run_url = context.services.run_url
        self.continues: PullLink | None = None

    async def restore_start(self) -> None:
        """Measure time from the command's storage, over all attempts."""
        stored = await self._context.queue.get(self._context.job.id)
        if stored is not None:
            self._started_at = stored.enqueued_at

    def set_grant(self, grant: Grant, *, warning: str, continues: PullLink | None = None) -> None:
        self.grant, self.continues = grant, continues
        self.warn(warning)

    def warn(self, warning: str) -> None:
        text = "\n\n".join(filter(None, (self.progress.warning, warning)))
        self.progress = replace(self.progress, warning=text)

    def process_event(self, event: Event) -> None:
        self.progress = self.progress.apply_event(event)

    def add_activity(self, activity: Activity) -> None:
        self.progress = self.progress.with_activity(activity)

    def set_prepared(self, reach: str, *, setup_failed: str, failing: tuple[str, ...]) -> None:
        self.progress = replace(self.progress, reach=reach, setup_failed=setup_failed, failing=failing)

    async def add_denial(self, call: DeniedCall) -> None:
        """Add and store a denied call; the session does not record it."""
        self.progress = self.progress.with_denied_call(call)
        try:
            await self.save_denied()
        except QueueError as error:  # the run's end stores it, or fails
            log.warning("a denied call is not stored yet: %s", error)

    async def save_denied(self) -> None:
        if denied := self.progress.denied:
            await self._context.record.update(lambda record: replace(record, denied=denied))

    def add_edits(self, change: Change) -> Progress:
        if change.touched is not None:
            first, last = change.touched
            self.progress = self.progress.with_edits(Edits(first=first, last=last))
        return self.progress

    def invalidate_checks(self) -> None:
        """Invalidate checks: the change was rebased."""
        self.progress = self.progress.with_edits(Edits(first=math.inf, last=math.inf))

    def report(self, command: Command, *, changed: bool, partial: bool = False) -> RunReport:
        """Summarize the run for reviewers; `partial` changes lack files that were checked."""
        return RunReport(
            verdict=self.verdict(command, changed=changed, partial=partial) or Verdict.UNCHANGED,
            checks=self.progress.judged_checks,
            setup_failed=self.progress.setup_failed,
            denied_calls=self.progress.denied,
            rerun=self.progress.rerun,
            partial=partial,
        )

    def verdict(self, command: Command, *, changed: bool, partial: bool = False) -> Verdict | None:
        """Return the verdict of a finished run; None if it needed no change or test and setup succeeded."""
        failed = bool(self.progress.setup_failed)
        if isinstance(command, (Fix, Test)):
            changed = changed or not isinstance(command, Fix)
            return verdict_of(self.progress.judged_checks, changed=changed, setup_failed=failed, partial=partial)
        return Verdict.SETUP_FAILED if failed else None

    async def save(self) -> None:
        """Store the progress before the agent starts; the session has the rest."""
        progress = self.progress
        await self._context.record.update(lambda record: replace(record, progress=progress))

    async def load(self) -> None:
        """Restore the progress of an earlier attempt or segment.

        Raises:
            SessionError: its session cannot be read.
        """
        record, services, job = await self._context.record.read(), self._context.services, self._context.job
        progress = record.progress or self.progress
        progress = replace(progress, denied=record.denied or progress.denied)
        # Long logs take a while.
        self.progress = await asyncio.to_thread(lambda: progress.replay_log(services.session_events(job)))

    def view(self, **changes: Any) -> StatusView:  # noqa: ANN401 - whatever a StatusView takes
        services, job, progress, grant = self._context.services, self._context.job, self.progress, self.grant
        reach = progress.reach or describe_network(services.network)
        lost = f", which was lost: {progress.network_lost}" if progress.network_lost else ""
        # The command as it was given; a workflow's file gives the verb alone.
        command = job.trigger if job.command.verb == "bare" else f"{job.trigger} {job.command.verb}"
        if job.origin.kind in {"workflow", "recipe"}:
            command = job.command.verb
        if job.recipe is not None:
            command = f"{command.removesuffix(job.command.verb)}run {job.recipe.name}"
        now = time.time()
        fields: Mapping[str, Any] = {
            "state": "working",
            "command": command,
            "allowed": services.allowed(job),
            "requester": requester_of(job),
            "event_label": event_review_label(job),
            "job_id": job.id,
            "marker": services.status_marker(job),
            "seconds": max(0.0, now - self._started_at),
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
            "sandbox": f"{services.sandbox}, {reach}{lost}",
        }
        # What failed, when that is what began the job.
        page = f"{services.server_url}/{job.repo.full_name}/"
        cause = {
            "failed_check": job.origin.name or "CI",
            "failed_url": job.origin.url if job.origin.url.startswith(page) else "",
        }
        texts: dict[str, Any] = {**fields, **(cause if job.origin.kind == "ci" else {}), **changes}
        for name in texts.keys() & {"reason", "remedy", "warning", "setup_failed"}:
            texts[name] = services.strip_local_paths(texts[name])
        for name in texts.keys() & {"reason", "remedy"}:
            texts[name] = services.rename_settings_to_inputs(texts[name])
        texts["notes"] = tuple(map(services.rename_settings_to_inputs, texts["notes"]))
        return StatusView(**texts)


_CHECK_INTERVAL = 3
"""Comment edits per check run edit."""
_AGE_DIVISOR = 4.0
_MAX_STRETCH = 6.0
_CLOCK_SECONDS = 60.0
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})
_DUPLICATE = 2


class StatusComment:
    """The comment of one job, found by its stored id or its signed marker.

    Attributes:
        edited_at: time of the last edit by GitHub's clock (ISO 8601, UTC), or empty.
    """

    def __init__(self, github: GitHub, record: RecordPart[CommentRecord], job: Job, *, marker: str) -> None:
        self._github = github
        self._record = record
        self._job = job
        self.marker = marker
        self._target = reply_target(job)
        self._id: int | None = None
        self._body = ""
        self.edited_at = ""

    async def show(self, view: StatusView) -> None:
        # Making a hostile text harmless may take a second.
        await self.put(await asyncio.to_thread(render_status, view))

    async def put(self, body: str) -> None:
        """Create or update the comment, if its text changed.

        Raises:
            GitHubError: the request failed.
        """
        if body == self._body or not self._job.thread.has_comments:
            return
        if self._id is None:  # an earlier attempt may have made it, and died before it could note its id
            stored = await self._record.read()
            if stored.below:
                self._target = CommentTarget(kind="thread", number=self._job.thread.number)
            if stored.posted is not None:
                self._id = stored.posted.id
            elif stored.requests and (existing := await self._find()) is not None:
                await self._store_id(existing)
        if self._id is None or not await self._edit(self._id, body):
            # Noted first: who is stopped between the asking and the noting of the id must look for it the next time.
            await self._record.update(_count_request)
            try:
                created = await self._create(body)
            except GitHubError as error:
                if self._target.kind == "thread" or error.status not in _GONE:
                    raise
                # The comment that asked is gone, and its thread with it; its asker still wants an answer.
                await self._record.update(lambda stored: replace(stored, below=True))
                self._target = CommentTarget(kind="thread", number=self._job.thread.number)
                created = await self._create(body)
            self.edited_at = created.updated_at
            await self._store_id(created)
        self._body = body

    @asynccontextmanager
    async def refreshing(
        self,
        view: Callable[[], StatusView],
        *,
        seconds: float,
        stale: bool = False,
        check: JobCheckRun | None = None,
    ) -> AsyncIterator[None]:
        """Update the comment and, less often, the check run while the body runs; errors are logged.

        `seconds` is the first interval, see `edit_pause`; `stale` updates at once.
        """
        interval = _CHECK_INTERVAL if self._job.thread.has_comments else 1

        async def refresh() -> None:
            shown, begun, edits = None if stale else view(), time.monotonic(), 0
            while True:
                if shown is not None:
                    await asyncio.sleep(edit_pause(time.monotonic() - begun, seconds, self._github.poll_backoff))
                await self._github.wait_until_idle()
                now = view()
                # The clock alone is no news, but once a minute: every edit counts against the installation's budget.
                if shown is not None and (
                    now.seconds - shown.seconds < _CLOCK_SECONDS
                    and now == replace(shown, seconds=now.seconds, at=now.at)
                ):
                    continue
                shown, edits = now, edits + 1
                for place in (self, check if edits % interval == 0 else None):
                    try:
                        if place is not None:
                            await place.show(now)
                    except GitHubError:
                        log.warning("the job's status was not updated", exc_info=True)

        async with background(refresh()):
            yield

    async def _edit(self, comment_id: int, body: str) -> bool:
        """Edit the comment; return False if it was deleted."""
        repo = self._job.repo.full_name
        try:
            edited = await self._github.comments.edit(repo, self._target, comment_id, body)
        except GitHubError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise
            # GitHub says so for a hiccup of its own, too, and then a second comment would be one too many.
            existing = await self._find()
            if existing is None:
                return False
            await self._store_id(existing)
            edited = await self._github.comments.edit(repo, self._target, existing.id, body)
        self.edited_at = edited.updated_at
        return True

    async def fold_late(self) -> bool:
        """Link duplicates that GitHub created late to the real comment; return False if none can exist."""
        stored = await self._record.read()
        if stored.requests < _DUPLICATE or stored.posted is None:
            return False
        text = f"<sub>GitHub created this comment late; see [the other one]({stored.posted.url}).</sub>"
        for copy in await self._find_all():
            if copy.id != stored.posted.id:
                await self._github.comments.edit(self._job.repo.full_name, self._target, copy.id, text)
        return True

    async def _store_id(self, comment: CommentFacts) -> None:
        self._id, posted = comment.id, GitHubPost(id=comment.id, url=comment.html_url)
        await self._record.update(lambda noted: replace(noted, posted=posted))

    async def _create(self, body: str) -> CommentFacts:
        repo = self._job.repo.full_name
        try:
            return await self._github.comments.create(repo, self._target, body)
        except GitHubError as error:
            # The answer was lost, but the comment may be there: look before asking a second time.
            if not error.may_have_succeeded:
                raise
            if (existing := await self._find()) is not None:
                return existing
            await self._record.update(_count_request)
            return await self._github.comments.create(repo, self._target, body)

    async def _find(self) -> CommentFacts | None:
        copies = await self._find_all()
        return copies[0] if copies else None

    async def _find_all(self) -> tuple[CommentFacts, ...]:
        me = await self._github.accounts.me()
        return await self._github.comments.find(self._job.repo.full_name, self._target, self.marker, me.id)


def edit_pause(age: float, seconds: float, spread: float) -> float:
    """Return the seconds until the next edit, which grow with the run's age up to sixfold.

    `spread` stretches them for GitHub's budget.
    """
    return min(max(seconds, age / _AGE_DIVISOR), _MAX_STRETCH * seconds) * spread


def _count_request(record: CommentRecord) -> CommentRecord:
    return replace(record, requests=record.requests + 1)


def extra_comment(context: JobContext, name: str) -> StatusComment:
    """Return an additional comment of the job; `name` is unique in it."""
    job, key = context.job, context.services.marker_key
    marker = sign_marker(f"{name.replace(' ', '-')}-{job.id}", job.repo.id, job.thread.number, key=key)
    return StatusComment(context.github, context.record.part(name), job, marker=marker)


class JobCheckRun:
    """The check run of one job; only an App can create one.

    Args:
        head_sha: the pull request's head, or the default branch's for an issue.

    Attributes:
        is_refused: whether GitHub refused it for good.
        missing: the reason, for the comment; or empty.
    """

    def __init__(self, github: GitHub, record: RecordPart[CheckRecord], job: Job, *, head_sha: str) -> None:
        self._github = github
        self._record = record
        self._job = job
        self.head_sha = head_sha
        self._id: int | None = None
        self._draft: CheckDraft | None = None
        self.is_refused = False
        self.missing = ""

    async def create(self, view: StatusView) -> str:
        """Create the check run; return a warning for the comment if that failed."""
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
        if self.is_refused:
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
        """Create or update the check run. A missing permission sets `missing`; a GitHubError may be temporary."""
        if self.is_refused or draft == self._draft:
            return
        try:
            await self._put(draft)
        except GitHubError as error:
            if error.can_report_later and not error.lacks_permission:
                raise
            log.warning("no check run: %s", error)
            self.is_refused = True
            if error.status == HTTPStatus.FORBIDDEN:
                self.missing = f"This job has no check run: the App may not create one. {error.remedy}"
        else:
            self._draft = draft

    async def fold_late(self, draft: CheckDraft) -> bool:
        """Complete duplicates that GitHub created late with a link to the real one; return False if none can exist."""
        stored = await self._record.read()
        if self.is_refused or stored.requests < _DUPLICATE:
            return False
        repo, url = self._job.repo.full_name, stored.posted.url if stored.posted is not None else ""
        summary = f"GitHub created this check run late; see [the other one]({url}) for the result."
        for copy in await self._github.checks.find(repo, draft):
            if copy.id != self._id:
                await self._github.checks.update(
                    repo, copy.id, replace(draft, summary=summary, text="", annotations=(), buttons=())
                )
        return True

    async def _put(self, draft: CheckDraft, *, is_retry: bool = False) -> None:
        repo = self._job.repo.full_name
        if self._id is None:  # an earlier attempt may have made it
            stored = await self._record.read()
            if stored.posted is not None:
                self._id = stored.posted.id
            elif stored.requests and (existing := await self._github.checks.find(repo, draft)):
                await self._store_id(existing[0])
        if self._id is not None:
            await self._github.checks.update(repo, self._id, draft)
            return
        # Noted first: who is stopped between the making and the noting of the id must look for it the next time.
        await self._record.update(lambda stored: replace(stored, requests=stored.requests + 1))
        try:
            await self._store_id(await self._github.checks.create(repo, draft))
        except GitHubError as error:
            # The answer was lost, but the check run may be there: look before asking a second time.
            if is_retry or not error.may_have_succeeded:
                raise
            await self._put(draft, is_retry=True)

    async def _store_id(self, check: CheckFacts) -> None:
        self._id, posted = check.id, GitHubPost(id=check.id, url=check.html_url)
        await self._record.update(lambda noted: replace(noted, posted=posted))


NOTICE_SECONDS = 120.0
"""Users still watch the page of shorter jobs."""
_ENDED = {JobState.DONE: "has finished", JobState.FAILED: "has failed"}


def notice_text(ending: Ending, events: tuple[Notify, ...]) -> str:
    """Return the notice about an ending or a request; empty if the repository disables it."""
    view = ending.view
    if not isinstance(view, StatusView) or not view.allowed.login:
        return ""
    if ending.state is JobState.WAITING:
        until = datetime.fromtimestamp(ending.until, UTC)
        text = f"{code(view.command)} is waiting for an answer until {until.day} {until:%B, %H:%M} UTC"
        return text if "waiting" in events and ending.request_id else ""
    if "done" not in events or ending.state not in _ENDED or view.seconds <= NOTICE_SECONDS:
        return ""
    return f"{code(view.command)} {_ENDED[ending.state]} after {duration(view.seconds)}"


async def notify(context: JobContext, event: str, text: str) -> None:
    """Post a notice in its own comment, once across worker restarts; `event` is its unique name.

    Raises:
        GitHubError: the request failed.
    """
    job, name = context.job, f"notice {event}"
    record = await context.record.read()
    if not text or not job.thread.has_comments or (name in record.parts and record.parts[name].posted is not None):
        return
    url = record.comment.posted.url if record.comment.posted is not None else ""
    comment, allowed = extra_comment(context, name), context.services.allowed(job)
    await comment.put(await asyncio.to_thread(render_notice, text, allowed, url=url, marker=comment.marker))


async def post_parts(context: JobContext, view: StatusView) -> tuple[str, ...]:
    """Post a long request in several comments, once across worker restarts; return their URLs.

    Raises:
        GitHubError: the request failed; the request is not shown.
    """
    pending = view.pending
    if pending is None or not context.job.thread.has_comments:
        return ()
    texts = split_diff(pending.preview)
    counted = replace(pending, part_urls=("",) * len(texts))
    urls = []
    for number, text in enumerate(texts, 1):
        name = f"part {pending.request_id} {number}"
        part = context.record.part(name)
        if (await part.read()).posted is None:
            comment = extra_comment(context, name)
            part_view = replace(view, pending=counted, marker=comment.marker)
            await comment.put(await asyncio.to_thread(render_part, part_view, number, text))
        posted = (await part.read()).posted
        urls.append(posted.url if posted is not None else "")
    return tuple(urls)


def read_hint(context: JobContext, permission: str) -> str:
    """Return the remedy for a missing read permission."""
    if not context.services.is_long_running:
        return f"The workflow's token cannot read {permission}: add `{permission}: read` to its `permissions:`."
    return (
        f"The App is missing the permission *{permission.capitalize()}: read-only*. Grant it in the App's settings, "
        "then accept it in the installation."
    )


@asynccontextmanager
async def background(*work: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Run coroutines while the body runs, then cancel them.

    Raises:
        Exception: of a coroutine, at exit.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        # After `await task`, nobody could tell the end of that task from a cancellation of this one.
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
