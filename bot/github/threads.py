"""Issues and pull requests as threads: their state, their labels, and the repository around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from bot.github import graphql, parsing
from bot.github.connection import GitHubConnection
from bot.github.errors import GitHubError
from bot.github.models import BotIdentity, Snapshot, ThreadFacts
from bot.github.repos import Repos


@dataclass(frozen=True, slots=True)
class Threads:
    """Issues and pull requests, as they are now."""

    connection: GitHubConnection
    repos: Repos

    async def snapshot(self, repo: str, number: int) -> Snapshot:
        """The repository and one of its threads as they are now."""
        owner, _, name = repo.partition("/")
        return await self._snapshot(
            f"read {repo}#{number}", graphql.THREAD, {"owner": owner, "name": name, "number": number}
        )

    async def branch_snapshot(self, repo: str, branch: str) -> Snapshot:
        """The repository and one of its branches as they are now."""
        owner, _, name = repo.partition("/")
        variables = {"owner": owner, "name": name, "ref": f"refs/heads/{branch}"}
        return await self._snapshot(f"read branch {branch} of {repo}", graphql.BRANCH, variables)

    async def get(self, repo: str, number: int) -> ThreadFacts:
        """An issue or pull request as it is now."""
        return parsing.thread(await self.connection.read(f"read {repo}#{number}", f"/repos/{repo}/issues/{number}"))

    async def own_issue(self, repo: str, author: BotIdentity, mark: str) -> int | None:
        """The oldest open issue of ours whose description holds a mark; None where there is none."""
        what, path = f"look for our issues in {repo}", f"/repos/{repo}/issues"
        query = {"creator": author.login, "state": "open", "direction": "asc"}
        async for each in self.connection.entries(what, path, query):
            issue = parsing.thread(each)
            if issue.kind == "issue" and issue.author_id == author.id and mark in issue.body:
                return issue.number
        return None

    async def open_issue(self, repo: str, *, title: str, body: str) -> int:
        """Open an issue. Not repeated on a server error: look with `own_issue` first, then call again."""
        made = {"title": title, "body": body}
        answer = await self.connection.json(f"open an issue in {repo}", "POST", f"/repos/{repo}/issues", made)
        return int(answer["number"])

    async def remove_label(self, repo: str, number: int, name: str) -> None:
        """Take a label off a thread; one that is not on it will do."""
        path = f"/repos/{repo}/issues/{number}/labels/{quote(name, safe='')}"
        try:
            await self.connection.json(f"remove a label from {repo}#{number}", "DELETE", path)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _snapshot(self, what: str, query: str, variables: Mapping[str, Any]) -> Snapshot:
        repo = f"{variables['owner']}/{variables['name']}"
        answer = await self.connection.graphql(what, query, variables, needs="repository", writes=False)
        found = answer["repository"]
        empty = found.get("defaultBranchRef") is None
        return graphql.snapshot(found, default_branch=(await self.repos.get(repo)).default_branch if empty else "")
