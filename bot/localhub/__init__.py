"""A GitHub in one process, for the demo and the tests: REST, GraphQL, git over HTTP, signed webhooks and pages."""

from __future__ import annotations

from bot.localhub.hub import LocalHub
from bot.localhub.model import App, CheckRun, Comment, Delivery, Issue, Repo, User

__all__ = ["App", "CheckRun", "Comment", "Delivery", "Issue", "LocalHub", "Repo", "User"]
