"""What the bot makes: branches, commits, pull requests. It only ever adds."""

from __future__ import annotations

from http import HTTPStatus

from bot.github import parsing
from bot.github.commits import MUTATION, check_expressible, commit_input, is_made
from bot.github.errors import GitHubError, HeadMovedError
from bot.github.facts import CommitFacts, PullLink
from bot.github.reading import Reading
from bot.workspace.change import Change


class Work(Reading):
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
        data = commit_input(
            repo=repo,
            branch=branch,
            expected_head=expected_head,
            title=self._redact(title),
            body=self._redact(body),
            change=change,
        )
        what = f"commit to {branch} of {repo}"
        try:
            answer = await self._connection.graphql(what, MUTATION, {"input": data})
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
        sha = answer["createCommitOnBranch"]["commit"]["oid"]
        return await self.commit_facts(repo, sha)

    async def create_pull(self, repo: str, *, head: str, base: str, title: str, body: str, draft: bool) -> PullLink:
        """Open a pull request from a branch of the same repository, or find the one that is open already."""
        if (found := await self._open_pull(repo, head, base)) is not None:
            return found
        data = {"head": head, "base": base, "title": self._redact(title), "body": self._redact(body), "draft": draft}
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
