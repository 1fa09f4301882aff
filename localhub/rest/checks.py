"""Check runs and suites, and the runs, jobs, logs and artifacts of GitHub Actions workflows.

Only Apps make check runs; there is one suite for each App and commit. Workflow runs are added by tests (see
`LocalHub.workflow_run`); a request can read and start them, ask for another attempt and delete an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from localhub.api.auth import HubError, invalid, not_accessible, not_found, unprocessable
from localhub.api.routing import Call, Response, Routes, listed, moment_of, wrapped
from localhub.operations import checks, workflow_files
from localhub.operations.checks import demand_within_limits
from localhub.rest.commits import commit_named
from localhub.state.model import App, Artifact, CheckRun, Workflow, WorkflowRun
from localhub.state.store import Json, storage_url
from localhub.views import checks as checks_views

routes = Routes()
REPO = "/repos/{owner}/{repo}"
ACTIONS = REPO + "/actions"
_MOST_INPUTS = 25
CONCLUSIONS = ("success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required")


@routes.on(
    "POST",
    REPO + "/check-runs",
    allow="checks:write",
    takes="actions completed_at conclusion details_url external_id head_sha name output started_at status",
)
def create_check_run(call: Call) -> Response:
    """Start a check run on a commit."""
    app, store = _app(call), call.site.store
    sha = commit_named(call, call.text("head_sha", "CheckRun")).sha
    beside = checks.suite_at(call.site, call.repo, app, sha)
    fresh = CheckRun(
        id=store.new_id(),
        suite_id=beside[0].suite_id if beside else store.new_id(),
        repo_id=call.repo.id,
        app_id=app.id,
        name=call.text("name", "CheckRun"),
        head_sha=sha,
        status="queued",
        conclusion=None,
        started_at=call.site.now(),
        completed_at=None,
        details_url=None,
        external_id="",
        title=None,
        summary=None,
        text=None,
    )
    run = store.check_runs.put(_with_changes(call, fresh))
    checks.announce_check_run(call.site, run, call.user, "created")
    if run.status == "completed":
        _announce_completion(call, run)
    shown = checks_views.check_run(call.site, call.repo, run)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on(
    "PATCH",
    REPO + "/check-runs/{check_run_id}",
    allow="checks:write",
    takes="actions completed_at conclusion details_url external_id name output started_at status",
)
def update_check_run(call: Call) -> Response:
    """Change a check run of one's own."""
    old = _own_run(call)
    run = call.site.store.check_runs.put(_with_changes(call, old))
    if run.status == "completed" and old.status != "completed":
        _announce_completion(call, run)
    return Response(body=checks_views.check_run(call.site, call.repo, run))


def _own_run(call: Call) -> CheckRun:
    """The check run that the path names, of the App that asks."""
    app, run = _app(call), call.row(call.site.store.check_runs, "check_run_id")
    if run.app_id != app.id:
        raise not_accessible()
    return run


def _announce_completion(call: Call, run: CheckRun) -> None:
    checks.announce_check_run(call.site, run, call.user, "completed")
    suite = checks.suite_at(call.site, call.repo, call.site.store.apps[run.app_id], run.head_sha)
    checks.announce_suite(call.site, call.repo, suite, call.user)


def _with_changes(call: Call, run: CheckRun) -> CheckRun:
    body, now = call.body, call.site.now()
    output = body.get("output") or {}
    if output and not isinstance(output.get("summary", run.summary), str):
        raise invalid("CheckRun", "output.summary", "missing_field")
    demand_within_limits(body)
    conclusion = body.get("conclusion", run.conclusion)
    if conclusion is not None and conclusion not in CONCLUSIONS:
        raise invalid("CheckRun", "conclusion", "invalid")
    status = "completed" if body.get("conclusion") else str(body.get("status", run.status))
    if status == "completed" and conclusion is None:
        raise invalid("CheckRun", "conclusion", "missing_field")
    done = status == "completed"
    return replace(
        run,
        name=call.text("name", "CheckRun", run.name),
        status=status,
        conclusion=conclusion if done else None,
        started_at=_time(body.get("started_at")) or run.started_at,
        completed_at=(_time(body.get("completed_at")) or run.completed_at or now) if done else None,
        details_url=body.get("details_url", run.details_url),
        external_id=str(body.get("external_id", run.external_id)),
        title=output.get("title", run.title),
        summary=output.get("summary", run.summary),
        text=output.get("text", run.text),
        annotations=(*run.annotations, *(output.get("annotations") or ())),
        actions=tuple(body.get("actions", run.actions)),
    )


