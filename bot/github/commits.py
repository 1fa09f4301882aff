"""Commits through GraphQL, and the branches they are on. It only ever adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from bot.git.change import Change
from bot.github import graphql, types
from bot.github.client import GitHubConnection
from bot.github.issues import Repos
from bot.github.types import CommitFacts, GitHubError, HeadMovedError, PullDraft, PullLink


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of the bot's, and the branches that they are on. There is no verb that overwrites or deletes."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    repos: Repos

    async def create_branch(self, repo: str, name: str, sha: str) -> None:
        """Create a branch at a commit, unless it is already there.

        Raises:
            HeadMovedError: a branch of this name stands elsewhere.
        """
        what = f"create branch {name} in {repo}"
        body = {"ref": f"refs/heads/{name}", "sha": sha}
        try:
            await self.connection.json(what, "POST", f"/repos/{repo}/git/refs", body, repeat=True)
        except GitHubError as error:
            if (
                error.status != HTTPStatus.UNPROCESSABLE_ENTITY
                or (head := await self.repos.branch_head(repo, name)) is None
            ):
                raise
            if head != sha:
                raise HeadMovedError(
                    what, error.status, f"it points to {head[:10]}", "Delete or rename that branch."
                ) from error

    async def on_branch(
        self, repo: str, *, branch: str, expected_head: str, title: str, body: str, change: Change
    ) -> CommitFacts:
        """Commit a change through GraphQL, signed by GitHub. What an earlier try has written is found, not repeated.

        Raises:
            CannotExpressError: this API cannot say it; nothing was sent.
            HeadMovedError: the branch does not stand at `expected_head`.
        """
        data = self._commit_input(
            repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
        )
        what = f"commit to {branch} of {repo}"
        try:
            return graphql.committed(
                await self.connection.graphql(what, graphql.COMMIT, {"commit": data}, needs="createCommitOnBranch")
            )
        except GitHubError as error:
            head = await self.repos.branch_head(repo, branch)
            if head is None:
                raise HeadMovedError(
                    what, error.status, "the branch was deleted", "Restore it and try again."
                ) from error
            done = await self.repos.commit(repo, head)
            if is_made(done, parent=expected_head, tree_sha=change.tree_sha, message=self.redact(f"{title}\n\n{body}")):
                return done
            if types.is_stale(error.said) or types.is_stale(str(error.__cause__)):
                raise HeadMovedError(
                    what, error.status, error.said, "Somebody pushed in the meantime: try again."
                ) from error
            raise

    async def on_new_branch(
        self,
        repo: str,
        *,
        node_id: str,
        branch: str,
        expected_head: str,
        title: str,
        body: str,
        change: Change,
        pull: PullDraft | None,
    ) -> tuple[CommitFacts, PullLink | None]:
        """Make a branch with a commit on it, and a pull request from it, in one request where GitHub does all of it.

        What it does not do so is done step by step, but for the pull request: `Pulls.create` can be told why not.

        Args:
            repo: `owner/name`.
            node_id: the repository's, for GraphQL.
            branch: the branch.
            expected_head: where the branch begins.
            title: of the commit.
            body: of the commit.
            change: what to commit.
            pull: the pull request, if there is to be one.

        Raises:
            CannotExpressError: this API cannot say it; nothing was sent.
            HeadMovedError: there is another branch of this name.
        """
        data: dict[str, Any] = {
            "ref": {"repositoryId": node_id, "name": f"refs/heads/{branch}", "oid": expected_head},
            "commit": self._commit_input(
                repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
            ),
        }
        if pull is not None:
            data["pull"] = {
                "repositoryId": node_id,
                "headRefName": branch,
                "baseRefName": pull.base,
                **pull.said(self.redact),
            }
        mutation = graphql.NEW_BRANCH if pull is None else graphql.NEW_BRANCH_WITH_PULL
        try:
            made = await self.connection.graphql(
                f"create branch {branch} in {repo}", mutation, data, needs="createCommitOnBranch"
            )
        except GitHubError as error:
            if error.limited:
                raise
            if await self.repos.branch_head(repo, branch) is None:
                await self.create_branch(repo, branch, expected_head)
            facts = await self.on_branch(
                repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
            )
            return facts, None
        return graphql.committed(made), graphql.opened(made)

    def _commit_input(
        self, repo: str, *, branch: str, expected_head: str, title: str, body: str, change: Change
    ) -> Mapping[str, Any]:
        return graphql.commit_input(
            repo=repo,
            branch=branch,
            expected_head=expected_head,
            title=self.redact(title),
            body=self.redact(body),
            change=change,
        )


def is_made(facts: CommitFacts, *, parent: str, tree_sha: str, message: str) -> bool:
    """Whether a commit is the one that an earlier try made: these files, on that parent, and in our own words.

    A person may well commit the same files; the message names the job.
    """
    same = facts.parents == (parent,) and facts.tree_sha == tree_sha
    return same and " ".join(facts.message.split()).startswith(" ".join(message.split()))
