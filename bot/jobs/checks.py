"""The one check run of a job, beside its comment."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from agent_runtime import Status
from bot.github import CheckDraft, GitHub, GitHubError, ReviewDraft
from bot.jobs.job import Job
from bot.publishing.check import render_check
from bot.publishing.render import StatusView
from bot.publishing.sending import Memory

log = logging.getLogger(__name__)


class CheckRun:
    """Made once, found again after a restart, updated when there is something new. Only an App can have one.

    Args:
        github: acts for the job.
        memory: what earlier attempts did.
        job: what was asked.
        head_sha: the commit it stands on: the pull request's head, or the default branch's for an issue.

    Attributes:
        missing: why there is none, for the comment; empty while nothing stands against it.
    """

    def __init__(self, github: GitHub, memory: Memory, job: Job, *, head_sha: str) -> None:
        self._github = github
        self._memory = memory
        self._job = job
        self._head_sha = head_sha
        self._id: int | None = None
        self._shown: CheckDraft | None = None
        self._given_up = False
        self.missing = ""

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
        if self._given_up:
            return
        draft = await asyncio.to_thread(
            render_check,
            view,
            job=self._job,
            head_sha=self._head_sha,
            status=status,
            patch=patch,
            review=review,
        )
        if draft == self._shown:
            return
        try:
            await self._put(draft)
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("job %s: no check run: %s", self._job.id, error)
            self._given_up = True
            if error.status == HTTPStatus.FORBIDDEN:
                self.missing = f"There is no check run of this job: the App may not write them. {error.remedy}"
        else:
            self._shown = draft

    async def _put(self, draft: CheckDraft) -> None:
        repo = self._job.repo.full_name
        if self._id is None:
            self._id = await self._known_id(draft)
        if self._id is not None:
            await self._github.update_check(repo, self._id, draft)
            return
        # Noted first: who is stopped between the making and the noting of the id must look for it the next time.
        await self._memory.remember("checking", "begun")
        made = await self._github.create_check(repo, draft)
        self._id = made.id
        await self._memory.remember("check", f"{made.id} {made.html_url}")

    async def _known_id(self, draft: CheckDraft) -> int | None:
        """The check run that an earlier attempt made."""
        noted = await self._memory.recall("check")
        if noted is not None:
            return int(noted.partition(" ")[0])
        if await self._memory.recall("checking") is None:
            return None
        found = await self._github.find_check(self._job.repo.full_name, draft)
        return found.id if found else None
