"""Reads the logs of one workflow run's jobs: each from its own address, or all of them from a zip file."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self

from agent_runtime import BoundExceededError, run_bounded
from bot.github import GitHub, GitHubError, JobFacts, LogError, LogGoneError, save_log
from bot.red_ci.digest import digest, digest_of_zip

log = logging.getLogger(__name__)

EXCERPT_CHARS = 5_000

_LOG_BYTES = 100_000_000
_TAIL_BYTES = 4_000_000
_ZIP_BYTES = 32_000_000
_LOG_SECONDS = 60.0
_SECONDS_TOGETHER = 120.0
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
        self._until = time.monotonic() + _SECONDS_TOGETHER
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
                    digest, str(file), list(moments), EXCERPT_CHARS, seconds=_LOG_SECONDS, what="Reading the log"
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
            text, more = await run_bounded(digest_of_zip, *arguments, seconds=_LOG_SECONDS, what="Reading the logs")
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
