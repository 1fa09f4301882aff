"""Check runs, commit statuses, and workflow runs with their jobs, logs and artifacts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any

from bot.events.ci_triggers import FAILED
from bot.github import types
from bot.github.connection import PAGE, GitHubConnection
from bot.github.repos import Accounts

log = logging.getLogger(__name__)
ANNOTATIONS_A_REQUEST = 50
"""https://docs.github.com/rest/checks/runs#update-a-check-run"""
_FAILED_STATUS = frozenset({"failure", "error"})
_MAX_FAILED = 20
_ANNOTATIONS_READ = 50
_MOST_JOBS = 1_000
_MOST_RUNS = 200
_FOUND = 302
_MOST_ATTEMPTS = 5
_MAX_CANDIDATES = 5
_PASSED = "success"
_NO_VERDICT = frozenset({"cancelled", "skipped", "stale", "neutral", "action_required"})


@dataclass(frozen=True, slots=True)
class Checks:
    """Check runs and commit statuses."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    accounts: Accounts

    async def create(self, repo: str, draft: types.CheckDraft) -> types.CheckFacts:
        """Create a check run. Not retried: call `find` first."""
        action, path = f"create a check run in {repo}", f"/repos/{repo}/check-runs"
        body = self._check_body(draft) | {"head_sha": draft.head_sha}
        return await self._annotate(
            repo, await self.connection.json(types.CheckFacts, action, "POST", path, body), draft
        )

    async def update(self, repo: str, check_id: int, draft: types.CheckDraft) -> types.CheckFacts:
        """Update a check run; only new annotations are sent."""
        action, path = f"update a check run in {repo}", f"/repos/{repo}/check-runs/{check_id}"
        check = await self.connection.json(types.CheckFacts, action, "PATCH", path, self._check_body(draft))
        return await self._annotate(repo, check, draft)

    async def find(self, repo: str, draft: types.CheckDraft) -> tuple[types.CheckFacts, ...]:
        """Return the check runs of the same App and job."""
        query: dict[str, Any] = {"check_name": draft.name, "filter": "all"}
        if (app_id := (await self.accounts.me()).app_id) is not None:
            query["app_id"] = app_id
        job = draft.external_id.rpartition(":")[0]
        path = f"/repos/{repo}/commits/{draft.head_sha}/check-runs"
        action = f"look for a check run in {repo}"
        checks = self.connection.entries(types.CheckFacts, action, path, query, within="check_runs")
        return tuple([check async for check in checks if check.external_id.rpartition(":")[0] == job])

    async def list_failing(self, repo: str, sha: str) -> tuple[types.CheckFacts, ...]:
        """Return failed check runs of other Apps with first annotations, and failed statuses if permitted."""
        ours, commit = (await self.accounts.me()).app_id, f"/repos/{repo}/commits/{sha}"
        action = f"read the checks of {sha[:10]} of {repo}"
        red: list[types.CheckFacts] = []
        path, query = f"{commit}/check-runs", {"filter": "latest"}
        async for check in self.connection.entries(types.CheckFacts, action, path, query, within="check_runs"):
            if (ours is None or check.app_id != ours) and check.conclusion in FAILED and len(red) < _MAX_FAILED:
                count = check.annotations_count
                annotations = await self.annotations(repo, check.id, _ANNOTATIONS_READ) if count else ()
                red.append(check.model_copy(update={"annotations": annotations}))
        try:
            action = f"read the statuses of {sha[:10]} of {repo}"
            path = f"{commit}/status"
            answer = await self.connection.read(types.CommitStatuses, action, path, {"per_page": PAGE})
        except types.GitHubError as error:
            if error.is_transient:
                raise
            log.warning("%s", error)
            return tuple(red)
        statuses = [entry for entry in answer.statuses if entry.conclusion in _FAILED_STATUS]
        return (*red, *statuses[:_MAX_FAILED])

    async def annotations(self, repo: str, check_id: int, limit: int) -> tuple[types.Annotation, ...]:
        path = f"/repos/{repo}/check-runs/{check_id}/annotations"
        action, query = f"read annotations in {repo}", {"per_page": limit}
        return await self.connection.read(tuple[types.Annotation, ...], action, path, query)

    def _check_body(self, draft: types.CheckDraft) -> dict[str, Any]:
        output = {
            "title": self._fit(draft.title, types.TITLE_LIMIT),
            "summary": self._fit(draft.summary, types.CHECK_TEXT_LIMIT),
        }
        if draft.text:
            output["text"] = self._fit(draft.text, types.CHECK_TEXT_LIMIT)
        body: dict[str, Any] = {
            "name": draft.name,
            "status": draft.status,
            "external_id": draft.external_id,
            "output": output,
            "actions": [asdict(button) for button in draft.buttons],
        }
        return body if draft.conclusion is None else body | {"conclusion": draft.conclusion}

    async def _annotate(self, repo: str, check: types.CheckFacts, draft: types.CheckDraft) -> types.CheckFacts:
        path = f"/repos/{repo}/check-runs/{check.id}"
        output = self._check_body(draft)["output"]
        for start in range(check.annotations_count, len(draft.annotations), ANNOTATIONS_A_REQUEST):
            batch = [
                self._annotation(annotation) for annotation in draft.annotations[start : start + ANNOTATIONS_A_REQUEST]
            ]
            body = {"output": output | {"annotations": batch}}
            action = f"annotate in {repo}"
            check = await self.connection.json(types.CheckFacts, action, "PATCH", path, body, repeat=False)
        return check

    def _annotation(self, annotation: types.Annotation) -> dict[str, Any]:
        fields = {
            "path": annotation.path,
            "start_line": annotation.start_line,
            "end_line": annotation.end_line,
            "annotation_level": annotation.level,
            "message": self._fit(annotation.message, types.ANNOTATION_LIMIT),
        }
        return fields | {"title": self._fit(annotation.title, types.TITLE_LIMIT)} if annotation.title else fields

    def _fit(self, text: str, limit: int) -> str:
        # What stands for a secret may be longer than the secret.
        return self.redact(text)[:limit]


@dataclass(frozen=True, slots=True)
class Runs:
    """Workflow runs, their jobs, logs and artifacts."""

    connection: GitHubConnection

    async def get(self, repo: str, run_id: int) -> types.RunFacts:
        action, path = f"read a workflow run of {repo}", f"/repos/{repo}/actions/runs/{run_id}"
        return await self.connection.read(types.RunFacts, action, path)

    async def jobs(self, repo: str, run_id: int, attempt: int = 0) -> tuple[types.JobFacts, ...]:
        """Return the jobs of a run, at most a thousand; attempt 0 is each job's latest."""
        path = f"/repos/{repo}/actions/runs/{run_id}"
        path += f"/attempts/{attempt}/jobs" if attempt else "/jobs"
        query = {} if attempt else {"filter": "latest"}
        action = f"read the jobs of a workflow run of {repo}"
        jobs = self.connection.entries(types.JobFacts, action, path, query, within="jobs", limit=_MOST_JOBS)
        return tuple([job async for job in jobs])

    async def job_log_url(self, repo: str, job_id: int) -> str:
        """Return a log's address, valid for a minute.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        return await self._redirect_url(f"read the log of a job of {repo}", f"/repos/{repo}/actions/jobs/{job_id}/logs")

    async def logs_url(self, repo: str, run_id: int, attempt: int) -> str:
        """Return the address of an attempt's logs (zip), valid for a minute.

        Raises:
            GitHubError: 404 or 410 when they are gone.
        """
        path = f"/repos/{repo}/actions/runs/{run_id}/attempts/{attempt}/logs"
        return await self._redirect_url(f"read the logs of a workflow run of {repo}", path)

    async def find_last_success(self, repo: str, run: types.RunFacts) -> types.RunFacts | None:
        """Return the last earlier successful run of the same workflow, repository and branch."""
        query = {"branch": run.head_branch, "status": _PASSED}
        async for green in self._runs(repo, run, query, limit=_MOST_RUNS):
            same = (green.head_repo_id, green.head_branch) == (run.head_repo_id, run.head_branch)
            if same and green.number < run.number:
                return green
        return None

    async def find_failure_on_base(
        self, repo: str, run: types.RunFacts, branch: str, home: int
    ) -> types.RunFacts | None:
        """Return the newest conclusive run on `branch` if it failed; only the repository `home` counts."""
        async for base in self._runs(repo, run, {"branch": branch, "status": "completed"}):
            if base.head_repo_id == home and base.head_branch == branch and base.conclusion not in _NO_VERDICT:
                return base if base.conclusion in FAILED else None
        return None

    async def has_passed_before(self, repo: str, run: types.RunFacts) -> bool:
        """Whether the workflow passed on this commit for the same event, or in an earlier attempt."""
        for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - _MOST_ATTEMPTS), -1):
            path = f"/repos/{repo}/actions/runs/{run.id}/attempts/{attempt}"
            action = f"read an attempt of a workflow run of {repo}"
            if (await self.connection.read(types.RunFacts, action, path)).conclusion == _PASSED:
                return True
        query = {"head_sha": run.head_sha, "status": _PASSED, "event": run.event}
        runs = [candidate async for candidate in self._runs(repo, run, query, limit=_MAX_CANDIDATES)]
        return any(candidate.id != run.id and candidate.head_repo_id == run.head_repo_id for candidate in runs)

    async def rerun_failed_jobs(self, repo: str, run_id: int) -> None:
        """Re-run the failed jobs. Not retried: GitHub refuses a second call."""
        path = f"/repos/{repo}/actions/runs/{run_id}/rerun-failed-jobs"
        await self.connection.request(f"re-run the failed jobs of {repo}", "POST", path, {}, repeat=False)

    async def cancel(self, repo: str, run_id: int) -> None:
        """Cancel a run, unless it has ended."""
        action, path = f"cancel a workflow run of {repo}", f"/repos/{repo}/actions/runs/{run_id}/cancel"
        try:
            await self.connection.request(action, "POST", path, {}, repeat=True)
        except types.GitHubError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    async def artifacts(self, repo: str, name: str, limit: int) -> tuple[types.ArtifactFacts, ...]:
        path, action = f"/repos/{repo}/actions/artifacts", f"read the artifacts of {repo}"
        artifacts = self.connection.entries(
            types.ArtifactFacts, action, path, {"name": name}, within="artifacts", limit=limit
        )
        return tuple([artifact async for artifact in artifacts])

    async def artifact_url(self, repo: str, artifact_id: int) -> str:
        """Return an artifact's address (zip), valid for a minute.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        path = f"/repos/{repo}/actions/artifacts/{artifact_id}/zip"
        return await self._redirect_url(f"read an artifact of {repo}", path)

    def _runs(
        self, repo: str, like: types.RunFacts, query: Mapping[str, Any], limit: int | None = None
    ) -> AsyncIterator[types.RunFacts]:
        action = f"read the runs of a workflow of {repo}"
        path = f"/repos/{repo}/actions/workflows/{like.workflow_id}/runs"
        return self.connection.entries(types.RunFacts, action, path, query, within="workflow_runs", limit=limit)

    async def _redirect_url(self, action: str, path: str) -> str:
        answer = await self.connection.request(action, "GET", path, may_be_absent=True)
        url = answer.headers.get("location", "")
        if not url:
            raise types.unreadable_answer(action, _FOUND, "a redirection to nowhere")
        return url
