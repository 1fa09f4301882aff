"""Workflow runs: their jobs, logs and artifacts, and how earlier runs of the same workflow ended."""

from __future__ import annotations

from dataclasses import dataclass

from bot.github import parsing
from bot.github.connection import GitHubConnection
from bot.github.errors import unreadable
from bot.github.models import ArtifactFacts, JobFacts, RunFacts
from bot.intake.red_checks import FAILED

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
        return parsing.run(
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
            jobs.append(parsing.workflow_job(each))
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
            green = parsing.run(each)
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
            base = parsing.run(each)
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
                parsing.run(await self.connection.read(f"read an attempt of a workflow run of {repo}", path)).conclusion
                == _PASSED
            ):
                return True
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"head_sha": run.head_sha, "status": _PASSED, "event": run.event, "per_page": _FEW}
        answer = await self.connection.read(f"read the runs of a workflow of {repo}", path, query)
        found = map(parsing.run, answer["workflow_runs"])
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
            found.append(parsing.artifact(each))
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