def _time(value: str | None) -> datetime | None:
    try:
        return None if value is None else datetime.fromisoformat(value)
    except ValueError as error:
        raise unprocessable(f"{value!r} is not an ISO 8601 time") from error


def _app(call: Call) -> App:
    if call.viewer.app is None or call.viewer.installation is None:
        raise HubError(403, "You must authenticate via a GitHub App.")
    return call.viewer.app


@routes.on("GET", REPO + "/check-runs/{check_run_id}", allow="checks:read")
def one_check_run(call: Call) -> Response:
    """One check run."""
    return Response(
        body=checks_views.check_run(call.site, call.repo, call.row(call.site.store.check_runs, "check_run_id"))
    )


@routes.on("GET", REPO + "/check-runs/{check_run_id}/annotations", allow="checks:read")
def list_annotations(call: Call) -> Response:
    """The annotations of a check run."""
    run = call.row(call.site.store.check_runs, "check_run_id")

    def show(annotation: Mapping[str, Any]) -> Json:
        blob = f"{call.site.repo_html(call.repo, 'blob', run.head_sha)}/{annotation['path']}"
        optional = dict.fromkeys(("start_column", "end_column", "title", "raw_details"))
        return optional | dict(annotation) | {"blob_href": blob}

    return listed(call, list(run.annotations), show)


@routes.on("POST", REPO + "/check-runs/{check_run_id}/rerequest", allow="checks:write")
def rerequest_check_run(call: Call) -> Response:
    """Ask a check run's App, which must be the viewer, to run it again."""
    checks.rerun_check_run(call.site, _own_run(call), call.user)
    return Response(status=201, body={})


@routes.on("POST", REPO + "/check-suites/{check_suite_id}/rerequest", allow="checks:write")
def rerequest_suite(call: Call) -> Response:
    """Ask a suite's App, which must be the viewer, to run it again."""
    runs = _suite_of(call)
    if runs[0].app_id != _app(call).id:
        raise not_accessible()
    checks.announce_suite(call.site, call.repo, runs, call.user, action="rerequested")
    return Response(status=201, body={})


@routes.on("GET", REPO + "/check-suites/{check_suite_id}", allow="checks:read")
def one_suite(call: Call) -> Response:
    """One check suite."""
    return Response(body=checks_views.check_suite(call.site, call.repo, _suite_of(call)))


@routes.on("GET", REPO + "/check-suites/{check_suite_id}/check-runs", allow="checks:read")
def list_suite_check_runs(call: Call) -> Response:
    """A suite's check runs."""
    found = _suite_of(call)
    return wrapped(call, "check_runs", found, lambda run: checks_views.check_run(call.site, call.repo, run))


def _suite_of(call: Call) -> list[CheckRun]:
    """The check runs of the suite that the path names.

    Raises:
        HubError: 404, there is none.
    """
    number = call.number("check_suite_id")
    found = [r for r in call.site.store.check_runs if (r.repo_id, r.suite_id) == (call.repo.id, number)]
    if not found:
        raise not_found()
    return found


@routes.on("GET", REPO + "/commits/{ref}/check-suites", allow="checks:read", takes="app_id")
def list_commit_suites(call: Call) -> Response:
    """A commit's check suites, one for each App that has check runs there."""
    sha = commit_named(call, call.params["ref"]).sha
    suites: dict[int, list[CheckRun]] = {}
    for run in call.site.store.check_runs:
        if (run.repo_id, run.head_sha) == (call.repo.id, sha):
            suites.setdefault(run.suite_id, []).append(run)
    if "app_id" in call.query:
        suites = {number: runs for number, runs in suites.items() if str(runs[0].app_id) == call.query["app_id"]}
    found = list(suites.values())
    return wrapped(call, "check_suites", found, lambda runs: checks_views.check_suite(call.site, call.repo, runs))


