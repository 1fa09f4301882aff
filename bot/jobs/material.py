"""Material for the agent: the thread, the diff, failing checks with their logs, linked files and pictures.

`gather` reads all of it from GitHub and from the trusted git directory, within limits. Logs and pictures come from
other hosts and may be anything: they are read in bounded workers, and no job fails for lack of them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from agent_runtime import BoundExceededError, Image, ImageError, Task, run_bounded
from bot.ci_logs.failed_run import FailedJob, FailedRun, Remark, Step
from bot.ci_logs.log_formats import digest, digest_of_zip
from bot.ci_logs.workflow import describe_job
from bot.domain.commands import Fix, Test
from bot.events.ci_triggers import FAILED
from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.github.client import GitHub
from bot.github.downloads import LogError, LogGoneError, PictureError, TooLargeError, fetch_picture, save_log
from bot.github.types import Annotation, CommentFacts, GitHubError, JobFacts, RedCheck, ReviewFacts, RunFacts, StepFacts
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.jobs.status import lacking
from bot.prompt.brief import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    MAX_TOTAL_BYTES,
    Brief,
    FailingCheck,
    LineComment,
    LinkedFile,
    Material,
    Picture,
    ReviewVerdict,
    ThreadComment,
    is_fetchable,
    omission_notes,
    signed_address,
)

log = logging.getLogger(__name__)
_DIFF_CHARS = 60_000
_MOST_FILES = 5
_FILE_BYTES = 200_000
_LINES = re.compile(r"L([0-9]{1,7})(?:-L([0-9]{1,7}))?")


async def gather(context: JobContext, begun: Assignment) -> Material:
    """Read the thread, if there is one, and for a pull request its reviews, its diff and its failing checks.

    What GitHub will not show, e.g. for lack of a permission, is left out with a word in the log: the job can be done
    without it. Where failing checks began the job, `unread` says so, with the permission.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    repo, number, reader = begun.snapshot.repo.full_name, context.job.thread.number, begun.snapshot.reader
    language, plan = begun.settings.config.language or "", begun.command.plan if isinstance(begun.command, Fix) else ""
    red, unread = await _red(context, begun)
    failed = await _failed(context, begun, red)
    material = Material(
        language=language,
        approved_plan=plan,
        checks=tuple(map(_check, red)),
        failed=failed,
        workflow=failed.name if failed is not None else "",
        unread=unread,
    )
    if context.job.thread.kind == "branch":
        return material
    me = (await context.github.accounts.me()).id
    comments = tuple([_comment(each, me) for each in await reader.comments(repo, number)])
    material = replace(material, comments=comments, files=await _linked(context, begun))
    if context.job.thread.kind == "issue":
        continues = begun.snapshot.thread.continues > 0
        diff = await pull_diff(context, begun, limit=_DIFF_CHARS) if continues else ""
        return replace(material, continues=continues, diff=diff)
    return replace(
        material,
        line_comments=tuple(
            [
                LineComment(
                    comment=_comment(each.comment, me), root=each.root, path=each.path, line=each.line, hunk=each.hunk
                )
                for each in await context.github.reviews.line_comments(repo, number)
            ]
        ),
        verdicts=tuple(
            [ReviewVerdict(comment=_comment(each, me), state=each.state) for each in await reader.reviews(repo, number)]
        ),
        diff=await pull_diff(context, begun, limit=_DIFF_CHARS),
    )


async def pull_diff(context: JobContext, begun: Assignment, *, limit: int) -> str:
    """What the pull request changes, as git writes it, at most `limit` characters of it."""
    base = begun.settings.base_sha
    source = begun.source
    return await context.services.workspaces.diff(
        begun.snapshot.repo.id,
        replace(source, ref=f"refs/heads/{begun.snapshot.thread.base_ref}", sha=base),
        source,
        limit=limit,
    )


async def _red(context: JobContext, begun: Assignment) -> tuple[tuple[RedCheck, ...], str]:
    """The failing checks of a pull request's head, or of the commit that made CI ask; and why they were not read."""
    has_pull = context.job.thread.kind == "pull" or begun.snapshot.thread.continues > 0
    # By a button, work on a branch that failing checks began is done again.
    if not has_pull and context.job.origin.kind not in {"ci", "button"}:
        return (), ""
    try:
        return await begun.snapshot.reader.failing_checks(begun.snapshot.repo.full_name, begun.grant.bound_to_sha), ""
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("the failing checks were not read: %s", error)
        # A command of a person's can be about anything else.
        if context.job.origin.kind != "ci" or not error.lacks_permission:
            return (), ""
        return (), f"The agent was given no annotations of the failing checks. {lacking(context, 'checks')}"


async def _failed(context: JobContext, begun: Assignment, red: Sequence[RedCheck]) -> FailedRun | None:
    """What failed in the workflow run that started the job, or, where a person wants it fixed, in the first red one."""
    here, run_id = begun.snapshot, context.job.origin.id
    if context.job.origin.kind not in {"ci", "recipe"}:
        run_id = (
            run_behind(context.services.server_url, here.repo.full_name, red)
            if isinstance(begun.command, Fix | Test)
            else 0
        )
    if not run_id:
        return None
    try:
        return await failed_run(context, here, begun.source, run_id)
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("the run that failed was not read: %s", error)
        return None


