"""The parts shared by all of GraphQL's values: lists with pages, and people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphql import GraphQLResolveInfo

from localhub.api.routing import Call
from localhub.state.model import User
from localhub.state.site import Json, node_id

T = TypeVar("T")
Lazy = Callable[..., Any]


def connection(items: Callable[[], Sequence[T]], show: Callable[[T], Any]) -> Lazy:
    """A list with pages, as GraphQL has it; nothing is looked up before it is asked for."""

    def page(
        _info: GraphQLResolveInfo[Any],
        *,
        first: int | None = None,
        last: int | None = None,
        after: str | None = None,
        before: str | None = None,
        **_others: object,
    ) -> Json:
        found = items()
        start = int(after) if after and after.isdecimal() else 0
        end = int(before) - 1 if before and before.isdecimal() else len(found)
        if first is not None:
            end = min(end, start + first)
        if last is not None:
            start = max(start, end - last)
        return {
            "nodes": [show(each) for each in found[start:end]],
            "totalCount": len(found),
            "pageInfo": {
                "hasNextPage": end < len(found),
                "hasPreviousPage": start > 0,
                "startCursor": str(start + 1) if start < end else None,
                "endCursor": str(end) if start < end else None,
            },
        }

    return page


def person(call: Call, user_id: int | None) -> Json | None:
    """`Actor`, by number."""
    found = None if user_id is None else call.site.store.users.get(user_id)
    return None if found is None else actor(call, found.login)


def actor(call: Call, login: str) -> Json | None:
    """`Actor`: a user, a bot or an organisation."""
    found = call.site.store.user(login)
    if found is None:
        return None
    # As an actor a bot goes without the suffix that REST gives its login, and that it has as a user.
    name = found.login.removesuffix("[bot]") if found.type == "Bot" else found.login
    return user(call, found) | {"__typename": found.type, "login": name}


def user(call: Call, value: User) -> Json:
    """`User`, which a bot is, too, where it signs in or commits."""
    return {
        "__typename": "User",
        "id": node_id(value.type, value.id),
        "databaseId": value.id,
        "login": value.login,
        "name": value.name,
        "url": call.site.html(value.login),
    }
