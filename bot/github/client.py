"""GitHub, as the bot sees it. Repository, number and branch always come from the job, never from a model's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self, get_args
from urllib.parse import quote

from github import Auth
from typing_extensions import override

from bot.gate.permissions import Role
from bot.github import parsing
from bot.github.commits import MUTATION, check_expressible, commit_input
from bot.github.connection import Connection, InstallationAuth
from bot.github.errors import GitHubError, HeadMovedError
from bot.github.facts import BotIdentity, CommentFacts, CommitFacts, PullFacts, PullLink, RepoFacts, ThreadFacts
from bot.workspace.change import Change

Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]

# The account behind the token that GitHub gives a workflow: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"
_PAGE = 100


class GitHub:
    """The one client. Every text that goes out passes `redact` here, whoever wrote it.

    There is no verb for force pushes, tags, deletions, merges or reviews, and there shall be none.

    Args:
        connection: how to reach it.
        redact: takes secrets out of text.
        minted: told of every token that is minted for one repository, before it is used.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        redact: Callable[[str], str],
        minted: Callable[[str], None] = lambda _token: None,
    ) -> None:
        self._connection = connection
        self._redact = redact
        self._minted = minted
        self._me: BotIdentity | None = None

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
        seconds_between_writes: float = 0.25,
    ) -> Self:
        """Act as an App on one installation; its token is minted and renewed as needed, and `minted` told of each."""
        auth = InstallationAuth(Auth.AppAuth(app_id, private_key), installation_id, minted=minted)
        connection = Connection(auth, base_url, seconds_between_writes=seconds_between_writes)
        return cls(connection, redact=redact, minted=minted)

    @classmethod
    def for_token(
        cls, token: str, base_url: str, *, redact: Callable[[str], str], seconds_between_writes: float = 0.25
    ) -> Self:
        """Act with a plain token, e.g. a workflow's."""
        connection = Connection(Auth.Token(token), base_url, seconds_between_writes=seconds_between_writes)
        return cls(connection, redact=redact)

    @override
    def __repr__(self) -> str:
        return "GitHub()"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._connection.close)

    def redacted(self, text: str) -> str:
        """The text as it would go out, for what leaves by another way (a pushed commit's message)."""
        return self._redact(text)

    def check_expressible(self, change: Change) -> None:
        """See whether `commit_on_branch` has words for a change.

        Raises:
            CannotExpressError: it has not.
        """
        check_expressible(change)

    # Facts

    async def me(self) -> BotIdentity:
        """Whom GitHub takes us for."""
        if self._me is None:
            self._me = parsing.identity(await self._who())
        return self._me

    async def role(self, repo: str, login: str) -> Role:
        """A person's role in a repository; `none` for who is no collaborator.

        Raises:
            GitHubError: it could not be found out; the caller must take that for a no.
        """
        path = f"/repos/{repo}/collaborators/{quote(login, safe='')}/permission"
        answer = await self._found(f"read the permission of {login} on {repo}", path)
        return parsing.role(answer, get_args(Role)) if answer is not None else "none"

    async def repo_facts(self, repo: str) -> RepoFacts:
        """The repository as it is now."""
        return parsing.repo(await self._connection.json(f"read {repo}", "GET", f"/repos/{repo}"))

    async def thread_facts(self, repo: str, number: int) -> ThreadFacts:
        """An issue or pull request as it is now."""
        return parsing.thread(
            await self._connection.json(f"read {repo}#{number}", "GET", f"/repos/{repo}/issues/{number}")
        )

    async def pull_facts(self, repo: str, number: int) -> PullFacts:
        """A pull request's two ends as they are now."""
        what = f"read pull request {repo}#{number}"
        return parsing.pull(await self._connection.json(what, "GET", f"/repos/{repo}/pulls/{number}"))

    async def branch_head(self, repo: str, branch: str) -> str | None:
        """The commit a branch stands at, or None when there is no such branch."""
        answer = await self._found(f"read branch {branch} of {repo}", f"/repos/{repo}/git/ref/heads/{quote(branch)}")
        return None if answer is None else str(answer["object"]["sha"])

    async def commit_facts(self, repo: str, sha: str) -> CommitFacts:
        """A commit's tree and parents."""
        what = f"read commit {sha[:10]} of {repo}"
        return parsing.commit(await self._connection.json(what, "GET", f"/repos/{repo}/git/commits/{sha}"))

    # Words

    async def react(self, repo: str, comment_id: int, content: Reaction) -> None:
        """React to a comment; a second time changes nothing."""
        path = f"/repos/{repo}/issues/comments/{comment_id}/reactions"
        await self._connection.json(f"react to a comment in {repo}", "POST", path, {"content": content}, repeat=True)

    async def create_comment(self, repo: str, number: int, body: str) -> CommentFacts:
        """Comment on a thread. Not repeated on a server error: look with `find_comment` first, then call again."""
        path = f"/repos/{repo}/issues/{number}/comments"
        answer = await self._connection.json(f"comment on {repo}#{number}", "POST", path, {"body": self._redact(body)})
        return parsing.comment(answer)

    async def edit_comment(self, repo: str, comment_id: int, body: str) -> CommentFacts:
        """Replace the body of a comment of ours."""
        path = f"/repos/{repo}/issues/comments/{comment_id}"
        what = f"edit a comment in {repo}"
        return parsing.comment(await self._connection.json(what, "PATCH", path, {"body": self._redact(body)}))

    async def find_comment(self, repo: str, number: int, marker: str, author_id: int) -> CommentFacts | None:
        """The first comment of a thread by this author that holds `marker`."""
        page = 1
        while True:
            query = {"per_page": _PAGE, "page": page}
            path = f"/repos/{repo}/issues/{number}/comments"
            answer = await self._connection.json(f"read the comments of {repo}#{number}", "GET", path, query=query)
            for found in map(parsing.comment, answer):
                if found.author_id == author_id and marker in found.body:
                    return found
            if len(answer) < _PAGE:
                return None
            page += 1

    # Work

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
        ask = self._connection.github.requester.graphql_query
        try:
            _, answer = await self._connection.call(what, lambda: ask(MUTATION, {"input": data}))
        except GitHubError as error:
            if (done := await self._already(repo, branch, expected_head, change)) is not None:
                return done
            if parsing.is_stale(error.said) or parsing.is_stale(str(error.__cause__)):
                raise HeadMovedError(what, error.status, error.said, "Someone pushed meanwhile: ask again.") from error
            raise
        sha = answer["data"]["createCommitOnBranch"]["commit"]["oid"]
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

    # Tokens

    async def clone_token(self, repo: str) -> str:
        """A token that may read this repository's files and nothing else; a plain token gives itself."""
        return await self._token(repo, {"contents": "read"})

    async def push_token(self, repo: str) -> str:
        """A token that may write this repository's files and nothing else; a plain token gives itself."""
        return await self._token(repo, {"contents": "write"})

    async def _token(self, repo: str, permissions: Mapping[str, str]) -> str:
        app, auth = self._connection.app, self._connection.auth
        if app is None or not isinstance(auth, Auth.AppInstallationAuth):
            return auth.token
        path = f"/app/installations/{auth.installation_id}/access_tokens"
        body = {"repositories": [repo.partition("/")[2]], "permissions": dict(permissions)}
        ask = app.requester.requestJsonAndCheck
        _, answer = await self._connection.call(f"mint a token for {repo}", lambda: ask("POST", path, input=body))
        token = str(answer["token"])
        self._minted(token)
        return token

    async def _who(self) -> Mapping[str, Any]:
        app = self._connection.app
        if app is not None:
            ask = app.requester.requestJsonAndCheck
            _, answer = await self._connection.call("read the App", lambda: ask("GET", "/app"))
            login = f"{answer['slug']}[bot]"
        else:
            try:
                return dict(await self._connection.json("read our own account", "GET", "/user"))
            except GitHubError as error:
                if error.status != HTTPStatus.FORBIDDEN:  # a workflow's token has no account to read
                    raise
                login = _ACTIONS_LOGIN
        return dict(await self._connection.json(f"read the account {login}", "GET", f"/users/{quote(login, safe='')}"))

    async def _found(self, what: str, path: str) -> Any:  # noqa: ANN401 - parsed JSON
        """What GET answers, or None for 404."""
        try:
            return await self._connection.json(what, "GET", path)
        except GitHubError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def _open_pull(self, repo: str, head: str, base: str) -> PullLink | None:
        query = {"head": f"{repo.partition('/')[0]}:{head}", "base": base, "state": "open"}
        what = f"look for a pull request from {head} in {repo}"
        found = await self._connection.json(what, "GET", f"/repos/{repo}/pulls", query=query)
        return parsing.pull_link(found[0]) if found else None

    async def _already(self, repo: str, branch: str, expected_head: str, change: Change) -> CommitFacts | None:
        """The commit of an earlier try whose answer was lost: same parent, same files."""
        head = await self.branch_head(repo, branch)
        if head is None or head == expected_head:
            return None
        facts = await self.commit_facts(repo, head)
        return facts if facts.parents == (expected_head,) and facts.tree_sha == change.tree_sha else None
