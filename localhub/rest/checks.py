"""Check runs: made by Apps only, one suite for each App and commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from localhub.api.errors import HubError, invalid, not_accessible, not_found, unprocessable
from localhub.api.routing import Call, Response, Routes, listed, wrapped
from localhub.operations import check_runs
from localhub.operations.check_limits import demand_within_limits
from localhub.rest.commits import commit_named
from localhub.state.model import App, CheckRun
from localhub.state.site import Json
from localhub.views import checks as checks_views

routes = Routes()
READ, WRITE = "checks:read", "checks:write"
BASE = "/repos/{owner}/{repo}"
CONCLUSIONS = ("success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required")


def _app(call: Call) -> App:
    if call.viewer.app is None or call.viewer.installation is None:
        raise HubError(403, "You must authenticate via a GitHub App.")
    return call.viewer.app


def _run_of(call: Call) -> CheckRun:
    found = call.site.store.check_runs.get(call.number("check_run_id"))
    if found is None or found.repo_id != call.repo.id:
        raise not_found()
    return found


@routes.on("POST", BASE + "/check-runs", allow=WRITE)
def create_run(call: Call) -> Response:
    """Start a check run on a commit."""
    app, store = _app(call), call.site.store
    sha = commit_named(call, call.text("head_sha", "CheckRun")).sha
    beside = check_runs.suite_at(call.site, call.repo, app, sha)
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
    run = store.check_runs.put(_changed(call, fresh))
    check_runs.announce(call.site, run, call.user, "created")
    if run.status == "completed":
        _tell_completed(call, run)
    shown = checks_views.check_run(call.site, call.repo, run)
    return Response(status=201, body=shown, headers={"Location": shown["url"]})


@routes.on("PATCH", BASE + "/check-runs/{check_run_id}", allow=WRITE)
def update_run(call: Call) -> Response:
    """Change a check run of one's own."""
    app, old = _app(call), _run_of(call)
    if old.app_id != app.id:
        raise not_accessible()
    run = call.site.store.check_runs.put(_changed(call, old))
    if run.status == "completed" and old.status != "completed":
        _tell_completed(call, run)
    return Response(body=checks_views.check_run(call.site, call.repo, run))


def _tell_completed(call: Call, run: CheckRun) -> None:
    check_runs.announce(call.site, run, call.user, "completed")
    suite = check_runs.suite_at(call.site, call.repo, call.site.store.apps[run.app_id], run.head_sha)
    check_runs.announce_suite(call.site, call.repo, suite, call.user)


def _changed(call: Call, run: CheckRun) -> CheckRun:
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


@routes.on("GET", BASE + "/check-runs/{check_run_id}", allow=READ)
def one_run(call: Call) -> Response:
    """One check run."""
    return Response(body=checks_views.check_run(call.site, call.repo, _run_of(call)))


@routes.on("GET", BASE + "/check-runs/{check_run_id}/annotations", allow=READ)
def run_annotations(call: Call) -> Response:
    """What a check run says about lines."""
    # A workflow's job is a check run, too.
    job = call.site.store.workflow_jobs.get(call.number("check_run_id"))
    if job is not None and job.repo_id == call.repo.id:
        head_sha, annotations = call.site.store.workflow_runs[job.run_id].head_sha, job.annotations
    else:
        run = _run_of(call)
        head_sha, annotations = run.head_sha, run.annotations

    def show(given: Mapping[str, Any]) -> Json:
        blob = f"{call.site.html(call.repo.owner, call.repo.name, 'blob', head_sha)}/{given['path']}"
        optional = dict.fromkeys(("start_column", "end_column", "title", "raw_details"))
        return optional | dict(given) | {"blob_href": blob}

    return listed(call, list(annotations), show)


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


@routes.on("GET", BASE + "/check-suites/{check_suite_id}", allow=READ)
def one_suite(call: Call) -> Response:
    """One check suite."""
    return Response(body=checks_views.check_suite(call.site, call.repo, _suite_of(call)))


@routes.on("GET", BASE + "/check-suites/{check_suite_id}/check-runs", allow=READ)
def runs_of_suite(call: Call) -> Response:
    """A suite's check runs."""
    found = _suite_of(call)
    return wrapped(call, "check_runs", found, lambda run: checks_views.check_run(call.site, call.repo, run))


@routes.on("GET", BASE + "/commits/{ref}/check-suites", allow=READ)
def suites_for(call: Call) -> Response:
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


@routes.on("GET", BASE + "/commits/{ref}/check-runs", allow=READ)
def runs_for(call: Call) -> Response:
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
