"""The answers to the client's GraphQL operations."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bot.github import graphql
from localhub.api.auth import HubError
from localhub.api.routing import check_length
from tests.fakes.answers import create_branch, demand_rules, demand_workflow_access, iso, open_pull, repo_json
from tests.fakes.routing import Json, Request, demand_writable
from tests.fakes.site import (
    FakeComment,
    FakeDiscussion,
    FakeFile,
    FakeRepo,
    FakeThread,
)


def graphql_answer(request: Request, query: str, variables: Mapping[str, Any]) -> Json:  # noqa: PLR0911 - one for each operation
    """Perform one of the client's GraphQL operations.

    Raises:
        HubError: it is refused, with the status that the client gives the refusal.
        AssertionError: the operation is unknown.
    """
    request.site.requests.append("POST graphql")
    if query == graphql.COMMENT:
        return {"node": _comment_node(request, variables["id"])}
    if query in _MUTATIONS:
        try:
            return _MUTATIONS[query](request, variables)
        except HubError as error:
            raise HubError(error.status if error.status in {403, 404} else 400, _message(error)) from error
    if query in {graphql.COMMIT, graphql.NEW_BRANCH, graphql.NEW_BRANCH_WITH_PULL}:
        return _mutate(request, variables)
    name = f"{variables['owner']}/{variables['name']}"
    repo = _graphql_repo(request, request.site.find_repo(name), name, ("metadata", "read"))
    if query == graphql.BRANCH:
        sha = repo.branches.get(variables["ref"].removeprefix("refs/heads/"))
        return {"repository": _graphql_facts(request, repo) | {"ref": _target(sha)}}
    if query == graphql.THREAD:
        thread = None if _hides_threads(request, repo) else repo.threads.get(variables["number"])
        shown = None if thread is None else _graphql_thread(request, repo, thread)
        return {"repository": _graphql_facts(request, repo) | {"issueOrPullRequest": shown}}
    if query == graphql.LABELS:
        thread = repo.threads.get(variables["number"])
        return {"repository": {"issueOrPullRequest": thread and _labels(request, thread)}}
    if query in {graphql.PULL_ID, graphql.DISCUSSIONS, graphql.DISCUSSION_COMMENTS}:
        return {"repository": _read_one(request, repo, query, variables)}
    return {"repository": _read_several(request, repo, query, variables)}


def _read_several(request: Request, repo: FakeRepo, query: str, variables: Mapping[str, Any]) -> Json:
    """Answer a query for any number of objects."""
    if (objects := _read_objects(request, repo, query, variables)) is not None:
        return objects
    values = {name: value for name, value in variables.items() if name not in {"owner", "name"}}
    for with_rules in (False, True):
        if query == graphql.branches_query(len(values), with_rules=with_rules):
            return {name: _branch(repo, ref, with_rules) for name, ref in values.items()}
    if query == graphql.blobs_query(len(values)):
        files = {file.sha: file for commit in repo.commits.values() for file in commit.tree.values()}
        return {name: _blob(files.get(sha)) for name, sha in values.items()}
    raise AssertionError(f"FakeGitHub does not know the operation {query}")


def _comment_node(request: Request, node_id: str) -> Json:
    for repo in request.site.repos.values():
        for comment in (comment for thread in repo.threads.values() for comment in thread.comments):
            if node_id == f"C_{comment.id}":
                request.demand(repo, "issues|pull_requests", "read")
                people = {"author": comment.author_id, "editor": comment.editor_id}
                accounts = {name: request.site.users.get(user_id or 0) for name, user_id in people.items()}
                return {"body": comment.body} | {
                    name: account and {"id": account.id, "login": account.login.removesuffix("[bot]")}
                    for name, account in accounts.items()
                }
    raise HubError(404, f"Could not resolve to a node with the global id of '{node_id}'.")


def _graphql_repo(
    request: Request, repo: FakeRepo | None, name: str, access: tuple[str, str] = ("contents", "write")
) -> FakeRepo:
    if repo is None:
        raise HubError(404, f"Could not resolve to a Repository with the name '{name}'.")
    request.demand(repo, *access)
    demand_writable(repo, is_write=access[1] == "write")
    return repo


def _graphql_facts(request: Request, repo: FakeRepo) -> Json:
    facts = {
        name: value for name, value in repo_json(request, repo).items() if name not in {"clone_url", "default_branch"}
    }
    head = _target(repo.branches.get(repo.default_branch))
    return facts | {"defaultBranchRef": None if head is None else {"name": repo.default_branch, **head}}


def _hides_threads(request: Request, repo: FakeRepo) -> bool:
    held = {request.app.permissions.get(name) for name in ("issues", "pull_requests")}
    return repo.installed and not held & {"read", "write"}


def _branch(repo: FakeRepo, ref: str, with_rules: bool) -> Json | None:  # noqa: FBT001 - of the one caller
    name = ref.removeprefix("refs/heads/")
    if name not in repo.branches:
        return None
    rulesets = repo.rulesets_for(name) if with_rules else []
    classic = {rule["type"] for each in rulesets if each.classic for rule in each.rules}
    nodes = [
        {"type": rule["type"].upper(), "repositoryRuleset": {"databaseId": each.id}, **_parameters(rule)}
        for each in rulesets
        if not each.classic
        for rule in each.rules
    ]
    protection = {
        "requiresSignatures": "required_signatures" in classic,
        "requiresLinearHistory": "required_linear_history" in classic,
    }
    return {"name": name, "rules": {"nodes": nodes}, "refUpdateRule": protection if classic else None}


def _parameters(rule: Mapping[str, Any]) -> Json:
    return {"parameters": rule.get("parameters")}


def _target(sha: str | None) -> Json | None:
    return None if sha is None else {"target": {"oid": sha}}


def _graphql_thread(request: Request, repo: FakeRepo, thread: FakeThread) -> Json:
    account, pull = request.site.users.get(thread.author_id), thread.pull
    shown: Json = {
        "__typename": "PullRequest" if pull else "Issue",
        "number": thread.number,
        "title": thread.title,
        "body": thread.body or "",
        "html_url": f"{request.site.url}/{repo.full_name}/{'pull' if pull else 'issues'}/{thread.number}",
        "locked": thread.locked,
        # As an actor a bot goes without the suffix of its login.
        "user": None if account is None else {"id": account.id, "login": account.login.removesuffix("[bot]")},
        "labels": {"nodes": [{"name": name} for name in thread.labels]},
        "assignees": {"nodes": [request.user(number) for number in thread.assignees]},
        "milestone": {"title": thread.milestone} if thread.milestone else None,
    }
    if pull is None:
        return shown | {"issueState": thread.state.upper()}
    home = pull.head_repo
    base_head = repo.branches.get(pull.base_ref)
    return shown | {
        "pullState": "MERGED" if pull.merged else thread.state.upper(),
        "merged": pull.merged,
        "draft": pull.draft,
        "from_fork": home is not repo,
        "head_ref": pull.head_ref,
        "head_sha": pull.head_sha,
        "base_ref": pull.base_ref,
        "base_sha": base_head or pull.base_sha,
        "head": None if home is None else {"repo_id": home.id, "repo_name": home.full_name},
        "baseRef": _target(base_head),
    }


def _labels(request: Request, thread: FakeThread) -> Json:
    """Return the history of a thread's labels."""
    nodes = []
    for name, user_id, at in thread.settings:
        user = request.site.users[user_id]
        actor = {"__typename": user.type, "id": user.id, "login": user.login.removesuffix("[bot]")}
        nodes.append({"createdAt": iso(at), "label": {"name": name}, "actor": actor})
    shown: Json = {"settings": {"nodes": nodes[-100:]}}
    if thread.pull is not None:
        return shown
    renames = [] if thread.renamed_at is None else [{"createdAt": iso(thread.renamed_at)}]
    edited_at = thread.edited_at and iso(thread.edited_at)
    texts = {"title": thread.title, "body": thread.body or "", "lastEditedAt": edited_at}
    return {**shown, **texts, "renames": {"nodes": renames}}


