"""Gather texts and pictures for the agent: thread, diff, failing checks with logs, linked files.

Start with `gather`. Logs and pictures come from other hosts: bounded workers read them, and a failure never fails the
job.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from agent_runtime import BoundExceededError, Image, ImageError, Task, run_bounded
from bot.ci_logs.failed_run import FailedJob, FailedRun, StepDefinition
from bot.ci_logs.log_formats import digest, digest_of_zip
from bot.ci_logs.workflow import describe_job
from bot.domain.commands import Ask, Describe, Explain, Fix, Plan, Review, Test
from bot.domain.difference import ChangedFile
from bot.events.ci_triggers import FAILED
from bot.git.compare import Comparison
from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.github.client import GitHub
from bot.github.downloads import LogError, LogGoneError, PictureError, TooLargeError, fetch_picture, save_log
from bot.github.types import Annotation, CheckFacts, GitHubError, JobFacts, RunFacts, StepFacts
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.jobs.faults import is_passing
from bot.jobs.merges import conflict_quotes
from bot.jobs.own_pulls import quote_undone
from bot.jobs.propose import list_choices
from bot.jobs.status import read_hint
from bot.prompt.brief import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    MAX_TOTAL_BYTES,
    Brief,
    LinkedFile,
    Material,
    Picture,
    is_fetchable,
    omission_notes,
    signed_address,
)
from bot.prompt.difference import Difference, choose_readable, find_ignored, order_files
from bot.prompt.reading import Reading, Unread, find_unread
from bot.publishing.commit_format import choose_format

log = logging.getLogger(__name__)
_MAX_FILES = 5
_IGNORE_SECONDS = 20.0
_FILE_BYTES = 200_000
_LINES = re.compile(r"L([0-9]{1,7})(?:-L([0-9]{1,7}))?")


async def gather(context: JobContext, assignment: Assignment) -> Material:
    """Fetch the texts of a job.

    Missing ones are only logged, or in `unread` for failing checks that started the job.

    Raises:
        GitHubError: a request failed.
    """
    repo, number, reader = assignment.snapshot.repo.full_name, context.job.thread.number, assignment.snapshot.reader
    language = assignment.settings.config.language or ""
    plan = assignment.command.plan if isinstance(assignment.command, Fix) else ""
    merge = assignment.merge
    red, unread = await _failing_checks(context, assignment)
    failed = await _find_failed_run(context, assignment, red)
    material = Material(
        language=language,
        typed_commits=choose_format(assignment.settings.config.commit, assignment.settings.titles).has_types,
        approved_plan=plan,
        checks=red,
        failed=failed,
        workflow=failed.facts.name if failed is not None else "",
        unread=unread,
        merged=merge.label if merge is not None else "",
        conflicts=tuple(conflict_quotes(merge)) if merge is not None else (),
        undone=await quote_undone(context),
        choices=await list_choices(context, assignment),
    )
    if context.job.thread.kind == "branch":
        return material
    status = (await context.record.read()).comment.posted
    material = replace(
        material,
        own_id=(await context.github.accounts.me()).id,
        comments=tuple(each for each in await reader.comments(repo, number) if status is None or each.id != status.id),
        files=await _linked_files(context, assignment),
    )
    if context.job.thread.kind == "issue":
        if assignment.snapshot.thread.continues == 0:
            return material
        return replace(material, continues=True, difference=await _difference(context, assignment, material))
    return replace(
        material,
        line_comments=await context.github.reviews.list_line_comments(repo, number),
        reviews=await reader.reviews(repo, number),
        difference=await _difference(context, assignment, material),
    )


async def compare_pull(context: JobContext, assignment: Assignment) -> Comparison:
    """Compare the pull request's head with its base, as GitHub does.

    Raises:
        WorkspaceError: git failed.
    """
    return await context.services.workspaces.compare(assignment.snapshot.repo.id, assignment.base, assignment.source)


async def _find_ignored(assignment: Assignment, files: Sequence[ChangedFile]) -> frozenset[str]:
    """Return the paths that a review leaves out."""
    ignore = assignment.settings.config.review.ignore if isinstance(assignment.command, Review) else ()
    if not ignore:
        return frozenset()
    paths = [file.path for file in files]
    try:
        found = await run_bounded(find_ignored, paths, list(ignore), seconds=_IGNORE_SECONDS, task="`review.ignore`")
    except BoundExceededError as error:
        log.warning("no file is left out of the review: %s", error)
        return frozenset()
    return frozenset(paths[number] for number in found)


async def _difference(context: JobContext, assignment: Assignment, material: Material) -> Difference:
    thread, goal = context.job.thread, getattr(assignment.command, "goal", "")
    texts = [thread.title, thread.body, *(comment.body for comment in material.comments)]
    comparison = await compare_pull(context, assignment)
    ignored = await _find_ignored(assignment, comparison.files)
    return await _build_difference(context, assignment.snapshot.repo.id, comparison, texts, goal, ignored)


async def _build_difference(  # noqa: PLR0917 - two of them for a pull request only
    context: JobContext,
    repo_id: int,
    comparison: Comparison,
    texts: Sequence[str] = (),
    request: str = "",
    ignored: Collection[str] = (),
) -> Difference:
    kept = [file for file in comparison.files if file.path not in ignored]
    ordered = await asyncio.to_thread(order_files, kept, texts, request)
    sections = await context.services.workspaces.read_sections(repo_id, comparison, choose_readable(ordered))
    left_out = [file for file in comparison.files if file.path in ignored]
    return await asyncio.to_thread(Difference.of, ordered, sections, left_out)


async def measure_reading(context: JobContext, assignment: Assignment) -> Unread | None:
    """Return the changed files whose lines the run has not read; None where it was given no difference.

    Raises:
        WorkspaceError: git failed.
    """
    command = assignment.command
    is_pull, continues = context.job.thread.kind == "pull", assignment.snapshot.thread.continues > 0
    if not (is_pull and isinstance(command, Review | Describe | Ask | Explain | Plan)) and not (
        continues and isinstance(command, Fix | Ask | Explain | Plan)
    ):
        return None
    comparison = await compare_pull(context, assignment)
    ignored = await _find_ignored(assignment, comparison.files)
    reading = await asyncio.to_thread(Reading.of, context.state.events)
    touched = [file for file in comparison.files if file.lines and reading.touches(file)]
    sections = await context.services.workspaces.read_sections(assignment.snapshot.repo.id, comparison, touched)
    ordered = [entry.file for entry in await asyncio.to_thread(order_files, comparison.files, ())]
    return await asyncio.to_thread(find_unread, ordered, ignored, sections, reading)


async def _failing_checks(context: JobContext, assignment: Assignment) -> tuple[tuple[CheckFacts, ...], str]:
    has_pull = context.job.thread.kind == "pull" or assignment.snapshot.thread.continues > 0
    # By a button, work on a branch that failing checks began is done again.
    if not has_pull and context.job.origin.kind not in {"ci", "button"}:
        return (), ""
    try:
        repo, reader = assignment.snapshot.repo.full_name, assignment.snapshot.reader
        return await reader.failing_checks(repo, assignment.grant.bound_to_sha), ""
    except GitHubError as error:
        if error.is_transient:
            raise
        log.warning("the failing checks were not read: %s", error)
        # A command of a person's can be about anything else.
        if context.job.origin.kind != "ci" or not error.lacks_permission:
            return (), ""
        return (), f"The agent was given no annotations of the failing checks. {read_hint(context, 'checks')}"


async def _find_failed_run(context: JobContext, assignment: Assignment, red: Sequence[CheckFacts]) -> FailedRun | None:
    snapshot, run_id = assignment.snapshot, context.job.origin.id
    if context.job.origin.kind not in {"ci", "recipe"}:
        run_id = (
            find_run_id(context.services.server_url, snapshot.repo.full_name, red)
            if isinstance(assignment.command, Fix | Test)
            else 0
        )
    if not run_id:
        return None
    try:
        return await fetch_run(context, snapshot, assignment.source, run_id)
    except GitHubError as error:
        if error.is_transient:
            raise
        log.warning("the run that failed was not read: %s", error)
        return None


async def _linked_files(context: JobContext, assignment: Assignment) -> tuple[LinkedFile, ...]:
    """Read the files of the worked-on commit that the thread's description links to."""
    prefix = re.escape(f"{context.services.server_url}/{assignment.snapshot.repo.full_name}/blob/")
    links = re.finditer(rf"{prefix}[^/\s]+/([^\s#?)>\]\"']+)(?:#(L[0-9L-]+))?", context.job.thread.body)
    # The author of the description may have filled it with links that lead nowhere.
    places = list(dict.fromkeys((unquote(link[1]), link[2] or "") for link in links))[:_MAX_FILES]
    files = []
    for path, lines in places:
        try:
            repo_id, source = assignment.snapshot.repo.id, assignment.source
            blob = await context.services.workspaces.read(repo_id, source, path, limit=_FILE_BYTES)
        except WorkspaceError as error:
            if is_passing(error):
                raise
            continue  # no file, or a large one: the agent can look for itself
        if blob is None:
            continue
        files.append(select_lines(path, lines, blob.content.decode("utf-8", "replace")))
    return tuple(files)


