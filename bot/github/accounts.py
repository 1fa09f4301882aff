"""Accounts, their roles in a repository, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, get_args
from urllib.parse import quote

from bot.domain.access import Role
from bot.github import parsing
from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError
from bot.github.models import Account, BotIdentity

# The account behind the token that GitHub gives a workflow: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts, as GitHub knows them now."""

    connection: GitHubConnection

    async def me(self) -> BotIdentity:
        """Whom GitHub takes us for; asked once, as it is the same for every job."""
        app = self.connection.session.app
        if app.identity is not None:
            return app.identity
        app_id = None
        if self.connection.app is not None:
            answer = await self.connection.json("read the App", "GET", "/app", as_app=True)
            login, app_id = f"{answer['slug']}[bot]", int(answer["id"])
        else:
            try:
                app.identity = parsing.identity(await self.connection.read("read our own account", "/user"))
            except GitHubError as error:
                if error.status != HTTPStatus.FORBIDDEN:  # a workflow's token has no account to read
                    raise
                login = _ACTIONS_LOGIN
            else:
                return app.identity
        answer = await self.connection.read(f"read the account {login}", f"/users/{quote(login, safe='')}")
        app.identity = parsing.identity(answer, app_id=app_id)
        return app.identity

    async def get(self, account_id: int) -> Account | None:
        """An account by its numeric id, which survives renames; None when it is gone."""
        answer = await self.connection.find(f"read account {account_id}", f"/user/{account_id}")
        return None if answer is None else parsing.account(answer)

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        """A person's role in a repository; GitHub is asked by name, and a name can change hands.

        Args:
            repo: `owner/name`.
            account_id: who is meant.
            login: their name when they asked; where it is somebody else's now, their new one is looked up.

        Raises:
            GitHubError: it could not be found out; the caller must take that for a no.
        """
        answer = await self._permission(repo, login)
        if answer is not None and parsing.account_id(answer) == account_id:
            return parsing.role(answer, get_args(Role))
        account = await self.get(account_id)
        if account is None or account.login == login:
            return "none"
        answer = await self._permission(repo, account.login)
        if answer is None or parsing.account_id(answer) != account_id:
            return "none"
        return parsing.role(answer, get_args(Role))

    async def _permission(self, repo: str, login: str) -> Mapping[str, Any] | None:
        path = f"/repos/{repo}/collaborators/{quote(login, safe='')}/permission"
        answer = await self.connection.find(f"read the permission of {login} on {repo}", path)
        return None if answer is None else dict(answer)
