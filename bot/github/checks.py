"""Check runs, commit statuses, and workflow runs with their jobs, logs and artifacts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bot.events.ci_triggers import FAILED
from bot.github import types
from bot.github.connection import PAGE, GitHubConnection
from bot.github.repos import Accounts

log = logging.getLogger(__name__)
ANNOTATIONS_A_REQUEST = 50
"""https://docs.github.com/rest/checks/runs#update-a-check-run"""
_RED_STATUS = frozenset({"failure", "error"})
_RED_READ = 20
_ANNOTATIONS_READ = 50
_MOST_JOBS = 1_000
_MOST_RUNS = 200
_FOUND = 302
_MOST_ATTEMPTS = 5
_FEW = 5
_PASSED = "success"
_NO_VERDICT = frozenset({"cancelled", "skipped", "stale", "neutral", "action_required"})


@dataclass(frozen=True, slots=True)
class Checks:
    """Check runs and commit statuses."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    accounts: Accounts

    async def create(self, repo: str, draft: types.CheckDraft) -> types.CheckFacts:
        """Make a check run. Not repeated on a server error: look with `find` first, then call again."""
        what, path = f"create a check run in {repo}", f"/repos/{repo}/check-runs"
        body = self._check(draft) | {"head_sha": draft.head_sha}
        return await self._annotate(repo, await self.connection.json(types.CheckFacts, what, "POST", path, body), draft)

    async def update(self, repo: str, check_id: int, draft: types.CheckDraft) -> types.CheckFacts:
        """Make a check run of ours say what `draft` says; only annotations that it does not have yet are sent."""
        what, path = f"update a check run in {repo}", f"/repos/{repo}/check-runs/{check_id}"
        made = await self.connection.json(types.CheckFacts, what, "PATCH", path, self._check(draft))
        return await self._annotate(repo, made, draft)

    async def find(self, repo: str, draft: types.CheckDraft) -> tuple[types.CheckFacts, ...]:
        """The check runs that earlier tries made of a draft; known by the job in its external id, and by its App."""
        query: dict[str, Any] = {"check_name": draft.name, "filter": "all"}
        if (app_id := (await self.accounts.me()).app_id) is not None:
            query["app_id"] = app_id
        job = draft.external_id.rpartition(":")[0]
        path = f"/repos/{repo}/commits/{draft.head_sha}/check-runs"
        what = f"look for a check run in {repo}"
        checks = self.connection.entries(types.CheckFacts, what, path, query, within="check_runs")
        return tuple([each async for each in checks if each.external_id.rpartition(":")[0] == job])

    async def failing(self, repo: str, sha: str) -> tuple[types.RedCheck, ...]:
        """What is red about a commit: other Apps' check runs with their first annotations, and commit statuses.

        Statuses need a permission of their own; without it the check runs are all.
        """
        ours, commit = (await self.accounts.me()).app_id, f"/repos/{repo}/commits/{sha}"
        what = f"read the checks of {sha[:10]} of {repo}"
        red: list[types.RedCheck] = []
        async for each in self.connection.entries(
            dict[str, Any], what, f"{commit}/check-runs", {"filter": "latest"}, within="check_runs"
        ):
            check = types.parse(types.CheckFacts, what, each)
            if (ours is None or check.app_id != ours) and each.get("conclusion") in FAILED and len(red) < _RED_READ:
                annotations = await self.annotations(repo, check.id, _ANNOTATIONS_READ) if check.annotations else ()
                red.append(types.parse(types.RedCheck, what, each | {"annotations": annotations}))
        try:
            what = f"read the statuses of {sha[:10]} of {repo}"
            path = f"{commit}/status"
            answer = await self.connection.read(types.CommitStatuses, what, path, {"per_page": PAGE})
        except types.GitHubError as error:
            if error.passing:
                raise
            log.warning("%s", error)
            return tuple(red)
        statuses = [each for each in answer.statuses if each.conclusion in _RED_STATUS]
        return (*red, *statuses[:_RED_READ])

    async def annotations(self, repo: str, check_id: int, most: int) -> tuple[types.Annotation, ...]:
        """The first annotations of a check run; a workflow's job is one."""
        path = f"/repos/{repo}/check-runs/{check_id}/annotations"
        what, query = f"read annotations in {repo}", {"per_page": most}
        return await self.connection.read(tuple[types.Annotation, ...], what, path, query)

    def _check(self, draft: types.CheckDraft) -> dict[str, Any]:
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
        """Add what is missing, fifty at a time. Not repeated on a server error: the next call counts what arrived."""
        path = f"/repos/{repo}/check-runs/{check.id}"
        output = self._check(draft)["output"]
        for start in range(check.annotations, len(draft.annotations), ANNOTATIONS_A_REQUEST):
            batch = [self._annotation(each) for each in draft.annotations[start : start + ANNOTATIONS_A_REQUEST]]
            body = {"output": output | {"annotations": batch}}
            what = f"annotate in {repo}"
            check = await self.connection.json(types.CheckFacts, what, "PATCH", path, body, repeat=False)
        return check

    def _annotation(self, each: types.Annotation) -> dict[str, Any]:
        said = {
            "path": each.path,
            "start_line": each.start_line,
            "end_line": each.end_line,
            "annotation_level": each.level,
            "message": self._fit(each.message, types.ANNOTATION_LIMIT),
        }
        return said | {"title": self._fit(each.title, types.TITLE_LIMIT)} if each.title else said

    def _fit(self, text: str, limit: int) -> str:
        # What stands for a secret may be longer than the secret.
        return self.redact(text)[:limit]


