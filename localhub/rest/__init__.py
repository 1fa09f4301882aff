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

MODULES = (
    users,
    search,
    apps,
    reactions,
    issues,
    history,
    reviews,
    pulls,
    checks,
    actions,
    commits,
    git_data,
    contents,
    releases,
    repos,
)


def all_routes() -> list[Route]:
    """Every route; a template with a greedy placeholder comes after those that it would swallow."""
    return [route for module in MODULES for route in module.routes.all]
