"""The one status comment of a job: made at once, edited while the agent works, finished whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from bot.github import CommentFacts, GitHub, GitHubError
from bot.jobs.job import Job
from bot.jobs.memory import JobMemory
from bot.publishing.render import StatusView, render_status

log = logging.getLogger(__name__)

EDIT_SECONDS = 10.0
"""Between two edits while the agent works; GitHub counts every one against the installation's budget."""


class StatusComment:
    """The comment of one job, found again after a restart by its stored id, else by its signed marker."""

    def __init__(self, github: GitHub, memory: JobMemory, job: Job, *, marker: str) -> None:
        self._github = github
        self._memory = memory
        self._job = job
        self._marker = marker
        self._id: int | None = None
        self._body = ""

    async def show(self, view: StatusView) -> None:
        """Make the comment say `view`; see `put`."""
        # Making a hostile text harmless may take a second.
        await self.put(await asyncio.to_thread(render_status, view))

    async def put(self, body: str) -> None:
        """Make the comment's text `body`; nothing is sent when it is that already.

        Raises:
            GitHubError: GitHub refused or stayed silent.
        """
        if body == self._body:
            return
        if self._id is None:
            self._id = await self._known_id()
        if self._id is None:
            await self._create(body)
        else:
            await self._github.edit_comment(self._job.repo.full_name, self._id, body)
        self._body = body

    @asynccontextmanager
    async def kept_fresh(self, view: Callable[[], StatusView], *, seconds: float) -> AsyncIterator[None]:
        """Show `view()` every `seconds` while the body of the `with` runs; trouble with it never stops the work."""

        async def refresh() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await self.show(view())
                except GitHubError:
                    log.warning("job %s: the status comment was not updated", self._job.id, exc_info=True)

        task = asyncio.create_task(refresh())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _known_id(self) -> int | None:
        """The comment that an earlier attempt made, which may have died before it could note its id."""
        noted = await self._memory.recall("comment")
        if noted is not None:
            return int(noted.partition(" ")[0])
        if await self._memory.recall("commenting") is None:
            return None
        found = await self._find()
        return found.id if found else None

    async def _create(self, body: str) -> None:
        number, repo = self._job.thread.number, self._job.repo.full_name
        # Noted first: who is stopped between the asking and the noting of the id must look for it the next time.
        await self._memory.remember("commenting", "begun")
        try:
            made = await self._github.create_comment(repo, number, body)
        except GitHubError as error:
            # The answer was lost, but the comment may be there: look before asking a second time.
            if not error.passing:
                raise
            made = await self._find() or await self._github.create_comment(repo, number, body)
        self._id = made.id
        await self._memory.remember("comment", f"{made.id} {made.html_url}")

    async def _find(self) -> CommentFacts | None:
        me = await self._github.me()
        return await self._github.find_comment(self._job.repo.full_name, self._job.thread.number, self._marker, me.id)