@routes.on("GET", REPO + "/commits/{ref}/check-runs", allow="checks:read", takes="app_id check_name filter status")
def list_commit_check_runs(call: Call) -> Response:
    """A commit's check runs; `filter=all` keeps older ones of the same name."""
    sha = commit_named(call, call.params["ref"]).sha
    found = [r for r in call.site.store.check_runs if (r.repo_id, r.head_sha) == (call.repo.id, sha)]
    if call.query.get("filter", "latest") == "latest":
        found = list({(run.app_id, run.name): run for run in found}.values())
    for name, value in (
        ("check_name", lambda r: r.name),
        ("status", lambda r: r.status),
        ("app_id", lambda r: str(r.app_id)),
    ):
        if name in call.query:
            found = [run for run in found if value(run) == call.query[name]]
    return wrapped(call, "check_runs", found, lambda run: checks_views.check_run(call.site, call.repo, run))


@routes.on("GET", ACTIONS + "/workflows", allow="actions:read")
def list_workflows(call: Call) -> Response:
    """The repository's workflows."""
    found = [each for each in call.site.store.workflows if each.repo_id == call.repo.id]
    return wrapped(call, "workflows", found, lambda workflow: checks_views.workflow(call.site, call.repo, workflow))


@routes.on("GET", ACTIONS + "/workflows/{workflow_id}", allow="actions:read")
def one_workflow(call: Call) -> Response:
    """One workflow."""
    return Response(body=checks_views.workflow(call.site, call.repo, _workflow_of(call)))


@routes.on(
    "POST",
    ACTIONS + "/workflows/{workflow_id}/dispatches",
    allow="actions:write",
    takes="inputs ref return_run_details",
)
def dispatch_workflow(call: Call) -> Response:
    """Start a workflow; with `return_run_details` the answer names the run."""
    wanted, inputs = call.params["workflow_id"], call.body.get("inputs") or {}
    if len(inputs) > _MOST_INPUTS:
        raise HubError(422, f"Invalid request.\n\nFor 'links/0/schema', no more than {_MOST_INPUTS} properties.")
    numbered = next((each for each in call.site.store.workflows if str(each.id) == wanted), None)
    path = f"{workflow_files.FOLDER}/{wanted}" if numbered is None else numbered.path
    values = {name: str(value) for name, value in inputs.items()}
    run = checks.dispatch_workflow(
        call.site, call.repo, path, call.user, ref=call.text("ref", "Workflow"), inputs=values
    )
    if not call.body.get("return_run_details"):
        return Response(status=204)
    shown = checks_views.run(call.site, call.repo, run)
    return Response(body={"workflow_run_id": run.id, "run_url": shown["url"], "html_url": shown["html_url"]})


@routes.on(
    "GET", ACTIONS + "/runs", allow="actions:read", takes="actor branch event exclude_pull_requests head_sha status"
)
def list_workflow_runs(call: Call) -> Response:
    """The repository's runs."""
    return _list_runs(call, [run for run in call.site.store.workflow_runs if run.repo_id == call.repo.id])


@routes.on(
    "GET",
    ACTIONS + "/workflows/{workflow_id}/runs",
    allow="actions:read",
    takes="actor branch created event exclude_pull_requests head_sha status",
)
def list_runs_of_workflow(call: Call) -> Response:
    """A workflow's runs."""
    workflow = _workflow_of(call)
    return _list_runs(call, [run for run in call.site.store.workflow_runs if run.workflow_id == workflow.id])


def _workflow_of(call: Call) -> Workflow:
    """The workflow that the path names by its number or by its file's name."""
    wanted = call.params["workflow_id"]
    for known in call.site.store.workflows:
        if known.repo_id == call.repo.id and wanted in {str(known.id), known.path.rpartition("/")[2]}:
            return known
    raise not_found()


def _list_runs(call: Call, runs: list[WorkflowRun]) -> Response:
    """Newest first, those that the query wants; `status` may also name a conclusion."""
    query, users = call.query, call.site.store.users
    since = _created_since(query.get("created", ""))
    kept = [
        run
        for run in reversed(runs)
        if (since is None or run.created_at >= since)
        and query.get("branch", run.head_branch) == run.head_branch
        and query.get("head_sha", run.head_sha) == run.head_sha
        and query.get("event", run.event) == run.event
        and query.get("status", "queued" if run.is_queued else "completed") in _states(run)
        and query.get("actor", users[run.actor_id].login) == users[run.actor_id].login
    ]
    return wrapped(call, "workflow_runs", kept, partial(_show_run, call))


