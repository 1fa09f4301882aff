"""The history of a thread: each action with its actor."""

from __future__ import annotations

from localhub.api.routing import Call, Response, Routes, listed
from localhub.views import history as history_views

routes = Routes()
READ = "issues|pull_requests:read"
ONE = "/repos/{owner}/{repo}/issues/{issue_number}"


@routes.on("GET", ONE + "/events", allow=READ)
def events(call: Call) -> Response:
    """What was done to a thread besides talking, oldest first."""
    found = call.site.store.history_of(call.issue())
    return listed(call, found, lambda value: history_views.event(call.site, call.repo, value))


@routes.on("GET", ONE + "/timeline", allow=READ)
def timeline(call: Call) -> Response:
    """The same with the comments and reviews in between."""
    issue, store = call.issue(), call.site.store
    found: list[history_views.Entry] = [*store.history_of(issue), *store.comments_of(issue), *store.reviews_of(issue)]
    found.sort(key=history_views.moment)
    return listed(call, found, lambda value: history_views.timeline_entry(call.site, call.repo, value))