def _blob(file: FakeFile | None) -> Json | None:
    if file is None:
        return None
    try:
        text = None if b"\0" in file.content else file.content.decode()
    except UnicodeDecodeError:
        text = file.content.decode("latin-1")
    return {"oid": file.sha, "byteSize": len(file.content), "isTruncated": False, "text": text}


def _mutate(request: Request, variables: Mapping[str, Any]) -> Json:
    """Perform the parts of a mutation one after the other; a refused part does not stop the next one."""
    parts: tuple[tuple[str, str, Callable[[Request, Mapping[str, Any]], Json]], ...] = (
        ("ref", "createRef", _graphql_ref),
        ("commit", "createCommitOnBranch", _graphql_commit),
        ("pull", "createPullRequest", _graphql_pull),
    )
    data: Json = {}
    refusals: list[HubError] = []
    for name, part, perform in parts:
        try:
            data[part] = perform(request, variables[name]) if name in variables else None
        except HubError as error:
            data[part] = None
            refusals.append(error)
    if data["createCommitOnBranch"] is None:
        statuses = {error.status for error in refusals}
        status = 403 if 403 in statuses else 404 if statuses == {404} else 400
        raise HubError(status, "; ".join(_message(error) for error in refusals))
    return data


def _message(error: HubError) -> str:
    texts = (each if isinstance(each, str) else each.get("message", "") for each in error.errors)
    return "; ".join(filter(None, texts)) or error.message


