"""Fetches what failed in a workflow run: its red jobs, their logs and annotations, and how the workflow runs them."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_runtime import BoundExceededError, run_bounded
from bot.github import GitHubError, JobFacts, LogError, LogGoneError, RepoFacts, RunFacts, StepFacts, save_log
from bot.jobs.case import Case
from bot.red_ci.digest import digest
from bot.red_ci.failed import FailedJob, FailedRun, Remark, Step
from bot.workspace import Source, WorkspaceError

log = logging.getLogger(__name__)

RED = frozenset({"failure", "timed_out", "startup_failure", "cancelled"})
MOST_JOBS = 5
EXCERPT_CHARS = 6_000

_LOG_BYTES = 100_000_000
_TAIL_BYTES = 4_000_000
_LOG_SECONDS = 60.0
_SECONDS_TOGETHER = 120.0
_MOST_REMARKS = 20
_CHANGES_CHARS = 20_000
_GONE = frozenset({404, 410})
_EXPIRED = "GitHub no longer has this job's log: logs are kept for 90 days, or as the repository's settings say."


async def failed_run(case: Case, repo: RepoFacts, source: Source, run_id: int, *, base: str = "") -> FailedRun:
    """What failed in a workflow run, with all that an agent needs to see it fail again.

    A log that cannot be had leaves its job without an excerpt, and the job says why.

    Args:
        case: whose client reads it.
        repo: the repository, as GitHub has it now.
        source: the commit that the run was for, where its workflow's file is read.
        run_id: of the run.
        base: the branch whose last successful run counts when the run's own branch has none; empty for none.

    Raises:
        GitHubError: the run or its jobs cannot be read.
    """
    run = await case.github.run_facts(repo.full_name, run_id)
    jobs = [each for each in await case.github.jobs_of_run(repo.full_name, run_id) if each.conclusion in RED]
    until = time.monotonic() + _SECONDS_TOGETHER
    reading = _Reading(case, repo, run, until)
    green, changes = await _since_green(case, repo, source, run, base)
    return FailedRun(
        id=run.id,
        attempt=run.attempt,
        name=run.name,
        path=run.path,
        event=run.event,
        conclusion=run.conclusion,
        url=run.html_url,
        head_sha=run.head_sha,
        head_branch=run.head_branch,
        jobs=tuple([await reading.job(each) for each in jobs[:MOST_JOBS]]),
        unread=max(0, len(jobs) - MOST_JOBS),
        green_sha=green,
        changes=changes,
    )


async def _since_green(case: Case, repo: RepoFacts, source: Source, run: RunFacts, base: str) -> tuple[str, str]:
    """The commit of the last run that went well, and what was changed since."""
    try:
        for branch in dict.fromkeys(filter(None, (run.head_branch, base))):
            green = await case.github.last_green(repo.full_name, run, branch)
            if green is not None and green.head_sha != run.head_sha:
                before = replace(source, ref=f"refs/heads/{branch}", sha=green.head_sha)
                changes = await case.house.workspaces.diff(repo.id, before, source, limit=_CHANGES_CHARS)
                return green.head_sha, changes
    except (GitHubError, WorkspaceError) as error:
        if isinstance(error, GitHubError) and error.passing:
            raise
        log.warning("job %s: what changed since the last green run was not read: %s", case.job.id, error)
    return "", ""


class _Reading:
    """Reads the jobs of one run."""

    def __init__(self, case: Case, repo: RepoFacts, run: RunFacts, until: float) -> None:
        self._case, self._repo, self._run, self._until = case, repo.full_name, run, until
        self._redacted = case.github.redacted

    async def job(self, job: JobFacts) -> FailedJob:
        """One job with its log and its annotations."""
        excerpt, more, no_log = "", 0, ""
        try:
            excerpt, more = await self._excerpt(job)
        except (LogError, BoundExceededError) as error:
            log.warning("job %s: the log of %s: %s", self._case.job.id, job.html_url or job.id, error)
            no_log = str(error)
        return FailedJob(
            id=job.id,
            name=job.name,
            conclusion=job.conclusion,
            url=job.html_url,
            steps=tuple(map(_step, job.steps)),
            runs_on=job.labels,
            excerpt=self._redacted(excerpt),
            more=more,
            no_log=no_log,
            annotations=await self._annotations(job),
        )

    async def _excerpt(self, job: JobFacts) -> tuple[str, int]:
        seconds = min(_LOG_SECONDS, self._until - time.monotonic())
        if seconds <= 0:
            raise LogError("The logs of the other jobs took too long.")
        with tempfile.TemporaryDirectory(prefix="codepilot-log-") as folder:
            file = Path(folder, "job.log")
            await save_log(
                await self._address(job),
                file,
                most=_LOG_BYTES,
                tail=_TAIL_BYTES,
                seconds=seconds,
                plain=self._case.house.server_url.startswith("http://"),
            )
            found = await run_bounded(
                digest, str(file), _moments(job.steps), EXCERPT_CHARS, seconds=60.0, what="Reading the log"
            )
        excerpt, more = found
        return str(excerpt), int(more)

    async def _address(self, job: JobFacts) -> str:
        try:
            return await self._case.github.address_of_job_log(self._repo, job.id)
        except GitHubError as error:
            if error.passing:
                raise
            raise (LogGoneError(_EXPIRED) if error.status in _GONE else LogError(str(error))) from error

    async def _annotations(self, job: JobFacts) -> tuple[Remark, ...]:
        if not job.check_id:
            return ()
        try:
            found = await self._case.github.annotations_of(self._repo, job.check_id, _MOST_REMARKS)
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("job %s: %s", self._case.job.id, error)
            return ()
        return tuple(
            Remark(path=each.path, line=each.start_line, message=self._redacted(each.message)) for each in found
        )


def _step(step: StepFacts) -> Step:
    return Step(number=step.number, name=step.name, conclusion=step.conclusion)


def _moments(steps: Sequence[StepFacts]) -> list[tuple[str, str]]:
    """When the failed ones ran."""
    return [(each.started_at, each.completed_at) for each in steps if each.started_at and _step(each).failed]
