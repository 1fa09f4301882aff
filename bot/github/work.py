"""What the bot makes: branches, commits, pull requests. It only ever adds."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from bot.github import parsing
from bot.github.commits import (
    MUTATION,
    NEW_BRANCH,
    NEW_BRANCH_WITH_PULL,
    check_expressible,
    commit_input,
    committed,
    is_made,
    opened,
)
from bot.github.drafts import PullDraft
from bot.github.errors import GitHubError, HeadMovedError
from bot.github.facts import CommitFacts, PullLink
from bot.github.reading import Reading
from bot.workspace.change import Change


class Publishing(Reading):
    """Publishing a change."""

    def redacted(self, text: str) -> str:
        """The text as it would go out, for what leaves by another way (a pushed commit's message)."""
        return self._redact(text)

    def check_expressible(self, change: Change) -> None:
        """See whether `commit_on_branch` has words for a change.

        Raises:
            CannotExpressError: it has not.
        """
        check_expressible(change)

    async def create_branch(self, repo: str, name: str, sha: str) -> None:
        """Make a branch at a commit; one that stands there already will do.

        Raises:
            HeadMovedError: a branch of this name stands elsewhere.
        """
        what = f"create branch {name} in {repo}"
        body = {"ref": f"refs/heads/{name}", "sha": sha}
        try:
            await self._connection.json(what, "POST", f"/repos/{repo}/git/refs", body, repeat=True)
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or (head := await self.branch_head(repo, name)) is None:
                raise
            if head != sha:
                raise HeadMovedError(
                    what, error.status, f"it stands at {head[:10]}", "Delete or rename that branch."
                ) from error

    async def commit_on_branch(
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
            return committed(
                await self._connection.graphql(what, MUTATION, {"commit": data}, needs="createCommitOnBranch")
            )
        except GitHubError as error:
            head = await self.branch_head(repo, branch)
            if head is None:
                raise HeadMovedError(what, error.status, "the branch is gone", "Restore it and ask again.") from error
            done = await self.commit_facts(repo, head)
            if is_made(
                done, parent=expected_head, tree_sha=change.tree_sha, message=self._redact(f"{title}\n\n{body}")
            ):
                return done
            if parsing.is_stale(error.said) or parsing.is_stale(str(error.__cause__)):
                raise HeadMovedError(what, error.status, error.said, "Someone pushed meanwhile: ask again.") from error
            raise

    async def commit_on_new_branch(
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

        What it does not do so is done step by step, but for the pull request: `create_pull` can be told why not.

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
                **self._pull_texts(pull.title, pull.body, draft=pull.draft),
            }
        mutation = NEW_BRANCH if pull is None else NEW_BRANCH_WITH_PULL
        try:
            made = await self._connection.graphql(
                f"make branch {branch} of {repo}", mutation, data, needs="createCommitOnBranch"
            )
        except GitHubError as error:
            if error.limited:
                raise
            if await self.branch_head(repo, branch) is None:
                await self.create_branch(repo, branch, expected_head)
            facts = await self.commit_on_branch(
                repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
            )
            return facts, None
        return committed(made), opened(made)

    def _commit_input(
        self, repo: str, *, branch: str, expected_head: str, title: str, body: str, change: Change
    ) -> Mapping[str, Any]:
        return commit_input(
            repo=repo,
            branch=branch,
            expected_head=expected_head,
            title=self._redact(title),
            body=self._redact(body),
            change=change,
        )

    def _pull_texts(self, title: str, body: str, *, draft: bool) -> dict[str, Any]:
        return {"title": self._redact(title), "body": self._redact(body), "draft": draft}

    async def create_pull(self, repo: str, *, head: str, base: str, title: str, body: str, draft: bool) -> PullLink:
        """Open a pull request from a branch of the same repository, or find the one that is open already."""
        data = {"head": head, "base": base, **self._pull_texts(title, body, draft=draft)}
        what = f"open a pull request from {head} in {repo}"
        try:
            return parsing.pull_link(
                await self._connection.json(what, "POST", f"/repos/{repo}/pulls", data, repeat=True)
            )
        except GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            if draft and "draft" in error.said.lower():  # not every plan has drafts
                return await self.create_pull(repo, head=head, base=base, title=title, body=body, draft=False)
            if (found := await self._open_pull(repo, head, base)) is None:
                raise
            return found

    async def _open_pull(self, repo: str, head: str, base: str) -> PullLink | None:
        query = {"head": f"{repo.partition('/')[0]}:{head}", "base": base, "state": "open"}
        what = f"look for a pull request from {head} in {repo}"
        found = await self._connection.json(what, "GET", f"/repos/{repo}/pulls", query=query)
        return parsing.pull_link(found[0]) if found else None
