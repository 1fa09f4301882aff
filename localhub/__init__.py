"""A GitHub in one process, for the demo and the tests: REST, GraphQL, git over HTTP, signed webhooks and pages."""

from __future__ import annotations

from localhub.hub import LocalHub
from localhub.model import App, CheckRun, Comment, Issue, Repo, Review, ReviewComment, User, WebhookDelivery
from localhub.model_actions import WorkflowRun
from localhub.reviews import NewComment
from localhub.workflows import EndedJob

__all__ = [
    "App",
    "CheckRun",
    "Comment",
    "EndedJob",
    "Issue",
    "LocalHub",
    "NewComment",
    "Repo",
    "Review",
    "ReviewComment",
    "User",
    "WebhookDelivery",
    "WorkflowRun",
]
