"""Pull requests: finding and opening them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from bot.github import parsing
from bot.github.connection import GitHubConnection
from bot.github.drafts import PullDraft
from bot.github.errors import GitHubError
from bot.github.models import PullFacts, PullLink


@dataclass(frozen=True, slots=True)
class Pulls:
    """Pull requests. There is no verb that merges or closes one, and there shall be none."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str, number: int) -> PullFacts:
        """A pull request's two ends as they are now."""
        return parsing.pull(
            await self.connection.read(f"read pull request {repo}#{number}", f"/repos/{repo}/pulls/{number}")
        )

    async def open_from(self, repo: str, branch: str, *, base: str = "") -> tuple[PullFacts, ...]:
        """The open pull requests from a branch of the repository itself, into `base` where that is given."""
        query = {"head": f"{repo.partition('/')[0]}:{branch}", "state": "open"} | ({"base": base} if base else {})
        what = f"look for pull requests from {branch} in {repo}"
        return tuple(map(parsing.pull, await self.connection.read(what, f"/repos/{repo}/pulls", query)))

    async def own_into(self, repo: str, base: str, prefix: str, *, author_id: int) -> str:
        """The page of an open pull request of this author from a branch here that begins with `prefix`; or empty."""
        path, query = f"/repos/{repo}/pulls", {"state": "open", "base": base}
        async for each in self.connection.entries(f"read the pull requests of {repo}", path, query):
            pull = parsing.pull(each)
            if pull.author_id == author_id and not pull.from_fork and pull.head_ref.startswith(prefix):
                return pull.html_url
        return ""

    async def of_fork(self, repo: str, *, fork: str, fork_id: int, branch: str, sha: str) -> int | None:
        """The number of the one open pull request whose head is a fork's commit; None where there is not exactly one.

        GitHub names no pull requests of forks in its events. The branch's name only narrows the search: the fork's
        number and the commit decide.
        """
        query = {"state": "open", "head": f"{fork.partition('/')[0]}:{branch}"}
        found = await self.connection.read(
            f"look for a pull request of {fork} in {repo}", f"/repos/{repo}/pulls", query
        )
        pulls = map(parsing.pull, found)
        numbers = [each.number for each in pulls if (each.head_repo_id, each.head_sha) == (fork_id, sha)]
        return numbers[0] if len(numbers) == 1 else None

    async def create(self, repo: str, pull: PullDraft, *, head: str) -> PullLink:
        """Open a pull request from a branch of the same repository, or find the one that is open already."""
        data = {"head": head, "base": pull.base, **pull.said(self.redact)}
        what = f"open a pull request from {head} in {repo}"
        try:
            return parsing.pull_link(
                await self.connection.json(what, "POST", f"/repos/{repo}/pulls", data, repeat=True)
            )
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            if pull.draft and "draft" in error.said.lower():  # not every plan has drafts
                return await self.create(repo, replace(pull, draft=False), head=head)
            if not (found := await self.open_from(repo, head, base=pull.base)):
                raise
            return PullLink(number=found[0].number, html_url=found[0].html_url, draft=found[0].draft)
