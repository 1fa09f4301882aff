"""Permissions and events of the bot's GitHub App, and the effect of each missing one, as data. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Weight = Literal["needed", "wanted", "optional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPermission:
    """One permission of an App.

    Attributes:
        name: GitHub's, in its API.
        shown: GitHub's, on the App's page.
        level: the least that will do.
        weight: `needed` to work at all, `wanted` for what the documents promise, `optional` for what few want.
        without: what becomes of the bot without it; a clause.
    """

    name: str
    shown: str
    level: Literal["read", "write"]
    weight: Weight
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppEvent:
    """One kind of event that an App subscribes to.

    Attributes:
        name: GitHub's, in its API.
        shown: GitHub's, on the App's page.
        weight: as for a permission.
        without: what goes unheard; a clause.
    """

    name: str
    shown: str
    weight: Weight
    without: str


PERMISSIONS = (
    AppPermission(
        name="contents",
        shown="Contents",
        level="write",
        weight="needed",
        without="the bot can neither read code nor commit",
    ),
    AppPermission(
        name="issues",
        shown="Issues",
        level="write",
        weight="needed",
        without="the bot cannot answer",
    ),
    AppPermission(
        name="pull_requests",
        shown="Pull requests",
        level="write",
        weight="needed",
        without="the bot can open no pull request and make no review",
    ),
    AppPermission(
        name="metadata",
        shown="Metadata",
        level="read",
        weight="needed",
        without="the bot cannot ask who may command it",
    ),
    AppPermission(
        name="checks",
        shown="Checks",
        level="write",
        weight="wanted",
        without="jobs have no check run, so no buttons or annotations, and `fix` is not told what is red",
    ),
    AppPermission(
        name="actions",
        shown="Actions",
        level="read",
        weight="wanted",
        without="no work starts when a workflow fails, for the bot cannot see whether the base branch fails, too",
    ),
    AppPermission(
        name="statuses",
        shown="Commit statuses",
        level="read",
        weight="wanted",
        without="`fix` is not told what is red",
    ),
    AppPermission(
        name="workflows",
        shown="Workflows",
        level="write",
        weight="optional",
        without="a change to `.github/workflows` cannot be published, even one that a person approved",
    ),
)
"""https://docs.github.com/en/rest/authentication/permissions-required-for-github-apps"""

EVENTS = (
    AppEvent(
        name="check_run",
        shown="Check run",
        weight="wanted",
        without="buttons of check runs do nothing, and a failed check of another App starts no fix",
    ),
    AppEvent(
        name="check_suite",
        shown="Check suite",
        weight="wanted",
        without="failed checks of other Apps than GitHub Actions start no fix where these report whole suites only",
    ),
    AppEvent(
        name="issue_comment",
        shown="Issue comment",
        weight="needed",
        without="commands in comments are not heard",
    ),
    AppEvent(
        name="issues",
        shown="Issues",
        weight="wanted",
        without="labels and assignment of issues start nothing, and jobs go on in closed ones",
    ),
    AppEvent(
        name="pull_request",
        shown="Pull request",
        weight="wanted",
        without="labels of pull requests start nothing, pushes void no approval at once, and jobs go on in closed ones",
    ),
    AppEvent(
        name="pull_request_review",
        shown="Pull request review",
        weight="wanted",
        without="commands in reviews are not heard",
    ),
    AppEvent(
        name="pull_request_review_comment",
        shown="Pull request review comment",
        weight="wanted",
        without="commands in comments on lines are not heard",
    ),
    AppEvent(
        name="repository",
        shown="Repository",
        weight="wanted",
        without="jobs of a deleted repository go on until they fail",
    ),
    AppEvent(
        name="workflow_run",
        shown="Workflow run",
        weight="wanted",
        without="a failed workflow starts no fix",
    ),
)
"""`installation` and `installation_repositories` are sent to every App unasked:
https://docs.github.com/en/webhooks/webhook-events-and-payloads"""


def lacking(permissions: Mapping[str, str], events: Collection[str] | None) -> tuple[AppPermission | AppEvent, ...]:
    """What is not there, in the order of the tables.

    Args:
        permissions: what an App or an installation has, level by name.
        events: what it is told of; None leaves them out.
    """
    return (
        *(each for each in PERMISSIONS if permissions.get(each.name) not in {each.level, "write", "admin"}),
        *(each for each in EVENTS if events is not None and each.name not in events),
    )


def words(each: AppPermission | AppEvent) -> str:
    """It, as it is found on the App's page: `Checks: read and write`, or `event Check run`."""
    if isinstance(each, AppEvent):
        return f"event {each.shown}"
    return f"{each.shown}: {'read and write' if each.level == 'write' else 'read-only'}"
