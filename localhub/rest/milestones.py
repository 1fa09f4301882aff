"""Milestones of a repository; a thread is put under one by `PATCH …/issues/{issue_number}`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from localhub.api.auth import invalid, or_404
from localhub.api.routing import Call, Response, Routes, listed, moment_of
from localhub.operations import threads, webhooks
from localhub.state.model import Milestone
from localhub.views import accounts as account_views

routes = Routes()
READ, WRITE = "issues|pull_requests:read", "issues|pull_requests:write"
MILESTONES = "/repos/{owner}/{repo}/milestones"
MILESTONE = MILESTONES + "/{milestone_number}"
TAKES = "description due_on state title"


@routes.on("GET", MILESTONES, allow=READ, takes="direction sort state")
def list_milestones(call: Call) -> Response:
    """The milestones, those due first first; those without a date come first."""
    state = call.query.get("state", "open")
    found = [each for each in call.site.store.milestones_of(call.repo) if state in {"all", each.state}]
    newest_first = call.query.get("direction") == "desc"
    found.sort(key=lambda entry: (entry.due_on is not None, entry.due_on or entry.created_at), reverse=newest_first)
    return listed(call, found, lambda value: account_views.milestone(call.site, call.repo, value))


@routes.on("POST", MILESTONES, allow=WRITE, takes=TAKES)
def create_milestone(call: Call) -> Response:
    """Add a milestone."""
    title = call.text("title", "Milestone")
    _demand_free(call, title)
    return _save(call, threads.add_milestone(call.site, call.repo, call.user, title), "created")


@routes.on("GET", MILESTONE, allow=READ)
def one_milestone(call: Call) -> Response:
    """One milestone."""
    return Response(body=account_views.milestone(call.site, call.repo, milestone_numbered(call)))


@routes.on("PATCH", MILESTONE, allow=WRITE, takes=TAKES)
def edit_milestone(call: Call) -> Response:
    """Change a milestone."""
    return _save(call, milestone_numbered(call), "edited")


@routes.on("DELETE", MILESTONE, allow=WRITE)
def delete_milestone(call: Call) -> Response:
    """Remove a milestone; its threads stay."""
    gone = milestone_numbered(call)
    for issue in [issue for issue in call.site.store.issues if issue.milestone_id == gone.id]:
        threads.set_milestone(call.site, issue, call.user, None)
    call.site.store.milestones.remove(gone.id)
    _announce(call, gone, "deleted")
    return Response(status=204)


def milestone_numbered(call: Call) -> Milestone:
    """The milestone that the path names.

    Raises:
        HubError: 404, there is none.
    """
    number = call.number("milestone_number")
    return or_404(next((each for each in call.site.store.milestones_of(call.repo) if each.number == number), None))


def _demand_free(call: Call, title: str) -> None:
    if any(each.title == title for each in call.site.store.milestones_of(call.repo)):
        raise invalid("Milestone", "title", "already_exists")


def _save(call: Call, old: Milestone, action: str) -> Response:
    state, now = call.text("state", "Milestone", old.state), call.site.now()
    if state not in {"open", "closed"}:
        raise invalid("Milestone", "state", "invalid")
    title = call.text("title", "Milestone", old.title)
    if title != old.title:
        _demand_free(call, title)
    due: datetime | None = old.due_on
    if "due_on" in call.body:
        due = moment_of(call.body["due_on"], "due_on") if call.body["due_on"] else None
    new = replace(
        old,
        title=title,
        description=call.optional_text("description", "Milestone") if "description" in call.body else old.description,
        state="closed" if state == "closed" else "open",
        due_on=due,
        updated_at=now,
        closed_at=(old.closed_at or now) if state == "closed" else None,
    )
    call.site.store.milestones.put(new)
    if new.state != old.state:
        _announce(call, new, "closed" if state == "closed" else "opened")
    else:
        _announce(call, new, action)
    shown = account_views.milestone(call.site, call.repo, new)
    return Response(status=201 if action == "created" else 200, body=shown)


def _announce(call: Call, value: Milestone, action: str) -> None:
    payload = {"action": action, "milestone": account_views.milestone(call.site, call.repo, value)}
    if action == "edited":
        payload["changes"] = {}
    webhooks.emit(call.site, "milestone", call.repo, call.user, payload)