def _by_node(request: Request, node_id: str, permission: str) -> FakeRepo:
    repo = request.site.repos.get(int(node_id.removeprefix("R_"))) if node_id[2:].isdecimal() else None
    if repo is None:
        raise HubError(404, f"Could not resolve to a node with the global id of '{node_id}'.")
    return _graphql_repo(request, repo, repo.full_name, (permission, "write"))


def _graphql_ref(request: Request, fields: Mapping[str, Any]) -> Json:
    create_branch(request, _by_node(request, fields["repositoryId"], "contents"), fields["name"], fields["oid"])
    return {}


def _graphql_pull(request: Request, fields: Mapping[str, Any]) -> Json:
    repo = _by_node(request, fields["repositoryId"], "pull_requests")
    if not fields["title"].strip():
        raise HubError(422, "Title can't be blank")
    check_length(fields["title"], "PullRequest", "title")
    names = {"head": fields["headRefName"], "base": fields["baseRefName"]}
    return {"pullRequest": open_pull(request, repo, {**fields, **names})}


def _graphql_commit(request: Request, fields: Mapping[str, Any]) -> Json:
    name, branch = fields["branch"]["repositoryNameWithOwner"], fields["branch"]["branchName"]
    repo = _graphql_repo(request, request.site.find_repo(name), name)
    head, expected = repo.head(branch), fields["expectedHeadOid"]
    if head is None:
        raise HubError(404, f"No ref found for branch '{branch}'.")
    if head.sha != expected:
        raise HubError(422, f'Expected branch to point to "{expected}" but it did not. Pull and try again.')
    files: dict[str, bytes | None] = {}
    for deletion in fields["fileChanges"]["deletions"]:
        if deletion["path"] not in head.tree:
            raise HubError(422, f"A path was requested for deletion which does not exist: {deletion['path']}")
        files[deletion["path"]] = None
    for addition in fields["fileChanges"]["additions"]:
        if any(part.lower() in {"", ".", "..", ".git"} for part in addition["path"].split("/")):
            raise HubError(422, f"A path is malformed: {addition['path']}")
        files[addition["path"]] = base64.b64decode(addition["contents"])
    message = "\n\n".join(filter(None, (fields["message"]["headline"], fields["message"]["body"])))
    commit = request.site.write_commit(repo, head, files, message=message, author=request.app.bot)
    demand_workflow_access(request, repo, commit)
    demand_rules(request, repo, branch, [request.site.new_commit(repo, commit, is_signed=True)], is_new=False)
    request.site.move_branch(repo, branch, commit.sha)
    return {
        "commit": {
            "oid": commit.sha,
            "html_url": f"{request.site.url}/{repo.full_name}/commit/{commit.sha}",
            "message": message,
            "tree": {"oid": commit.tree_sha},
            "parents": {"nodes": [{"oid": head.sha}]},
        }
    }


def _read_one(request: Request, repo: FakeRepo, query: str, variables: Mapping[str, Any]) -> Json:
    if query == graphql.PULL_ID:
        thread = repo.threads.get(variables["number"])
        if thread is None or thread.pull is None:
            return {"pullRequest": None}
        return {"pullRequest": {"id": f"PR_{thread.id}", "isDraft": thread.pull.draft}}
    request.demand(repo, "discussions", "read")
    if query == graphql.DISCUSSIONS:
        return {"discussions": {"nodes": [_discussion(request, repo, each) for each in repo.discussed.values()]}}
    discussion = repo.discussed.get(variables["number"])
    comments = (
        [_discussion_comment(request, repo, discussion, each) for each in discussion.comments] if discussion else []
    )
    return {"discussion": {"comments": {"nodes": comments}} if discussion else None}


def _read_objects(request: Request, repo: FakeRepo, query: str, variables: Mapping[str, Any]) -> Json | None:
    """Answer `graphql.state_query`; None for another query."""
    names = {name: value for name, value in variables.items() if name not in {"owner", "name"}}
    counts = Counter(name.rstrip("0123456789") for name in names)
    if not counts.keys() <= {"thread", "discussion", "label", "login", "branch"}:
        return None
    for lists in (["milestones"], ["categories"], []):
        if query == graphql.state_query(counts, lists):
            if "discussion" in counts or "categories" in lists:
                request.demand(repo, "discussions", "read")
            nodes: Json = {
                "milestones": [{"title": title} for title in repo.milestones],
                "categories": [{"id": f"DC_{number}", "name": name} for name, number in repo.categories.items()],
            }
            objects = {
                name: _read_object(request, repo, name.rstrip("0123456789"), value) for name, value in names.items()
            }
            return {"id": f"R_{repo.id}", **objects, **{name: {"nodes": nodes[name]} for name in lists}}
    return None


