"""Runs of GitHub Actions workflows."""

from __future__ import annotations

from localhub.api.errors import HubError, not_found
from localhub.api.routing import Call, Response, Routes, wrapped
from localhub.operations import workflows
from localhub.state import signing
from localhub.state.workflows import Artifact, Workflow, WorkflowJob, WorkflowRun
from localhub.views import actions as actions_views

routes = Routes()
READ, WRITE = "actions:read", "actions:write"
BASE = "/repos/{owner}/{repo}/actions"


def _workflow_of(call: Call) -> Workflow:
    """The workflow that the path names by its number or by its file's name."""
    wanted = call.params["workflow_id"]
    for known in call.site.store.workflows:
        if known.repo_id == call.repo.id and wanted in {str(known.id), known.path.rpartition("/")[2]}:
            return known
    raise not_found()


def _states(run: WorkflowRun) -> set[str]:
    """The words that `status` may name a run by."""
    return {"queued"} if run.is_queued else {"completed", run.conclusion}


def _listed(call: Call, found: list[WorkflowRun]) -> Response:
    """Newest first, those that the query wants; `status` may also name a conclusion."""
    query, users = call.query, call.site.store.users
    kept = [
        run
        for run in reversed(found)
        if query.get("branch", run.head_branch) == run.head_branch
        and query.get("head_sha", run.head_sha) == run.head_sha
        and query.get("event", run.event) == run.event
        and query.get("status", "queued" if run.is_queued else "completed") in _states(run)
        and query.get("actor", users[run.actor_id].login) == users[run.actor_id].login
    ]
    return wrapped(call, "workflow_runs", kept, lambda run: actions_views.run(call.site, call.repo, run))


@routes.on("GET", BASE + "/runs", allow=READ)
def runs(call: Call) -> Response:
    """The repository's runs."""
    return _listed(call, [run for run in call.site.store.workflow_runs if run.repo_id == call.repo.id])


@routes.on("GET", BASE + "/workflows", allow=READ)
def list_workflows(call: Call) -> Response:
    """The repository's workflows."""
    found = [each for each in call.site.store.workflows if each.repo_id == call.repo.id]
    return wrapped(call, "workflows", found, lambda each: actions_views.workflow(call.site, call.repo, each))


@routes.on("GET", BASE + "/workflows/{workflow_id}", allow=READ)
def one_workflow(call: Call) -> Response:
    """One workflow."""
    return Response(body=actions_views.workflow(call.site, call.repo, _workflow_of(call)))


@routes.on("GET", BASE + "/workflows/{workflow_id}/runs", allow=READ)
def runs_of_workflow(call: Call) -> Response:
    """A workflow's runs."""
    workflow = _workflow_of(call)
    return _listed(call, [run for run in call.site.store.workflow_runs if run.workflow_id == workflow.id])


