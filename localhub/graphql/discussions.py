"""Discussions in GraphQL, the only API that GitHub has for them: the fields of a repository, and the mutations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from graphql import GraphQLResolveInfo

from localhub.api.auth import HubError, demand
from localhub.api.routing import Call, check_length
from localhub.graphql import threads
from localhub.graphql.mutations import Inputs, RefusedError, find_repo, parse_id, payload, unresolved
from localhub.graphql.threads import connection, person
from localhub.operations import discussions
from localhub.state.model import Discussion, DiscussionCategory, DiscussionComment, Repo
from localhub.state.store import Json, iso, iso_or_none, node_id


def fields(call: Call, repo: Repo) -> Json:
    """The fields of a repository about its discussions."""
    categories = call.site.store.categories_of(repo)
    return {
        "hasDiscussionsEnabled": bool(categories),
        "discussion": partial(_numbered, call, repo),
        "discussions": partial(_listed, call, repo),
        "discussionCategories": connection(lambda: _readable(call, repo, categories), _category),
    }


def _readable(call: Call, repo: Repo, rows: list[Any]) -> list[Any]:
    demand(call.site, call.viewer, repo, permission="discussions", level="read", role="read")
    return rows


def _numbered(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, number: int) -> Json:
    found = next((each for each in call.site.store.discussions_of(repo) if each.number == number), None)
    if found is None:
        raise RefusedError("NOT_FOUND", f"Could not resolve to a Discussion with the number of {number}.")
    _readable(call, repo, [])
    return _discussion(call, repo, found)


def _listed(
    call: Call,
    repo: Repo,
    info: GraphQLResolveInfo[Any],
    *,
    orderBy: Mapping[str, str] | None = None,  # noqa: N803 - GraphQL's name
    categoryId: str | None = None,  # noqa: N803 - the same
    states: list[str] | None = None,
    **page: Any,  # noqa: ANN401 - what `connection` takes
) -> Json:
    """Newest first unless asked otherwise."""
    found = [
        each
        for each in _readable(call, repo, call.site.store.discussions_of(repo))
        if categoryId in {None, node_id("DiscussionCategory", each.category_id)}
        and ("OPEN" if each.closed_at is None else "CLOSED") in (states or ("OPEN", "CLOSED"))
    ]
    if orderBy is None or orderBy["direction"] == "DESC":
        found.reverse()
    shown: Json = connection(lambda: found, partial(_discussion, call, repo))(info, **page)
    return shown


def _category(value: DiscussionCategory) -> Json:
    """`DiscussionCategory`."""
    return {"id": node_id("DiscussionCategory", value.id), "name": value.name, "slug": discussions.slug(value)}


def _discussion(call: Call, repo: Repo, value: Discussion) -> Json:
    """`Discussion`."""
    store = call.site.store
    return {
        "__typename": "Discussion",
        "id": node_id("Discussion", value.id),
        "databaseId": value.id,
        "number": value.number,
        "title": value.title,
        "body": value.body,
        "author": person(call, value.author_id),
        "category": _category(store.discussion_categories[value.category_id]),
        "closed": value.closed_at is not None,
        "closedAt": iso_or_none(value.closed_at),
        "comments": connection(
            lambda: [each for each in store.discussion_comments_of(value) if each.parent_id is None],
            partial(_comment, call, repo),
        ),
        "createdAt": iso(value.created_at),
        "locked": value.locked,
        "activeLockReason": None,
        "repository": lambda _info: threads.repository(call, repo),
        "url": discussions.page_of(call.site, repo, value.number),
    }


def _comment(call: Call, repo: Repo, value: DiscussionComment) -> Json:
    """`DiscussionComment`."""
    return {
        "__typename": "DiscussionComment",
        "id": node_id("DiscussionComment", value.id),
        "databaseId": value.id,
        "author": person(call, value.author_id),
        "body": value.body,
        "createdAt": iso(value.created_at),
        "url": f"{discussions.page_of(call.site, repo, value.number)}#discussioncomment-{value.id}",
    }


def create_discussion(call: Call, inputs: Inputs) -> Json:
    """Do `createDiscussion`."""
    repo = find_repo(call, inputs["repositoryId"], "discussions", role="read")
    kind, number = parse_id(inputs["categoryId"])
    category = call.site.store.discussion_categories.get(number)
    if kind != "DiscussionCategory" or category is None or category.repo_id != repo.id:
        raise unresolved(inputs["categoryId"])
    for name in ("title", "body"):
        if not inputs[name].strip():
            raise HubError(422, f"{name.capitalize()} can't be blank")
        check_length(inputs[name], "Discussion", name)
    made = discussions.open_discussion(call.site, repo, category, call.user, title=inputs["title"], body=inputs["body"])
    return payload(inputs, discussion=_discussion(call, repo, made))


def add_comment(call: Call, inputs: Inputs) -> Json:
    """Do `addDiscussionComment`."""
    kind, number = parse_id(inputs["discussionId"])
    found = call.site.store.discussions.get(number)
    if kind != "Discussion" or found is None:
        raise unresolved(inputs["discussionId"])
    repo = call.site.store.repos[found.repo_id]
    find_repo(call, node_id("Repository", repo.id), "discussions", role="read")
    if not inputs["body"].strip():
        raise HubError(422, "Body can't be blank")
    check_length(inputs["body"], "DiscussionComment", "body")
    parent = None
    if inputs.get("replyToId"):
        parent = call.site.store.discussion_comments.get(parse_id(inputs["replyToId"])[1])
        if parent is None or parent.number != found.number:
            raise unresolved(inputs["replyToId"])
    made = discussions.comment(call.site, found, call.user, inputs["body"], parent=parent)
    return payload(inputs, comment=_comment(call, repo, made))


MUTATIONS = {"createDiscussion": create_discussion, "addDiscussionComment": add_comment}
