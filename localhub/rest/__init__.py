"""The REST resources, one a module; this is the whole table of routes, in the order in which they are tried."""

from __future__ import annotations

from localhub.api.routing import Route
from localhub.rest import checks, commits, issues, pulls, repos, users

TABLES = (
    users.routes,
    issues.routes_search,
    users.routes_apps,
    issues.routes_reactions,
    issues.routes,
    issues.routes_history,
    pulls.routes_reviews,
    pulls.routes,
    checks.routes,
    checks.routes_actions,
    commits.routes,
    commits.routes_git_data,
    commits.routes_contents,
    repos.routes_releases,
    repos.routes,
)


def all_routes() -> list[Route]:
    """Every route; a template with a greedy placeholder comes after those that it would swallow."""
    return [route for table in TABLES for route in table.all]