def select_lines(path: str, fragment: str, text: str) -> LinkedFile:
    """Return the lines that the link's fragment names, e.g. `L3-L9`, or the whole file."""
    if match := _LINES.fullmatch(fragment):
        lines = text.removesuffix("\n").split("\n")  # as GitHub, git and the agent's tools number them
        first, last = max(1, int(match[1])), min(int(match[2] or match[1]), len(lines))
        if first <= last:
            return LinkedFile(place=f"{path} lines {first}-{last}", text="\n".join(lines[first - 1 : last]))
    return LinkedFile(place=path, text=text)


MAX_JOBS = 5
_CANCELLED = "cancelled"
_CHANGES_CHARS = 20_000
_WORKFLOW_BYTES = 200_000
_MAX_CALLS = 4
_EXIT_CODE_TEXT = "Process completed with exit code "
"""Each failed step has this annotation."""


async def fetch_run(context: JobContext, snapshot: ThreadSnapshot, source: Source, run_id: int) -> FailedRun | None:
    """Collect the failed jobs of a workflow run; None for a run of another commit.

    Any App can give its check the URL of an unrelated run. Only a recipe's run may be of an older commit, because its
    branch moves on. A job without a log has the reason instead.

    Raises:
        GitHubError: the run or its jobs cannot be read.
    """
    repo, reader = snapshot.repo, snapshot.reader
    run = await reader.run(repo.full_name, run_id)
    is_current = run.head_sha == source.sha
    if not is_current and (context.job.origin.kind != "recipe" or run.head_repo_id != repo.id):
        return None
    source = replace(source, sha=run.head_sha)
    all_jobs = await reader.jobs_of_run(repo.full_name, run_id)
    # Where some fail, others are cancelled for that alone.
    red = [job for job in all_jobs if job.conclusion in FAILED]
    jobs = red or [job for job in all_jobs if job.conclusion == _CANCELLED]
    # What was changed since the last run that went well on the same branch. A pull request's own diff says that of a
    # branch on which none ever did.
    green, changes = "", ""
    try:
        green_run = await context.github.runs.find_last_success(repo.full_name, run)
        if green_run is not None and green_run.head_sha != run.head_sha:
            place = replace(source, sha=green_run.head_sha)
            comparison = await context.services.workspaces.compare(repo.id, place, source)
            difference = await _build_difference(context, repo.id, comparison)
            changes = await asyncio.to_thread(difference.render, _CHANGES_CHARS)
            green = green_run.head_sha
    except (GitHubError, WorkspaceError) as error:
        if is_passing(error):
            raise
        log.warning("the changes since the last green run were not read: %s", error)
    plain = context.services.server_url.startswith("http://")
    async with FailedLogs(
        context.github, repo.full_name, run.id, run.attempt, plain=plain, ca_file=context.services.ca_file
    ).open() as logs:
        reading = _JobReader(context, snapshot, source, run, logs)
        failed = [await reading.read(job) for job in jobs[:MAX_JOBS]]
    return FailedRun(
        facts=run,
        jobs=tuple(failed),
        unread=max(0, len(jobs) - MAX_JOBS),
        green_sha=green,
        changes=changes,
        is_current=is_current,
    )


