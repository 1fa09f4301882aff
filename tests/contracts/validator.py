"""Hold what the local hub says against GitHub's official API and webhook descriptions.

The REST description is OpenAPI 3.0, the webhooks' is 3.1. Both become JSON Schema in which unknown properties are
errors: the descriptions list what GitHub sends, and a hub that invents fields would let the bot rely on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jsonschema_rs

from localhub import Exchange

Schema = dict[str, Any]

ERRORS = frozenset({301, 307, 400, 401, 403, 404, 405, 409, 410, 422, 502, 503})
"""Statuses other than success that any operation may answer, listed or not; their body is GitHub's `basic-error` or
`validation-error`."""

UNLISTED = {
    "/graphql": "GraphQL has a description of its own",
    "": "no such address",
}

FIXED_CALC: dict[str, Schema] = {
    # The list's copy of the installation demands an account that is a user and an enterprise at once.
    "GET /app/installations 200": {"type": "array", "items": {"$ref": "#/components/schemas/installation"}},
    # GitHub puts the status into this error, too.
    "PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge 405": {"$ref": "#/components/schemas/basic-error"},
    # Two alternatives of which every error meets both, and may meet only one.
    "PUT /repos/{owner}/{repo}/contents/{path} 409": {"$ref": "#/components/schemas/basic-error"},
}
"""Answers whose schema in the description cannot be met by GitHub itself, and the one that is meant."""

LOOSER_REQUESTS = frozenset({"POST /repos/{owner}/{repo}/issues/{issue_number}/labels"})
"""Requests that GitHub takes in more forms than described: PyGithub sends labels as a bare list of names."""

FORGOTTEN = frozenset({"user_view_type", "client_id", "parent_issue_url"})
"""Optional properties of accounts, Apps and issues that some copies of their schema in webhooks lack."""

WITHOUT_INSTALLATION = frozenset({"pull_request-demilestoned", "pull_request-milestoned"})
"""Webhooks whose description lacks the installation, which GitHub sends an App with each event."""

_KEYWORDS_WITH_SCHEMAS = ("items", "additionalProperties", "not")
_COMBINATIONS = ("allOf", "anyOf", "oneOf")
NO_JSON = 400
_TYPE_OF = {int: "integer", str: "string", bool: "boolean", list: "array", dict: "object"}


class Description:
    """One OpenAPI file; validators are compiled when first needed and kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    @cached_property
    def document(self) -> Schema:
        """The whole file."""
        loaded: Schema = json.loads(self._path.read_text(encoding="utf-8"))
        return loaded

    def resolve(self, node: Schema) -> Schema:
        """Follow a `$ref`."""
        while "$ref" in node:
            target: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def complaints(self, key: str, schema: Callable[[], Schema], instance: object) -> Iterator[str]:
        """Yield the violations of a schema by a value; `key` names the schema."""
        if key not in self._validators:
            self._validators[key] = self._compiled(schema())
        for error in self._validators[key].iter_errors(instance):
            where = "/".join(str(part) for part in error.instance_path)
            yield f"{key}: at {where or 'the root'}: {error.message[:400]}"

    def _compiled(self, schema: Schema) -> jsonschema_rs.Validator:
        """Bundle the schema with every component it needs, strict and loose."""
        components: dict[str, Schema] = {}
        pending: list[str] = []
        root = _converted(schema, strict=True, wanted=pending)
        while pending:
            name = pending.pop()
            if name not in components:
                variant, _, component = name.partition(".")
                found = self.document["components"]["schemas"][component]
                components[name] = _converted(found, strict=variant == "strict", wanted=pending)
        bundle = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components, "allOf": [root]}
        return jsonschema_rs.Draft202012Validator(bundle)


def _converted(node: Schema, *, strict: bool, wanted: list[str]) -> Schema:
    """An OpenAPI schema as JSON Schema 2020-12.

    Args:
        node: the schema.
        strict: whether properties that it does not name are errors; the branches of an `allOf` must not be strict, for
            each knows only its own.
        wanted: takes the names of the components that the result refers to.
    """
    if "$ref" in node:
        name = f"{'strict' if strict else 'loose'}.{node['$ref'].rpartition('/')[2]}"
        wanted.append(name)
        return {"$ref": f"#/$defs/{name}"}
    result = {key: value for key, value in node.items() if key in _KEPT}
    if "properties" in node:
        result["properties"] = {
            name: _converted(value, strict=True, wanted=wanted) for name, value in node["properties"].items()
        }
    for key in _KEYWORDS_WITH_SCHEMAS:
        if key in node:
            value = node[key]
            result[key] = _converted(value, strict=True, wanted=wanted) if isinstance(value, dict) else value
    for key in _COMBINATIONS:
        if key in node:
            inner = strict and key != "allOf" and "properties" not in node
            result[key] = [_converted(value, strict=inner, wanted=wanted) for value in node[key]]
    if strict and ("properties" in node or "allOf" in node) and "additionalProperties" not in node:
        result["unevaluatedProperties"] = False
    return _nullable(result) if node.get("nullable") else result


_KEPT = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
    }
)


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


