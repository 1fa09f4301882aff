"""Labels."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from bot.github import parsing
from bot.github.errors import GitHubError
from bot.github.part import ClientPart


class Labels(ClientPart):
    """The labels of a thread and of a repository."""

    async def remove_label(self, repo: str, number: int, name: str) -> None:
        """Take a label off a thread; one that is not on it will do."""
        path = f"/repos/{repo}/issues/{number}/labels/{quote(name, safe='')}"
        try:
            await self._connection.json(f"take a label off {repo}#{number}", "DELETE", path)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def repo_labels(self, repo: str) -> tuple[str, ...]:
        """Names of the labels that a repository has."""
        what, path = f"read the labels of {repo}", f"/repos/{repo}/labels"
        return parsing.label_names([each async for each in self._entries(what, path)])

    async def create_label(self, repo: str, name: str, *, color: str, description: str) -> None:
        """Make a label; one of that name will do as it is.

        Args:
            repo: `owner/name`.
            name: at most 50 characters.
            color: six hexadecimal digits, without `#`.
            description: at most 100 characters.
        """
        body = {"name": name, "color": color, "description": self._redact(description)}
        try:
            await self._connection.json(f"make a label in {repo}", "POST", f"/repos/{repo}/labels", body, repeat=True)
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or "already_exists" not in error.said:
                raise