def _read_object(request: Request, repo: FakeRepo, kind: str, value: Any) -> Json | None:  # noqa: ANN401 - a number or name
    match kind:
        case "thread":
            thread = None if _hides_threads(request, repo) else repo.threads.get(value)
            return None if thread is None else _graphql_thread(request, repo, thread)
        case "discussion":
            discussion = repo.discussed.get(value)
            return None if discussion is None else _discussion(request, repo, discussion)
        case "label":
            label = repo.labels.get(value.lower())
            return None if label is None else {"name": label}
        case "login":
            roles = ("triage", "write", "maintain", "admin")
            people = [user for user in request.site.users.values() if request.site.role_of(repo, user) in roles]
            return {"nodes": [{"login": user.login} for user in people if user.type == "User"]}
        case _:
            return _branch(repo, value, True)  # noqa: FBT003 - with its rules


def _discussion(request: Request, repo: FakeRepo, value: FakeDiscussion) -> Json:
    page = f"{request.site.url}/{repo.full_name}/discussions/{value.number}"
    shown = {"number": value.number, "closed": False, "locked": value.locked}
    return {**shown, **_written(request, f"D_{value.id}", page, value.author_id, value.body)}


def _discussion_comment(request: Request, repo: FakeRepo, value: FakeDiscussion, comment: FakeComment) -> Json:
    page = f"{request.site.url}/{repo.full_name}/discussions/{value.number}#discussioncomment-{comment.id}"
    return _written(request, f"DC_{comment.id}", page, comment.author_id, comment.body)


def _written(request: Request, node_id: str, page: str, author_id: int, body: str) -> Json:
    account = request.site.users[author_id]
    user = {"id": account.id, "login": account.login.removesuffix("[bot]")}
    return {"node_id": node_id, "html_url": page, "body": body, "user": user}


def _set_draft(request: Request, variables: Mapping[str, Any], *, draft: bool) -> Json:
    name = "convertPullRequestToDraft" if draft else "markPullRequestReadyForReview"
    for repo in request.site.repos.values():
        for thread in repo.threads.values():
            if thread.pull is not None and variables["id"] == f"PR_{thread.id}":
                request.demand(repo, "issues|pull_requests", "write")
                request.demand(repo, "contents", "write")
                thread.pull.draft = draft
                return {name: {"clientMutationId": None}}
    raise HubError(404, "Could not resolve to a node.")


def _create_discussion(request: Request, variables: Mapping[str, Any]) -> Json:
    new, site = variables["new"], request.site
    repo = _by_node(request, new["repositoryId"], "discussions")
    category = next(name for name, number in repo.categories.items() if new["categoryId"] == f"DC_{number}")
    for name in ("title", "body"):
        if not new[name].strip():
            raise HubError(422, f"{name.capitalize()} can't be blank")
        check_length(new[name], "Discussion", name)
    made = site.open_discussion(repo, category, author=request.app.bot.login, title=new["title"], body=new["body"])
    return {"createDiscussion": {"discussion": _discussion(request, repo, made)}}


def _add_discussion_comment(request: Request, variables: Mapping[str, Any]) -> Json:
    new, site = variables["new"], request.site
    for repo in site.repos.values():
        for discussion in repo.discussed.values():
            if new["discussionId"] == f"D_{discussion.id}":
                _graphql_repo(request, repo, repo.full_name, ("discussions", "write"))
                if not new["body"].strip():
                    raise HubError(422, "Body can't be blank")
                check_length(new["body"], "DiscussionComment", "body")
                login = request.app.bot.login
                comment = site.comment_discussion(repo, discussion.number, author=login, body=new["body"])
                return {"addDiscussionComment": {"comment": _discussion_comment(request, repo, discussion, comment)}}
    raise HubError(404, "Could not resolve to a node.")


_MUTATIONS: Mapping[str, Callable[[Request, Mapping[str, Any]], Json]] = {
    graphql.DRAFT: partial(_set_draft, draft=True),
    graphql.READY: partial(_set_draft, draft=False),
    graphql.NEW_DISCUSSION: _create_discussion,
    graphql.NEW_DISCUSSION_COMMENT: _add_discussion_comment,
}