def _created_since(text: str) -> datetime | None:
    """The moment in a filter such as `>=2026-11-28T12:00:00Z`; the hub serves no other form of it."""
    if text and not text.startswith(">="):
        raise HubError(422, f"The local hub serves `created` with `>=` only, not {text}.")
    return moment_of(text.removeprefix(">="), "created") if text else None


def _show_run(call: Call, run: WorkflowRun, attempt: int | None = None) -> Json:
    hidden: Json = {"pull_requests": []} if call.query.get("exclude_pull_requests") == "true" else {}
    return checks_views.run(call.site, call.repo, run, attempt=attempt) | hidden


def _states(run: WorkflowRun) -> set[str]:
    """The words that `status` may name a run by."""
    return {"queued"} if run.is_queued else {"completed", run.conclusion}


@routes.on("GET", ACTIONS + "/runs/{run_id}", allow="actions:read", takes="exclude_pull_requests")
def one_workflow_run(call: Call) -> Response:
    """One run."""
    return Response(body=_show_run(call, call.row(call.site.store.workflow_runs, "run_id")))


@routes.on(
    "GET", ACTIONS + "/runs/{run_id}/attempts/{attempt_number}", allow="actions:read", takes="exclude_pull_requests"
)
def one_attempt(call: Call) -> Response:
    """One attempt of a run."""
    return Response(body=_show_run(call, call.row(call.site.store.workflow_runs, "run_id"), _attempt(call)))


@routes.on("POST", ACTIONS + "/runs/{run_id}/rerun", allow="actions:write")
@routes.on("POST", ACTIONS + "/runs/{run_id}/rerun-failed-jobs", allow="actions:write")
def rerun_jobs(call: Call) -> Response:
    """Start another attempt of a run, or of its failed jobs; how it ends, a method call says."""
    return _rerun(call, call.row(call.site.store.workflow_runs, "run_id"))


@routes.on("POST", ACTIONS + "/jobs/{job_id}/rerun", allow="actions:write")
def rerun_job(call: Call) -> Response:
    """Start another attempt of a run for one of its jobs."""
    return _rerun(call, call.site.store.workflow_runs[call.row(call.site.store.workflow_jobs, "job_id").run_id])


def _rerun(call: Call, run: WorkflowRun) -> Response:
    if run.is_queued:
        raise HubError(403, "This workflow is already running")
    checks.rerun_failed_jobs(call.site, call.repo, run, call.user)
    return Response(status=201, body={})


@routes.on("POST", ACTIONS + "/runs/{run_id}/cancel", allow="actions:write", role="write")
def cancel_run(call: Call) -> Response:
    """Cancel a run that has not ended."""
    run = call.row(call.site.store.workflow_runs, "run_id")
    if not run.is_queued:
        raise HubError(409, "Cannot cancel a workflow run that is completed.")
    checks.end_rerun(call.site, call.repo, run, conclusion="cancelled")
    return Response(status=202, body={})


@routes.on("GET", ACTIONS + "/runs/{run_id}/jobs", allow="actions:read", takes="filter")
def list_run_jobs(call: Call) -> Response:
    """The jobs of a run's newest attempt, or with `filter=all` of every one."""
    run, every = call.row(call.site.store.workflow_runs, "run_id"), call.query.get("filter") == "all"
    jobs = [job for job in call.site.store.workflow_jobs if job.run_id == run.id]
    found = [job for job in jobs if every or job.attempt == run.attempt]
    return wrapped(call, "jobs", found, lambda job: checks_views.job(call.site, call.repo, job))


@routes.on("GET", ACTIONS + "/runs/{run_id}/attempts/{attempt_number}/jobs", allow="actions:read")
def list_attempt_jobs(call: Call) -> Response:
    """The jobs of one attempt of a run."""
    run, number = call.row(call.site.store.workflow_runs, "run_id"), _attempt(call)
    found = [job for job in call.site.store.workflow_jobs if (job.run_id, job.attempt) == (run.id, number)]
    return wrapped(call, "jobs", found, lambda job: checks_views.job(call.site, call.repo, job))


