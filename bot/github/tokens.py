"""Tokens for git, narrowed to one repository and one purpose; jobs share them while they are good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from bot.github.auth import InstallationAuth
from bot.github.connection import GitHubConnection


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of the installation; `minted` is called with each before it is used."""

    connection: GitHubConnection
    minted: Callable[[str], None] = field(repr=False)

    async def for_clone(self, repo: str) -> str:
        """A token that may read this repository's files and nothing else; a plain token gives itself."""
        return await self._token(repo, {"contents": "read"})

    async def for_push(self, repo: str, *, workflows: bool = False) -> str:
        """A token that may write this repository's files and nothing else; a plain token gives itself.

        Args:
            repo: `owner/name`.
            workflows: whether workflow files are among them, for which the installation must have a permission.
        """
        await self.connection.before_write()
        return await self._token(repo, {"contents": "write", **({"workflows": "write"} if workflows else {})})

    def forget(self, repo: str) -> None:
        """Mint new ones the next time: git could not be served with those that there are."""
        if isinstance(self.connection.auth, InstallationAuth):
            self.connection.auth.tokens.forget(repo)

    async def may_write_workflows(self) -> bool | None:
        """Whether we may add and change workflow files; None for a plain token, which cannot be asked."""
        app, auth = self.connection.app, self.connection.auth
        if app is None or not isinstance(auth, InstallationAuth):
            return None
        path = f"/app/installations/{auth.installation_id}"
        answer = await self.connection.json("read the App's installation", "GET", path, as_app=True)
        return bool(answer["permissions"].get("workflows") == "write")

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        auth = self.connection.auth
        if not isinstance(auth, InstallationAuth):
            return auth.token
        scope = (repo, *(f"{name}: {level}" for name, level in sorted(permissions.items())))
        get = partial(auth.tokens.get, scope, partial(auth.mint, repo, permissions))
        token = await self.connection.call(f"create a token for {repo}", get)
        self.minted(token)
        return token
