"""The REST answers about checks and workflow runs; only with the fields that the client reads."""

from __future__ import annotations

from typing import Any

from bot.github.types import Answer
from localhub.api.auth import HubError, not_accessible, not_found, or_404
from localhub.operations.checks import demand_within_limits
from tests.fakes.answers import commit_named, iso
from tests.fakes.routing import Json, Request, route
from tests.fakes.site import (
    FakeCheck,
    FakeRun,
)

# Checks


@route("POST", "check-runs", "checks:write")
def create_check(request: Request) -> Json:
    sha = commit_named(request, request.body["head_sha"])
    check = FakeCheck(request.site.new_id(), request.app.id, request.body["name"], sha)
    _change_check(request, check)
    request.repo.checks.append(check)
    return _check(request, check)


@route("PATCH", "check-runs/{}", "checks:write")
def update_check(request: Request, check_id: str) -> Json:
    check = _find_check(request, check_id)
    if check.app_id != request.app.id:
        raise not_accessible()
    _change_check(request, check)
    return _check(request, check)


def _change_check(request: Request, check: FakeCheck) -> None:
    body, output = request.body, request.body.get("output") or {}
    demand_within_limits(body)
    check.name = body.get("name", check.name)
    check.status = "completed" if body.get("conclusion") else body.get("status", check.status)
    check.conclusion = body.get("conclusion", check.conclusion) if check.status == "completed" else None
    check.external_id = body.get("external_id", check.external_id)
    check.title = output.get("title", check.title)
    check.summary = output.get("summary", check.summary)
    check.text = output.get("text", check.text)
    check.annotations += output.get("annotations") or ()
    check.actions = list(body.get("actions", check.actions))


def _find_check(request: Request, check_id: str) -> FakeCheck:
    return or_404(next((check for check in request.repo.checks if check.id == int(check_id)), None))


def _check(request: Request, check: FakeCheck) -> Json:
    output = {"title": check.title, "summary": check.summary, "text": check.text}
    return {
        "id": check.id,
        "name": check.name,
        "status": check.status,
        "conclusion": check.conclusion,
        "external_id": check.external_id,
        "html_url": request.html("runs", check.id),
        "output": output | {"annotations_count": len(check.annotations)},
        "app": {"id": check.app_id},
    }


@route("GET", "commits/{}/check-runs", "checks:read")
def list_checks(request: Request, revision: str) -> Json:
    sha, query = commit_named(request, revision), request.query
    checks = [check for check in request.repo.checks if check.head_sha == sha]
    if query.get("filter", "latest") == "latest":
        checks = list({(check.app_id, check.name): check for check in checks}.values())
    checks = [
        check
        for check in checks
        if query.get("check_name", check.name) == check.name
        and query.get("app_id", str(check.app_id)) == str(check.app_id)
    ]
    return {"check_runs": request.page(checks, lambda check: _check(request, check))}


@route("GET", "commits/{}/status", "statuses:read")
def combined_status(request: Request, revision: str) -> Json:
    sha = commit_named(request, revision)
    newest = {status.context: status for status in request.repo.statuses if status.sha == sha}
    # A status that replaces another one is the newest.
    order = [status for status in reversed(request.repo.statuses) if newest.get(status.context) is status]

    def show(status: Any) -> Json:  # noqa: ANN401 - a FakeStatus
        return {name: getattr(status, name) for name in ("id", "state", "context", "description", "target_url")}

    return {"statuses": request.page(order, show)}


@route("GET", "check-runs/{}/annotations", "checks:read")
def list_annotations(request: Request, check_id: str) -> list[Json]:
    return request.page(_find_check(request, check_id).annotations, dict)


# Workflow runs


@route("GET", "actions/runs/{}", "actions:read")
def read_run(request: Request, run_id: str) -> Json:
    return _run(request, _find_run(request, run_id))


@route("GET", "actions/runs/{}/attempts/{}", "actions:read")
def read_attempt(request: Request, run_id: str, attempt: str) -> Json:
    run = _find_run(request, run_id)
    return _run(request, run, _attempt(run, attempt))


@route("GET", "actions/runs/{}/jobs", "actions:read")
def list_jobs(request: Request, run_id: str) -> Json:
    run = _find_run(request, run_id)
    return _jobs(request, run, run.attempt)


@route("GET", "actions/runs/{}/attempts/{}/jobs", "actions:read")
def list_attempt_jobs(request: Request, run_id: str, attempt: str) -> Json:
    run = _find_run(request, run_id)
    return _jobs(request, run, _attempt(run, attempt))


def _find_run(request: Request, run_id: str) -> FakeRun:
    return or_404(next((run for run in request.repo.runs if run.id == int(run_id)), None))


def _attempt(run: FakeRun, attempt: str) -> int:
    if not 1 <= int(attempt) <= run.attempt:
        raise not_found()
    return int(attempt)


