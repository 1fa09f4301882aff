"""GraphQL: a small schema of our own with a real parser; `createCommitOnBranch` is what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from graphql import GraphQLError, GraphQLSchema, build_schema, graphql_sync

from bot.localhub import graphql_resolvers
from bot.localhub.errors import HubError
from bot.localhub.routing import Answer, Call

_TYPES = {404: "NOT_FOUND", 422: "UNPROCESSABLE"}


@cache
def schema() -> GraphQLSchema:
    """The part of GitHub's schema that the hub speaks, with GitHub's names and types."""
    return build_schema(files("bot.localhub").joinpath("schema.graphql").read_text(encoding="utf-8"))


def answer(call: Call) -> Answer:
    """Run one operation; errors come back with status 200, as GitHub sends them."""
    if call.viewer.user is None:
        raise HubError(401, "This endpoint requires you to be authenticated.")
    query, variables = call.body.get("query"), call.body.get("variables") or {}
    if not isinstance(query, str):
        raise HubError(400, "A query attribute must be specified and must be a string.")
    result = graphql_sync(
        schema(),
        query,
        root_value=graphql_resolvers.Root(call),
        variable_values=variables,
        operation_name=call.body.get("operationName"),
    )
    body: dict[str, Any] = {"data": result.data}
    if result.errors:
        body["errors"] = [_error(error) for error in result.errors]
    return Answer(body=body)


def _error(error: GraphQLError) -> Mapping[str, Any]:
    """GitHub puts an error's `type` beside its message."""
    formatted = dict(error.formatted)
    original = error.original_error
    if isinstance(original, graphql_resolvers.RefusedError):
        formatted["type"] = original.kind
    elif isinstance(original, HubError):
        formatted["type"] = _TYPES.get(original.status, "FORBIDDEN")
        said = [each if isinstance(each, str) else each.get("message", "") for each in original.errors]
        formatted["message"] = "; ".join(filter(None, said)) or original.message
    return formatted
