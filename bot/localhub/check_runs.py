"""What is told of check runs, and what people can do with a finished one."""

from __future__ import annotations

from bot.localhub import views, views_checks, webhooks
from bot.localhub.errors import HubError
from bot.localhub.model import App, CheckRun, User
from bot.localhub.site import Json, Site, iso


def announce(
    site: Site, run: CheckRun, sender: User, action: str, *, more: Json | None = None, only: App | None = None
) -> None:
    """Send a `check_run` event."""
    repo = site.store.repos[run.repo_id]
    shown = views_checks.check_run(site, repo, run)
    suite: Json = {
        "id": run.suite_id,
        "head_sha": run.head_sha,
        "status": run.status,
        "conclusion": run.conclusion,
        "app": views.integration(site, site.store.apps[run.app_id]),
        "created_at": iso(run.started_at),
        "updated_at": iso(site.now()),
        "pull_requests": shown["pull_requests"],
        "before": None,
        "after": run.head_sha,
        "head_branch": None,
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