class Contract:
    """GitHub's descriptions as a judge; `violations` collects what was wrong, for the end of the test."""

    def __init__(self, folder: Path) -> None:
        self._api = Description(folder / "api.json")
        self._webhooks = Description(folder / "webhooks.json")
        self.violations: list[str] = []
        self.operations: set[tuple[str, str]] = set()
        self.events: set[str] = set()

    def served(self, exchange: Exchange) -> None:
        """Judge one request to the API and its answer."""
        if exchange.template in UNLISTED:
            return
        operation = self._api.document["paths"].get(exchange.template, {}).get(exchange.method.lower())
        name = f"{exchange.method} {exchange.template}"
        if operation is None:
            self.violations.append(f"{name}: GitHub's description has no such operation")
            return
        self.operations.add((exchange.method, exchange.template))
        if exchange.status < min(ERRORS):
            self.violations += self._query(name, exchange, operation)
            self.violations += self._request(name, exchange, operation)
        self.violations += self._response(name, exchange, operation)

    def wrong_bodies(self, method: str, template: str) -> Iterator[Schema]:
        """Bodies of an operation with one field each, of a type that its description does not allow."""
        operation = self._api.document["paths"].get(template, {}).get(method.lower(), {})
        body = self._api.resolve(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if body is None:
            return
        for name, types in sorted(self._types(body["schema"]).items()):
            for value in (5, "wrong", True, [5], {"wrong": 5}):
                if _TYPE_OF[type(value)] not in types and types & {"string", "array", "object", "boolean", "integer"}:
                    yield {name: value}

    def _types(self, node: Schema) -> dict[str, set[str]]:
        """The types that each field of an object may have."""
        node = self._api.resolve(node)
        found: dict[str, set[str]] = {}
        for inner in (each for key in _COMBINATIONS for each in node.get(key, ())):
            for name, types in self._types(inner).items():
                found.setdefault(name, set()).update(types)
        for name, field in node.get("properties", {}).items():
            resolved = self._api.resolve(field)
            options = [self._api.resolve(each) for key in _COMBINATIONS for each in resolved.get(key, ())]
            found.setdefault(name, set()).update(str(each.get("type", "")) for each in (resolved, *options))
        return found

    def _query(self, name: str, exchange: Exchange, operation: Schema) -> Iterator[str]:
        shared = self._api.document["paths"][exchange.template].get("parameters", [])
        listed = [self._api.resolve(parameter) for parameter in [*shared, *operation.get("parameters", [])]]
        known = {parameter["name"]: parameter for parameter in listed if parameter["in"] == "query"}
        for key, value in exchange.query.items():
            if key not in known:
                yield f"{name}: unknown query parameter {key}"
                continue
            schema = self._api.resolve(known[key]["schema"])
            instance: object = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
            if schema.get("type") == "boolean":
                instance = {"true": True, "false": False}.get(value, value)
            yield from self._api.complaints(f"{name}?{key}", partial(dict, schema), instance)

    def _request(self, name: str, exchange: Exchange, operation: Schema) -> Iterator[str]:
        if not exchange.request_body.strip() or name in LOOSER_REQUESTS or exchange.status == NO_JSON:
            return
        body = self._api.resolve(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if body is None:
            if exchange.request_body.strip() != b"{}":
                yield f"{name}: takes no body, but one was sent"
            return
        yield from self._api.complaints(f"{name} request", lambda: body["schema"], json.loads(exchange.request_body))

    def _response(self, name: str, exchange: Exchange, operation: Schema) -> Iterator[str]:
        listed = operation["responses"].get(str(exchange.status))
        if listed is None:
            if exchange.status in ERRORS:
                yield from self._error(exchange)
            else:
                yield f"{name}: status {exchange.status} is not in GitHub's description"
            return
        content = self._api.resolve(listed).get("content", {})
        if exchange.media_type != "application/json":
            return
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            if exchange.status in ERRORS:
                yield from self._error(exchange)
            elif exchange.body not in {b"", b"{}"}:
                yield f"{name}: status {exchange.status} has no JSON body in GitHub's description"
            return
        if exchange.status == 422:
            yield from self._error(exchange)
            return
        key = f"{name} {exchange.status}"
        yield from self._api.complaints(key, lambda: FIXED_CALC.get(key, schema), json.loads(exchange.body))

    def _error(self, exchange: Exchange) -> Iterator[str]:
        body = json.loads(exchange.body)
        kind = "basic-error"
        if "errors" in body:  # GitHub puts the status into all errors; the schemas of these kinds forget it
            plain = all(isinstance(error, str) for error in body["errors"])
            kind = "validation-error-simple" if plain else "validation-error"
            body = {name: value for name, value in body.items() if name != "status"}
        yield from self._api.complaints(kind, lambda: {"$ref": f"#/components/schemas/{kind}"}, body)

    def sent(self, event: str, payload: Mapping[str, Any]) -> None:
        """Judge one webhook payload."""
        action = payload.get("action")
        name = f"{event}-{action}" if action else event
        listed = self._webhooks.document["webhooks"].get(name.replace("_", "-"))
        if listed is None:
            self.violations.append(f"webhook {name}: GitHub sends no such event")
            return
        self.events.add(name)
        schema = listed["post"]["requestBody"]["content"]["application/json"]["schema"]
        plain = _without(json.loads(json.dumps(payload)), FORGOTTEN)
        if name in WITHOUT_INSTALLATION and isinstance(plain, dict):
            plain.pop("installation", None)
        self.violations += self._webhooks.complaints(f"webhook {name}", lambda: schema, plain)


def _without(value: object, names: frozenset[str]) -> object:
    """The value with these properties left out, at every depth."""
    if isinstance(value, dict):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(item, names) for item in value]
    return value
