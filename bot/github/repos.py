"""Repositories: files, branches, commits and roles.

Commits are made through GraphQL, so that GitHub signs them. There is deliberately no method to overwrite or delete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Annotated, Any, cast, get_args
from urllib.parse import quote

from pydantic import AfterValidator, AliasChoices, AliasPath, Base64Bytes, BeforeValidator, Field, RootModel

from bot.domain.access import Role
from bot.domain.job import Actor
from bot.git.change import Change
from bot.github import graphql, types
from bot.github.connection import GitHubConnection

# The account behind the token that GitHub gives a workflow: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"


class _Content(types.FolderFile):
    name: str
    encoding: types.Text = ""
    content: Annotated[Base64Bytes, BeforeValidator(lambda text: text or "")] = b""


class _Contents(RootModel[_Content | list[_Content]]):
    pass


class _Reference(types.Facts):
    ref: str
    sha: str = Field(validation_alias=AliasPath("object", "sha"))


class _AppFacts(types.Facts):
    id: int
    slug: str


class _Permission(types.Facts):
    """A role by the collaborator API.

    For an organisation's custom `role_name`, `permission` is the base role:
    https://docs.github.com/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """

    account_id: int = Field(default=0, validation_alias=AliasPath("user", "id"))
    role_name: types.Text = ""
    permission: types.Text = ""

    @property
    def role(self) -> Role:
        names = (name for name in (self.role_name, self.permission) if name in get_args(Role))
        return cast("Role", next(names, "none"))


class BranchRule(types.Facts):
    """A rule of a ruleset, or of classic protection: its `ruleset_id` is None, and only GitHub has its exemptions.

    https://docs.github.com/rest/repos/rules#get-rules-for-a-branch
    """

    type: Annotated[str, AfterValidator(str.lower)]
    ruleset_id: int | None = Field(
        default=None, validation_alias=AliasChoices("ruleset_id", AliasPath("repositoryRuleset", "databaseId"))
    )
    operator: types.Text = Field(default="", validation_alias=AliasPath("parameters", "operator"))
    pattern: types.Text = Field(default="", validation_alias=AliasPath("parameters", "pattern"))
    negate: Annotated[bool, BeforeValidator(bool)] = Field(
        default=False, validation_alias=AliasPath("parameters", "negate")
    )

    @property
    def requirement(self) -> str:
        """The pattern's requirement, as in "must start with `PROJ-`"."""
        verb = {"starts_with": "start with", "ends_with": "end with", "contains": "contain"}.get(self.operator, "match")
        return f"must {'not ' if self.negate else ''}{verb} `{self.pattern}`"

    def refuses(self, text: str) -> bool:
        """Whether the pattern refuses a text. Regular expressions are GitHub's to evaluate: another engine may hang."""
        match self.operator:
            case "starts_with":
                matches = text.startswith(self.pattern)
            case "ends_with":
                matches = text.endswith(self.pattern)
            case "contains":
                matches = self.pattern in text
            case _:
                return False
        return matches is self.negate


class _UpdateRule(types.Facts):
    """Classic protection: https://docs.github.com/graphql/reference/objects#refupdaterule."""

    required_signatures: bool = Field(validation_alias="requiresSignatures")
    required_linear_history: bool = Field(validation_alias="requiresLinearHistory")


class _BranchFacts(types.Facts):
    """A branch in the answer to `graphql.branches_query`."""

    # Each level of the answer may be null.
    rules: Annotated[tuple[BranchRule, ...], BeforeValidator(lambda nodes: [*filter(None, nodes or ())])] = Field(
        default=(), validation_alias=AliasPath("rules", "nodes")
    )
    update_rule: _UpdateRule | None = Field(default=None, validation_alias="refUpdateRule")

    @property
    def all_rules(self) -> tuple[BranchRule, ...]:
        classic = () if self.update_rule is None else (name for name, applies in self.update_rule if applies)
        # Without its ruleset, nothing shows whom a rule binds.
        of_rulesets = (rule for rule in self.rules if rule.ruleset_id is not None)
        return (*of_rulesets, *(BranchRule(type=name) for name in classic))


