"""Releases, as GraphQL has them."""

from __future__ import annotations

from functools import partial
from typing import Any

from graphql import GraphQLResolveInfo

from localhub.api.auth import can_write, demand
from localhub.api.routing import Call
from localhub.graphql.basics import connection
from localhub.operations import releases
from localhub.state.model import Repo
from localhub.state.releases import Release
from localhub.state.site import Json


def of(call: Call, repo: Repo) -> Json:
    """The fields of `Repository` that are about releases."""
    return {"release": partial(_one, call, repo), "releases": partial(_listed, call, repo)}


def _known(call: Call, repo: Repo) -> list[Release]:
    demand(call.site, call.viewer, repo, permission="contents", level="read", role="read")
    return releases.of_repo(call.site, repo, drafts=can_write(call.site, call.viewer, repo))


def _one(call: Call, repo: Repo, _info: GraphQLResolveInfo[Any], *, tagName: str) -> Json | None:  # noqa: N803 - GraphQL's name
    """The release of a tag."""
    found = next((each for each in _known(call, repo) if each.tag == tagName), None)
    return None if found is None else _release(call, repo, found)


def _listed(
    call: Call,
    repo: Repo,
    info: GraphQLResolveInfo[Any],
    *,
    orderBy: Json | None = None,  # noqa: N803 - GraphQL's name
    **page: Any,  # noqa: ANN401 - whatever pages have
) -> Json:
    """A repository's releases, newest first unless asked otherwise."""
    found = _known(call, repo)
    ascending = orderBy is not None and orderBy["direction"] == "ASC"
    shown: Json = connection(lambda: found[::-1] if ascending else found, partial(_release, call, repo))(info, **page)
    return shown


def _release(call: Call, repo: Repo, value: Release) -> Json:
    """`Release`."""
    rest, newest = releases.view(call.site, repo, value), releases.latest(call.site, repo)
    return {
        "id": rest["node_id"],
        "databaseId": value.id,
        "createdAt": rest["created_at"],
        "description": value.body,
        "isDraft": value.draft,
        "isLatest": newest is not None and newest.id == value.id,
        "isPrerelease": value.prerelease,
        "name": value.name,
        "publishedAt": rest["published_at"],
        "tagName": value.tag,
        "url": rest["html_url"],
    }