async def _linked(context: JobContext, begun: Assignment) -> tuple[LinkedFile, ...]:
    """The repository's own files that the thread's description links to, as they are in the commit worked on."""
    prefix = re.escape(f"{context.services.server_url}/{begun.snapshot.repo.full_name}/blob/")
    links = re.finditer(rf"{prefix}[^/\s]+/([^\s#?)>\]\"']+)(?:#(L[0-9L-]+))?", context.job.thread.body)
    # The author of the description may have filled it with links that lead nowhere.
    places = list(dict.fromkeys((unquote(link[1]), link[2] or "") for link in links))[:_MOST_FILES]
    found = []
    for path, lines in places:
        try:
            blob = await context.services.workspaces.read(begun.snapshot.repo.id, begun.source, path, limit=_FILE_BYTES)
        except WorkspaceError:  # no file, or a large one: the agent can look for itself
            continue
        if blob is None:
            continue
        found.append(linked(path, lines, blob.content.decode("utf-8", "replace")))
    return tuple(found)


def linked(path: str, fragment: str, text: str) -> LinkedFile:
    """What a link to a file means: the lines that its fragment names, or the whole file where it has no such lines.

    Args:
        path: the file.
        fragment: of the link, such as `L3-L9`; empty for none.
        text: the whole file.
    """
    if meant := _LINES.fullmatch(fragment):
        lines = text.removesuffix("\n").split("\n")  # as GitHub, git and the agent's tools number them
        first, last = max(1, int(meant[1])), min(int(meant[2] or meant[1]), len(lines))
        if first <= last:
            return LinkedFile(place=f"{path} lines {first}-{last}", text="\n".join(lines[first - 1 : last]))
    return LinkedFile(place=path, text=text)


def _comment(facts: CommentFacts | ReviewFacts, me: int) -> ThreadComment:
    if isinstance(facts, ReviewFacts):
        created = updated = facts.submitted_at
    else:
        created, updated = facts.created_at, facts.updated_at
    return ThreadComment(
        id=facts.id,
        author=facts.author,
        body=facts.body,
        created_at=created,
        updated_at=updated,
        is_own=facts.author_id == me,
    )


def _check(red: RedCheck) -> FailingCheck:
    return FailingCheck(
        name=red.name,
        conclusion=red.conclusion,
        summary=red.summary,
        remarks=tuple(map(remark_of, red.annotations)),
    )


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
                told: dict[str, Any] = await run_bounded(describe_job, text, name, listed, task=f"Reading {path}")
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
            remark_of(each.model_copy(update={"message": self._redacted(each.message)}))
            for each in found
            if not each.message.startswith(_SAYS_NOTHING)
        )


def remark_of(annotation: Annotation) -> Remark:
    """What GitHub shows beside lines, as a value of a failed job."""
    return Remark(path=annotation.path, line=annotation.start_line, message=annotation.message)


def step_of(step: StepFacts) -> Step:
    """A step as it ended, without what the workflow's file says of it."""
    return Step(number=step.number, name=step.name, conclusion=step.conclusion)


EXCERPT_CHARS = 5_000
_LOG_BYTES = 100_000_000
_TAIL_BYTES = 4_000_000
_ZIP_BYTES = 32_000_000
_LOG_SECONDS = 60.0
_LOGS_SECONDS = 120.0
_GONE = frozenset({404, 410})
_EXPIRED = "GitHub has no log of this job: it was deleted (by default after 90 days), or the runner was lost."