def find_run_id(server_url: str, repo: str, checks: Iterable[CheckFacts]) -> int:
    """Return the id of the first check's workflow run, from its URL, or 0."""
    page = re.compile(rf"{re.escape(f'{server_url}/{repo}')}/actions/runs/([0-9]{{1,18}})/job/")
    return next((int(match[1]) for check in checks if (match := page.match(check.html_url))), 0)


class _JobReader:
    def __init__(
        self, context: JobContext, snapshot: ThreadSnapshot, source: Source, run: RunFacts, logs: FailedLogs
    ) -> None:
        self._context, self._snapshot, self._source, self._run, self._logs = context, snapshot, source, run, logs
        self._redacted = context.github.redact_text

    async def read(self, job: JobFacts) -> FailedJob:
        excerpt, omitted, no_log = "", 0, ""
        try:
            moments = [(step.started_at, step.completed_at) for step in job.steps if step.started_at and step.failed]
            excerpt, omitted = await self._logs.excerpt(job, moments)
        except LogError as error:
            log.warning("the log of %s: %s", job.html_url or job.id, error)
            no_log = str(error)
        definition = await self._read_definition(self._run.path, job.name, job.steps)
        steps: Mapping[str, Mapping[str, Any]] = definition.get("steps", {})
        return FailedJob(
            facts=job,
            definitions={int(number): self._step(step) for number, step in steps.items()},
            environment=self._pairs(definition.get("environment", {})),
            services=self._pairs(definition.get("services", {})),
            container=self._redacted(definition.get("container", "")),
            excerpt=self._redacted(excerpt),
            more=omitted,
            no_log=no_log,
            annotations=await self._annotations(job),
        )

    async def _read_definition(self, path: str, name: str, steps: Sequence[StepFacts]) -> dict[str, Any]:
        """Find the job in the workflow file, or in a file that it calls."""
        failed_steps = [(step.number, step.name, step.failed) for step in steps]
        try:
            for _ in range(_MAX_CALLS):
                blob = await self._context.services.workspaces.read(
                    self._snapshot.repo.id, self._source, path, limit=_WORKFLOW_BYTES
                )
                if blob is None:
                    return {}
                text = blob.content.decode("utf-8", "replace")
                job: dict[str, Any] = await run_bounded(describe_job, text, name, failed_steps, task=f"Reading {path}")
                if "calls" not in job:
                    return job
                path, name = str(job["calls"]), str(job["name"])
        except (WorkspaceError, ValueError, BoundExceededError) as error:
            if is_passing(error):
                raise
            log.warning("%s was not read: %s", path, error)
        return {}

    def _step(self, definition: Mapping[str, Any]) -> StepDefinition:
        def text(key: str) -> str:
            return self._redacted(str(definition.get(key, "")))

        return StepDefinition(
            run=text("run"),
            shell=text("shell"),
            working_directory=text("working_directory"),
            uses=text("uses"),
            inputs=self._pairs(definition.get("inputs", {})),
        )

    def _pairs(self, pairs: Mapping[str, str]) -> dict[str, str]:
        return {name: self._redacted(value) for name, value in pairs.items()}

    async def _annotations(self, job: JobFacts) -> tuple[Annotation, ...]:
        if not job.check_id:
            return ()
        try:
            annotations = await self._snapshot.reader.annotations(self._snapshot.repo.full_name, job.check_id)
        except GitHubError as error:
            if error.is_transient:
                raise
            log.warning("%s", error)
            return ()
        return tuple(
            annotation.model_copy(update={"message": self._redacted(annotation.message)})
            for annotation in annotations
            if not annotation.message.startswith(_EXIT_CODE_TEXT)
        )


