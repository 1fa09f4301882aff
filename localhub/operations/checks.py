"""Check runs and workflow runs: their results, the events that they send, and the requests for another attempt.

Nothing runs here. An App reports its check runs; a test says that a run of a GitHub Actions workflow has ended.
`demand_within_limits` refuses a check run that exceeds GitHub's limits (docs: "Create a check run").
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from localhub.api.auth import HubError, or_404, unprocessable
from localhub.git import plumbing as git
from localhub.operations import webhooks, workflow_files
from localhub.state.model import (
    ACTIONS_ID,
    App,
    Artifact,
    CheckRun,
    Repo,
    User,
    Workflow,
    WorkflowJob,
    WorkflowRun,
    WorkflowStep,
)
from localhub.state.store import Json, Site, iso, node_id
from localhub.views import accounts as account_views
from localhub.views import checks as checks_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCheck:
    """A check run of another App that has ended; see `LocalHub.check`."""

    app: App
    head_sha: str
    name: str
    conclusion: str
    summary: str


def end_check_run(site: Site, repo: Repo, ended: EndedCheck) -> CheckRun:
    """Keep a check run that has ended, and report it and its suite."""
    store, now = site.store, site.now()
    beside = suite_at(site, repo, ended.app, ended.head_sha)
    run = store.check_runs.put(
        CheckRun(
            id=store.new_id(),
            suite_id=beside[0].suite_id if beside else store.new_id(),
            repo_id=repo.id,
            app_id=ended.app.id,
            name=ended.name,
            head_sha=ended.head_sha,
            status="completed",
            conclusion=ended.conclusion,
            started_at=now,
            completed_at=now,
            details_url=None,
            external_id="",
            title=ended.name,
            summary=ended.summary,
            text=None,
        )
    )
    announce_check_run(site, run, ended.app.bot, "completed")
    announce_suite(site, repo, [*beside, run], ended.app.bot)
    return run


def press_button(site: Site, run: CheckRun, sender: User, identifier: str) -> None:
    """Press one of a check run's buttons; only its App is told.

    Raises:
        HubError: 422; the run has no such button, or it is not completed: GitHub shows the buttons only then (docs:
            "Create a check run", `actions`).
    """
    offered = [action["identifier"] for action in run.actions]
    if run.status != "completed":
        raise HubError(422, f"{run.name} is {run.status}; GitHub shows a check run's buttons once it is completed.")
    if identifier not in offered:
        raise HubError(422, f"{run.name} has no button {identifier!r}, only {offered}.")
    more = {"requested_action": {"identifier": identifier}}
    announce_check_run(site, run, sender, "requested_action", more=more, only=site.store.apps[run.app_id])


def rerun_check_run(site: Site, run: CheckRun, sender: User) -> None:
    """Ask a check run's App to run it again; the run itself stays as it is (docs: "Rerequest a check run").

    Raises:
        HubError: 422, it is not completed.
    """
    if run.status != "completed":
        raise HubError(422, f"{run.name} is {run.status}; only a completed check run can be run again.")
    if run.app_id == ACTIONS_ID:
        raise HubError(422, f"{run.name} is a job of a workflow; run the workflow again instead.")
    announce_check_run(site, run, sender, "rerequested", only=site.store.apps[run.app_id])


def announce_check_run(
    site: Site, run: CheckRun, sender: User, action: str, *, more: Json | None = None, only: App | None = None
) -> None:
    """Send a `check_run` event."""
    repo = site.store.repos[run.repo_id]
    shown = checks_views.check_run(site, repo, run)
    suite: Json = {
        "id": run.suite_id,
        "head_sha": run.head_sha,
        "status": run.status,
        "conclusion": run.conclusion,
        "app": account_views.integration(site, site.store.apps[run.app_id]),
        "created_at": iso(run.started_at),
        "updated_at": iso(site.now()),
        "pull_requests": shown["pull_requests"],
        "before": None,
        "after": run.head_sha,
        "head_branch": checks_views.branch_at(site, repo, run.head_sha),
    }
    payload: Json = {"action": action, "check_run": shown | {"check_suite": suite}}
    webhooks.emit(site, "check_run", repo, sender, payload | (more or {}), only=only)


def announce_suite(site: Site, repo: Repo, runs: list[CheckRun], sender: User, *, action: str = "completed") -> None:
    """Send a `check_suite` event, once all of its check runs have ended."""
    suite = checks_views.check_suite(site, repo, runs)
    if suite["status"] == "completed":
        # An event's suite is without the repository, which is beside it.
        told = {name: value for name, value in suite.items() if name != "repository"}
        webhooks.emit(site, "check_suite", repo, sender, {"action": action, "check_suite": told})


def suite_at(site: Site, repo: Repo, app: App, sha: str) -> list[CheckRun]:
    """The check runs of an App's suite for a commit."""
    place = (repo.id, app.id, sha)
    return [run for run in site.store.check_runs if (run.repo_id, run.app_id, run.head_sha) == place]


