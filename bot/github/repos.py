"""Repositories: their files, branches, labels and commits, and the accounts that have a role in them.

A commit is made through GraphQL, where GitHub signs it. There is no verb here that overwrites or deletes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast, get_args
from urllib.parse import quote

from pydantic import AliasPath, Field, RootModel

from bot.domain.access import Role
from bot.git.change import Change
from bot.github import graphql, types
from bot.github.connection import GitHubConnection

# The account behind the token that GitHub gives a workflow: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"


class _Content(types.FolderFile):
    type: str
    name: str
    encoding: types.Text = ""
    content: types.Text = ""


class _Contents(RootModel[_Content | list[_Content]]):
    """A file, or the entries of a folder."""


class _Reference(types.Facts):
    ref: str
    sha: str = Field(validation_alias=AliasPath("object", "sha"))


class _Label(types.Facts):
    name: str


class _AppFacts(types.Facts):
    id: int
    slug: str


class _Permission(types.Facts):
    """A role, by the collaborator-permission API.

    `role_name` may be an organisation's own role; then `permission` names the basic one it builds on:
    https://docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """

    account_id: int = Field(default=0, validation_alias=AliasPath("user", "id"))
    role_name: types.Text = ""
    permission: types.Text = ""

    @property
    def role(self) -> Role:
        known = (each for each in (self.role_name, self.permission) if each in get_args(Role))
        return cast("Role", next(known, "none"))


@dataclass(frozen=True, slots=True)
class Repos:
    """Repositories, as they are now."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str) -> types.RepoFacts:
        """The repository as it is now."""
        return await self.connection.read(types.RepoFacts, f"read {repo}", f"/repos/{repo}")

    async def file_at(self, repo: str, path: str, ref: str | None = None) -> bytes | None:
        """A file's bytes, or None when there is no file of that name, or no repository that we may see.

        Args:
            repo: `owner/name`.
            path: relative to the repository's root.
            ref: a branch, tag or commit; None for the default branch.

        Raises:
            FileTooLargeError: it has more than 1 MB.
        """
        what = f"read {path} of {repo}"
        query = {"ref": ref} if ref else None
        contents = await self.connection.find(_Contents, what, f"/repos/{repo}/contents/{quote(path)}", query)
        file = contents.root if contents else None
        if not isinstance(file, _Content) or file.type != "file":
            return None
        if file.encoding != "base64":  # over 1 MB GitHub gives the content only with the blob
            raise types.FileTooLargeError(repo, path, file.size)
        return base64.b64decode(file.content)

    async def installed(self) -> tuple[types.RepoFacts, ...]:
        """The repositories of the App's installation that we act for."""
        what, path = "list the installation's repositories", "/installation/repositories"
        repos = self.connection.entries(types.RepoFacts, what, path, within="repositories")
        return tuple([each async for each in repos])

    async def files_in(self, repo: str, path: str) -> dict[str, types.FolderFile]:
        """The files in a folder of the default branch, by name; empty where there is no such folder."""
        what, url = f"list {path} of {repo}", f"/repos/{repo}/contents/{quote(path)}"
        contents = await self.connection.find(_Contents, what, url)
        entries = contents.root if contents and isinstance(contents.root, list) else ()
        return {each.name: each for each in entries if each.type == "file"}

    async def contents_of(self, repo: str, blobs: Collection[str]) -> dict[str, bytes]:
        """The contents of small text files by their blobs' ids, all in one request.

        Args:
            repo: `owner/name`.
            blobs: their ids. Those that are gone, or are no UTF-8, are not in the answer.
        """
        if not blobs:
            return {}
        owner, _, name = repo.partition("/")
        ids = {f"a{number}": sha for number, sha in enumerate(dict.fromkeys(blobs))}
        what, query = f"read files of {repo}", graphql.blobs_query(len(ids))
        variables = {"owner": owner, "name": name, **ids}
        answer = await self.connection.graphql(what, query, variables, needs="repository", writes=False)
        entries = types.parse(dict[str, graphql.Blob | None], what, answer["repository"]).values()
        return {each.oid: each.content for each in entries if each is not None and each.content is not None}

    async def branch_head(self, repo: str, branch: str) -> str | None:
        """The commit a branch stands at, or None when there is no such branch, or the repository is empty."""
        what, path = f"read branch {branch} of {repo}", f"/repos/{repo}/git/ref/heads/{quote(branch)}"
        try:
            reference = await self.connection.find(_Reference, what, path)
        except types.GitHubError as error:
            # https://docs.github.com/rest/git/refs: 409 where nothing was pushed yet
            if error.status != HTTPStatus.CONFLICT:
                raise
            return None
        return None if reference is None else reference.sha

    async def branches_named(self, repo: str, prefix: str) -> tuple[str, ...]:
        """The names of the branches that begin so."""
        what, path = f"look for branches {prefix} of {repo}", f"/repos/{repo}/git/matching-refs/heads/{quote(prefix)}"
        references = await self.connection.find(list[_Reference], what, path)
        return tuple(each.ref.removeprefix("refs/heads/") for each in references or ())

    async def commit(self, repo: str, sha: str) -> types.CommitFacts:
        """A commit's tree and parents."""
        what, path = f"read commit {sha[:10]} of {repo}", f"/repos/{repo}/git/commits/{sha}"
        return await self.connection.read(types.CommitFacts, what, path)

    async def labels(self, repo: str) -> tuple[str, ...]:
        """Names of the labels that a repository has."""
        what, path = f"read the labels of {repo}", f"/repos/{repo}/labels"
        return tuple([each.name async for each in self.connection.entries(_Label, what, path)])

    async def create_label(self, repo: str, name: str, *, color: str, description: str) -> None:
        """Make a label; one of that name will do as it is.

        Args:
            repo: `owner/name`.
            name: at most 50 characters.
            color: six hexadecimal digits, without `#`.
            description: at most 100 characters.
        """
        body = {"name": name, "color": color, "description": self.redact(description)}
        try:
            await self.connection.request(
                f"create a label in {repo}", "POST", f"/repos/{repo}/labels", body, repeat=True
            )
        except types.GitHubError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or "already_exists" not in error.said:
                raise


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
            await self.connection.request(what, "POST", f"/repos/{repo}/git/refs", body, repeat=True)
        except types.GitHubError as error:
            if (
                error.status != HTTPStatus.UNPROCESSABLE_ENTITY
                or (head := await self.repos.branch_head(repo, name)) is None
            ):
                raise
            if head != sha:
                raise types.HeadMovedError(
                    what, error.status, f"it points to {head[:10]}", "Delete or rename that branch."
                ) from error

    async def on_branch(
        self, repo: str, *, branch: str, expected_head: str, title: str, body: str, change: Change
    ) -> types.CommitFacts:
        """Commit a change through GraphQL, signed by GitHub. What an earlier try has written is found, not repeated.

        Raises:
            CannotExpressError: this API cannot say it; nothing was sent.
            HeadMovedError: the branch does not stand at `expected_head`.
        """
        data = self._commit_input(
            repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
        )
        return await self._commit(repo, data, change.tree_sha)

    async def _commit(self, repo: str, data: Mapping[str, Any], tree_sha: str) -> types.CommitFacts:
        branch, message, parent = data["branch"]["branchName"], data["message"], data["expectedHeadOid"]
        what = f"commit to {branch} of {repo}"
        try:
            answer = await self.connection.graphql(what, graphql.COMMIT, {"commit": data}, needs="createCommitOnBranch")
            return types.parse(graphql.CommitResult, what, answer).commit
        except types.GitHubError as error:
            head = await self.repos.branch_head(repo, branch)
            if head is None:
                raise types.HeadMovedError(
                    what, error.status, "the branch was deleted", "Restore it and try again."
                ) from error
            done = await self.repos.commit(repo, head)
            if is_made(done, parent=parent, tree_sha=tree_sha, message=f"{message['headline']}\n\n{message['body']}"):
                return done
            if types.is_stale(error.said) or (error.answer and types.is_stale(str(error.answer.data))):
                raise types.HeadMovedError(
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
        pull: types.PullDraft | None,
    ) -> tuple[types.CommitFacts, types.PullLink | None]:
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
                **pull.fields(self.redact),
            }
        mutation = graphql.NEW_BRANCH if pull is None else graphql.NEW_BRANCH_WITH_PULL
        what = f"create branch {branch} in {repo}"
        try:
            answer = await self.connection.graphql(what, mutation, data, needs="createCommitOnBranch")
        except types.GitHubError as error:
            if error.limited:
                raise
            if await self.repos.branch_head(repo, branch) is None:
                await self.create_branch(repo, branch, expected_head)
            return await self._commit(repo, data["commit"], change.tree_sha), None
        result = types.parse(graphql.CommitResult, what, answer)
        return result.commit, result.pull

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


