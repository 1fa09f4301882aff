"""Search."""

from __future__ import annotations

from localhub.api.routing import Call, Response, Routes, page_of
from localhub.operations import search
from localhub.views import threads as threads_views

routes = Routes()


@routes.on("GET", "/search/issues")
def issues(call: Call) -> Response:
    """Issues and pull requests that fit `q`."""
    found = search.search(call.site, call.viewer, call.query.get("q", ""))
    if call.query.get("order") == "asc":
        found.reverse()
    some, headers = page_of(call, found)
    repos = call.site.store.repos
    shown = [threads_views.found_issue(call.site, repos[issue.repo_id], issue) for issue in some]
    body = {"total_count": len(found), "incomplete_results": False, "items": shown, "search_type": "lexical"}
    return Response(body=body, headers=headers)
