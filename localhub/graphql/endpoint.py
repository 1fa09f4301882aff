"""GraphQL: queries and mutations of a part of GitHub's schema, with a real parser.

`answer` runs one operation against `schema`. `Root` resolves the fields of queries, and the functions below it read
repositories and threads. `mutations.py` changes them, and `threads.py` makes the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib.resources import files
from typing import Any

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

from localhub.api.auth import HubError, can_read, demand, may, role_of
from localhub.api.routing import Call, Response, log
from localhub.git import plumbing as git
from localhub.graphql import discussions, threads
from localhub.graphql.mutations import MUTATIONS, RefusedError, parse_id, repo_named, thread_of
from localhub.graphql.threads import connection, user
from localhub.operations import branches
from localhub.operations import threads as threads_module
from localhub.state.model import Repo, User
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
        log.warning("The local hub does not serve a query: %s", "; ".join(fault.message for fault in faults))
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
        return user(self.call, self.call.user) | {"repositories": partial(_repositories, self.call, self.call.user)}

    def node(self, _info: GraphQLResolveInfo[Any], *, id: str) -> Json:  # noqa: A002 - GraphQL's name
        """The issue, pull request or comment in a thread with this global id."""
        kind, number = parse_id(id)
        comment = self.call.site.store.comments.get(number) if kind == "IssueComment" else None
        if comment is not None:
            repo = self.call.site.store.repos[comment.repo_id]
            demand(self.call.site, self.call.viewer, repo, permission="issues|pull_requests", level="read", role="read")
            return threads.comment(self.call, repo, comment)
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
        """The requests left in this hour; each costs one here."""
        left = self.call.site.rates.remaining(self.call.viewer.key, self.call.site.now(), "graphql")
        return {**left, "cost": 1, "nodeCount": 0, "resetAt": iso(datetime.fromtimestamp(left["reset"], UTC))}

    def user(self, _info: GraphQLResolveInfo[Any], *, login: str) -> Json:
        """The person with this login."""
        return self._account(login, "User", "to a User with the login of")

    def repositoryOwner(self, _info: GraphQLResolveInfo[Any], *, login: str) -> Json:  # noqa: N802 - GraphQL's name
        """The person or organisation with this login."""
        return self._account(login, "", "to a RepositoryOwner with the login of")

    def organization(self, _info: GraphQLResolveInfo[Any], *, login: str) -> Json:
        """The organisation with this login; the hub has no teams."""
        return self._account(login, "Organization", "to an Organization with the login of") | {
            "teams": connection(list, dict)
        }

    def _account(self, login: str, kind: str, sentence: str) -> Json:
        found = self.call.site.store.user(login)
        if found is None or (kind and (found.type == "Organization") != (kind == "Organization")):
            raise RefusedError("NOT_FOUND", f"Could not resolve {sentence} '{login}'.")
        shown: Json = user(self.call, found) | {"__typename": found.type if found.type == "Organization" else "User"}
        return shown | {"repositories": partial(_repositories, self.call, found)}

    def repository(self, _info: GraphQLResolveInfo[Any], *, owner: str, name: str) -> Json:
        """One repository."""
        return _repository(self.call, repo_named(self.call, f"{owner}/{name}", "metadata", "read"))

    def __getattr__(self, name: str) -> Callable[..., Json]:
        """The mutation of this name."""
        mutation = MUTATIONS.get(name) or discussions.MUTATIONS.get(name)
        if mutation is None:
            raise AttributeError(name)
        return lambda _info, *, input: mutation(self.call, input)  # noqa: A006 - GraphQL's name


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
    numbers = {user.id for user in site.store.users if may(role_of(site, repo, user), "triage")}
    people = [person for person in site.store.users if person.id in numbers and person.type == "User"]

    def assignable(info: GraphQLResolveInfo[Any], *, query: str = "", **page: Any) -> Json:  # noqa: ANN401 - what `connection` takes
        found = [person for person in people if query.lower() in f"{person.login}\n{person.name}".lower()]
        shown: Json = connection(lambda: found, partial(user, call))(info, **page)
        return shown

    languages, newest = partial(git.languages, repo.path, repo.default_branch), branches.latest_release(site, repo)
    return threads.repository(call, repo) | {
        "assignableUsers": assignable,
        "forkCount": sum(other.fork_of == repo.id for other in site.store.repos),
        "homepageUrl": repo.homepage or None,
        "isTemplate": False,
        "label": partial(_label_named, call, repo),
        "languages": _languages(repo),
        "latestRelease": None if newest is None else partial(threads.release_of_tag, call, repo, tagName=newest.tag),
        "licenseInfo": None,
        "milestone": partial(_milestone_numbered, call, repo),
        "milestones": partial(_milestones, call, repo),
        "primaryLanguage": lambda _info: next(map(_language, languages()), None),
        "repositoryTopics": connection(lambda: repo.topics, _topic),
        "sshUrl": f"ssh://git@{site.repo_html(repo).partition('://')[2]}.git",
        "stargazerCount": 0,
        "updatedAt": iso(repo.pushed_at),
        "description": repo.description or None,
        "createdAt": iso(repo.created_at),
        "pushedAt": iso(repo.pushed_at),
        "hasIssuesEnabled": repo.has_issues,
        **dict.fromkeys(("mergeCommitAllowed", "rebaseMergeAllowed", "squashMergeAllowed"), True),
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
        **discussions.fields(call, repo),
    }


def _repositories(
    call: Call,
    owner: User,
    info: GraphQLResolveInfo[Any],
    *,
    privacy: str | None = None,
    isFork: bool | None = None,  # noqa: N803 - GraphQL's name
    isArchived: bool | None = None,  # noqa: N803 - the same
    orderBy: Mapping[str, str] | None = None,  # noqa: N803 - the same
    **page: Any,  # noqa: ANN401 - what `connection` takes
) -> Json:
    """The repositories that an account owns, oldest first unless asked otherwise."""
    found = [
        repo
        for repo in call.site.store.repos
        if repo.owner == owner.login
        and can_read(call.site, call.viewer, repo)
        and privacy in {None, "PRIVATE" if repo.private else "PUBLIC"}
        and isFork in {None, repo.fork_of is not None}
        and isArchived in {None, repo.archived}
    ]
    order = orderBy or {"field": "CREATED_AT", "direction": "ASC"}
    keys = {"NAME": lambda repo: repo.name, "PUSHED_AT": lambda repo: repo.pushed_at}
    found.sort(key=keys.get(order["field"], lambda repo: repo.created_at), reverse=order["direction"] == "DESC")
    answer: Json = connection(lambda: found, partial(_repository, call))(info, **page)
    return answer


def _languages(repo: Repo) -> Callable[..., Json]:
    def page(info: GraphQLResolveInfo[Any], **arguments: Any) -> Json:  # noqa: ANN401 - what `connection` takes
        sizes = list(git.languages(repo.path, repo.default_branch).items())
        shown: Json = connection(lambda: sizes, lambda pair: _language(pair[0]))(info, **arguments)
        edges = [{"node": node, "size": size} for node, (_, size) in zip(shown["nodes"], sizes, strict=False)]
        return shown | {"edges": edges}

    return page


def _language(name: str) -> Json:
    return {"id": node_id("Language", name), "name": name}


def _topic(name: str) -> Json:
    return {"id": node_id("RepositoryTopic", name), "topic": {"id": node_id("Topic", name), "name": name}}


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


def _label_named(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, name: str) -> Json | None:
    found = call.site.store.labels.get((repo.id, name.lower()))
    return None if found is None else threads.label(found)


def _milestone_numbered(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, number: int) -> Json | None:
    found = next((each for each in call.site.store.milestones_of(repo) if each.number == number), None)
    return None if found is None else threads.milestone(found)


def _milestones(
    call: Call,
    repo: Repo,
    info: GraphQLResolveInfo[Any],
    *,
    states: list[str] | None = None,
    query: str = "",
    **page: Any,  # noqa: ANN401 - what `connection` takes
) -> Json:
    """A repository's milestones of some states, those with `query` in the title."""
    found = [
        each
        for each in call.site.store.milestones_of(repo)
        if each.state.upper() in (states or ("OPEN", "CLOSED")) and (query or "").lower() in each.title.lower()
    ]
    answer: Json = connection(lambda: found, threads.milestone)(info, **page)
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
