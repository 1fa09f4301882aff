"""GitHub, as the bot sees it. Repository, number and branch always come from the job, never from a model's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from github import Auth

from bot.github.app_auth import InstallationAuth, app_auth
from bot.github.checks import Checks
from bot.github.connection import SECONDS_BETWEEN_WRITES, WAIT_SECONDS, GitHubConnection
from bot.github.labels import Labels
from bot.github.reviews import Reviews
from bot.github.runs import Runs
from bot.github.session import AppSession, InstallationSession
from bot.github.tokens import Tokens
from bot.github.turns import Turns
from bot.github.words import Comments
from bot.github.work import Publishing


class GitHub(Comments, Reviews, Labels, Checks, Runs, Publishing, Tokens, Turns):
    """The one client: its parts, each in a file of its own, on one connection.

    There is no verb for force pushes, tags, deletions, merges or approvals, and there shall be none.
    """

    @classmethod
    def for_installation(
        cls,
        app_id: int | str,
        private_key: str,
        installation_id: int,
        base_url: str,
        *,
        redact: Callable[[str], str],
        minted: Callable[[str], None] = lambda _token: None,
        seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
        session: InstallationSession | None = None,
    ) -> Self:
        """Act as an App on one installation; its token is minted and renewed as needed, and `minted` told of each.

        Args:
            app_id: the App's id.
            private_key: its key, PEM.
            installation_id: which installation.
            base_url: of the REST API.
            redact: takes secrets out of text.
            minted: told of every token before it is used, whoever had it minted.
            seconds_between_writes: the pause that GitHub asks for; a hub of ours needs none.
            session: shared with the other clients of the installation; it has a pause of its own.
        """
        shared = session or AppSession(seconds_between_writes).of(installation_id)
        auth = InstallationAuth(app_auth(app_id, private_key), installation_id, tokens=shared.tokens, minted=minted)
        connection = GitHubConnection(auth, base_url, session=shared)
        return cls(connection, redact=redact, minted=minted)

    @classmethod
    def for_token(
        cls,
        token: str,
        base_url: str,
        *,
        redact: Callable[[str], str],
        seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
        max_wait_seconds: float = WAIT_SECONDS,
    ) -> Self:
        """Act with a plain token, e.g. a workflow's; `max_wait_seconds` is the longest pause that one call may cost."""
        connection = GitHubConnection(
            Auth.Token(token),
            base_url,
            max_wait_seconds=max_wait_seconds,
            session=AppSession(seconds_between_writes).of(0),
        )
        return cls(connection, redact=redact)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._connection.close)