class FailedLogs:
    """The logs of one attempt of a workflow run, for as long as it is open.

    Args:
        github: where they are.
        repo: `owner/name`.
        run_id: of the run.
        attempt: of the run.
        plain: whether GitHub's addresses have no TLS, as those of a hub on this machine.
        ca_file: authorities that are trusted beside the system's.
    """

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
    async def opened(self) -> AsyncIterator[Self]:
        """Have a directory for what is fetched."""
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="codepilot-logs-"))
        try:
            yield self
        finally:
            await asyncio.to_thread(shutil.rmtree, self._folder)

    async def excerpt(self, job: JobFacts, moments: Sequence[tuple[str, str]]) -> tuple[str, int]:
        """What a job's log says of its failures, and how many more it has.

        Raises:
            LogError: it is not available; the text says why.
            GitHubError: GitHub failed in a way that may pass.
        """
        file = self._folder / "job.log"
        try:
            try:
                address = await self._address(self._github.runs.job_log_url(self._repo, job.id))
                await self._save(address, file, most=_LOG_BYTES, tail=_TAIL_BYTES, seconds=self._seconds())
                text, more = await run_bounded(
                    digest, str(file), list(moments), EXCERPT_CHARS, seconds=_LOG_SECONDS, task="Reading the log"
                )
            except LogGoneError:
                return await self._packed(job, moments)
        except BoundExceededError as error:
            raise LogError(f"The log could not be read: {error}") from error
        return str(text), int(more)

    async def _packed(self, job: JobFacts, moments: Sequence[tuple[str, str]]) -> tuple[str, int]:
        """The same from the zip file of the run, which is fetched once."""
        if self._no_zip:
            raise LogGoneError(self._no_zip)
        if self._zip is None:
            file = self._folder / "run.zip"
            try:
                address = await self._address(self._github.runs.logs_url(self._repo, self._run_id, self._attempt))
                await self._save(address, file, most=_ZIP_BYTES, tail=0, seconds=self._seconds())
            except LogError as error:
                self._no_zip = str(error)
                raise
            self._zip = file
        arguments = (str(self._zip), job.name, list(moments), EXCERPT_CHARS, _LOG_BYTES)
        try:
            text, more = await run_bounded(digest_of_zip, *arguments, seconds=_LOG_SECONDS, task="Reading the logs")
        except ValueError as error:
            raise LogGoneError(f"{_EXPIRED} ({error})") from error
        return str(text), int(more)

    async def _address(self, asking: Awaitable[str]) -> str:
        try:
            return await asking
        except GitHubError as error:
            if error.passing:
                raise
            raise (LogGoneError(_EXPIRED) if error.status in _GONE else LogError(str(error))) from error

    def _seconds(self) -> float:
        left = min(_LOG_SECONDS, self._until - time.monotonic())
        if left <= 0:
            raise LogError("Reading the logs of the other jobs took too long.")
        return left


_MOST_TRIES = 2 * MAX_PICTURES
_SECONDS = 10.0
_PICTURES_SECONDS = 30.0
_BLIND = "this model does not support images"
_OFF = "the operator has turned images off"
_ENOUGH = f"a task has {MAX_PICTURES} images at most"
_NO_ROOM = f"the images of a task have {MAX_TOTAL_BYTES:,} bytes at most"
_ELSEWHERE = "it is not an attachment on GitHub"
_NO_TIME = "fetching the other images took too long"


async def shown(context: JobContext, repo: str, brief: Brief, *, sees: bool) -> Task:
    """The task with the available pictures, and a note about each of the others. No picture fails a job.

    Args:
        context: whose job it is.
        repo: `owner/name` as it is now.
        brief: what the agent is told.
        sees: whether the agent's model sees pictures.
    """
    if not brief.pictures:
        return brief.task()
    if sees and context.services.pictures:
        return await _Look(context, repo).at(brief)
    why = _BLIND if context.services.pictures else _OFF
    return brief.task(notes=omission_notes((each, why) for each in brief.pictures))


class _Look:
    """One look at a thread."""

    def __init__(self, context: JobContext, repo: str) -> None:
        self._context, self._repo = context, repo
        self._server = context.services.server_url
        self._found: list[tuple[Picture, Image]] = []
        self._left_out: list[tuple[Picture, str]] = []
        self._pages: dict[tuple[str, int], str] = {}
        self._bytes = 0

    async def at(self, brief: Brief) -> Task:
        """Fetch what may be fetched."""
        until, tries = time.monotonic() + _PICTURES_SECONDS, 0
        for picture in brief.pictures:
            if not is_fetchable(picture.address, self._server):
                why = _ELSEWHERE
            elif len(self._found) >= MAX_PICTURES or tries >= _MOST_TRIES:
                why = _ENOUGH
            elif time.monotonic() >= until:
                why = _NO_TIME
            else:
                tries += 1
                why = await self._taken(picture, min(_SECONDS, until - time.monotonic()))
            if why:
                self._left_out.append((picture, why))
        for picture, why in self._left_out:
            log.info("an image of %s was not fetched: %s", picture.source, why)
        images = [image for _, image in sorted(self._found, key=lambda each: each[0].place)]
        return brief.task(images, omission_notes(self._left_out))

    async def _taken(self, picture: Picture, seconds: float) -> str:
        """Why it is not available, or nothing if it is."""
        room = MAX_TOTAL_BYTES - self._bytes
        words = picture.text
        shown = words.kind, words.id
        if shown not in self._pages:
            try:
                self._pages[shown] = await self._context.github.comments.rendered(
                    self._repo, self._context.job.thread.number, *shown
                )
            except GitHubError as error:  # an address may serve as it is
                log.warning("the images have no signed addresses: %s", error)
                self._pages[shown] = ""
        # Off the event loop: a comment has a hundred thousand tags once its code is coloured.
        address = await asyncio.to_thread(signed_address, picture.address, self._pages[shown], self._server)
        try:
            content = await fetch_picture(
                address,
                server_url=self._server,
                limit=min(MAX_PICTURE_BYTES, room),
                seconds=max(0.0, seconds),
                ca_file=self._context.services.ca_file,
            )
            self._found.append((picture, Image.of(picture.source, content)))
        except TooLargeError as error:
            return _NO_ROOM if room < MAX_PICTURE_BYTES else str(error)
        except (PictureError, ImageError) as error:
            return str(error)
        self._bytes += len(content)
        return ""
