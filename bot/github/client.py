"""The client of GitHub's REST and GraphQL APIs: one part for each kind of thing, all on one connection.

Repository, number and branch always come from the job, never from a model's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from bot.github.app import Tokens
from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.checks import Checks, Runs
from bot.github.connection import (
    SECONDS_BETWEEN_WRITES,
    WAIT_SECONDS,
    AppSession,
    GitHubConnection,
    InstallationSession,
)
from bot.github.issues import Comments, Pulls, Reviews, Threads
from bot.github.rate_limit import Urgency
from bot.github.repos import Accounts, Commits, Repos


class GitHub:
    """The one client: a part for each kind of thing, all on one connection.

    There is no verb for force pushes, tags, deletions, merges or approvals, and there shall be none.

    Args:
        connection: how to reach GitHub.
        redact: takes secrets out of text; every text that goes out passes it, no matter who wrote it.
        minted: called with every token before it is used.

    Attributes:
        accounts: who people are, and what they may do; and who we are.
        repos: repositories, their files and branches.
        threads: issues and pull requests as threads.
        pulls: pull requests as such.
        comments: comments and reactions.
        reviews: reviews, and comments on lines.
        checks: check runs and commit statuses.
        runs: workflow runs.
        commits: the bot's commits.
        tokens: for git.
    """

    def __init__(
        self,
        connection: GitHubConnection,
        *,
        redact: Callable[[str], str],
        minted: Callable[[str], None] = lambda _token: None,
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
        self.commits = Commits(connection, redact, self.repos)
        self.tokens = Tokens(connection, minted)

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
        before_write: Callable[[], Awaitable[None]] | None = None,
        ca_file: Path | None = None,
    ) -> Self:
        """Act as an App on one installation; its token is renewed as needed, and `minted` is called with each.

        Args:
            app_id: the App's id.
            private_key: its key, PEM.
            installation_id: which installation.
            base_url: of the REST API.
            redact: takes secrets out of text.
            minted: called with every token before it is used, no matter who requested it.
            seconds_between_writes: the pause that GitHub asks for; a hub of ours needs none.
            session: shared with the other clients of the installation; it has a pause of its own.
            before_write: see `GitHubConnection`.
            ca_file: see `GitHubConnection`.
        """
        shared = session or AppSession(seconds_between_writes).of(installation_id)
        identity = AppIdentity(app_id, private_key)
        auth = InstallationAuth(app=identity, installation_id=installation_id, tokens=shared.tokens, minted=minted)
        connection = GitHubConnection(auth, base_url, ca_file=ca_file, session=shared, before_write=before_write)
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
        ca_file: Path | None = None,
    ) -> Self:
        """Act with a plain token, e.g. a workflow's; `max_wait_seconds` is the longest pause that one call may cost."""
        connection = GitHubConnection(
            token,
            base_url,
            ca_file=ca_file,
            max_wait_seconds=max_wait_seconds,
            session=AppSession(seconds_between_writes).of(0),
        )
        return cls(connection, redact=redact)

    def redacted(self, text: str) -> str:
        """The text as it would go out, for what leaves by another way (a pushed commit's message)."""
        return self._redact(text)

    def hurry(self, urgency: Urgency) -> None:
        """Be at least this urgent from now on."""
        self._connection.urgency = min(self._connection.urgency, urgency)

    @property
    def waiting(self) -> int:
        """How many writes of the installation wait for their turn."""
        return self._connection.session.pace.waiting

    async def lull(self) -> None:
        """Wait until nobody else has anything to write."""
        await self._connection.session.pace.lull()

    @property
    def spread(self) -> float:
        """How many times rarer than usual requests that can wait should be, for the hour's budget to last."""
        return self._connection.session.limits.spread

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    @override
    def __repr__(self) -> str:
        return "GitHub()"
