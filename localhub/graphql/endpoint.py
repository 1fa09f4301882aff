"""GraphQL: queries and mutations of a part of GitHub's schema, with a real parser.

`answer` runs one operation against `schema`. `Root` resolves the fields of queries and mutations; the functions below
it read repositories and threads, change threads, and commit with `createCommitOnBranch`. `threads.py` makes the values.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.resources import files
from typing import Any, Literal

from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLError,
    GraphQLResolveInfo,
    GraphQLSchema,
    GraphQLSyntaxError,
    OverlappingFieldsCanBeMergedRule,
    build_schema,
    execute_sync,
    parse,
    specified_rules,
    validate,
)

from localhub.api import rules
from localhub.api.auth import HubError, demand, demand_unlocked, not_found, or_404, role_of
from localhub.api.routing import Call, Response, check_length
from localhub.git import plumbing as git
from localhub.graphql import threads
from localhub.graphql.threads import connection, user
from localhub.operations import branches, pulls, workflow_files
from localhub.operations import threads as threads_module
from localhub.state.model import Issue, Repo, ReviewState, Role
from localhub.state.store import Json, iso, node_id


@cache
def schema() -> GraphQLSchema:
    """The part of GitHub's schema that the hub speaks, with GitHub's names and types."""
    return build_schema(files("localhub.graphql").joinpath("schema.graphql").read_text(encoding="utf-8"))


# GitHub lets a query ask for the state of what may be an issue or a pull request, which are two types.
_RULES = [rule for rule in specified_rules if rule is not OverlappingFieldsCanBeMergedRule]
_ERROR_TYPES = {404: "NOT_FOUND", 422: "UNPROCESSABLE"}


def answer(call: Call) -> Response:
    """Run one operation; errors come back with status 200, as GitHub sends them."""
    if call.viewer.user is None:
        raise HubError(401, "This endpoint requires you to be authenticated.")
    query, variables = call.body.get("query"), call.body.get("variables") or {}
    if not isinstance(query, str):
        raise HubError(400, "A query attribute must be specified and must be a string.")
    result = _result(call, query, variables)
    body: dict[str, Any] = {"data": result.data}
    if result.errors:
        body["errors"] = [_error(error) for error in result.errors]
    return Response(body=body)


def _result(call: Call, query: str, variables: Mapping[str, Any]) -> ExecutionResult:
    try:
        document, faults = _parse(query)
    except GraphQLSyntaxError as error:
        return ExecutionResult(data=None, errors=[error])
    if faults:
        return ExecutionResult(data=None, errors=faults)
    return execute_sync(
        schema(),
        document,
        root_value=Root(call),
        variable_values=dict(variables),
        operation_name=call.body.get("operationName"),
    )


@lru_cache(maxsize=256)
def _parse(query: str) -> tuple[DocumentNode, list[GraphQLError]]:
    """Parse and validate a query, which takes longer than its execution."""
    document = parse(query)
    return document, validate(schema(), document, _RULES)


def _error(error: GraphQLError) -> Mapping[str, Any]:
    """GitHub puts an error's `type` beside its message."""
    formatted = dict(error.formatted)
    original = error.original_error
    if isinstance(original, RefusedError):
        formatted["type"] = original.kind
    elif isinstance(original, HubError):
        formatted["type"] = _ERROR_TYPES.get(original.status, "FORBIDDEN")
        said = [each if isinstance(each, str) else each.get("message", "") for each in original.errors]
        formatted["message"] = "; ".join(filter(None, said)) or original.message
    return formatted


