"""The one check run of a job, beside its comment."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from http import HTTPStatus

from agent_runtime import Status
from bot.domain.job import Job
from bot.engine.job_record import CheckRecord, Posted
from bot.github import CheckDraft, CheckFacts, GitHub, GitHubError, ReviewDraft
from bot.publishing.check import render_check
from bot.publishing.published import RecordPart
from bot.publishing.view import StatusView

log = logging.getLogger(__name__)

_TWICE = 2


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
        self._id, posted = made.id, Posted(id=made.id, url=made.html_url)
        await self._record.update(lambda noted: replace(noted, posted=posted))
