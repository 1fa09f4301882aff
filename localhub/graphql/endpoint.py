"""GraphQL: a small schema of our own with a real parser; `createCommitOnBranch` is what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLError,
    GraphQLSchema,
    GraphQLSyntaxError,
    OverlappingFieldsCanBeMergedRule,
    build_schema,
    execute_sync,
    parse,
    specified_rules,
    validate,
)

from localhub.api.errors import HubError
from localhub.api.routing import Call, Response
from localhub.graphql import resolvers

# GitHub lets a query ask for the state of what may be an issue or a pull request, which are two types.
_RULES = [rule for rule in specified_rules if rule is not OverlappingFieldsCanBeMergedRule]
_TYPES = {404: "NOT_FOUND", 422: "UNPROCESSABLE"}


@cache
def schema() -> GraphQLSchema:
    """The part of GitHub's schema that the hub speaks, with GitHub's names and types."""
    return build_schema(files("localhub.graphql").joinpath("schema.graphql").read_text(encoding="utf-8"))


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
        document, faults = _read(query)
    except GraphQLSyntaxError as error:
        return ExecutionResult(data=None, errors=[error])
    if faults:
        return ExecutionResult(data=None, errors=faults)
    return execute_sync(
        schema(),
        document,
        root_value=resolvers.Root(call),
        variable_values=dict(variables),
        operation_name=call.body.get("operationName"),
    )


@lru_cache(maxsize=256)
def _read(query: str) -> tuple[DocumentNode, list[GraphQLError]]:
    """The query as a tree and what is wrong with it, which takes longer than to answer it."""
    document = parse(query)
    return document, validate(schema(), document, _RULES)


def _error(error: GraphQLError) -> Mapping[str, Any]:
    """GitHub puts an error's `type` beside its message."""
    formatted = dict(error.formatted)
    original = error.original_error
    if isinstance(original, resolvers.RefusedError):
        formatted["type"] = original.kind
    elif isinstance(original, HubError):
        formatted["type"] = _TYPES.get(original.status, "FORBIDDEN")
        said = [each if isinstance(each, str) else each.get("message", "") for each in original.errors]
        formatted["message"] = "; ".join(filter(None, said)) or original.message
    return formatted