EXCERPT_CHARS = 5_000
_LOG_BYTES = 100_000_000
_TAIL_BYTES = 4_000_000
_ZIP_BYTES = 32_000_000
_LOG_SECONDS = 60.0
_LOGS_SECONDS = 120.0
_GONE = frozenset({404, 410})
_EXPIRED = "GitHub has no log of this job: it was deleted (by default after 90 days), or the runner was lost."


class FailedLogs:
    """The logs of one attempt of a workflow run."""

    def __init__(
        self, github: GitHub, repo: str, run_id: int, attempt: int, *, plain: bool, ca_file: Path | None = None
    ) -> None:
        self._github, self._repo, self._run_id, self._attempt = github, repo, run_id, attempt
        self._save = partial(save_log, plain=plain, ca_file=ca_file)
        self._until = time.monotonic() + _LOGS_SECONDS
        self._folder = Path()
        self._zip: Path | None = None
        self._no_zip = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        # Other processes remove unlocked directories with the prefix of the terminals' logs.
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="codepilot-ci-logs-"))
        try:
            yield self
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder)

    async def excerpt(self, job: JobFacts, moments: Sequence[tuple[str, str]]) -> tuple[str, int]:
        """Return an excerpt about a job's failures, and the number of omitted ones.

        Raises:
            LogError: the log is unavailable.
            GitHubError: a request failed.
        """
        file = self._folder / "job.log"
        try:
            try:
                address = await self._resolve_url(self._github.runs.job_log_url(self._repo, job.id))
                await self._save(address, file, most=_LOG_BYTES, tail=_TAIL_BYTES, seconds=self._remaining_seconds())
                text, omitted = await run_bounded(
                    digest, str(file), list(moments), EXCERPT_CHARS, seconds=_LOG_SECONDS, task="Reading the log"
                )
            except LogGoneError:
                return await self._excerpt_from_zip(job, moments)
        except BoundExceededError as error:
            raise LogError(f"The log could not be read: {error}") from error
        return str(text), int(omitted)

    async def _excerpt_from_zip(self, job: JobFacts, moments: Sequence[tuple[str, str]]) -> tuple[str, int]:
        """Read the log from the run's zip file, which is fetched once."""
        if self._no_zip:
            raise LogGoneError(self._no_zip)
        if self._zip is None:
            file = self._folder / "run.zip"
            try:
                address = await self._resolve_url(self._github.runs.logs_url(self._repo, self._run_id, self._attempt))
                await self._save(address, file, most=_ZIP_BYTES, tail=0, seconds=self._remaining_seconds())
            except LogError as error:
                self._no_zip = str(error)
                raise
            self._zip = file
        arguments = (str(self._zip), job.name, list(moments), EXCERPT_CHARS, _LOG_BYTES)
        try:
            text, omitted = await run_bounded(digest_of_zip, *arguments, seconds=_LOG_SECONDS, task="Reading the logs")
        except ValueError as error:
            raise LogGoneError(f"{_EXPIRED} ({error})") from error
        return str(text), int(omitted)

    async def _resolve_url(self, request: Awaitable[str]) -> str:
        try:
            return await request
        except GitHubError as error:
            if error.is_transient:
                raise
            raise (LogGoneError(_EXPIRED) if error.status in _GONE else LogError(str(error))) from error

    def _remaining_seconds(self) -> float:
        remaining = min(_LOG_SECONDS, self._until - time.monotonic())
        if remaining <= 0:
            raise LogError("Reading the logs of the other jobs took too long.")
        return remaining


