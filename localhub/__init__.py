"""A GitHub in one process: REST, GraphQL, git over HTTP, signed webhooks and pages. See README.md."""

from __future__ import annotations

try:
    from localhub.hub import LocalHub
    from localhub.operations.accounts import APP_EVENTS, APP_PERMISSIONS
    from localhub.operations.checks import EndedJob
    from localhub.operations.pulls import NewComment, UnplacedError
    from localhub.operations.webhooks import sign
    from localhub.server.dispatch import Exchange, Trouble
    from localhub.state.model import (
        App,
        CheckRun,
        Comment,
        Issue,
        Permissions,
        PullRequestReview,
        Repo,
        ReviewComment,
        ReviewState,
        Role,
        User,
        WebhookDelivery,
        WorkflowRun,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        f"The local hub needs the package {error.name}: install codepilot-bot[hub]", name=__name__
    ) from error

__all__ = [
    "APP_EVENTS",
    "APP_PERMISSIONS",
    "App",
    "CheckRun",
    "Comment",
    "EndedJob",
    "Exchange",
    "Issue",
    "LocalHub",
    "NewComment",
    "Permissions",
    "PullRequestReview",
    "Repo",
    "ReviewComment",
    "ReviewState",
    "Role",
    "Trouble",
    "UnplacedError",
    "User",
    "WebhookDelivery",
    "WorkflowRun",
    "sign",
]
