"""A GitHub in one process, for the demo and the tests: REST, GraphQL, git over HTTP, signed webhooks and pages."""

from __future__ import annotations

from bot.localhub.hub import LocalHub
from bot.localhub.model import App, CheckRun, Comment, Delivery, Issue, Repo, Review, ReviewComment, User
from bot.localhub.model_actions import WorkflowRun
from bot.localhub.reviews import NewComment
from bot.localhub.workflows import EndedJob

__all__ = [
    "App",
    "CheckRun",
    "Comment",
    "Delivery",
    "EndedJob",
    "Issue",
    "LocalHub",
    "NewComment",
    "Repo",
    "Review",
    "ReviewComment",
    "User",
    "WorkflowRun",
]
