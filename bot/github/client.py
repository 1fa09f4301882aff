"""The client of GitHub's REST and GraphQL APIs.

Repository, number and branch always come from the job, never from a model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from typing_extensions import override

from bot.github.actions import Actions
from bot.github.app import Tokens
from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.checks import Checks, Runs
from bot.github.connection import (
    SECONDS_BETWEEN_WRITES,
    WAIT_SECONDS,
    AppSession,
    Closeable,
    GitHubConnection,
    InstallationSession,
)
from bot.github.issues import Comments, Pulls, Reviews, Threads
from bot.github.rate_limit import Urgency
from bot.github.repos import Accounts, Commits, Repos


class GitHub(Closeable):
    """A client with one part for each kind of object.

    It deliberately has no method to force-push, tag, delete, merge or approve. Each outgoing text passes `redact`;
    `on_mint` is called with every token before its use.
    """

    def __init__(
        self,
        connection: GitHubConnection,
        *,
        redact: Callable[[str], str],
        on_mint: Callable[[str], None] = lambda _token: None,
    ) -> None:
        self._connection = connection
        self._redact = redact
        self.accounts = Accounts(connection)
        self.repos = Repos(connection, redact)
        self.threads = Threads(connection, self.repos)
        self.pulls = Pulls(connection, redact)
        self.comments = Comments(connection, redact)
        self.reviews = Reviews(connection, redact)
        self.checks = Checks(connection, redact, self.accounts)
        self.runs = Runs(connection)
        self.actions = Actions(connection, redact)
        self.commits = Commits(connection, redact, self.repos)
        self.tokens = Tokens(connection, on_mint)

    @classmethod
    def for_installation(
        cls,
        app_id: int | str,
        private_key: str,
        installation_id: int,
        base_url: str,
        *,
        redact: Callable[[str], str],
        on_mint: Callable[[str], None] = lambda _token: None,
        seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
        session: InstallationSession | None = None,
        before_write: Callable[[], Awaitable[None]] | None = None,
        ca_file: Path | None = None,
    ) -> Self:
        shared = session or AppSession(seconds_between_writes).for_installation(installation_id)
        identity = AppIdentity(app_id, private_key)
        auth = InstallationAuth(app=identity, installation_id=installation_id, tokens=shared.tokens, on_mint=on_mint)
        connection = GitHubConnection(auth, base_url, ca_file=ca_file, session=shared, before_write=before_write)
        return cls(connection, redact=redact, on_mint=on_mint)

    @classmethod
    def for_token(
        cls,
        token: str,
        base_url: str,
        *,
        redact: Callable[[str], str],
        seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
        max_wait_seconds: float = WAIT_SECONDS,
        ca_file: Path | None = None,
    ) -> Self:
        connection = GitHubConnection(
            token,
            base_url,
            ca_file=ca_file,
            max_wait_seconds=max_wait_seconds,
            session=AppSession(seconds_between_writes).for_installation(0),
        )
        return cls(connection, redact=redact)

    def redact_text(self, text: str) -> str:
        return self._redact(text)

    def raise_priority(self, urgency: Urgency) -> None:
        self._connection.urgency = min(self._connection.urgency, urgency)

    @property
    def waiting_writes(self) -> int:
        return self._connection.session.pace.waiting

    async def wait_until_idle(self) -> None:
        await self._connection.session.pace.wait_until_idle()

    @property
    def poll_backoff(self) -> float:
        """Factor by which to stretch polling intervals within GitHub's budget."""
        return self._connection.session.limits.poll_backoff

    @override
    async def close(self) -> None:
        await self._connection.close()

    @override
    def __repr__(self) -> str:
        return "GitHub()"