MAX_TEXT = 65_535
MAX_ANNOTATIONS = 50
MAX_MESSAGE = 64 * 1024
MAX_ACTIONS = 3
LEVELS = ("notice", "warning", "failure")
_ACTION = {"label": 20, "description": 40, "identifier": 20}
_ANNOTATION = {"message": MAX_MESSAGE, "title": 255, "raw_details": MAX_MESSAGE}


def demand_within_limits(body: Mapping[str, Any]) -> None:
    """Refuse a request that GitHub would refuse.

    Raises:
        HubError: 422.
    """
    output = body.get("output") or {}
    for name in ("summary", "text"):
        _demand_length(f"output.{name}", output.get(name), MAX_TEXT)
    _demand_count("output.annotations", output.get("annotations") or (), MAX_ANNOTATIONS)
    for annotation in output.get("annotations") or ():
        _demand_annotation(annotation)
    _demand_count("actions", body.get("actions") or (), MAX_ACTIONS)
    for action in body.get("actions") or ():
        for name, most in _ACTION.items():
            _demand_type(f"actions.{name}", action.get(name), str)
            _demand_length(f"actions.{name}", action[name], most)


def _demand_annotation(annotation: Mapping[str, Any]) -> None:
    for name, kind in (("path", str), ("start_line", int), ("end_line", int), ("message", str)):
        _demand_type(f"annotations.{name}", annotation.get(name), kind)
    for name, most in _ANNOTATION.items():
        _demand_length(f"annotations.{name}", annotation.get(name), most)
    if annotation.get("annotation_level") not in LEVELS:
        raise _refusal(
            "annotations.annotation_level", f"{annotation.get('annotation_level')!r} is not a member of {LEVELS}"
        )
    if "start_column" in annotation and annotation["start_line"] != annotation["end_line"]:
        raise _refusal("annotations.start_column", "columns go with annotations of one line only")


def _demand_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise _refusal(name, f"a value of type {kind.__name__} wasn't supplied")


def _demand_length(name: str, value: str | None, most: int) -> None:
    if value is not None and len(value) > most:
        raise _refusal(name, f"only {most} characters are allowed; {len(value)} were supplied")


def _demand_count(name: str, values: Any, most: int) -> None:  # noqa: ANN401 - JSON
    if len(values) > most:
        raise _refusal(name, f"no more than {most} items are allowed; {len(values)} were supplied")


def _refusal(name: str, why: str) -> HubError:
    return unprocessable(f"Invalid request.\n\nFor 'properties/{name}', {why}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job of a workflow run that has ended.

    Attributes:
        steps: the name and conclusion of each.
        log: None when it has expired.
        annotations: path, line and message of each.
    """

    name: str
    conclusion: str
    steps: Sequence[tuple[str, str]] = ()
    log: str | None = ""
    annotations: Sequence[tuple[str, int, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A workflow run that has ended; see `LocalHub.workflow_run`."""

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
    is_queued: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)


def end_workflow_run(site: Site, repo: Repo, ended: EndedRun) -> WorkflowRun:
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
            is_queued=ended.is_queued,
            inputs=ended.inputs,
        )
    )
    _keep_jobs(site, run, ended.jobs)
    _announce_workflow_run(site, repo, run, "requested" if ended.is_queued else "completed")
    return run


def dispatch_workflow(
    site: Site, repo: Repo, path: str, sender: User, *, ref: str, inputs: Mapping[str, str]
) -> WorkflowRun:
    """Queue a run of a workflow file, as a `workflow_dispatch` event does; how it ends, a method call says.

    Raises:
        HubError: 404, there is no such file; 422, the branch is missing, or the file does not take the event or the
            inputs.
    """
    branch = git.ref(repo.path, f"refs/heads/{ref.removeprefix('refs/heads/')}")
    if branch is None:
        raise HubError(422, f"No ref found for: {ref}")
    file = or_404(git.entry(repo.path, branch.sha, path))
    name, known = workflow_files.read_dispatch(git.blob(repo.path, file.sha).decode(errors="replace"))
    if known is None:
        raise HubError(422, "Workflow does not have 'workflow_dispatch' trigger")
    if unexpected := [given for given in inputs if given not in known]:
        raise HubError(422, f"Unexpected inputs provided: {unexpected}")
    if missing := [wanted for wanted, required in known.items() if required and wanted not in inputs]:
        raise HubError(422, f"Required input '{missing[0]}' not provided")
    run = end_workflow_run(
        site,
        repo,
        EndedRun(
            workflow=name or path,
            path=path,
            event="workflow_dispatch",
            head_branch=branch.name.removeprefix("refs/heads/"),
            head_sha=branch.sha,
            head_repository=repo,
            conclusion="",
            actor=sender,
            triggering_actor=sender,
            is_queued=True,
            inputs=inputs,
        ),
    )
    payload: Json = {"inputs": dict(inputs) or None, "ref": branch.name, "workflow": path}
    webhooks.emit(site, "workflow_dispatch", repo, sender, payload)
    return run


