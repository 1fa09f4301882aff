"""The one status comment of a job: made at once, edited while the agent works, completed in every case."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

from bot.domain.job import Job
from bot.engine.job_record import CommentRecord, Posted
from bot.github import CommentFacts, GitHub, GitHubError, Spot
from bot.jobs.background import background
from bot.jobs.context import JobContext, spot_of
from bot.publishing.marker import marker
from bot.publishing.published import RecordPart
from bot.publishing.render import render_status
from bot.publishing.view import StatusView

log = logging.getLogger(__name__)

_BESIDE = 3
"""The check run is edited every so many times that the comment is."""
_SHARE_OF_AGE = 4.0
_MOST_PAUSES = 6.0

_CLOCK_SECONDS = 60.0

_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})
_TWICE = 2


class Board(Protocol):
    """A place where people see how a job is doing."""

    async def show(self, view: StatusView) -> None:
        """Make it say `view`; nothing is sent when it does already."""
        ...


def edit_pause(age: float, seconds: float, spread: float) -> float:
    """How long to wait before the next edit: the older a run is, the less a minute more matters to who watches it.

    Args:
        age: of the run, in seconds.
        seconds: the pause of a run that has just begun; it grows to six times as long.
        spread: how many times rarer edits must be for GitHub's budget to last.
    """
    return min(max(seconds, age / _SHARE_OF_AGE), _MOST_PAUSES * seconds) * spread


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
        self, view: Callable[[], StatusView], *, seconds: float, stale: bool = False, beside: Collection[Board] = ()
    ) -> AsyncIterator[None]:
        """Show `view()` now and then while the body of the `with` runs; trouble with it never stops the work.

        Args:
            view: how the job is doing now.
            seconds: between two looks at it, at first; see `edit_pause`.
            stale: whether what the comment says is old already.
            beside: where else it is shown, less often.
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
                for board in (self, *(beside if edits % every == 0 else ())):
                    try:
                        await board.show(now)
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
        self._id, posted = comment.id, Posted(id=comment.id, url=comment.html_url)
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


def further_comment(context: JobContext, name: str) -> StatusComment:
    """Another comment of the job, found again in the same way.

    Args:
        context: the job.
        name: names it among all of this job: letters, digits, `-`, `_` and spaces.
    """
    job, key = context.job, context.services.marker_key
    own = marker(f"{name.replace(' ', '-')}-{job.id}", job.repo.id, job.thread.number, key=key)
    return StatusComment(context.github, context.record.part(name), job, marker=own)


def _requested(noted: CommentRecord) -> CommentRecord:
    return replace(noted, requests=noted.requests + 1)
