"""Search."""

from __future__ import annotations

from localhub import searching, views_threads
from localhub.routing import Call, Response, Routes, page_of

routes = Routes()


@routes.on("GET", "/search/issues")
def issues(call: Call) -> Response:
    """Issues and pull requests that fit `q`."""
    found = searching.search(call.site, call.viewer, call.query.get("q", ""))
    if call.query.get("order") == "asc":
        found.reverse()
    some, headers = page_of(call, found)
    repos = call.site.store.repos
    shown = [views_threads.found_issue(call.site, repos[issue.repo_id], issue) for issue in some]
    body = {"total_count": len(found), "incomplete_results": False, "items": shown, "search_type": "lexical"}
    return Response(body=body, headers=headers)
