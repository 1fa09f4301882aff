"""Runs of GitHub Actions workflows: nothing runs here, but a run can be said to have ended."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from localhub.operations import check_runs, webhooks
from localhub.state.model import Repo, User
from localhub.state.site import Json, Site
from localhub.state.workflows import Artifact, Workflow, WorkflowJob, WorkflowRun, WorkflowStep
from localhub.views import actions as actions_views


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """What is said of one job of a run: its steps' names and conclusions, and its log; None is one that expired.

    Attributes:
        annotations: path, line and message of each.
    """

    name: str
    conclusion: str
    steps: Sequence[tuple[str, str]] = ()
    log: str | None = ""
    annotations: Sequence[tuple[str, int, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """What is said of a run; see `LocalHub.workflow_run`."""

    workflow: str
    path: str
    event: str
    head_branch: str
    head_sha: str
    head_repository: Repo
    conclusion: str
    actor: User
    triggering_actor: User
    jobs: Sequence[EndedJob] = ()


def end(site: Site, repo: Repo, ended: EndedRun) -> WorkflowRun:
    """Keep a run that has ended and report it; the sender is who started it."""
    store = site.store
    workflow = _workflow(site, repo, ended)
    run = store.workflow_runs.put(
        WorkflowRun(
            id=store.new_id(),
            repo_id=repo.id,
            workflow_id=workflow.id,
            suite_id=store.new_id(),
            run_number=1 + sum(other.workflow_id == workflow.id for other in store.workflow_runs),
            event=ended.event,
            head_branch=ended.head_branch,
            head_sha=ended.head_sha,
            head_repo_id=ended.head_repository.id,
            conclusion=ended.conclusion,
            actor_id=ended.actor.id,
            triggering_actor_id=ended.triggering_actor.id,
            created_at=site.now(),
        )
    )
    _keep_jobs(site, run, ended.jobs)
    _tell(site, repo, run, "completed")
    return run


def ask_again(site: Site, repo: Repo, run: WorkflowRun, sender: User) -> WorkflowRun:
    """Queue another attempt of a run, as `rerun-failed-jobs` does."""
    again = replace(
        run,
        attempt=run.attempt + 1,
        earlier=(*run.earlier, run.conclusion),
        is_queued=True,
        triggering_actor_id=sender.id,
    )
    site.store.workflow_runs.put(again)
    _tell(site, repo, again, "requested")
    return again


def end_again(
    site: Site, repo: Repo, run: WorkflowRun, *, conclusion: str, jobs: Sequence[EndedJob] = ()
) -> WorkflowRun:
    """End the attempt that was asked for."""
    ended = site.store.workflow_runs.put(replace(run, conclusion=conclusion, is_queued=False))
    _keep_jobs(site, ended, jobs)
    _tell(site, repo, ended, "completed")
    return ended


def keep(
    site: Site, repo: Repo, name: str, files: Mapping[str, bytes], *, run_id: int, life: timedelta, head_repo_id: int
) -> Artifact:
    """Keep files for a run, packed as GitHub packs them."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    now = site.now()
    return site.store.artifacts.put(
        Artifact(
            id=site.store.new_id(),
            repo_id=repo.id,
            run_id=run_id,
            head_repo_id=head_repo_id,
            name=name,
            content=packed.getvalue(),
            created_at=now,
            expires_at=now + life,
        )
    )


def _keep_jobs(site: Site, run: WorkflowRun, jobs: Sequence[EndedJob]) -> None:
    for job in jobs:
        site.store.workflow_jobs.put(
            WorkflowJob(
                id=site.store.new_id(),
                repo_id=run.repo_id,
                run_id=run.id,
                name=job.name,
                conclusion=job.conclusion,
                created_at=run.created_at,
                steps=tuple(WorkflowStep(name=name, conclusion=conclusion) for name, conclusion in job.steps),
                log=job.log,
                attempt=run.attempt,
                annotations=tuple(
                    {"path": path, "start_line": line, "end_line": line, "annotation_level": "failure", "message": said}
                    for path, line, said in job.annotations
                ),
            )
        )


def _tell(site: Site, repo: Repo, run: WorkflowRun, action: str) -> None:
    sender = site.store.users[run.triggering_actor_id]
    payload: Json = {
        "action": action,
        "workflow": actions_views.workflow(site, repo, site.store.workflows[run.workflow_id]),
        "workflow_run": actions_views.told_run(site, repo, run),
    }
    webhooks.emit(site, "workflow_run", repo, sender, payload)
    if action == "completed":
        check_runs.announce_actions(site, repo, run)


def _workflow(site: Site, repo: Repo, ended: EndedRun) -> Workflow:
    for known in site.store.workflows:
        if (known.repo_id, known.path) == (repo.id, ended.path):
            return known
    return site.store.workflows.put(
        Workflow(id=site.store.new_id(), repo_id=repo.id, name=ended.workflow, path=ended.path, created_at=site.now())
    )
