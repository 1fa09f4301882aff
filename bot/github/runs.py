"""Workflow runs: their jobs, where the logs of these are, and the last run that went well."""

from __future__ import annotations

from bot.github import parsing, parsing_talk
from bot.github.drafts import Annotation
from bot.github.errors import unreadable
from bot.github.facts import ArtifactFacts, JobFacts, RunFacts
from bot.github.reading import Reading

_MOST_JOBS = 1_000
_MOST_RUNS = 200
_FOUND = 302
_MOST_ATTEMPTS = 5
_FEW = 5
_PASSED = "success"


class Runs(Reading):
    """What ran for a commit."""

    async def jobs_of_run(self, repo: str, run_id: int, attempt: int = 0) -> tuple[JobFacts, ...]:
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
        async for each in self._entries(f"read the jobs of a workflow run of {repo}", path, query, within="jobs"):
            jobs.append(parsing.workflow_job(each))
            if len(jobs) == _MOST_JOBS:
                break
        return tuple(jobs)

    async def address_of_job_log(self, repo: str, job_id: int) -> str:
        """Where a job's log is, as text, for a minute and for whoever has the address.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        return await self._address(f"read the log of a job of {repo}", f"/repos/{repo}/actions/jobs/{job_id}/logs")

    async def address_of_run_logs(self, repo: str, run_id: int, attempt: int) -> str:
        """Where the logs of all jobs of an attempt are, as a zip file, for a minute and for whoever has the address.

        Raises:
            GitHubError: 404 or 410 when they are gone.
        """
        path = f"/repos/{repo}/actions/runs/{run_id}/attempts/{attempt}/logs"
        return await self._address(f"read the logs of a workflow run of {repo}", path)

    async def annotations_of(self, repo: str, check_id: int, most: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run; a workflow's job is one."""
        path = f"/repos/{repo}/check-runs/{check_id}/annotations"
        found = await self._read(f"read annotations in {repo}", path, {"per_page": most})
        return tuple(map(parsing_talk.annotation, found))

    async def last_green(self, repo: str, run: RunFacts) -> RunFacts | None:
        """The last run of the same workflow that went well on the same branch, before this one; None for none.

        Runs of another repository's branch of the same name do not count.
        """
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"branch": run.head_branch, "status": "success"}
        seen = 0
        async for each in self._entries(f"read the runs of a workflow of {repo}", path, query, within="workflow_runs"):
            green = parsing.run(each)
            same = (green.head_repo_id, green.head_branch) == (run.head_repo_id, run.head_branch)
            if same and green.number < run.number:
                return green
            seen += 1
            if seen == _MOST_RUNS:
                break
        return None

    async def passed_before(self, repo: str, run: RunFacts) -> bool:
        """Whether the same workflow passed on the same commit before: in an earlier attempt, or for the same event.

        A run for another event may have tested something else: for a pull request GitHub merges the base into it.
        """
        for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - _MOST_ATTEMPTS), -1):
            path = f"/repos/{repo}/actions/runs/{run.id}/attempts/{attempt}"
            if (
                parsing.run(await self._read(f"read an attempt of a workflow run of {repo}", path)).conclusion
                == _PASSED
            ):
                return True
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"head_sha": run.head_sha, "status": _PASSED, "event": run.event, "per_page": _FEW}
        answer = await self._read(f"read the runs of a workflow of {repo}", path, query)
        found = map(parsing.run, answer["workflow_runs"])
        return any(each.id != run.id and each.head_repo_id == run.head_repo_id for each in found)

    async def run_failed_jobs_again(self, repo: str, run_id: int) -> None:
        """Ask for another attempt of what failed in a run; not repeated, as a second call would be refused."""
        path = f"/repos/{repo}/actions/runs/{run_id}/rerun-failed-jobs"
        await self._connection.json(f"run the failed jobs of {repo} again", "POST", path, {}, repeat=False)

    async def pull_of_fork(self, repo: str, *, fork: str, fork_id: int, branch: str, sha: str) -> int | None:
        """The number of the one open pull request whose head is a fork's commit; None where there is not exactly one.

        GitHub names no pull requests of forks in its events. The branch's name only narrows the search: the fork's
        number and the commit decide.
        """
        query = {"state": "open", "head": f"{fork.partition('/')[0]}:{branch}"}
        found = await self._read(f"look for a pull request of {fork} in {repo}", f"/repos/{repo}/pulls", query)
        pulls = map(parsing.pull, found)
        numbers = [each.number for each in pulls if (each.head_repo_id, each.head_sha) == (fork_id, sha)]
        return numbers[0] if len(numbers) == 1 else None

    async def own_pull_into(self, repo: str, base: str, prefix: str) -> str:
        """The page of an open pull request into a branch, from a branch of this repository that begins so; or empty."""
        path, query = f"/repos/{repo}/pulls", {"state": "open", "base": base}
        async for each in self._entries(f"read the pull requests of {repo}", path, query):
            pull = parsing.pull(each)
            if not pull.from_fork and pull.head_ref.startswith(prefix):
                return pull.html_url
        return ""

    async def artifacts_named(self, repo: str, name: str, most: int) -> tuple[ArtifactFacts, ...]:
        """The artifacts of a name that the repository's runs have kept, newest first, and no more than `most`."""
        found: list[ArtifactFacts] = []
        path, what = f"/repos/{repo}/actions/artifacts", f"read the artifacts of {repo}"
        async for each in self._entries(what, path, {"name": name}, within="artifacts"):
            found.append(parsing.artifact(each))
            if len(found) == most:
                break
        return tuple(found)

    async def address_of_artifact(self, repo: str, artifact_id: int) -> str:
        """Where an artifact is, as a zip file, for a minute and for whoever has the address.

        Raises:
            GitHubError: 404 or 410 when it is gone.
        """
        path = f"/repos/{repo}/actions/artifacts/{artifact_id}/zip"
        return await self._address(f"read an artifact of {repo}", path)

    async def _address(self, what: str, path: str) -> str:
        """Where a redirection leads; the token stays here."""
        headers, _ = await self._connection.answered(what, "GET", path, may_be_absent=True)
        place = headers.get("location", "")
        if not place:
            raise unreadable(what, _FOUND, "a redirection to nowhere")
        return place