class _Ruleset(types.Facts):
    bypass: types.Text = Field(default="", validation_alias="current_user_can_bypass")

    @property
    def binds_us(self) -> bool:
        """Whether the ruleset certainly applies to the bot's pushes; GitHub does not always say so."""
        return self.bypass in {"never", "pull_requests_only"}


@dataclass(frozen=True, slots=True)
class Repos:
    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def get(self, repo: str) -> types.RepoFacts:
        return await self.connection.read(types.RepoFacts, f"read {repo}", f"/repos/{repo}")

    async def read_file(self, repo: str, path: str, ref: str | None = None) -> bytes | None:
        """Return a file's bytes, if it is accessible; without `ref` from the default branch.

        Raises:
            FileTooLargeError: it has more than 1 MB.
        """
        action = f"read {path} of {repo}"
        query = {"ref": ref} if ref else None
        contents = await self.connection.find(_Contents, action, f"/repos/{repo}/contents/{quote(path)}", query)
        file = contents.root if contents else None
        if not isinstance(file, _Content) or file.type != "file":
            return None
        if file.encoding != "base64":  # over 1 MB GitHub gives the content only with the blob
            raise types.FileTooLargeError(repo, path, file.size)
        return file.content

    async def list_installed(self) -> tuple[types.RepoFacts, ...]:
        action, path = "list the installation's repositories", "/installation/repositories"
        repos = self.connection.entries(types.RepoFacts, action, path, within="repositories")
        return tuple([repository async for repository in repos])

    async def list_files(self, repo: str, path: str) -> dict[str, types.FolderFile]:
        """Return a folder's files on the default branch by name."""
        return {name: entry for name, entry in (await self.list_entries(repo, path)).items() if entry.type == "file"}

    async def list_entries(self, repo: str, path: str) -> dict[str, types.FolderFile]:
        """Return a folder's entries of all types by name; nothing if it is missing."""
        action, url = f"list {path or 'the root'} of {repo}", f"/repos/{repo}/contents/{quote(path)}"
        contents = await self.connection.find(_Contents, action, url)
        return {entry.name: entry for entry in (contents.root if contents and isinstance(contents.root, list) else ())}

    async def read_blobs(self, repo: str, blobs: Collection[str]) -> dict[str, bytes]:
        """Return small UTF-8 files by blob id in one request."""
        if not blobs:
            return {}
        owner, _, name = repo.partition("/")
        ids = {f"a{number}": sha for number, sha in enumerate(dict.fromkeys(blobs))}
        action, query = f"read files of {repo}", graphql.blobs_query(len(ids))
        variables = {"owner": owner, "name": name, **ids}
        answer = await self.connection.graphql(action, query, variables, needs="repository", writes=False)
        entries = types.parse(dict[str, graphql.Blob | None], action, answer["repository"]).values()
        return {blob.oid: blob.content for blob in entries if blob is not None and blob.content is not None}

    async def branch_head(self, repo: str, branch: str) -> str | None:
        action, path = f"read branch {branch} of {repo}", f"/repos/{repo}/git/ref/heads/{quote(branch)}"
        try:
            reference = await self.connection.find(_Reference, action, path)
        except types.GitHubError as error:
            # https://docs.github.com/rest/git/refs: 409 where nothing was pushed yet
            if error.status != HTTPStatus.CONFLICT:
                raise
            return None
        return None if reference is None else reference.sha

    async def list_pushes(self, repo: str, branch: str) -> tuple[types.PushFacts, ...]:
        """Return the newest changes of a branch, at most 100; commits' own dates are anybody's to choose.

        https://docs.github.com/rest/repos/repos#list-repository-activities
        """
        ref, action = f"refs/heads/{branch}", f"read the pushes to {branch} of {repo}"
        query = {"ref": ref, "per_page": 100}
        pushes = await self.connection.read(tuple[types.PushFacts, ...], action, f"/repos/{repo}/activity", query)
        return tuple(push for push in pushes if push.ref == ref)

    async def list_branches(self, repo: str, prefix: str) -> tuple[str, ...]:
        action, path = f"look for branches {prefix} of {repo}", f"/repos/{repo}/git/matching-refs/heads/{quote(prefix)}"
        references = await self.connection.find(list[_Reference], action, path)
        return tuple(reference.ref.removeprefix("refs/heads/") for reference in references or ())

    async def find_branches(self, repo: str, names: Sequence[str]) -> frozenset[str]:
        """Return the existing ones of some branches; none if GitHub does not let the bot read them."""
        try:
            return frozenset(name for name, _ in await self._read_branches(repo, names))
        except types.GitHubError as error:
            if error.is_transient:
                raise
            return frozenset()

    async def read_rules(self, repo: str, branch: str, *, is_new: bool) -> tuple[BranchRule, ...]:
        """Return the rules for a branch, for a new one without classic protection; empty if they are unknown."""
        action, path = f"read the rules for {branch} of {repo}", f"/repos/{repo}/rules/branches/{quote(branch)}"
        try:
            if is_new:
                return tuple([rule async for rule in self.connection.entries(BranchRule, action, path)])
            branches = await self._read_branches(repo, [branch], with_rules=True)
            return tuple(rule for _, facts in branches for rule in facts.all_rules)
        except types.GitHubError as error:
            if error.is_transient:
                raise
            return ()

    async def _read_branches(
        self, repo: str, names: Sequence[str], *, with_rules: bool = False
    ) -> list[tuple[str, _BranchFacts]]:
        owner, _, name = repo.partition("/")
        refs = {f"a{number}": f"refs/heads/{branch}" for number, branch in enumerate(names)}
        action, query = f"read branches of {repo}", graphql.branches_query(len(refs), with_rules=with_rules)
        variables = {"owner": owner, "name": name, **refs}
        answer = await self.connection.graphql(action, query, variables, needs="repository", writes=False)
        facts = types.parse(dict[str, _BranchFacts | None], action, answer["repository"])
        branches = zip(names, map(facts.get, refs), strict=True)
        return [(branch, branch_facts) for branch, branch_facts in branches if branch_facts is not None]

    async def is_bound_by(self, repo: str, ruleset_id: int) -> bool:
        """Whether a ruleset certainly applies to the bot's pushes."""
        action, path = f"read ruleset {ruleset_id} of {repo}", f"/repos/{repo}/rulesets/{ruleset_id}"
        try:
            return (await self.connection.read(_Ruleset, action, path)).binds_us
        except types.GitHubError as error:
            if error.is_transient:
                raise
            return False

    async def commit(self, repo: str, sha: str) -> types.CommitFacts:
        action, path = f"read commit {sha[:10]} of {repo}", f"/repos/{repo}/git/commits/{sha}"
        return await self.connection.read(types.CommitFacts, action, path)