_MAX_TRIES = 2 * MAX_PICTURES
_SECONDS = 10.0
_PICTURES_SECONDS = 30.0
_NO_VISION = "this model does not support images"
_DISABLED = "the operator has turned images off"
_TOO_MANY = f"a task has {MAX_PICTURES} images at most"
_NO_ROOM = f"the images of a task have {MAX_TOTAL_BYTES:,} bytes at most"
_NOT_ATTACHED = "it is not an attachment on GitHub"
_NO_TIME = "fetching the other images took too long"


async def fetch_pictures(context: JobContext, repo: str, brief: Brief, *, sees_images: bool) -> Task:
    """Return the task with the available pictures, and notes about the others."""
    if not brief.pictures:
        return brief.task()
    if sees_images and context.services.pictures:
        return await _PictureFetcher(context, repo).fetch_into_task(brief)
    reason = _NO_VISION if context.services.pictures else _DISABLED
    return brief.task(notes=omission_notes((picture, reason) for picture in brief.pictures))


class _PictureFetcher:
    def __init__(self, context: JobContext, repo: str) -> None:
        self._context, self._repo = context, repo
        self._server = context.services.server_url
        self._fetched: list[tuple[Picture, Image]] = []
        self._omitted: list[tuple[Picture, str]] = []
        self._pages: dict[tuple[str, int], str] = {}
        self._bytes = 0

    async def fetch_into_task(self, brief: Brief) -> Task:
        until, tries = time.monotonic() + _PICTURES_SECONDS, 0
        for picture in brief.pictures:
            if not is_fetchable(picture.address, self._server):
                reason = _NOT_ATTACHED
            elif len(self._fetched) >= MAX_PICTURES or tries >= _MAX_TRIES:
                reason = _TOO_MANY
            elif time.monotonic() >= until:
                reason = _NO_TIME
            else:
                tries += 1
                reason = await self._fetch_picture(picture, min(_SECONDS, until - time.monotonic()))
            if reason:
                self._omitted.append((picture, reason))
        for picture, reason in self._omitted:
            log.info("an image of %s was not fetched: %s", picture.source, reason)
        images = [image for _, image in sorted(self._fetched, key=lambda entry: entry[0].place)]
        return brief.task(images, omission_notes(self._omitted))

    async def _fetch_picture(self, picture: Picture, seconds: float) -> str:
        """Return the reason for a failure, or an empty text."""
        room = MAX_TOTAL_BYTES - self._bytes
        text = picture.text
        page = text.kind, text.id
        if page not in self._pages:
            try:
                self._pages[page] = await self._context.github.comments.render(
                    self._repo, self._context.job.thread.number, *page
                )
            except GitHubError as error:  # an address may serve as it is
                log.warning("the images have no signed addresses: %s", error)
                self._pages[page] = ""
        # Off the event loop: a comment has a hundred thousand tags once its code is coloured.
        address = await asyncio.to_thread(signed_address, picture.address, self._pages[page], self._server)
        try:
            content = await fetch_picture(
                address,
                server_url=self._server,
                limit=min(MAX_PICTURE_BYTES, room),
                seconds=max(0.0, seconds),
                ca_file=self._context.services.ca_file,
            )
            self._fetched.append((picture, Image.of(picture.source, content)))
        except TooLargeError as error:
            return _NO_ROOM if room < MAX_PICTURE_BYTES else str(error)
        except (PictureError, ImageError) as error:
            return str(error)
        self._bytes += len(content)
        return ""
