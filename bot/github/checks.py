"""Check runs: our own, and those that went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from opentelemetry.trace import SpanKind

from agent_runtime import traced
from bot.domain.errors import BotError
from bot.events.ci_triggers import FAILED
from bot.git.process import AuthoritiesError, connector
from bot.github import types
from bot.github.client import GitHubConnection
from bot.github.issues import Accounts
from bot.github.types import (
    ANNOTATION_LIMIT,
    CHECK_TEXT_LIMIT,
    TITLE_LIMIT,
    Annotation,
    ArtifactFacts,
    CheckDraft,
    CheckFacts,
    GitHubError,
    JobFacts,
    RedCheck,
    RunFacts,
    unreadable,
)
from bot.prompt.brief import may_be_fetched

log = logging.getLogger(__name__)

ANNOTATIONS_A_REQUEST = 50
"""https://docs.github.com/rest/checks/runs#update-a-check-run"""

_RED_STATUS = frozenset({"failure", "error"})
_RED_READ = 20
_ANNOTATIONS_READ = 50


@dataclass(frozen=True, slots=True)
class Checks:
    """Check runs and commit statuses."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    accounts: Accounts

    async def create(self, repo: str, draft: CheckDraft) -> CheckFacts:
        """Make a check run. Not repeated on a server error: look with `find` first, then call again."""
        what, path = f"create a check run in {repo}", f"/repos/{repo}/check-runs"
        body = self._check(draft) | {"head_sha": draft.head_sha, "external_id": draft.external_id}
        made = types.check(await self.connection.json(what, "POST", path, body))
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def update(self, repo: str, check_id: int, draft: CheckDraft) -> CheckFacts:
        """Make a check run of ours say what `draft` says; only annotations that it does not have yet are sent."""
        what, path = f"update a check run in {repo}", f"/repos/{repo}/check-runs/{check_id}"
        body = self._check(draft) | {"external_id": draft.external_id}
        made = types.check(await self.connection.json(what, "PATCH", path, body))
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def find(self, repo: str, draft: CheckDraft) -> tuple[CheckFacts, ...]:
        """The check runs that earlier tries made of a draft; known by the job in its external id, and by its App."""
        query: dict[str, Any] = {"check_name": draft.name, "filter": "all"}
        if (app_id := (await self.accounts.me()).app_id) is not None:
            query["app_id"] = app_id
        job = draft.external_id.rpartition(":")[0]
        path = f"/repos/{repo}/commits/{draft.head_sha}/check-runs"
        entries = self.connection.entries(f"look for a check run in {repo}", path, query, within="check_runs")
        return tuple(
            [
                types.check(each)
                async for each in entries
                if str(each.get("external_id") or "").rpartition(":")[0] == job
            ]
        )

    async def failing(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """What is red about a commit: other Apps' check runs with their first annotations, and commit statuses.

        Statuses need a permission of their own; without it the check runs are all.
        """
        ours, commit = (await self.accounts.me()).app_id, f"/repos/{repo}/commits/{sha}"
        what = f"read the checks of {sha[:10]} of {repo}"
        red: list[RedCheck] = []
        async for each in self.connection.entries(
            what, f"{commit}/check-runs", {"filter": "latest"}, within="check_runs"
        ):
            theirs = ours is None or (each.get("app") or {}).get("id") != ours
            if theirs and each.get("conclusion") in FAILED and len(red) < _RED_READ:
                annotated = bool((each.get("output") or {}).get("annotations_count"))
                said = await self.annotations(repo, int(each["id"]), _ANNOTATIONS_READ) if annotated else ()
                red.append(types.red_check(each, said))
        try:
            what = f"read the statuses of {sha[:10]} of {repo}"
            answer = await self.connection.read(what, f"{commit}/status", {"per_page": 100})
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("%s", error)
            return tuple(red)
        statuses = [each for each in answer.get("statuses", ()) if each.get("state") in _RED_STATUS]
        return (*red, *map(types.red_status, statuses[:_RED_READ]))

    async def annotations(self, repo: str, check_id: int, most: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run; a workflow's job is one."""
        path = f"/repos/{repo}/check-runs/{check_id}/annotations"
        found = await self.connection.read(f"read annotations in {repo}", path, {"per_page": most})
        return tuple(map(types.annotation, found))

    def _check(self, draft: CheckDraft) -> dict[str, Any]:
        output = {
            "title": self._fit(draft.title, TITLE_LIMIT),
            "summary": self._fit(draft.summary, CHECK_TEXT_LIMIT),
        }
        if draft.text:
            output["text"] = self._fit(draft.text, CHECK_TEXT_LIMIT)
        body: dict[str, Any] = {"name": draft.name, "status": draft.status, "output": output}
        body["actions"] = [asdict(button) for button in draft.buttons]
        return body if draft.conclusion is None else body | {"conclusion": draft.conclusion}

    async def _annotate(self, repo: str, check: CheckFacts, draft: CheckDraft) -> CheckFacts:
        """Add what is missing, fifty at a time. Not repeated on a server error: the next call counts what arrived."""
        path = f"/repos/{repo}/check-runs/{check.id}"
        output = self._check(draft)["output"]
        for start in range(check.annotations, len(draft.annotations), ANNOTATIONS_A_REQUEST):
            batch = [self._annotation(each) for each in draft.annotations[start : start + ANNOTATIONS_A_REQUEST]]
            body = {"output": output | {"annotations": batch}}
            answer = await self.connection.json(f"annotate in {repo}", "PATCH", path, body, repeat=False)
            check = types.check(answer)
        return check

    def _annotation(self, each: Annotation) -> dict[str, Any]:
        said = {
            "path": each.path,
            "start_line": each.start_line,
            "end_line": each.end_line,
            "annotation_level": each.level,
            "message": self._fit(each.message, ANNOTATION_LIMIT),
        }
        return said | {"title": self._fit(each.title, TITLE_LIMIT)} if each.title else said

    def _fit(self, text: str, limit: int) -> str:
        # What stands for a secret may be longer than the secret.
        return self.redact(text)[:limit]