@dataclass(frozen=True, slots=True)
class Commits:
    """The bot's commits and branches."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    repos: Repos

    async def create_branch(self, repo: str, name: str, sha: str) -> None:
        """Create a branch if needed.

        Raises:
            HeadMovedError: it has another head.
        """
        action = f"create branch {name} in {repo}"
        body = {"ref": f"refs/heads/{name}", "sha": sha}
        try:
            await self.connection.request(action, "POST", f"/repos/{repo}/git/refs", body, repeat=True)
        except types.GitHubError as error:
            if (
                error.status != HTTPStatus.UNPROCESSABLE_ENTITY
                or (head := await self.repos.branch_head(repo, name)) is None
            ):
                raise
            if head != sha:
                raise types.HeadMovedError(
                    action, error.status, f"it points to {head[:10]}", "Delete or rename that branch."
                ) from error

    async def create(
        self, repo: str, *, branch: str, expected_head: str, title: str, body: str, change: Change
    ) -> types.CommitFacts:
        """Commit a change, or return the commit of an earlier attempt.

        Raises:
            CannotExpressError: the API does not support the change.
            HeadMovedError: the branch is not at `expected_head`.
        """
        data = self._commit_input(
            repo, branch=branch, expected_head=expected_head, title=title, body=body, change=change
        )
        return await self._commit(repo, data, change.tree_sha)

    async def _commit(self, repo: str, data: Mapping[str, Any], tree_sha: str) -> types.CommitFacts:
        branch, message, parent = data["branch"]["branchName"], data["message"], data["expectedHeadOid"]
        action = f"commit to {branch} of {repo}"
        try:
            answer = await self.connection.graphql(
                action, graphql.COMMIT, {"commit": data}, needs="createCommitOnBranch"
            )
            return types.parse(graphql.CommitResult, action, answer).commit
        except types.GitHubError as error:
            head = await self.repos.branch_head(repo, branch)
            if head is None:
                raise types.HeadMovedError(
                    action, error.status, "the branch was deleted", "Restore it and try again."
                ) from error
            head_commit = await self.repos.commit(repo, head)
            if is_same_commit(
                head_commit, parents=(parent,), tree_sha=tree_sha, message=f"{message['headline']}\n\n{message['body']}"
            ):
                return head_commit
            if types.is_stale(error.message) or (error.answer and types.is_stale(str(error.answer.data))):
                raise types.HeadMovedError(
                    action, error.status, error.message, "Somebody pushed in the meantime: try again."
                ) from error
            raise

    async def create_with_branch(
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
        """Create a branch, a commit and optionally a pull request in one request.

        If GitHub refuses, branch and commit are created step by step, and the caller opens the pull request.

        Raises:
            CannotExpressError: the API does not support the change.
            HeadMovedError: another branch has this name.
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
        action = f"create branch {branch} in {repo}"
        try:
            answer = await self.connection.graphql(action, mutation, data, needs="createCommitOnBranch")
        except types.GitHubError as error:
            if error.limited:
                raise
            if await self.repos.branch_head(repo, branch) is None:
                await self.create_branch(repo, branch, expected_head)
            return await self._commit(repo, data["commit"], change.tree_sha), None
        result = types.parse(graphql.CommitResult, action, answer)
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


