"""Issues and pull requests in GraphQL, and opening a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphql import GraphQLResolveInfo

from bot.localhub import git, pulls, views_threads
from bot.localhub.errors import HubError
from bot.localhub.model import Issue, Pull, Repo
from bot.localhub.routing import Call
from bot.localhub.site import Json, node_id


def thread(call: Call, repo: Repo, value: Issue) -> Json:
    """`Issue` or `PullRequest`."""
    site = call.site
    author = site.store.users.get(value.author_id)

    def labels(_info: GraphQLResolveInfo[Any], *, first: int | None = None) -> Json:
        return {"nodes": [{"name": name} for name in value.labels[:first]], "totalCount": len(value.labels)}

    shown: Json = {
        "__typename": "Issue" if value.pull is None else "PullRequest",
        "id": node_id("Issue" if value.pull is None else "PullRequest", value.id),
        "number": value.number,
        "title": value.title,
        "body": value.body or "",
        "state": value.state.upper(),
        "locked": value.locked,
        "url": views_threads.thread_page(site, repo, value),
        "author": None if author is None else actor(call, author.login),
        "labels": labels,
    }
    return shown if value.pull is None else shown | _pull(call, repo, value, value.pull)


def actor(call: Call, login: str) -> Json | None:
    """`Actor`: a user, a bot or an organisation."""
    user = call.site.store.user(login)
    if user is None:
        return None
    return {
        "__typename": user.type,
        "id": node_id(user.type, user.id),
        "databaseId": user.id,
        # GraphQL leaves the suffix out that REST gives a bot's login.
        "login": user.login.removesuffix("[bot]") if user.type == "Bot" else user.login,
        "url": call.site.html(user.login),
    }


def _pull(call: Call, repo: Repo, value: Issue, pull: Pull) -> Json:
    head_repo = call.site.store.repos.get(pull.head_repo_id)
    base = git.ref(repo.path, f"refs/heads/{pull.base_ref}")
    return {
        "state": "MERGED" if pull.merged_at is not None else value.state.upper(),
        "isDraft": pull.draft,
        "headRefName": pull.head_ref,
        "headRefOid": pull.head_sha,
        "headRepository": None if head_repo is None else _named(head_repo),
        "isCrossRepository": pull.head_repo_id != repo.id,
        "baseRef": None
        if base is None
        else {"name": pull.base_ref, "prefix": "refs/heads/", "target": {"oid": base.sha}},
        "baseRefName": pull.base_ref,
        "baseRefOid": pull.base_sha if base is None else base.sha,
    }


def _named(repo: Repo) -> Json:
    return {"databaseId": repo.id, "nameWithOwner": repo.full_name, "name": repo.name}


def open_pull(call: Call, repo: Repo, wanted: Mapping[str, Any]) -> Json:
    """Do `createPullRequest`.

    Raises:
        HubError: a branch is missing, there is nothing between them, or they already have one.
    """
    if not wanted["title"].strip():
        raise HubError(422, "Title can't be blank")
    new = pulls.NewPull(
        head=wanted["headRefName"],
        base=wanted["baseRefName"],
        title=wanted["title"],
        body=wanted.get("body"),
        draft=bool(wanted.get("draft")),
        maintainer_can_modify=wanted.get("maintainerCanModify", True),
    )
    made = pulls.open_pull(call.site, repo, call.user, new, app_id=call.app_id)
    return {"clientMutationId": wanted.get("clientMutationId"), "pullRequest": thread(call, repo, made)}