def _run(request: Request, run: FakeRun, attempt: int | None = None) -> Json:
    number = attempt or run.attempt
    return {
        "id": run.id,
        "workflow_id": run.workflow_id,
        "name": run.name,
        "conclusion": (*run.earlier, None if run.is_queued else run.conclusion)[number - 1],
        "head_sha": run.head_sha,
        "head_branch": run.head_branch,
        "head_repository": {"id": run.head_repo_id},
        "html_url": request.html("actions", "runs", run.id),
        "path": run.path,
        "event": run.event,
        "run_number": run.number,
        "run_attempt": number,
    }


def _jobs(request: Request, run: FakeRun, attempt: int) -> Json:
    times = dict.fromkeys(("started_at", "completed_at"), iso(run.created_at))

    def show(job: Any) -> Json:  # noqa: ANN401 - a FakeJob
        return {
            "id": job.id,
            "name": job.name,
            "conclusion": job.conclusion,
            "steps": [
                {"number": number, "name": name, "conclusion": conclusion, **times}
                for number, (name, conclusion) in enumerate(job.steps, 1)
            ],
            "labels": ["ubuntu-latest"],
            "check_run_url": f"check-runs/{job.id}",
            "html_url": request.html("actions", "runs", run.id, "job", job.id),
        }

    return {"jobs": request.page([job for job in run.jobs if job.attempt == attempt], show)}


@route("GET", "actions/workflows/{}/runs", "actions:read")
def list_runs(request: Request, workflow_id: str) -> Json:
    runs = [
        run for run in reversed(request.repo.runs) if workflow_id in {str(run.workflow_id), run.path.rpartition("/")[2]}
    ]
    if not runs:
        raise not_found()
    query = request.query
    runs = [
        run
        for run in runs
        if query.get("branch", run.head_branch) == run.head_branch
        and query.get("head_sha", run.head_sha) == run.head_sha
        and query.get("event", run.event) == run.event
        and query.get("actor", run.actor) == run.actor
        and iso(run.created_at) >= query.get("created", "").removeprefix(">=")
        and query.get("status") in {None, *(("queued",) if run.is_queued else ("completed", run.conclusion))}
    ]
    return {"workflow_runs": request.page(runs, lambda run: _run(request, run))}


@route("POST", "actions/runs/{}/rerun-failed-jobs", "actions:write")
def rerun_failed_jobs(request: Request, run_id: str) -> Json:
    run = _find_run(request, run_id)
    if run.is_queued:
        raise HubError(403, "This workflow is already running")
    request.site.run_again(run, by=request.app.bot.login)
    return {}


@route("POST", "actions/runs/{}/cancel", "actions:write")
def cancel_run(request: Request, run_id: str) -> Json:
    run = _find_run(request, run_id)
    if not run.is_queued:
        raise HubError(409, "Cannot cancel a workflow run that is completed.")
    request.site.cancel_run(run)
    return {}


@route("GET", "actions/jobs/{}/logs", "actions:read")
def job_log(request: Request, job_id: str) -> Answer:
    job = next((job for run in request.repo.runs for job in run.jobs if job.id == int(job_id)), None)
    if or_404(job).log is None:
        raise HubError(410, "Server Error")
    return _moved(f"logs/jobs/{job_id}")


@route("GET", "actions/runs/{}/attempts/{}/logs", "actions:read")
def attempt_logs(request: Request, run_id: str, attempt: str) -> Answer:
    run = _find_run(request, run_id)
    jobs = [job for job in run.jobs if job.attempt == _attempt(run, attempt)]
    if jobs and all(job.log is None for job in jobs):
        raise HubError(410, "Server Error")
    return _moved(f"logs/runs/{run_id}/{attempt}")


@route("GET", "actions/artifacts", "actions:read")
def list_artifacts(request: Request) -> Json:
    name = request.query.get("name")
    artifacts = [each for each in reversed(request.repo.artifacts) if name in {None, each.name}]

    def show(artifact: Any) -> Json:  # noqa: ANN401 - a FakeArtifact
        return {
            "id": artifact.id,
            "name": artifact.name,
            "size_in_bytes": len(artifact.content),
            "expired": artifact.expired,
            "workflow_run": {"id": artifact.run_id, "head_repository_id": artifact.head_repo_id},
        }

    return {"artifacts": request.page(artifacts, show)}


@route("GET", "actions/artifacts/{}/zip", "actions:read")
def artifact_archive(request: Request, artifact_id: str) -> Answer:
    artifact = or_404(next((each for each in request.repo.artifacts if each.id == int(artifact_id)), None))
    if artifact.expired:
        raise HubError(410, "Artifact has expired")
    return _moved(f"artifacts/{artifact_id}")


def _moved(path: str) -> Answer:
    return Answer(status=302, headers={"location": f"https://storage.invalid/{path}"}, data=None)
