"""What was done to a thread, and who did it."""

from __future__ import annotations

from localhub import views_history
from localhub.routing import Call, Response, Routes, listed

routes = Routes()
READ = "issues|pull_requests:read"
ONE = "/repos/{owner}/{repo}/issues/{issue_number}"


@routes.on("GET", ONE + "/events", allow=READ)
def events(call: Call) -> Response:
    """What was done to a thread besides talking, oldest first."""
    found = call.site.store.history_of(call.issue())
    return listed(call, found, lambda value: views_history.event(call.site, call.repo, value))


@routes.on("GET", ONE + "/timeline", allow=READ)
def timeline(call: Call) -> Response:
    """The same with the comments and reviews in between."""
    issue, store = call.issue(), call.site.store
    found: list[views_history.Entry] = [*store.history_of(issue), *store.comments_of(issue), *store.reviews_of(issue)]
    found.sort(key=views_history.moment)
    return listed(call, found, lambda value: views_history.timeline_entry(call.site, call.repo, value))
