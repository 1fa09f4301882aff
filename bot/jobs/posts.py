"""The posts of a job on GitHub: its status comment and its check run.

Each is created once: the intent is stored before the request, so that a lost response leads to a search, not to a
duplicate.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus

from bot.domain.job import Job
from bot.github.client import GitHub
from bot.github.types import BODY_LIMIT, CheckDraft, CheckFacts, CommentFacts, CommentTarget, GitHubError
from bot.jobs.faults import public_text
from bot.jobs.record import CheckRecord, CommentRecord, GitHubPost
from bot.publishing.render import render_check, render_status
from bot.publishing.status_view import RecordPart, StatusView

log = logging.getLogger(__name__)

_CHECK_INTERVAL = 3
"""Comment edits per check run edit."""
_AGE_DIVISOR = 4.0
_MAX_STRETCH = 6.0
_CLOCK_SECONDS = 60.0
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})
_DUPLICATE = 2


class StatusComment:
    """The comment of one job, found by its stored id or its signed marker.

    Args:
        stamp: returns a text to append, within a number of characters.

    Attributes:
        is_quiet: whether `show` creates no comment.
        edited_at: time of the last edit by GitHub's clock (ISO 8601, UTC), or empty.
    """

    def __init__(
        self,
        github: GitHub,
        record: RecordPart[CommentRecord],
        job: Job,
        *,
        marker: str,
        is_quiet: bool = False,
        stamp: Callable[[int], Awaitable[str]] | None = None,
    ) -> None:
        self._github = github
        self._record = record
        self._job = job
        self.marker = marker
        self.is_quiet = is_quiet
        self._stamp = stamp
        self._target = reply_target(job)
        self._id: int | None = None
        self._body = ""
        self.edited_at = ""

    async def show(self, view: StatusView) -> None:
        if self.is_quiet and not (await self._record.read()).requests:
            return
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
        text = body if self._stamp is None else body + await self._stamp(BODY_LIMIT - len(body))
        if self._id is None or not await self._edit(self._id, text):
            # Noted first: who is stopped between the asking and the noting of the id must look for it the next time.
            await self._record.update(_count_request)
            try:
                created = await self._create(text)
            except GitHubError as error:
                if self._target.kind == "thread" or error.status not in _GONE:
                    raise
                # The comment that asked is gone, and its thread with it; its asker still wants an answer.
                await self._record.update(lambda stored: replace(stored, below=True))
                self._target = CommentTarget(kind="thread", number=self._job.thread.number)
                created = await self._create(text)
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

        `seconds` is the first interval, see `edit_pause`. `stale` updates at once: the comment shows another state.
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
                    except GitHubError as error:
                        log.warning("the job's status was not updated: %s", error)

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
            return f"GitHub did not create the check run, so only this comment reports on the job. {public_text(error)}"
        return self.missing

    async def show(self, view: StatusView) -> None:
        if not self.is_refused:
            await self.put(await asyncio.to_thread(render_check, view, job=self._job, head_sha=self.head_sha))

    async def put(self, draft: CheckDraft) -> None:
        """Create or update the check run. A missing permission sets `missing`; a GitHubError may be temporary."""
        if self.is_refused or draft == self._draft:
            return
        try:
            await self._put(draft)
        except GitHubError as error:
            if error.can_report_later:
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


def reply_target(job: Job) -> CommentTarget:
    """Return where a job is answered: in its thread about lines, or below the issue."""
    if job.origin.kind == "review_comment":
        return CommentTarget(kind="review_thread", number=job.thread.number, root=job.origin.root or job.origin.id)
    return CommentTarget(kind="thread", number=job.thread.number)


async def locate_comment(github: GitHub, job: Job, comment: CommentRecord) -> tuple[CommentTarget, CommentFacts] | None:
    """Return a job's status comment with its location; None if deleted."""
    if comment.posted is None:
        return None
    spot = CommentTarget(kind="thread", number=job.thread.number) if comment.below else reply_target(job)
    comment_facts = await github.comments.get(job.repo.full_name, spot, comment.posted.id)
    return None if comment_facts is None else (spot, comment_facts)


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