@dataclass(frozen=True, slots=True)
class Root:
    """The root of queries and mutations; graphql-core calls its methods with the field's arguments."""

    call: Call

    def viewer(self, _info: GraphQLResolveInfo[Any]) -> Json:
        """The token's user."""
        return user(self.call, self.call.user)

    def node(self, _info: GraphQLResolveInfo[Any], *, id: str) -> Json:  # noqa: A002 - GraphQL's name
        """The issue or pull request with this global id."""
        repo, found = thread_of(self.call, id, level="read")
        return threads.thread(self.call, repo, found)

    def search(self, info: GraphQLResolveInfo[Any], *, query: str, type: str, **page: Any) -> Json:  # noqa: A002, ANN401 - GraphQL's names
        """Issues and pull requests; the hub searches for nothing else."""
        call, repos = self.call, self.call.site.store.repos
        found = threads_module.search(call.site, call.viewer, query) if type.startswith("ISSUE") else []
        shown: Json = connection(lambda: found, lambda issue: threads.thread(call, repos[issue.repo_id], issue))(
            info, **page
        )
        return shown | {"issueCount": len(found)}

    def rateLimit(self, _info: GraphQLResolveInfo[Any]) -> Json:  # noqa: N802 - GraphQL's name
        """The requests left in this hour."""
        return self.call.site.rates.remaining(self.call.viewer.key, self.call.site.now(), "graphql")

    def repository(self, _info: GraphQLResolveInfo[Any], *, owner: str, name: str) -> Json:
        """One repository."""
        return _repository(self.call, _repo(self.call, f"{owner}/{name}", "metadata", "read"))

    def createCommitOnBranch(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Commit file changes to a branch that stands where it is expected."""
        return create_commit(self.call, input)

    def createRef(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Make a branch."""
        repo = _by_id(self.call, input["repositoryId"], "contents")
        made = branches.create_ref(self.call, repo, input["name"], input["oid"])
        return {"clientMutationId": input.get("clientMutationId"), "ref": threads.ref(self.call, repo, made)}

    def createPullRequest(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Open a pull request."""
        return open_pull(self.call, _by_id(self.call, input["repositoryId"], "pull_requests"), input)

    def createIssue(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Open an issue."""
        repo = _by_id(self.call, input["repositoryId"], "issues", role="read")
        return open_issue(self.call, repo, input)

    def addComment(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Comment in a thread."""
        return add_comment(self.call, input)

    def addPullRequestReview(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Review a pull request."""
        return add_review(self.call, input)

    def closeIssue(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Close an issue."""
        return set_state(self.call, input, "issue", "closed")

    def reopenIssue(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Open an issue again."""
        return set_state(self.call, input, "issue", "open")

    def closePullRequest(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Close a pull request."""
        return set_state(self.call, input, "pullRequest", "closed")

    def reopenPullRequest(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Open a pull request again."""
        return set_state(self.call, input, "pullRequest", "open")

    def mergePullRequest(self, _info: GraphQLResolveInfo[Any], *, input: Mapping[str, Any]) -> Json:  # noqa: A002, N802 - GraphQL's names
        """Merge a pull request."""
        return merge(self.call, input)


class RefusedError(Exception):
    """A mutation that cannot be done; `kind` is GitHub's error type, e.g. `STALE_DATA`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _repo(call: Call, full_name: str, permission: str, level: str, *, role: Role | None = None) -> Repo:
    repo = call.site.store.repo(full_name) or call.site.store.moved_repo(full_name)
    if repo is None:
        raise RefusedError("NOT_FOUND", f"Could not resolve to a Repository with the name '{full_name}'.")
    needed: Role = role or ("write" if level == "write" else "read")
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=needed)
    if repo.archived and level == "write":
        raise RefusedError("FORBIDDEN", "Repository was archived so is read-only.")
    return repo


def _by_id(call: Call, repository_id: str, permission: str, *, role: Role = "write") -> Repo:
    for repo in call.site.store.repos:
        if node_id("Repository", repo.id) == repository_id:
            return _repo(call, repo.full_name, permission, "write", role=role)
    raise RefusedError("NOT_FOUND", f"Could not resolve to a node with the global id of '{repository_id}'.")


def _repository(call: Call, repo: Repo) -> Json:
    def ref(_info: GraphQLResolveInfo[Any], *, qualifiedName: str) -> Json | None:  # noqa: N803 - GraphQL's name
        for name in (qualifiedName, f"refs/heads/{qualifiedName}", f"refs/tags/{qualifiedName}"):
            found = git.ref(repo.path, name)
            if found is not None:
                return threads.ref(call, repo, found)
        return None

    site, parent = call.site, call.site.store.repos.get(repo.fork_of) if repo.fork_of else None
    default = git.ref(repo.path, f"refs/heads/{repo.default_branch}")
    role = role_of(site, repo, call.viewer.user)
    return threads.repository(call, repo) | {
        "description": repo.description or None,
        "createdAt": iso(repo.created_at),
        "pushedAt": iso(repo.pushed_at),
        **dict.fromkeys(("hasIssuesEnabled", "mergeCommitAllowed", "rebaseMergeAllowed", "squashMergeAllowed"), True),
        **dict.fromkeys(("hasProjectsEnabled", "hasWikiEnabled", "deleteBranchOnMerge"), False),
        "isEmpty": default is None,
        "isFork": repo.fork_of is not None,
        "parent": None if parent is None else lambda _info: _repository(call, parent),
        "visibility": "PRIVATE" if repo.private else "PUBLIC",
        "viewerPermission": None if role == "none" else role.upper(),
        "issueOrPullRequest": partial(_thread, call, repo, kinds=("issue", "pull request")),
        "issue": partial(_thread, call, repo, kinds=("issue",)),
        "pullRequest": partial(_thread, call, repo, kinds=("pull request",)),
        "issues": partial(_threads, call, repo, pulls=False),
        "pullRequests": partial(_threads, call, repo, pulls=True),
        "labels": partial(_labels, call, repo),
        "release": partial(threads.release_of_tag, call, repo),
        "releases": partial(threads.list_releases, call, repo),
        "defaultBranchRef": None if default is None else threads.ref(call, repo, default),
        "ref": ref,
        "object": partial(_object, call, repo),
    }


def _object(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, oid: str | None = None) -> Json | None:
    """The commit or blob with an id; None where there is none."""
    demand(call.site, call.viewer, repo, permission="contents", level="read", role="read")
    if oid is None:
        return None
    if git.resolve(repo.path, oid) == oid:
        return threads.commit(call, repo, git.commit(repo.path, oid))
    if git.resolve(repo.path, oid, "blob") != oid:
        return None
    content = git.blob(repo.path, oid)
    try:
        text = None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return {
        "__typename": "Blob",
        "id": node_id("Blob", f"{repo.id}:{oid}"),
        "oid": oid,
        "byteSize": len(content),
        "isBinary": text is None,
        "isTruncated": False,
        "text": text,
    }


def _thread(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, number: int, kinds: tuple[str, ...]) -> Json:
    """The issue or pull request of a number.

    Raises:
        RefusedError: there is none of these kinds.
    """
    found = call.site.store.issue(repo, number)
    if found is None or ("issue" if found.pull is None else "pull request") not in kinds:
        said = f"Could not resolve to an {' or '.join(kinds)} with the number of {number}."
        raise RefusedError("NOT_FOUND", said)
    demand(call.site, call.viewer, repo, permission="issues|pull_requests", level="read", role="read")
    return threads.thread(call, repo, found)


def _threads(
    call: Call,
    repo: Repo,
    info: GraphQLResolveInfo[Any],
    *,
    pulls: bool,
    states: list[str] | None = None,
    labels: list[str] | None = None,
    filterBy: Mapping[str, Any] | None = None,  # noqa: N803 - GraphQL's name
    orderBy: Mapping[str, str] | None = None,  # noqa: N803 - GraphQL's name
    **page: Any,  # noqa: ANN401 - what `connection` takes
) -> Json:
    """A repository's issues or pull requests, oldest first unless asked otherwise."""
    demand(call.site, call.viewer, repo, permission="issues|pull_requests", level="read", role="read")
    wanted = {"states": states, "labels": labels, **(filterBy or {})}
    branches_wanted = {name: page.pop(name, None) for name in ("headRefName", "baseRefName")}
    found = [
        issue
        for issue in call.site.store.issues_of(repo)
        if (issue.pull is not None) == pulls
        and threads.matches_filter(call, issue, wanted)
        and (issue.pull is None or branches_wanted["headRefName"] in {None, issue.pull.head_ref})
        and (issue.pull is None or branches_wanted["baseRefName"] in {None, issue.pull.base_ref})
    ]
    order = orderBy or {"field": "CREATED_AT", "direction": "ASC"}
    by_update = order["field"] == "UPDATED_AT"
    found.sort(key=lambda issue: (issue.updated_at if by_update else issue.created_at, issue.number))
    if order["direction"] == "DESC":
        found.reverse()
    answer: Json = connection(lambda: found, partial(threads.thread, call, repo))(info, **page)
    return answer


def _labels(call: Call, repo: Repo, info: GraphQLResolveInfo[Any], *, query: str = "", **page: Any) -> Json:  # noqa: ANN401 - what `connection` takes
    """A repository's labels by name, those with `query` in it."""
    labels = call.site.store.labels
    found = sorted(
        (label for (number, name), label in labels.items() if number == repo.id and (query or "").lower() in name),
        key=lambda label: label.name.lower(),
    )
    answer: Json = connection(lambda: found, threads.label)(info, **page)
    return answer


Inputs = Mapping[str, Any]
_EVENTS: Mapping[str | None, ReviewState] = {
    None: "PENDING",
    "APPROVE": "APPROVED",
    "REQUEST_CHANGES": "CHANGES_REQUESTED",
    "COMMENT": "COMMENTED",
}


def thread_of(
    call: Call, node_id: str, *, level: Literal["read", "write"] = "write", role: Role | None = None
) -> tuple[Repo, Issue]:
    """The thread of a global id.

    Args:
        level: of the viewer's access.
        role: the weakest role of a permitted user; by default the level.

    Raises:
        HubError: there is no such thread, or access is refused.
    """
    try:
        kind, _, number = base64.b64decode(node_id, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        kind, number = "", ""
    found = call.site.store.issues.get(int(number)) if number.isdecimal() else None
    if found is None or kind != ("Issue" if found.pull is None else "PullRequest"):
        raise HubError(404, f"Could not resolve to a node with the global id of '{node_id}'.")
    repo = call.site.store.repos[found.repo_id]
    permission = "issues|pull_requests"
    demand(call.site, call.viewer, repo, permission=permission, level=level, role=role or level)
    if repo.archived and level == "write":
        raise HubError(403, "Repository was archived so is read-only.")
    return repo, found


def _mutation_payload(inputs: Inputs, **parts: object) -> Json:
    return {"clientMutationId": inputs.get("clientMutationId"), **parts}


def open_pull(call: Call, repo: Repo, inputs: Inputs) -> Json:
    """Do `createPullRequest`.

    Raises:
        HubError: a branch is missing, there is nothing between them, or they already have one.
    """
    if not inputs["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(inputs["title"], "PullRequest", "title")
    new = pulls.NewPull(
        head=inputs["headRefName"],
        base=inputs["baseRefName"],
        title=inputs["title"],
        body=inputs.get("body"),
        draft=bool(inputs.get("draft")),
        maintainer_can_modify=inputs.get("maintainerCanModify", True),
    )
    made = pulls.open_pull(call.site, repo, call.user, new, app_id=call.app_id)
    return _mutation_payload(inputs, pullRequest=threads.thread(call, repo, made))


def open_issue(call: Call, repo: Repo, inputs: Inputs) -> Json:
    """Do `createIssue`."""
    if not inputs["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(inputs["title"], "Issue", "title")
    labels = {node_id("Label", label.id): label.name for label in call.site.store.labels.values()}
    made = threads_module.open_issue(
        call.site,
        repo,
        call.user,
        title=inputs["title"],
        body=inputs.get("body"),
        labels=[labels[each] for each in inputs.get("labelIds") or () if each in labels],
        app_id=call.app_id,
    )
    return _mutation_payload(inputs, issue=threads.thread(call, repo, made))


def add_comment(call: Call, inputs: Inputs) -> Json:
    """Do `addComment`."""
    repo, issue = thread_of(call, inputs["subjectId"], role="read")
    demand_unlocked(call.site, call.viewer, repo, issue, "comment")
    if not inputs["body"].strip():
        raise HubError(422, "Body can't be blank")
    check_length(inputs["body"], "IssueComment", "body")
    made = threads_module.comment(call.site, issue, call.user, inputs["body"], app_id=call.app_id)
    edge = {"node": threads.comment(call, repo, made)}
    return _mutation_payload(inputs, commentEdge=edge, subject=threads.thread(call, repo, issue))


def add_review(call: Call, inputs: Inputs) -> Json:
    """Do `addPullRequestReview`; without an event the review is pending."""
    repo, issue = thread_of(call, inputs["pullRequestId"], role="read")
    state, body = _EVENTS[inputs.get("event")], inputs.get("body") or ""
    if state in {"COMMENTED", "CHANGES_REQUESTED"} and not body.strip():
        raise HubError(422, "Body can't be blank")
    made, _ = pulls.submit_review(call.site, issue, call.user, state=state, body=body)
    return _mutation_payload(inputs, pullRequestReview=threads.review(call, repo, made))


def set_state(
    call: Call, inputs: Inputs, kind: Literal["issue", "pullRequest"], state: Literal["open", "closed"]
) -> Json:
    """Do `closeIssue`, `reopenIssue`, `closePullRequest` or `reopenPullRequest`."""
    repo, issue = thread_of(call, inputs[f"{kind}Id"])
    reason = inputs.get("stateReason")
    changed = threads_module.set_state(call.site, issue, call.user, state, reason.lower() if reason else None)
    return _mutation_payload(inputs, **{kind: threads.thread(call, repo, changed)})


def merge(call: Call, inputs: Inputs) -> Json:
    """Do `mergePullRequest`."""
    repo, issue = thread_of(call, inputs["pullRequestId"])
    pull = or_404(issue.pull)
    if (inputs.get("expectedHeadOid") or pull.head_sha) != pull.head_sha:
        raise HubError(422, "Head branch was modified. Review and try the merge again.")
    message = "\n\n".join(filter(None, (inputs.get("commitHeadline"), inputs.get("commitBody"))))
    method = inputs.get("mergeMethod", "MERGE").lower()
    pulls.merge(call.site, issue, call.user, method=method, message=message)
    return _mutation_payload(inputs, pullRequest=threads.thread(call, repo, call.site.store.issues[issue.id]))


def create_commit(call: Call, inputs: Mapping[str, Any]) -> Json:
    """Do `createCommitOnBranch`.

    Raises:
        RefusedError: the branch is missing or stands elsewhere, or a path or content cannot be.
        HubError: the viewer may not.
    """
    repo, branch = _branch_of(call, inputs["branch"])
    name = f"refs/heads/{branch}"
    head = git.ref(repo.path, name)
    if head is None:
        raise RefusedError("NOT_FOUND", f"No ref found for branch '{branch}'.")
    expected = inputs["expectedHeadOid"]
    if head.sha != expected:
        raise RefusedError(
            "STALE_DATA", f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        )
    changes = inputs.get("fileChanges") or {}
    old = {entry.path: entry for entry in git.tree(repo.path, head.sha, recursive=True)}
    edits = [
        *(_deletion(old, given["path"]) for given in changes.get("deletions") or ()),
        *(_addition(repo, old, given) for given in changes.get("additions") or ()),
    ]
    tree = git.write_tree(repo.path, head.sha, edits)
    message = "\n\n".join(filter(None, (inputs["message"]["headline"], inputs["message"].get("body"))))
    sha = threads_module.write_commit(call.site, repo, tree=tree, parents=[head.sha], message=message, author=call.user)
    workflow_files.demand_for_commit(repo.path, call.viewer, sha)
    rules.demand(call.site, repo, name, head.sha, sha, login=call.user.login)
    try:
        git.update_ref(repo.path, name, sha, head.sha)
    except git.HubGitError as error:
        text = f'Expected branch to point to "{expected}" but it did not. Pull and try again.'
        raise RefusedError("STALE_DATA", text) from error
    branches.sync(call.site, repo, call.user)
    made = git.Ref(name=name, sha=sha)
    return {
        "clientMutationId": inputs.get("clientMutationId"),
        "commit": threads.commit(call, repo, git.commit(repo.path, sha)),
        "ref": threads.ref(call, repo, made),
    }


def _branch_of(call: Call, branch: Mapping[str, str]) -> tuple[Repo, str]:
    if branch.get("id"):
        for repo in call.site.store.repos:
            for ref in git.refs(repo.path):
                if threads.ref_id(repo, ref.name) == branch["id"]:
                    checked = _repo(call, repo.full_name, "contents", "write")
                    return checked, ref.name.removeprefix("refs/heads/")
        raise not_found()
    full_name, name = branch.get("repositoryNameWithOwner"), branch.get("branchName")
    if not full_name or not name:
        raise RefusedError("UNPROCESSABLE", "A branch needs an id, or repositoryNameWithOwner and branchName.")
    return _repo(call, full_name, "contents", "write"), name.removeprefix("refs/heads/")


def _deletion(old: Mapping[str, git.TreeEntry], path: str) -> tuple[str, str | None, str]:
    if path not in old or old[path].type != "blob":
        raise RefusedError("UNPROCESSABLE", f"A path was requested for deletion which does not exist: {path}")
    return "0", None, path


def _addition(repo: Repo, old: Mapping[str, git.TreeEntry], file: Mapping[str, str]) -> tuple[str, str | None, str]:
    """A new file gets mode 100644; a file that is there keeps its own."""
    path = file["path"]
    parts = path.split("/")
    if any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts):
        raise RefusedError("UNPROCESSABLE", f"A path is malformed: {path}")
    try:
        content = base64.b64decode(file["contents"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError("UNPROCESSABLE", f"The contents of {path} are not valid Base64") from error
    mode = old[path].mode if path in old and old[path].type == "blob" else "100644"
    return mode, git.write_blob(repo.path, content), path
