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
        without="the bot cannot comment",
    ),
    AppPermission(
        name="pull_requests",
        shown="Pull requests",
        level="write",
        weight="needed",
        without="the bot cannot open pull requests or create reviews",
    ),
    AppPermission(
        name="metadata",
        shown="Metadata",
        level="read",
        weight="needed",
        without="the bot cannot check who may give commands",
    ),
    AppPermission(
        name="checks",
        shown="Checks",
        level="write",
        weight="wanted",
        without="jobs have no check run, so no buttons or annotations, and `fix` does not see failed checks",
    ),
    AppPermission(
        name="actions",
        shown="Actions",
        level="read",
        weight="wanted",
        without="failed workflows start no job, because the bot cannot see whether the base branch fails, too",
    ),
    AppPermission(
        name="statuses",
        shown="Commit statuses",
        level="read",
        weight="wanted",
        without="`fix` does not see failed statuses",
    ),
    AppPermission(
        name="workflows",
        shown="Workflows",
        level="write",
        weight="optional",
        without="changes to `.github/workflows` cannot be published, even if a person approved them",
    ),
)
"""https://docs.github.com/en/rest/authentication/permissions-required-for-github-apps"""

EVENTS = (
    AppEvent(
        name="check_run",
        shown="Check run",
        weight="wanted",
        without="buttons of check runs have no effect, and a failed check of another App starts no fix",
    ),
    AppEvent(
        name="check_suite",
        shown="Check suite",
        weight="wanted",
        without="failed checks of other Apps start no fix if these Apps report only whole suites",
    ),
    AppEvent(
        name="issue_comment",
        shown="Issue comment",
        weight="needed",
        without="commands in comments have no effect",
    ),
    AppEvent(
        name="issues",
        shown="Issues",
        weight="wanted",
        without="labels and assignments of issues start nothing, and jobs continue in closed issues",
    ),
    AppEvent(
        name="pull_request",
        shown="Pull request",
        weight="wanted",
        without="labels of pull requests start nothing, a push does not invalidate approvals immediately, and jobs "
        "continue in closed ones",
    ),
    AppEvent(
        name="pull_request_review",
        shown="Pull request review",
        weight="wanted",
        without="commands in reviews have no effect",
    ),
    AppEvent(
        name="pull_request_review_comment",
        shown="Pull request review comment",
        weight="wanted",
        without="commands in comments on lines have no effect",
    ),
    AppEvent(
        name="repository",
        shown="Repository",
        weight="wanted",
        without="jobs of a deleted repository continue until they fail",
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
        events: the events that it receives; None to omit them.
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