def is_same_commit(facts: types.CommitFacts, *, parents: tuple[str, ...], tree_sha: str, message: str) -> bool:
    """Whether a commit has this tree, these parents and the message, which names the job."""
    same = facts.parents == parents and facts.tree_sha == tree_sha
    return same and " ".join(facts.message.split()).startswith(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Accounts:
    connection: GitHubConnection

    async def me(self) -> types.BotIdentity:
        """Return the bot's account, read once for all jobs."""
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
        action, path = f"read the account {login}", f"/users/{quote(login, safe='')}"
        account = await self.connection.read(types.BotIdentity, action, path)
        app.identity = replace(account, app_id=app_id)
        return app.identity

    async def get(self, account_id: int) -> Actor | None:
        return await self.connection.find(Actor, f"read account {account_id}", f"/user/{account_id}")

    async def get_role(self, repo: str, account_id: int, login: str) -> Role:
        """Return a user's role; the id decides, as logins can change hands.

        Raises:
            GitHubError: the role is unknown; the caller must refuse.
        """
        permission = await self._read_permission(repo, login)
        if permission is not None and permission.account_id == account_id:
            return permission.role
        account = await self.get(account_id)
        if account is None:
            return "none"
        # The login changed hands, or the 404 was spurious: the account exists.
        permission = await self._read_permission(repo, account.login)
        return permission.role if permission is not None and permission.account_id == account_id else "none"

    async def _read_permission(self, repo: str, login: str) -> _Permission | None:
        path = f"/repos/{repo}/collaborators/{quote(login, safe='')}/permission"
        return await self.connection.find(_Permission, f"read the permission of {login} on {repo}", path)
