"""Events of check runs, and the actions on a finished one."""

from __future__ import annotations

from dataclasses import dataclass

from localhub.api.errors import HubError
from localhub.git import plumbing as git
from localhub.operations import webhooks
from localhub.state.model import App, CheckRun, Repo, User
from localhub.state.site import Json, Site, iso, node_id
from localhub.state.workflows import WorkflowRun
from localhub.views import accounts as account_views
from localhub.views import checks as checks_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views

ACTIONS = "github-actions"
"""The App that GitHub's own workflow runs are check suites of."""
_ACTIONS_ID = 15368


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCheck:
    """What is said of a check run of another App; see `LocalHub.check`."""

    app: App
    head_sha: str
    name: str
    conclusion: str
    summary: str


def end(site: Site, repo: Repo, ended: EndedCheck) -> CheckRun:
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
    announce(site, run, ended.app.bot, "completed")
    announce_suite(site, repo, [*beside, run], ended.app.bot)
    return run


def suite_at(site: Site, repo: Repo, app: App, sha: str) -> list[CheckRun]:
    """The check runs of an App's suite for a commit."""
    place = (repo.id, app.id, sha)
    return [run for run in site.store.check_runs if (run.repo_id, run.app_id, run.head_sha) == place]


def announce_suite(site: Site, repo: Repo, runs: list[CheckRun], sender: User) -> None:
    """Send a `check_suite` event, once all of its check runs have ended."""
    suite = checks_views.check_suite(site, repo, runs)
    if suite["status"] == "completed":
        # An event's suite is without the repository, which is beside it.
        told = {name: value for name, value in suite.items() if name != "repository"}
        webhooks.emit(site, "check_suite", repo, sender, {"action": "completed", "check_suite": told})


def announce_actions(site: Site, repo: Repo, run: WorkflowRun) -> None:
    """Send the `check_suite` event that GitHub sends beside the `workflow_run` of each run that has ended."""
    sender, when = site.store.users[run.triggering_actor_id], iso(site.now())
    url = site.api("repos", repo.owner, repo.name, "check-suites", run.suite_id)
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
        "app": actions_app(site),
        "created_at": iso(run.created_at),
        "updated_at": when,
        "head_commit": git_views.simple_commit(head),
        "latest_check_runs_count": len([job for job in site.store.workflow_jobs if job.run_id == run.id]),
        "check_runs_url": f"{url}/check-runs",
    }
    webhooks.emit(site, "check_suite", repo, sender, {"action": "completed", "check_suite": suite})


def actions_app(site: Site) -> Json:
    """GitHub Actions, as an App."""
    github = site.store.user("github")
    return {
        "id": _ACTIONS_ID,
        "slug": ACTIONS,
        "node_id": node_id("App", _ACTIONS_ID),
        "client_id": "Iv1.05c79e9ad1f6bdfa",
        "owner": None if github is None else account_views.simple_user(site, github),
        "name": "GitHub Actions",
        "description": "Automate your workflow from idea to production",
        "external_url": "https://help.github.com/en/actions",
        "html_url": site.html("apps", ACTIONS),
        "created_at": "2018-07-30T09:30:17Z",
        "updated_at": "2019-12-10T19:04:12Z",
        "permissions": {"actions": "write", "checks": "write", "contents": "write", "metadata": "read"},
        "events": ["workflow_dispatch"],
    }


def announce(
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


def press(site: Site, run: CheckRun, sender: User, identifier: str) -> None:
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
    announce(site, run, sender, "requested_action", more=more, only=site.store.apps[run.app_id])


def rerun(site: Site, run: CheckRun, sender: User) -> None:
    """Ask a check run's App to run it again; the run itself stays as it is (docs: "Rerequest a check run").

    Raises:
        HubError: 422, it is not completed.
    """
    if run.status != "completed":
        raise HubError(422, f"{run.name} is {run.status}; only a completed check run can be run again.")
    announce(site, run, sender, "rerequested", only=site.store.apps[run.app_id])
