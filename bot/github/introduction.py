"""Who we are in GitHub's eyes, and what its clock says; for `codepilot doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from github import GithubException
from jwt.exceptions import InvalidKeyError

from bot.github.app_auth import app_auth
from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What GitHub answered.

    Attributes:
        slug: the App's name in addresses; empty when GitHub did not accept us.
        permissions: what the App may do, `read` or `write` by name.
        events: what it is told of.
        clock: GitHub's time when it answered; None when no answer came.
        refused: why GitHub did not accept us; empty when it did.
    """

    slug: str = ""
    permissions: Mapping[str, str]
    events: tuple[str, ...] = ()
    clock: datetime | None
    refused: str = ""


async def introduce_app(app_id: int, private_key: str, api_url: str) -> Introduction:
    """Sign in as the App itself (`GET /app`)."""
    auth = app_auth(app_id, private_key)
    try:
        auth.create_jwt()
    except InvalidKeyError as error:
        return Introduction(permissions={}, clock=None, refused=f"the private key cannot be used: {error}")
    connection = GitHubConnection(auth, api_url)
    try:
        headers, app = await connection.answered("sign in as the App", "GET", "/app")
    except GitHubError as error:
        said = error.__cause__
        answered = said.headers if isinstance(said, GithubException) else None
        return Introduction(permissions={}, clock=_clock(answered or {}), refused=str(error))
    finally:
        connection.close()
    return Introduction(
        slug=str(app.get("slug") or app.get("name")),
        permissions={str(name): str(level) for name, level in (app.get("permissions") or {}).items()},
        events=tuple(map(str, app.get("events") or ())),
        clock=_clock(headers),
    )


def _clock(headers: Mapping[str, str]) -> datetime | None:
    written = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(written)
    except ValueError:
        return None
