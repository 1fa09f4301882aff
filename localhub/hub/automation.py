"""Actions of CI: attempts of workflow runs, their artifacts, and the check runs of other Apps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from localhub.hub.threads import ThreadActions
from localhub.operations import check_runs, workflows
from localhub.state.model import App, CheckRun, Repo
from localhub.state.workflows import Artifact, WorkflowRun


class AutomationActions(ThreadActions):
    """The part of `LocalHub` about CI; `workflow_run` says that a run has ended."""

    def run_again(self, run: WorkflowRun, *, by: str) -> WorkflowRun:
        """Ask for another attempt of a run, as a person does on its page."""
        with self._site.lock:
            now = self._site.store.workflow_runs[run.id]
            return workflows.ask_again(self._site, self._site.store.repos[now.repo_id], now, self._user(by))

    def end_attempt(self, run: WorkflowRun, *, conclusion: str, jobs: Sequence[workflows.EndedJob] = ()) -> WorkflowRun:
        """Say that the attempt that was asked for has ended.

        Raises:
            ValueError: none was asked for.
        """
        with self._site.lock:
            now = self._site.store.workflow_runs[run.id]
            if not now.is_queued:
                raise ValueError(f"no further attempt of run {run.id} was asked for; call run_again first")
            repo = self._site.store.repos[now.repo_id]
            return workflows.end_again(self._site, repo, now, conclusion=conclusion, jobs=jobs)

    def workflow_runs(self, repo: Repo) -> list[WorkflowRun]:
        """The runs of a repository's workflows, oldest first."""
        with self._site.lock:
            return [run for run in self._site.store.workflow_runs if run.repo_id == repo.id]

    def keep_artifact(
        self,
        repo: Repo,
        name: str,
        files: Mapping[str, bytes],
        *,
        run_id: int,
        days: int = 90,
        fork: Repo | None = None,
    ) -> Artifact:
        """Keep files for a workflow's run, as `actions/upload-artifact` does; `fork` has the branch that it ran for."""
        with self._site.lock:
            life, head = timedelta(days=days), fork or repo
            return workflows.keep(self._site, repo, name, files, run_id=run_id, life=life, head_repo_id=head.id)

    def artifacts(self, repo: Repo) -> list[Artifact]:
        """What the runs of a repository's workflows kept, oldest first."""
        with self._site.lock:
            return [each for each in self._site.store.artifacts if each.repo_id == repo.id]

    def check(self, repo: Repo, app: App, *, head_sha: str, name: str, conclusion: str, summary: str = "") -> CheckRun:
        """Say that another App's check of a commit has ended, as CI that is no workflow reports it."""
        with self._site.lock:
            ended = check_runs.EndedCheck(app=app, head_sha=head_sha, name=name, conclusion=conclusion, summary=summary)
            return check_runs.end(self._site, self._now(repo), ended)
