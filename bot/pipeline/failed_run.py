"""Fetches what failed in a workflow run: its red jobs, their logs and annotations, and how the workflow runs them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_runtime import BoundExceededError, run_bounded
from bot.github import Annotation, GitHubError, JobFacts, LogError, RedCheck, RunFacts, StepFacts
from bot.intake.red_checks import FAILED
from bot.jobs.context import JobContext
from bot.jobs.snapshot import ThreadSnapshot
from bot.pipeline.failed_logs import FailedLogs
from bot.red_ci.failed import FailedJob, FailedRun, Remark, Step
from bot.red_ci.workflow import described
from bot.workspace import Source, WorkspaceError

log = logging.getLogger(__name__)

MOST_JOBS = 5

_CANCELLED = "cancelled"
_CHANGES_CHARS = 20_000
_WORKFLOW_BYTES = 200_000
_MOST_CALLS = 4
_SAYS_NOTHING = "Process completed with exit code "
"""Of every step that fails; it is in the log, too."""


async def failed_run(context: JobContext, here: ThreadSnapshot, source: Source, run_id: int) -> FailedRun | None:
    """What failed in a workflow run, with all that an agent needs to see it fail again; None for a run of elsewhere.

    If a log is not available, its job has no excerpt, and says why.

    Args:
        context: whose client reads it.
        here: the place, as GitHub has it now.
        source: the commit that is worked on. Any App can give its check the address of a run of another commit; only
            the run that a recipe follows may be one of an older commit, since the branch moves on meanwhile.
        run_id: of the run.

    Raises:
        GitHubError: the run or its jobs cannot be read.
    """
    repo, reader = here.repo, here.reader
    run = await reader.run(repo.full_name, run_id)
    is_current = run.head_sha == source.sha
    if not is_current and (context.job.origin.kind != "recipe" or run.head_repo_id != repo.id):
        return None
    source = replace(source, sha=run.head_sha)
    every = await reader.jobs_of_run(repo.full_name, run_id)
    # Where some fail, others are cancelled for that alone.
    jobs = [job for job in every if job.conclusion in FAILED] or [job for job in every if job.conclusion == _CANCELLED]
    # What was changed since the last run that went well on the same branch. A pull request's own diff says that of a
    # branch on which none ever did.
    green, changes = "", ""
    try:
        before = await context.github.runs.last_green(repo.full_name, run)
        if before is not None and before.head_sha != run.head_sha:
            place = replace(source, sha=before.head_sha)
            changes = await context.services.workspaces.diff(repo.id, place, source, limit=_CHANGES_CHARS)
            green = before.head_sha
    except (GitHubError, WorkspaceError) as error:
        if isinstance(error, GitHubError) and error.passing:
            raise
        log.warning("the changes since the last green run were not read: %s", error)
    plain = context.services.server_url.startswith("http://")
    async with FailedLogs(
        context.github, repo.full_name, run.id, run.attempt, plain=plain, ca_file=context.services.ca_file
    ).opened() as logs:
        reading = _Reading(context, here, source, run, logs)
        failed = [await reading.job(each) for each in jobs[:MOST_JOBS]]
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
        jobs=tuple(failed),
        unread=max(0, len(jobs) - MOST_JOBS),
        green_sha=green,
        changes=changes,
        is_current=is_current,
    )


def run_behind(server_url: str, repo: str, checks: Iterable[RedCheck]) -> int:
    """The workflow run that the first of these checks with one belongs to, by its page; 0 where none has one."""
    page = re.compile(rf"{re.escape(f'{server_url}/{repo}')}/actions/runs/([0-9]{{1,18}})/job/")
    return next((int(found[1]) for each in checks if (found := page.match(each.html_url))), 0)


class _Reading:
    """Reads the jobs of one run."""

    def __init__(
        self, context: JobContext, here: ThreadSnapshot, source: Source, run: RunFacts, logs: FailedLogs
    ) -> None:
        self._context, self._here, self._source, self._run, self._logs = context, here, source, run, logs
        self._redacted = context.github.redacted

    async def job(self, job: JobFacts) -> FailedJob:
        """One job with its log, its annotations, and what the workflow's file says of it."""
        excerpt, more, no_log = "", 0, ""
        try:
            moments = [
                (each.started_at, each.completed_at) for each in job.steps if each.started_at and step_of(each).failed
            ]
            excerpt, more = await self._logs.excerpt(job, moments)
        except LogError as error:
            log.warning("the log of %s: %s", job.html_url or job.id, error)
            no_log = str(error)
        told = await self._described(self._run.path, job.name, job.steps)
        steps = told.get("steps", {})
        return FailedJob(
            id=job.id,
            name=job.name,
            conclusion=job.conclusion,
            url=job.html_url,
            steps=tuple(self._step(each, steps.get(str(each.number), {})) for each in job.steps),
            runs_on=job.labels,
            environment=self._pairs(told.get("environment", {})),
            services=self._pairs(told.get("services", {})),
            container=self._redacted(told.get("container", "")),
            excerpt=self._redacted(excerpt),
            more=more,
            no_log=no_log,
            annotations=await self._annotations(job),
        )

    async def _described(self, path: str, name: str, steps: Sequence[StepFacts]) -> dict[str, Any]:
        """What the workflow's file says of a job, or the file that it calls; nothing where it says nothing."""
        listed = [(each.number, each.name, step_of(each).failed) for each in steps]
        try:
            for _ in range(_MOST_CALLS):
                blob = await self._context.services.workspaces.read(
                    self._here.repo.id, self._source, path, limit=_WORKFLOW_BYTES
                )
                if blob is None:
                    return {}
                text = blob.content.decode("utf-8", "replace")
                told: dict[str, Any] = await run_bounded(described, text, name, listed, what=f"Reading {path}")
                if "calls" not in told:
                    return told
                path, name = str(told["calls"]), str(told["name"])
        except (WorkspaceError, ValueError, BoundExceededError) as error:
            log.warning("%s was not read: %s", path, error)
        return {}

    def _step(self, step: StepFacts, told: Mapping[str, Any]) -> Step:
        def text(key: str) -> str:
            return self._redacted(str(told.get(key, "")))

        return replace(
            step_of(step),
            run=text("run"),
            shell=text("shell"),
            working_directory=text("working_directory"),
            uses=text("uses"),
            inputs=self._pairs(told.get("inputs", {})),
        )

    def _pairs(self, pairs: Mapping[str, str]) -> dict[str, str]:
        return {name: self._redacted(value) for name, value in pairs.items()}

    async def _annotations(self, job: JobFacts) -> tuple[Remark, ...]:
        if not job.check_id:
            return ()
        try:
            found = await self._here.reader.annotations(self._here.repo.full_name, job.check_id)
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("%s", error)
            return ()
        return tuple(
            remark_of(replace(each, message=self._redacted(each.message)))
            for each in found
            if not each.message.startswith(_SAYS_NOTHING)
        )


def remark_of(annotation: Annotation) -> Remark:
    """What GitHub shows beside lines, as a value of a failed job."""
    return Remark(path=annotation.path, line=annotation.start_line, message=annotation.message)


def step_of(step: StepFacts) -> Step:
    """A step as it ended, without what the workflow's file says of it."""
    return Step(number=step.number, name=step.name, conclusion=step.conclusion)
