"""The REST API: a module for each group of GitHub's resources, with its table of routes."""

from __future__ import annotations

from localhub.api.routing import Route
from localhub.rest import accounts, checks, commits, issues, milestones, planning, pulls, repos


def all_routes() -> list[Route]:
    """Every route, in the order of trial: a template with a greedy placeholder such as `{ref}` comes last."""
    modules = (accounts, issues, milestones, planning, pulls, checks, commits, repos)
    return [route for module in modules for route in module.routes.all]
