"""What GraphQL's fields answer; mappings for most, functions where there are arguments."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLResolveInfo

from bot.localhub import actions, branches, git, graphql_threads, refs, views_git, workflow_guard
from bot.localhub.auth import demand
from bot.localhub.errors import not_found
from bot.localhub.model import Repo, Role, User
from bot.localhub.rate import LIMIT
from bot.localhub.routing import Call
from bot.localhub.site import Json, iso, node_id


class RefusedError(Exception):
    """A mutation that cannot be done; `kind` is GitHub's error type, e.g. `STALE_DATA`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Root:
    """The root of queries and mutations. graphql-core calls what it finds here with the field's arguments."""

    call: Call

    def viewer(self, _info: GraphQLResolveInfo[Any]) -> Json:
        """Whose token it is."""
        return _user(self.call, self.call.user)

    def rateLimit(self, _info: GraphQLResolveInfo[Any]) -> Json:  # noqa: N802 - GraphQL's name
        """The fixed allowance."""
        return {"limit": LIMIT, "remaining": LIMIT}

    def repository(self, _info: GraphQLResolveInfo[Any], *, owner: str, name: str) -> Json:
        """One repository."""
        return _repository(self.call, _repo(self.call, f"{owner}/{name}", "metadata", "read"))

    def createCommitOnBranch(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Commit file changes to a branch that stands where it is expected."""
        return create_commit(self.call, input)

    def createRef(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Make a branch."""
        repo = _by_id(self.call, input["repositoryId"], "contents")
        made = refs.create(self.call, repo, input["name"], input["oid"])
        return {"clientMutationId": input.get("clientMutationId"), "ref": _ref(self.call, repo, made)}

    def createPullRequest(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Open a pull request."""
        return graphql_threads.open_pull(self.call, _by_id(self.call, input["repositoryId"], "pull_requests"), input)


def _repo(call: Call, full_name: str, permission: str, level: str) -> Repo:
    repo = call.site.store.repo(full_name) or call.site.store.moved_repo(full_name)
    if repo is None:
        raise RefusedError("NOT_FOUND", f"Could not resolve to a Repository with the name '{full_name}'.")
    role: Role = "write" if level == "write" else "read"
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=role)
    if repo.archived and level == "write":
        raise RefusedError("FORBIDDEN", "Repository was archived so is read-only.")
    return repo


def _by_id(call: Call, repository_id: str, permission: str) -> Repo:
    for repo in call.site.store.repos:
        if node_id("Repository", repo.id) == repository_id:
            return _repo(call, repo.full_name, permission, "write")
    raise RefusedError("NOT_FOUND", f"Could not resolve to a node with the global id of '{repository_id}'.")


def _user(call: Call, user: User) -> Json:
    return {
        "id": node_id(user.type, user.id),
        "databaseId": user.id,
        "login": user.login,
        "name": user.name,
        "url": call.site.html(user.login),
    }


def _repository(call: Call, repo: Repo) -> Json:
    def ref(_info: GraphQLResolveInfo[Any], *, qualifiedName: str) -> Json | None:  # noqa: N803 - GraphQL's name
        for name in (qualifiedName, f"refs/heads/{qualifiedName}", f"refs/tags/{qualifiedName}"):
            found = git.ref(repo.path, name)
            if found is not None:
                return _ref(call, repo, found)
        return None

    def thread(_info: GraphQLResolveInfo[Any], *, number: int) -> Json:
        found = call.site.store.issue(repo, number)
        if found is None:
            said = f"Could not resolve to an issue or pull request with the number of {number}."
            raise RefusedError("NOT_FOUND", said)
        demand(call.site, call.viewer, repo, permission="issues|pull_requests", level="read", role="read")
        return graphql_threads.thread(call, repo, found)

    default = git.ref(repo.path, f"refs/heads/{repo.default_branch}")
    return {
        "id": node_id("Repository", repo.id),
        "databaseId": repo.id,
        "name": repo.name,
        "nameWithOwner": repo.full_name,
        "isArchived": repo.archived,
        "isPrivate": repo.private,
        "issueOrPullRequest": thread,
        "url": call.site.html(repo.owner, repo.name),
        "defaultBranchRef": None if default is None else _ref(call, repo, default),
        "ref": ref,
    }


def ref_id(repo: Repo, name: str) -> str:
    """The global id of a reference; as `branch.id` it names the branch to commit to."""
    return node_id("Ref", f"{repo.id}:{name}")


def _ref(call: Call, repo: Repo, value: git.Ref) -> Json:
    prefix, _, name = value.name.removeprefix("refs/").partition("/")
    return {
        "id": ref_id(repo, value.name),
        "name": name,
        "prefix": f"refs/{prefix}/",
        "target": _commit(call, repo, git.commit(repo.path, value.sha)),
    }


def _commit(call: Call, repo: Repo, value: git.Commit) -> Json:
    signature = {"isValid": True, "state": "VALID", "wasSignedByGitHub": True}
    return {
        "id": node_id("Commit", f"{repo.id}:{value.sha}"),
        "oid": value.sha,
        "url": views_git.commit_page(call.site, repo, value.sha),
        "message": value.message,
        "messageHeadline": value.message.partition("\n")[0],
        "author": _actor(call, value.author),
        "committer": _actor(call, value.committer),
        "parents": lambda _info, first=None: {
            "nodes": [_commit(call, repo, git.commit(repo.path, sha)) for sha in value.parents[:first]],
            "totalCount": len(value.parents),
        },
        "tree": {"id": node_id("Tree", f"{repo.id}:{value.tree}"), "oid": value.tree},
        "committedDate": iso(value.committer.date),
        "signature": signature if value.sha in call.site.store.signed else None,
    }


def _actor(call: Call, person: git.Person) -> Json:
    user = views_git.account_of(call.site, person)
    shown = None if user is None else _user(call, user)
    return {"name": person.name, "email": person.email, "date": iso(person.date), "user": shown}


def create_commit(call: Call, wanted: Mapping[str, Any]) -> Json:
    """Do `createCommitOnBranch`.

    Raises:
        RefusedError: the branch is missing or stands elsewhere, or a path or content cannot be.
        HubError: the viewer may not.
    """
    repo, branch = _branch_of(call, wanted["branch"])
    name = f"refs/heads/{branch}"
    head = git.ref(repo.path, name)
    if head is None:
        raise RefusedError("NOT_FOUND", f"No ref found for branch '{branch}'.")
    expected = wanted["expectedHeadOid"]
    if head.sha != expected:
        raise RefusedError(
            "STALE_DATA", f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        )
    changes = wanted.get("fileChanges") or {}
    old = {entry.path: entry for entry in git.tree(repo.path, head.sha, recursive=True)}
    edits = [
        *(_deletion(old, given["path"]) for given in changes.get("deletions") or ()),
        *(_addition(repo, old, given) for given in changes.get("additions") or ()),
    ]
    tree = git.write_tree(repo.path, head.sha, edits)
    message = "\n\n".join(filter(None, (wanted["message"]["headline"], wanted["message"].get("body"))))
    sha = actions.write_commit(call.site, repo, tree=tree, parents=[head.sha], message=message, author=call.user)
    workflow_guard.demand_for_commit(repo.path, call.viewer, sha)
    try:
        git.update_ref(repo.path, name, sha, head.sha)
    except git.GitError as error:
        text = f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        raise RefusedError("STALE_DATA", text) from error
    branches.sync(call.site, repo, call.user)
    made = git.Ref(name=name, sha=sha, type="commit")
    return {
        "clientMutationId": wanted.get("clientMutationId"),
        "commit": _commit(call, repo, git.commit(repo.path, sha)),
        "ref": _ref(call, repo, made),
    }


def _branch_of(call: Call, branch: Mapping[str, str]) -> tuple[Repo, str]:
    if branch.get("id"):
        for repo in call.site.store.repos:
            for ref in git.refs(repo.path):
                if ref_id(repo, ref.name) == branch["id"]:
                    checked = _repo(call, repo.full_name, "contents", "write")
                    return checked, ref.name.removeprefix("refs/heads/")
        raise not_found()
    full_name, name = branch.get("repositoryNameWithOwner"), branch.get("branchName")
    if not full_name or not name:
        raise RefusedError("UNPROCESSABLE", "A branch needs an id, or repositoryNameWithOwner and branchName.")
    return _repo(call, full_name, "contents", "write"), name.removeprefix("refs/heads/")


def _deletion(old: Mapping[str, git.Entry], path: str) -> tuple[str, str | None, str]:
    if path not in old or old[path].type != "blob":
        raise RefusedError("UNPROCESSABLE", f"A path was requested for deletion which does not exist: {path}")
    return "0", None, path


def _addition(repo: Repo, old: Mapping[str, git.Entry], given: Mapping[str, str]) -> tuple[str, str | None, str]:
    """A new file gets mode 100644; a file that is there keeps its own."""
    path = given["path"]
    parts = path.split("/")
    if any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts):
        raise RefusedError("UNPROCESSABLE", f"A path is malformed: {path}")
    try:
        content = base64.b64decode(given["contents"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError("UNPROCESSABLE", f"The contents of {path} are not valid Base64") from error
    mode = old[path].mode if path in old and old[path].type == "blob" else "100644"
    return mode, git.write_blob(repo.path, content), path