def _run_of(call: Call) -> WorkflowRun:
    found = call.site.store.workflow_runs.get(call.number("run_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return found


def _job_of(call: Call) -> WorkflowJob:
    found = call.site.store.workflow_jobs.get(call.number("job_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return found


@routes.on("GET", BASE + "/runs/{run_id}", allow=READ)
def one_run(call: Call) -> Response:
    """One run."""
    return Response(body=actions_views.run(call.site, call.repo, _run_of(call)))


def _attempt(call: Call) -> int:
    number = call.number("attempt_number")
    if not 1 <= number <= _run_of(call).attempt:
        raise not_found()
    return number


@routes.on("GET", BASE + "/runs/{run_id}/attempts/{attempt_number}", allow=READ)
def one_attempt(call: Call) -> Response:
    """One attempt of a run."""
    return Response(body=actions_views.run(call.site, call.repo, _run_of(call), attempt=_attempt(call)))


@routes.on("POST", BASE + "/runs/{run_id}/rerun-failed-jobs", allow=WRITE, role="write")
def rerun_failed_jobs(call: Call) -> Response:
    """Ask for another attempt of what failed in a run."""
    run = _run_of(call)
    if run.is_queued:
        raise HubError(403, "This workflow is already running")
    workflows.ask_again(call.site, call.repo, run, call.user)
    return Response(status=201, body={})


@routes.on("GET", BASE + "/runs/{run_id}/jobs", allow=READ)
def jobs_of_run(call: Call) -> Response:
    """The jobs of a run's newest attempt, or with `filter=all` of every one."""
    run, every = _run_of(call), call.query.get("filter") == "all"
    jobs = [job for job in call.site.store.workflow_jobs if job.run_id == run.id]
    found = [job for job in jobs if every or job.attempt == run.attempt]
    return wrapped(call, "jobs", found, lambda job: actions_views.job(call.site, call.repo, job))


@routes.on("GET", BASE + "/runs/{run_id}/attempts/{attempt_number}/jobs", allow=READ)
def jobs_of_attempt(call: Call) -> Response:
    """The jobs of one attempt of a run."""
    run, number = _run_of(call), _attempt(call)
    found = [job for job in call.site.store.workflow_jobs if (job.run_id, job.attempt) == (run.id, number)]
    return wrapped(call, "jobs", found, lambda job: actions_views.job(call.site, call.repo, job))


def _artifacts(call: Call, found: list[Artifact]) -> Response:
    kept = [each for each in reversed(found) if call.query.get("name", each.name) == each.name]
    return wrapped(call, "artifacts", kept, lambda each: actions_views.artifact(call.site, call.repo, each))


def _artifact_of(call: Call) -> Artifact:
    found = call.site.store.artifacts.get(call.number("artifact_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return found


@routes.on("GET", BASE + "/runs/{run_id}/artifacts", allow=READ)
def artifacts_of_run(call: Call) -> Response:
    """What a run kept, newest first."""
    run = _run_of(call)
    return _artifacts(call, [each for each in call.site.store.artifacts if each.run_id == run.id])


@routes.on("GET", BASE + "/artifacts", allow=READ)
def artifacts(call: Call) -> Response:
    """What the repository's runs kept, newest first."""
    return _artifacts(call, [each for each in call.site.store.artifacts if each.repo_id == call.repo.id])


@routes.on("GET", BASE + "/artifacts/{artifact_id}", allow=READ)
def one_artifact(call: Call) -> Response:
    """One artifact."""
    return Response(body=actions_views.artifact(call.site, call.repo, _artifact_of(call)))


@routes.on("DELETE", BASE + "/artifacts/{artifact_id}", allow=WRITE)
def delete_artifact(call: Call) -> Response:
    """Remove an artifact."""
    call.site.store.artifacts.remove(_artifact_of(call).id)
    return Response(status=204)


@routes.on("GET", BASE + "/artifacts/{artifact_id}/{archive_format}", allow=READ)
def download_artifact(call: Call) -> Response:
    """Where an artifact's zip file is."""
    found = _artifact_of(call)
    if call.params["archive_format"] != "zip":
        raise not_found()
    if found.expires_at <= call.site.now():
        raise HubError(410, "Artifact has expired")
    return Response(status=302, body=b"", headers={"Location": signing.archive_of(call.site, found)})


@routes.on("GET", BASE + "/jobs/{job_id}", allow=READ)
def one_job(call: Call) -> Response:
    """One job."""
    return Response(body=actions_views.job(call.site, call.repo, _job_of(call)))


@routes.on("GET", BASE + "/jobs/{job_id}/logs", allow=READ)
def log_of_job(call: Call) -> Response:
    """Where a job's log is."""
    job = _job_of(call)
    if job.log is None:
        raise HubError(410, "Server Error")
    return Response(status=302, body=b"", headers={"Location": signing.log_of(call.site, job)})


def _logs(call: Call, run: WorkflowRun, attempt: int) -> Response:
    jobs = [job for job in call.site.store.workflow_jobs if (job.run_id, job.attempt) == (run.id, attempt)]
    if jobs and all(job.log is None for job in jobs):
        raise HubError(410, "Server Error")
    return Response(status=302, body=b"", headers={"Location": signing.logs_of(call.site, run, attempt)})


@routes.on("GET", BASE + "/runs/{run_id}/logs", allow=READ)
def logs_of_run(call: Call) -> Response:
    """Where the logs of a run's jobs are, as a zip file."""
    run = _run_of(call)
    return _logs(call, run, run.attempt)


@routes.on("GET", BASE + "/runs/{run_id}/attempts/{attempt_number}/logs", allow=READ)
def logs_of_attempt(call: Call) -> Response:
    """The same of one attempt."""
    return _logs(call, _run_of(call), _attempt(call))
