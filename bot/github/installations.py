"""Where an App is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from bot.github.app_auth import app_auth
from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An App on an account.

    Attributes:
        id: GitHub's.
        permissions: what the account's owner lets the App do there, `read` or `write` by name: what an App wants anew
            has to be accepted first.
        events: what the App is told of from there.
    """

    id: int
    permissions: Mapping[str, str]
    events: tuple[str, ...]


async def installation_of(repo: str, *, app_id: int, private_key: str, api_url: str) -> Installation | None:
    """The App's installation on a repository; None when it is not installed there, or there is no such repository.

    Args:
        repo: `owner/name`.
        app_id: the App's.
        private_key: the App's, in PEM.
        api_url: GitHub's REST address.

    Raises:
        GitHubError: GitHub did not answer, or does not know the App.
    """
    connection = GitHubConnection(app_auth(app_id, private_key), api_url)
    try:
        found = await connection.json(f"find the App's installation on {repo}", "GET", f"/repos/{repo}/installation")
    except GitHubError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    finally:
        connection.close()
    return Installation(
        id=int(found["id"]), permissions=dict(found["permissions"]), events=tuple(map(str, found.get("events") or ()))
    )
