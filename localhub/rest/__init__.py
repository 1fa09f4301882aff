"""The REST resources, one a module; this is the whole table of routes, in the order in which they are tried."""

from __future__ import annotations

from localhub.api.routing import Route
from localhub.rest import (
    actions,
    apps,
    checks,
    commits,
    contents,
    git_data,
    history,
    issues,
    pulls,
    reactions,
    releases,
    repos,
    reviews,
    search,
    users,
)

TABLES = (
    users.routes,
    search.routes,
    apps.routes,
    reactions.routes,
    issues.routes,
    history.routes,
    reviews.routes,
    pulls.routes,
    checks.routes,
    actions.routes,
    commits.routes,
    git_data.routes,
    contents.routes,
    releases.routes,
    repos.routes,
)


def all_routes() -> list[Route]:
    """Every route; a template with a greedy placeholder comes after those that it would swallow."""
    return [route for table in TABLES for route in table.all]