def _workflow(site: Site, repo: Repo, ended: EndedRun) -> Workflow:
    for known in site.store.workflows:
        if (known.repo_id, known.path) == (repo.id, ended.path):
            return known
    return site.store.workflows.put(
        Workflow(id=site.store.new_id(), repo_id=repo.id, name=ended.workflow, path=ended.path, created_at=site.now())
    )


def rerun_failed_jobs(site: Site, repo: Repo, run: WorkflowRun, sender: User) -> WorkflowRun:
    """Queue another attempt of a run, as `rerun-failed-jobs` does."""
    again = replace(
        run,
        attempt=run.attempt + 1,
        earlier=(*run.earlier, run.conclusion),
        is_queued=True,
        triggering_actor_id=sender.id,
    )
    site.store.workflow_runs.put(again)
    _announce_workflow_run(site, repo, again, "requested")
    return again


def end_rerun(
    site: Site, repo: Repo, run: WorkflowRun, *, conclusion: str, jobs: Sequence[EndedJob] = ()
) -> WorkflowRun:
    """End the attempt that was asked for."""
    ended = site.store.workflow_runs.put(replace(run, conclusion=conclusion, is_queued=False))
    _keep_jobs(site, ended, jobs)
    _announce_workflow_run(site, repo, ended, "completed")
    return ended


def keep_artifact(
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
        kept = site.store.workflow_jobs.put(
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
        # A job is a check run of GitHub Actions, under the same number.
        site.store.check_runs.put(
            CheckRun(
                id=kept.id,
                suite_id=run.suite_id,
                repo_id=run.repo_id,
                app_id=ACTIONS_ID,
                name=job.name,
                head_sha=run.head_sha,
                status="completed",
                conclusion=job.conclusion,
                started_at=run.created_at,
                completed_at=run.created_at,
                details_url=site.repo_html(site.store.repos[run.repo_id], "actions", "runs", run.id, "job", kept.id),
                external_id="",
                title=None,
                summary=None,
                text=None,
                annotations=kept.annotations,
            )
        )


def _announce_workflow_run(site: Site, repo: Repo, run: WorkflowRun, action: str) -> None:
    sender = site.store.users[run.triggering_actor_id]
    payload: Json = {
        "action": action,
        "workflow": checks_views.workflow(site, repo, site.store.workflows[run.workflow_id]),
        "workflow_run": checks_views.run_payload(site, repo, run),
    }
    webhooks.emit(site, "workflow_run", repo, sender, payload)
    if action == "completed":
        _announce_actions_suite(site, repo, run)


def _announce_actions_suite(site: Site, repo: Repo, run: WorkflowRun) -> None:
    """Send the `check_suite` event that GitHub sends beside the `workflow_run` of each run that has ended."""
    sender, when = site.store.users[run.triggering_actor_id], iso(site.now())
    url = site.repo_api(repo, "check-suites", run.suite_id)
    head = git.commit(site.store.repos[run.head_repo_id].path, run.head_sha)
    suite: Json = {
        "id": run.suite_id,
        "node_id": node_id("CheckSuite", run.suite_id),
        "head_branch": run.head_branch,
        "head_sha": run.head_sha,
        "status": "completed",
        "conclusion": run.conclusion,
        "url": url,
        "before": None,
        "after": run.head_sha,
        "pull_requests": threads_views.pulls_at(site, repo, run.head_sha),
        "app": account_views.actions_app(site),
        "created_at": iso(run.created_at),
        "updated_at": when,
        "head_commit": git_views.simple_commit(head),
        "latest_check_runs_count": len([job for job in site.store.workflow_jobs if job.run_id == run.id]),
        "check_runs_url": f"{url}/check-runs",
    }
    webhooks.emit(site, "check_suite", repo, sender, {"action": "completed", "check_suite": suite})
