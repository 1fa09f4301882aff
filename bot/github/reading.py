"""What GitHub knows of people, repositories, threads, branches and files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, get_args
from urllib.parse import quote

from bot.domain.access import Role
from bot.github import parsing
from bot.github.errors import GitHubError
from bot.github.facts import Account, BotIdentity, CommitFacts, PullFacts, RepoFacts, Snapshot, ThreadFacts
from bot.github.part import ClientPart
from bot.github.snapshot import BRANCH_QUERY, QUERY, snapshot

# The account behind the token that GitHub gives a workflow: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"


class Reading(ClientPart):
    """Facts, asked of GitHub now."""

    async def me(self) -> BotIdentity:
        """Whom GitHub takes us for; asked once, as it is the same for every job."""
        app = self._connection.session.app
        if app.identity is None:
            app.identity = await self._who()
        return app.identity

    async def user(self, account_id: int) -> Account | None:
        """An account by its numeric id, which survives renames; None when it is gone."""
        answer = await self._found(f"read account {account_id}", f"/user/{account_id}")
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
        account = await self.user(account_id)
        if account is None or account.login == login:
            return "none"
        answer = await self._permission(repo, account.login)
        if answer is None or parsing.account_id(answer) != account_id:
            return "none"
        return parsing.role(answer, get_args(Role))

    async def repo_facts(self, repo: str) -> RepoFacts:
        """The repository as it is now."""
        return parsing.repo(await self._read(f"read {repo}", f"/repos/{repo}"))

    async def snapshot(self, repo: str, number: int) -> Snapshot:
        """The repository and one of its threads as they are now."""
        owner, _, name = repo.partition("/")
        return await self._snapshot(f"read {repo}#{number}", QUERY, {"owner": owner, "name": name, "number": number})

    async def branch_snapshot(self, repo: str, branch: str) -> Snapshot:
        """The repository and one of its branches as they are now."""
        owner, _, name = repo.partition("/")
        variables = {"owner": owner, "name": name, "ref": f"refs/heads/{branch}"}
        return await self._snapshot(f"read branch {branch} of {repo}", BRANCH_QUERY, variables)

    async def _snapshot(self, what: str, query: str, variables: Mapping[str, Any]) -> Snapshot:
        repo = f"{variables['owner']}/{variables['name']}"
        answer = await self._connection.graphql(what, query, variables, needs="repository", writes=False)
        found = answer["repository"]
        empty = found.get("defaultBranchRef") is None
        return snapshot(found, default_branch=(await self.repo_facts(repo)).default_branch if empty else "")

    async def thread_facts(self, repo: str, number: int) -> ThreadFacts:
        """An issue or pull request as it is now."""
        return parsing.thread(await self._read(f"read {repo}#{number}", f"/repos/{repo}/issues/{number}"))

    async def pull_facts(self, repo: str, number: int) -> PullFacts:
        """A pull request's two ends as they are now."""
        return parsing.pull(await self._read(f"read pull request {repo}#{number}", f"/repos/{repo}/pulls/{number}"))

    async def branches_named(self, repo: str, prefix: str) -> tuple[str, ...]:
        """The names of the branches that begin so."""
        what, path = f"look for branches {prefix} of {repo}", f"/repos/{repo}/git/matching-refs/heads/{quote(prefix)}"
        found = await self._found(what, path)
        return tuple(str(each["ref"]).removeprefix("refs/heads/") for each in found or ())

    async def open_pulls_from(self, repo: str, branch: str) -> tuple[PullFacts, ...]:
        """The open pull requests from a branch of the repository itself."""
        query = {"head": f"{repo.partition('/')[0]}:{branch}", "state": "open"}
        found = await self._read(f"look for pull requests from {branch} in {repo}", f"/repos/{repo}/pulls", query)
        return tuple(parsing.pull(each) for each in found)

    async def branch_head(self, repo: str, branch: str) -> str | None:
        """The commit a branch stands at, or None when there is no such branch, or the repository is empty."""
        what, path = f"read branch {branch} of {repo}", f"/repos/{repo}/git/ref/heads/{quote(branch)}"
        try:
            answer = await self._found(what, path)
        except GitHubError as error:
            # https://docs.github.com/rest/git/refs: 409 where nothing was pushed yet
            if error.status != HTTPStatus.CONFLICT:
                raise
            return None
        return None if answer is None else str(answer["object"]["sha"])

    async def commit_facts(self, repo: str, sha: str) -> CommitFacts:
        """A commit's tree and parents."""
        return parsing.commit(await self._read(f"read commit {sha[:10]} of {repo}", f"/repos/{repo}/git/commits/{sha}"))

    async def file_at(self, repo: str, path: str, ref: str | None = None) -> bytes | None:
        """A file's bytes, or None when there is no file of that name, or no repository that we may see.

        Args:
            repo: `owner/name`.
            path: relative to the repository's root.
            ref: a branch, tag or commit; None for the default branch.
        """
        what = f"read {path} of {repo}"
        query = {"ref": ref} if ref else None
        answer = await self._found(what, f"/repos/{repo}/contents/{quote(path)}", query)
        if not isinstance(answer, Mapping) or answer.get("type") != "file":  # a folder is a list
            return None
        if answer.get("encoding") != "base64":  # over 1 MB GitHub gives the content to those who ask for the blob
            answer = await self._read(what, f"/repos/{repo}/git/blobs/{answer['sha']}")
        return base64.b64decode(answer["content"])

    async def _permission(self, repo: str, login: str) -> Mapping[str, Any] | None:
        path = f"/repos/{repo}/collaborators/{quote(login, safe='')}/permission"
        answer = await self._found(f"read the permission of {login} on {repo}", path)
        return None if answer is None else dict(answer)

    async def _who(self) -> BotIdentity:
        app_id = None
        if self._connection.app is not None:
            answer = await self._connection.json("read the App", "GET", "/app", as_app=True)
            login, app_id = f"{answer['slug']}[bot]", int(answer["id"])
        else:
            try:
                return parsing.identity(await self._read("read our own account", "/user"))
            except GitHubError as error:
                if error.status != HTTPStatus.FORBIDDEN:  # a workflow's token has no account to read
                    raise
                login = _ACTIONS_LOGIN
        answer = await self._read(f"read the account {login}", f"/users/{quote(login, safe='')}")
        return parsing.identity(answer, app_id=app_id)
