"""Sign people in by the App, and find out which repositories they may see.

https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/generating-a-user-access-token-for-a-github-app
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from github import Auth

from bot.github.auth import Anonymous
from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError, unreadable

CALLBACK_PATH = "/dashboard/github/back"
"""Where GitHub sends people back to, whom it has signed in: the path of the App's callback URL."""
MOST_REPOSITORIES = 5_000
"""Of a person who can reach more, the others are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The App as it signs people in.

    Attributes:
        client_id: the App's.
        client_secret: the App's.
        server_url: GitHub's address for people.
        api_url: its REST address.
        ca_file: see `GitHubConnection`.
    """

    client_id: str
    client_secret: str
    server_url: str
    api_url: str
    ca_file: Path | None = None

    async def exchange(self, code: str, verifier: str) -> str:
        """Exchange the code that GitHub sent a person back with for their token.

        Args:
            code: what GitHub sent; it works once.
            verifier: what the challenge was made from that the person was sent to GitHub with.

        Raises:
            GitHubError: GitHub did not answer, or does not take the code.
        """
        what = "exchange the code of a sign-in"
        body = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "code": code,
            "code_verifier": verifier,
        }
        async with _connected(Anonymous(), self.server_url, self.ca_file) as connection:
            found = await connection.json(
                what, "POST", "/login/oauth/access_token", body, accept="application/json", repeat=False
            )
        token = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            # GitHub answers 200 whatever went wrong; the description may repeat what it was sent.
            raise unreadable(what, HTTPStatus.OK, "no token; was the code used before, or the client secret changed?")
        return token

    async def login(self, token: str) -> str:
        """The login of the person whose token it is.

        Raises:
            GitHubError: GitHub did not answer, or refuses the token.
        """
        async with _connected(Auth.Token(token), self.api_url, self.ca_file) as connection:
            return str((await connection.read("see who signs in", "/user"))["login"])

    async def repositories(self, token: str) -> frozenset[int] | None:
        """The ids of the repositories that a person can reach and the App is installed on; None for a token that ended.

        Raises:
            GitHubError: GitHub did not answer.
        """
        found = set[int]()
        async with _connected(Auth.Token(token), self.api_url, self.ca_file) as connection:
            try:
                async for each in connection.entries(
                    "list a person's installations", "/user/installations", within="installations"
                ):
                    path = f"/user/installations/{int(each['id'])}/repositories"
                    listed = connection.entries("list a person's repositories", path, within="repositories")
                    try:
                        async for repo in listed:
                            found.add(int(repo["id"]))
                            if len(found) >= MOST_REPOSITORIES:
                                return frozenset(found)
                    except GitHubError as error:
                        # Suspended, or removed meanwhile: its repositories are not known, those of the others are.
                        if error.limited or error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                            raise
            except GitHubError as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    return None
                raise
        return frozenset(found)


@asynccontextmanager
async def _connected(auth: Auth.Auth, url: str, ca_file: Path | None) -> AsyncIterator[GitHubConnection]:
    with closing(GitHubConnection(auth, url, ca_file=ca_file)) as connection:
        yield connection