def _attempt(call: Call) -> int:
    number = call.number("attempt_number")
    if not 1 <= number <= call.row(call.site.store.workflow_runs, "run_id").attempt:
        raise not_found()
    return number


@routes.on("GET", ACTIONS + "/runs/{run_id}/artifacts", allow="actions:read", takes="name")
def list_run_artifacts(call: Call) -> Response:
    """The artifacts of a run, newest first."""
    run = call.row(call.site.store.workflow_runs, "run_id")
    return _list_artifacts(call, [each for each in call.site.store.artifacts if each.run_id == run.id])


@routes.on("GET", ACTIONS + "/artifacts", allow="actions:read", takes="name")
def list_artifacts(call: Call) -> Response:
    """The artifacts of the repository's runs, newest first."""
    return _list_artifacts(call, [each for each in call.site.store.artifacts if each.repo_id == call.repo.id])


def _list_artifacts(call: Call, artifacts: list[Artifact]) -> Response:
    kept = [each for each in reversed(artifacts) if call.query.get("name", each.name) == each.name]
    return wrapped(call, "artifacts", kept, lambda artifact: checks_views.artifact(call.site, call.repo, artifact))


@routes.on("GET", ACTIONS + "/artifacts/{artifact_id}", allow="actions:read")
def one_artifact(call: Call) -> Response:
    """One artifact."""
    return Response(
        body=checks_views.artifact(call.site, call.repo, call.row(call.site.store.artifacts, "artifact_id"))
    )


@routes.on("DELETE", ACTIONS + "/artifacts/{artifact_id}", allow="actions:write")
def delete_artifact(call: Call) -> Response:
    """Remove an artifact."""
    call.site.store.artifacts.remove(call.row(call.site.store.artifacts, "artifact_id").id)
    return Response(status=204)


@routes.on("GET", ACTIONS + "/artifacts/{artifact_id}/{archive_format}", allow="actions:read")
def download_artifact(call: Call) -> Response:
    """Redirect to an artifact's zip file."""
    found = call.row(call.site.store.artifacts, "artifact_id")
    if call.params["archive_format"] != "zip":
        raise not_found()
    if found.expires_at <= call.site.now():
        raise HubError(410, "Artifact has expired")
    return Response(status=302, body=b"", headers={"Location": storage_url(call.site, f"/artifacts/{found.id}")})


@routes.on("GET", ACTIONS + "/jobs/{job_id}", allow="actions:read")
def one_job(call: Call) -> Response:
    """One job."""
    return Response(body=checks_views.job(call.site, call.repo, call.row(call.site.store.workflow_jobs, "job_id")))


@routes.on("GET", ACTIONS + "/jobs/{job_id}/logs", allow="actions:read")
def download_job_log(call: Call) -> Response:
    """Redirect to a job's log."""
    job = call.row(call.site.store.workflow_jobs, "job_id")
    if job.log is None:
        raise HubError(410, "Server Error")
    return Response(status=302, body=b"", headers={"Location": storage_url(call.site, f"/logs/jobs/{job.id}")})


@routes.on("GET", ACTIONS + "/runs/{run_id}/logs", allow="actions:read")
def download_run_logs(call: Call) -> Response:
    """Redirect to the logs of a run's jobs, a zip file."""
    run = call.row(call.site.store.workflow_runs, "run_id")
    return _redirect_to_logs(call, run, run.attempt)


@routes.on("GET", ACTIONS + "/runs/{run_id}/attempts/{attempt_number}/logs", allow="actions:read")
def download_attempt_logs(call: Call) -> Response:
    """Redirect to the logs of one attempt's jobs."""
    return _redirect_to_logs(call, call.row(call.site.store.workflow_runs, "run_id"), _attempt(call))


def _redirect_to_logs(call: Call, run: WorkflowRun, attempt: int) -> Response:
    jobs = [job for job in call.site.store.workflow_jobs if (job.run_id, job.attempt) == (run.id, attempt)]
    if jobs and all(job.log is None for job in jobs):
        raise HubError(410, "Server Error")
    return Response(
        status=302, body=b"", headers={"Location": storage_url(call.site, f"/logs/runs/{run.id}/{attempt}")}
    )