# ---- Workflow runs: their jobs, logs and artifacts, and how earlier runs of the same workflow ended.


_MOST_JOBS = 1_000
_MOST_RUNS = 200
_FOUND = 302
_MOST_ATTEMPTS = 5
_FEW = 5
_PASSED = "success"
_NO_VERDICT = frozenset({"cancelled", "skipped", "stale", "neutral", "action_required"})


@dataclass(frozen=True, slots=True)
class Runs:
    """Workflow runs, their jobs, logs and artifacts."""

    connection: GitHubConnection

    async def get(self, repo: str, run_id: int) -> RunFacts:
        """A workflow run."""
        return types.run(
            await self.connection.read(f"read a workflow run of {repo}", f"/repos/{repo}/actions/runs/{run_id}")
        )

    async def jobs(self, repo: str, run_id: int, attempt: int = 0) -> tuple[JobFacts, ...]:
        """The jobs of a workflow run, at most a thousand.

        Args:
            repo: `owner/name`.
            run_id: of the run.
            attempt: which attempt of it; 0 for the last one of each job.
        """
        path = f"/repos/{repo}/actions/runs/{run_id}"
        path += f"/attempts/{attempt}/jobs" if attempt else "/jobs"
        query = {} if attempt else {"filter": "latest"}
        jobs: list[JobFacts] = []
        async for each in self.connection.entries(
            f"read the jobs of a workflow run of {repo}", path, query, within="jobs"
        ):
            jobs.append(types.workflow_job(each))
            if len(jobs) == _MOST_JOBS:
                break
        return tuple(jobs)

    async def job_log_url(self, repo: str, job_id: int) -> str:
        """Where a job's log is, as text, for a minute and for anyone who has the address.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        return await self._address(f"read the log of a job of {repo}", f"/repos/{repo}/actions/jobs/{job_id}/logs")

    async def logs_url(self, repo: str, run_id: int, attempt: int) -> str:
        """Where the logs of all jobs of an attempt are, as a zip file, for a minute and for anyone who has the address.

        Raises:
            GitHubError: 404 or 410 when they are gone.
        """
        path = f"/repos/{repo}/actions/runs/{run_id}/attempts/{attempt}/logs"
        return await self._address(f"read the logs of a workflow run of {repo}", path)

    async def last_green(self, repo: str, run: RunFacts) -> RunFacts | None:
        """The last run of the same workflow that went well on the same branch, before this one; None for none.

        Runs of another repository's branch of the same name do not count.
        """
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"branch": run.head_branch, "status": "success"}
        seen = 0
        async for each in self.connection.entries(
            f"read the runs of a workflow of {repo}", path, query, within="workflow_runs"
        ):
            green = types.run(each)
            same = (green.head_repo_id, green.head_branch) == (run.head_repo_id, run.head_branch)
            if same and green.number < run.number:
                return green
            seen += 1
            if seen == _MOST_RUNS:
                break
        return None

    async def red_on_base(self, repo: str, run: RunFacts, branch: str, home: int) -> RunFacts | None:
        """The run of the same workflow that fails on the base branch, too; None when it passes there, or never ran.

        Args:
            repo: `owner/name`.
            run: the one that went red.
            branch: the base branch. Its newest run with a verdict counts; runs of a fork's branch of the same name
                do not.
            home: the repository's id.
        """
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"branch": branch, "status": "completed"}
        async for each in self.connection.entries(
            f"read the runs of a workflow of {repo}", path, query, within="workflow_runs"
        ):
            base = types.run(each)
            if base.head_repo_id == home and base.head_branch == branch and base.conclusion not in _NO_VERDICT:
                return base if base.conclusion in FAILED else None
        return None

    async def passed_before(self, repo: str, run: RunFacts) -> bool:
        """Whether the same workflow passed on the same commit before: in an earlier attempt, or for the same event.

        A run for another event may have tested something else: for a pull request GitHub merges the base into it.
        """
        for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - _MOST_ATTEMPTS), -1):
            path = f"/repos/{repo}/actions/runs/{run.id}/attempts/{attempt}"
            if (
                types.run(await self.connection.read(f"read an attempt of a workflow run of {repo}", path)).conclusion
                == _PASSED
            ):
                return True
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"head_sha": run.head_sha, "status": _PASSED, "event": run.event, "per_page": _FEW}
        answer = await self.connection.read(f"read the runs of a workflow of {repo}", path, query)
        found = map(types.run, answer["workflow_runs"])
        return any(each.id != run.id and each.head_repo_id == run.head_repo_id for each in found)

    async def rerun_failed_jobs(self, repo: str, run_id: int) -> None:
        """Ask for another attempt of what failed in a run; not repeated, as a second call would be refused."""
        path = f"/repos/{repo}/actions/runs/{run_id}/rerun-failed-jobs"
        await self.connection.json(f"re-run the failed jobs of {repo}", "POST", path, {}, repeat=False)

    async def artifacts(self, repo: str, name: str, most: int) -> tuple[ArtifactFacts, ...]:
        """The artifacts of a name that the repository's runs have kept, newest first, and no more than `most`."""
        found: list[ArtifactFacts] = []
        path, what = f"/repos/{repo}/actions/artifacts", f"read the artifacts of {repo}"
        async for each in self.connection.entries(what, path, {"name": name}, within="artifacts"):
            found.append(types.artifact(each))
            if len(found) == most:
                break
        return tuple(found)

    async def artifact_url(self, repo: str, artifact_id: int) -> str:
        """Where an artifact is, as a zip file, for a minute and for anyone who has the address.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        path = f"/repos/{repo}/actions/artifacts/{artifact_id}/zip"
        return await self._address(f"read an artifact of {repo}", path)

    async def _address(self, what: str, path: str) -> str:
        """Where a redirection leads; the token stays here."""
        headers, _ = await self.connection.request(what, "GET", path, may_be_absent=True)
        place = headers.get("location", "")
        if not place:
            raise unreadable(what, _FOUND, "a redirection to nowhere")
        return place


# ---- Download logs and pictures from the addresses that GitHub hands out: on other hosts, without a token, bounded.


_MOVED = frozenset(
    {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER, HTTPStatus.TEMPORARY_REDIRECT}
)
_GONE = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_REDIRECTS = 3
_PIECE_BYTES = 256 * 1024
LEFT_OUT = b"\n[codepilot: the middle of this log was not read]\n"
"""A line of its own in a saved log that is not whole."""


class LogError(BotError):
    """A log is not available; the text says why, in one sentence, for the agent and for people."""


class LogGoneError(LogError):
    """A log that GitHub no longer has."""


class PictureError(BotError):
    """A picture is not available; the text says why, for the agent."""


class ForeignAddressError(PictureError):
    """An address that is not an attachment on GitHub; nothing was asked of it."""


class TooLargeError(PictureError):
    """A picture of more bytes than may be read."""


async def save_log(
    address: str, file: Path, *, most: int, tail: int, seconds: float, plain: bool = False, ca_file: Path | None = None
) -> None:
    """Write what is at an address into a file; of what is too long, the beginning and the end.

    Args:
        address: from GitHub's API, where a token was needed to be told it.
        file: where to; it is made.
        most: bytes that are read in all. Where the server gives out parts, the last `tail` of them are the end of a
            longer log; where it does not, they are not read.
        tail: see `most`; 0 refuses what is longer, as half a zip file is of no use.
        seconds: for all of it.
        plain: whether an address without TLS will do, as it does where the API has none either.
        ca_file: authorities that are trusted beside the system's.

    Raises:
        LogError: it is not available.
        LogGoneError: it is there no longer.
    """
    try:
        client = _anonymous_session(accept="*/*", seconds=min(seconds, 30.0), ca_file=ca_file)
        async with asyncio.timeout(seconds), client:
            with traced("download log", kind=SpanKind.CLIENT), await asyncio.to_thread(file.open, "wb") as target:
                await _Saving(client, target, plain=plain).save(address, most, tail)
    except TimeoutError as error:
        raise LogError(f"The log did not arrive within {seconds:.0f} seconds.") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise LogError(f"The log could not be fetched ({type(error).__name__}).") from error
    except AuthoritiesError as error:
        raise LogError(f"The log could not be fetched: {error}.") from error


class _Saving:
    """One log on its way into a file."""

    def __init__(self, client: aiohttp.ClientSession, target: BinaryIO, *, plain: bool) -> None:
        self._client, self._target = client, target
        self._schemes = {"https", "http"} if plain else {"https"}

    async def save(self, address: str, most: int, tail: int) -> None:
        async with self._answer(address) as response:
            size = response.content_length or 0
            if size > most and not tail:
                raise LogError(f"The log has {size:,} bytes; the limit is {most:,}.")
            # The end first: the address is good for a minute, and the beginning may take longer.
            end = await self._end_of(str(response.url), size, tail) if size > most else b""
            cut = await self._copy(response, most - len(end))
            if cut and not tail:
                raise LogError(f"The log has more than the limit of {most:,} bytes.")
            if cut:
                await asyncio.to_thread(self._target.write, LEFT_OUT + end)

    @asynccontextmanager
    async def _answer(self, address: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """What stands at the end of all redirections."""
        for _ in range(_REDIRECTS + 1):
            parts = urlsplit(address)
            if parts.scheme not in self._schemes or not parts.hostname or parts.username is not None:
                raise LogError("GitHub gave an invalid address for the log.")
            async with self._client.get(address, allow_redirects=False, proxy=_proxy_for(address)) as response:
                if response.status == HTTPStatus.OK:
                    yield response
                    return
                if response.status in _GONE:
                    raise LogGoneError("GitHub no longer has the log.")
                if response.status not in _MOVED:
                    raise LogError(f"The log server answered {response.status}.")
                address = urljoin(address, response.headers.get("Location", ""))
        raise LogError("GitHub redirects the log too often.")

    async def _end_of(self, address: str, size: int, tail: int) -> bytes:
        """The last bytes, if the server gives out parts."""
        headers = {"Range": f"bytes={size - tail}-"}
        async with self._client.get(
            address, allow_redirects=False, proxy=_proxy_for(address), headers=headers
        ) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                return b""
            end = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                end += piece[: tail - len(end)]
                if len(end) == tail:
                    break
            return bytes(end)

    async def _copy(self, response: aiohttp.ClientResponse, most: int) -> bool:
        """Write at most so many bytes; whether there are more."""
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            await asyncio.to_thread(self._target.write, piece[:most])
            if len(piece) > most:
                return True
            most -= len(piece)
        return False


async def fetch_picture(
    address: str, *, server_url: str, limit: int, seconds: float, ca_file: Path | None = None
) -> bytes:
    """The bytes at an address of an attachment, from a session of its own that knows no token, cookie or `.netrc`.

    Args:
        address: where it is; checked here, and each time it leads elsewhere.
        server_url: the configured server's, whose attachments may be fetched, too.
        limit: the most bytes that are read; whatever the server says of the length.
        seconds: the most time that all of it may take.
        ca_file: authorities that are trusted beside the system's.

    Raises:
        PictureError: it may not be fetched, is not there, or did not come in time.
        TooLargeError: it is larger.
    """
    try:
        client = _anonymous_session(accept="image/*", seconds=seconds, ca_file=ca_file)
        async with asyncio.timeout(seconds), client:
            with traced("download picture", kind=SpanKind.CLIENT):
                return await _followed(client, address, server_url, limit)
    except TimeoutError as error:
        raise PictureError(f"it did not arrive within {seconds:.0f} seconds") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise PictureError("it could not be fetched") from error
    except AuthoritiesError as error:
        raise PictureError(str(error)) from error


async def _followed(client: aiohttp.ClientSession, address: str, server_url: str, limit: int) -> bytes:
    for hop in range(_REDIRECTS + 1):
        if not may_be_fetched(address, server_url, redirected=hop > 0):
            raise ForeignAddressError("it is not an attachment on GitHub")
        async with client.get(address, allow_redirects=False, proxy=_proxy_for(address)) as response:
            if response.status not in _MOVED:
                return await _body(response, limit)
            address = urljoin(address, response.headers.get("Location", ""))
    raise PictureError("it redirects too often")


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.status in _GONE:
        raise PictureError("it was deleted, or is not for this repository")
    if response.status != HTTPStatus.OK:
        raise PictureError(f"GitHub answered {response.status}")
    content = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        content += piece
        if len(content) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
    return bytes(content)


def _anonymous_session(*, accept: str, seconds: float, ca_file: Path | None) -> aiohttp.ClientSession:
    """A session of its own that knows no secrets.

    Args:
        accept: the media types that are wanted.
        seconds: for a connection, and between two pieces of an answer.
        ca_file: authorities that are trusted beside the system's.
    """
    return aiohttp.ClientSession(
        connector=connector(ca_file),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # What is compressed could be far larger than what is read of it.
        headers={"User-Agent": "codepilot-bot", "Accept": accept, "Accept-Encoding": "identity"},
        trust_env=False,
    )


def _proxy_for(address: str) -> str | None:
    """The proxy that the machine's other clients use for such an address."""
    parts = urlsplit(address)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
