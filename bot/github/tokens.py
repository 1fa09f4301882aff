"""Tokens for git, narrowed to one repository and one purpose."""

from __future__ import annotations

from collections.abc import Mapping

from github import Auth

from bot.github.part import Part


class Tokens(Part):
    """Minting."""

    async def clone_token(self, repo: str) -> str:
        """A token that may read this repository's files and nothing else; a plain token gives itself."""
        return await self._token(repo, {"contents": "read"})

    async def push_token(self, repo: str, *, workflows: bool = False) -> str:
        """A token that may write this repository's files and nothing else; a plain token gives itself.

        Args:
            repo: `owner/name`.
            workflows: whether workflow files are among them, for which the installation must have a permission.
        """
        return await self._token(repo, {"contents": "write", **({"workflows": "write"} if workflows else {})})

    async def may_write_workflows(self) -> bool | None:
        """Whether we may add and change workflow files; None for a plain token, which cannot be asked."""
        app, auth = self._connection.app, self._connection.auth
        if app is None or not isinstance(auth, Auth.AppInstallationAuth):
            return None
        path = f"/app/installations/{auth.installation_id}"
        answer = await self._connection.json("read the App's installation", "GET", path, as_app=True)
        return bool(answer["permissions"].get("workflows") == "write")

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        app, auth = self._connection.app, self._connection.auth
        if app is None or not isinstance(auth, Auth.AppInstallationAuth):
            return auth.token
        path = f"/app/installations/{auth.installation_id}/access_tokens"
        body = {"repositories": [repo.partition("/")[2]], "permissions": dict(permissions)}
        what = f"mint a token for {repo}"
        answer = await self._connection.json(what, "POST", path, body, repeat=True, as_app=True)
        token = str(answer["token"])
        self._minted(token)
        return token