def is_made(facts: types.CommitFacts, *, parent: str, tree_sha: str, message: str) -> bool:
    """Whether a commit is the one that an earlier try made: these files, on that parent, and in our own words.

    A person may well commit the same files; the message names the job.
    """
    same = facts.parents == (parent,) and facts.tree_sha == tree_sha
    return same and " ".join(facts.message.split()).startswith(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts, as GitHub knows them now."""

    connection: GitHubConnection

    async def me(self) -> types.BotIdentity:
        """Whom GitHub takes us for; asked once, as it is the same for every job."""
        app = self.connection.session.app
        if app.identity is not None:
            return app.identity
        app_id = None
        if self.connection.app is not None:
            app_facts = await self.connection.json(_AppFacts, "read the App", "GET", "/app", as_app=True)
            login, app_id = f"{app_facts.slug}[bot]", app_facts.id
        else:
            try:
                app.identity = await self.connection.read(types.BotIdentity, "read our own account", "/user")
            except types.GitHubError as error:
                if error.status != HTTPStatus.FORBIDDEN:  # a workflow's token has no account to read
                    raise
                login = _ACTIONS_LOGIN
            else:
                return app.identity
        what, path = f"read the account {login}", f"/users/{quote(login, safe='')}"
        account = await self.connection.read(types.BotIdentity, what, path)
        app.identity = account.model_copy(update={"app_id": app_id})
        return app.identity

    async def get(self, account_id: int) -> types.Account | None:
        """An account by its numeric id, which survives renames; None when it is gone."""
        return await self.connection.find(types.Account, f"read account {account_id}", f"/user/{account_id}")

    async def role_of(self, repo: str, account_id: int, login: str) -> Role:
        """A person's role in a repository; GitHub is asked by name, and a name can change hands.

        Args:
            repo: `owner/name`.
            account_id: who is meant.
            login: their name when they asked; where it is somebody else's now, their new one is looked up.

        Raises:
            GitHubError: it could not be found out; the caller must take that for a no.
        """
        permission = await self._permission(repo, login)
        if permission is not None and permission.account_id == account_id:
            return permission.role
        account = await self.get(account_id)
        if account is None or account.login == login:
            return "none"
        permission = await self._permission(repo, account.login)
        return permission.role if permission is not None and permission.account_id == account_id else "none"

    async def _permission(self, repo: str, login: str) -> _Permission | None:
        path = f"/repos/{repo}/collaborators/{quote(login, safe='')}/permission"
        return await self.connection.find(_Permission, f"read the permission of {login} on {repo}", path)