@dataclass(frozen=True, slots=True)
class Runs:
    """Workflow runs, their jobs, logs and artifacts."""

    connection: GitHubConnection

    async def get(self, repo: str, run_id: int) -> types.RunFacts:
        """A workflow run."""
        what, path = f"read a workflow run of {repo}", f"/repos/{repo}/actions/runs/{run_id}"
        return await self.connection.read(types.RunFacts, what, path)

    async def jobs(self, repo: str, run_id: int, attempt: int = 0) -> tuple[types.JobFacts, ...]:
        """The jobs of a workflow run, at most a thousand.

        Args:
            repo: `owner/name`.
            run_id: of the run.
            attempt: which attempt of it; 0 for the last one of each job.
        """
        path = f"/repos/{repo}/actions/runs/{run_id}"
        path += f"/attempts/{attempt}/jobs" if attempt else "/jobs"
        query = {} if attempt else {"filter": "latest"}
        what = f"read the jobs of a workflow run of {repo}"
        jobs = self.connection.entries(types.JobFacts, what, path, query, within="jobs", most=_MOST_JOBS)
        return tuple([each async for each in jobs])

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

    async def last_green(self, repo: str, run: types.RunFacts) -> types.RunFacts | None:
        """The last run of the same workflow that went well on the same branch, before this one; None for none.

        Runs of another repository's branch of the same name do not count.
        """
        query = {"branch": run.head_branch, "status": _PASSED}
        async for green in self._runs(repo, run, query, most=_MOST_RUNS):
            same = (green.head_repo_id, green.head_branch) == (run.head_repo_id, run.head_branch)
            if same and green.number < run.number:
                return green
        return None

    async def red_on_base(self, repo: str, run: types.RunFacts, branch: str, home: int) -> types.RunFacts | None:
        """The run of the same workflow that fails on the base branch, too; None when it passes there, or never ran.

        Args:
            repo: `owner/name`.
            run: the one that went red.
            branch: the base branch. Its newest run with a verdict counts; runs of a fork's branch of the same name
                do not.
            home: the repository's id.
        """
        async for base in self._runs(repo, run, {"branch": branch, "status": "completed"}):
            if base.head_repo_id == home and base.head_branch == branch and base.conclusion not in _NO_VERDICT:
                return base if base.conclusion in FAILED else None
        return None

    async def passed_before(self, repo: str, run: types.RunFacts) -> bool:
        """Whether the same workflow passed on the same commit before: in an earlier attempt, or for the same event.

        A run for another event may have tested something else: for a pull request GitHub merges the base into it.
        """
        for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - _MOST_ATTEMPTS), -1):
            path = f"/repos/{repo}/actions/runs/{run.id}/attempts/{attempt}"
            what = f"read an attempt of a workflow run of {repo}"
            if (await self.connection.read(types.RunFacts, what, path)).conclusion == _PASSED:
                return True
        query = {"head_sha": run.head_sha, "status": _PASSED, "event": run.event}
        runs = [each async for each in self._runs(repo, run, query, most=_FEW)]
        return any(each.id != run.id and each.head_repo_id == run.head_repo_id for each in runs)

    async def rerun_failed_jobs(self, repo: str, run_id: int) -> None:
        """Ask for another attempt of what failed in a run; not repeated, as a second call would be refused."""
        path = f"/repos/{repo}/actions/runs/{run_id}/rerun-failed-jobs"
        await self.connection.request(f"re-run the failed jobs of {repo}", "POST", path, {}, repeat=False)

    async def artifacts(self, repo: str, name: str, most: int) -> tuple[types.ArtifactFacts, ...]:
        """The artifacts of a name that the repository's runs have kept, newest first, and no more than `most`."""
        path, what = f"/repos/{repo}/actions/artifacts", f"read the artifacts of {repo}"
        artifacts = self.connection.entries(
            types.ArtifactFacts, what, path, {"name": name}, within="artifacts", most=most
        )
        return tuple([each async for each in artifacts])

    async def artifact_url(self, repo: str, artifact_id: int) -> str:
        """Where an artifact is, as a zip file, for a minute and for anyone who has the address.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        path = f"/repos/{repo}/actions/artifacts/{artifact_id}/zip"
        return await self._address(f"read an artifact of {repo}", path)

    def _runs(
        self, repo: str, like: types.RunFacts, query: Mapping[str, Any], most: int | None = None
    ) -> AsyncIterator[types.RunFacts]:
        """List the runs of the same workflow, newest first."""
        what = f"read the runs of a workflow of {repo}"
        path = f"/repos/{repo}/actions/workflows/{like.workflow_id}/runs"
        return self.connection.entries(types.RunFacts, what, path, query, within="workflow_runs", most=most)

    async def _address(self, what: str, path: str) -> str:
        """Where a redirection leads; the token stays here."""
        answer = await self.connection.request(what, "GET", path, may_be_absent=True)
        place = answer.headers.get("location", "")
        if not place:
            raise types.unreadable(what, _FOUND, "a redirection to nowhere")
        return place
