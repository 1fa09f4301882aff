"""Structured output: JSON in a completion that matches a schema. Both are untrusted: workers validate them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from agent_runtime.core.errors import BoundExceededError, SettingsError
from agent_runtime.core.text import FenceLine, FenceScanner
from agent_runtime.core.values import Plain
from agent_runtime.processes.bounded import run_bounded

if TYPE_CHECKING:  # a tenth of a second to import, in workers only
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MAX_SCHEMA_CHARS = 65_536
MAX_OUTPUT_CHARS = 100_000
"""Fits one environment variable, by which programs and workflow steps pass results on."""
MAX_RETRIES = 2

_MAX_DEPTH = 100
_MAX_PROBLEMS = 10
_PROBLEM_CHARS = 400
_SECONDS = 5.0
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = ("const", "enum", "default", "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Result of a validation: the compact JSON, or the problems or the host's objection as text for the model."""

    output_json: str = ""
    problems: str = ""
    is_objection: bool = False


async def require_output_schema(schema: Mapping[str, Plain]) -> None:
    """Validate a schema.

    Raises:
        SettingsError: it is no JSON schema, too large, or has external references.
    """
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError(f"The output schema is not plain JSON data: {error}.") from error
    if len(text) > MAX_SCHEMA_CHARS:
        raise SettingsError(f"The output schema has {len(text):,} characters, and {MAX_SCHEMA_CHARS:,} is the most.")
    try:
        problem = await run_bounded(schema_problem, text, seconds=_SECONDS, task="The check of the output schema")
    except BoundExceededError as error:
        raise SettingsError(f"{error}.") from error
    if problem:
        raise SettingsError(f"The output schema cannot be used: {problem}")


async def check_completion(completion: str, schema: Mapping[str, Plain]) -> Validation:
    """Validate the JSON in a completion.

    Raises:
        BoundExceededError: the validation takes too long, or references are endless.
    """
    what = "The check of the completion against the output schema"
    try:
        ok, text = await run_bounded(validate_completion, completion, json.dumps(schema), seconds=_SECONDS, task=what)
    except ValueError as error:
        raise BoundExceededError(str(error), bound="memory") from error
    return Validation(output_json=str(text)) if ok else Validation(problems=str(text))


def schema_problem(text: str) -> str:
    """Return why a schema is invalid, or an empty text. Runs in a worker."""
    from jsonschema import SchemaError  # noqa: PLC0415 - see TYPE_CHECKING above
    from referencing import Registry  # noqa: PLC0415 - the same
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - the same
    from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415 - the same

    schema = json.loads(text)
    try:
        if reference := next(_external_references(schema), None):
            return reference
        validator = _validator(schema)
        validator.check_schema(schema)
    except SchemaError as error:
        return _describe(error)
    except RecursionError:
        return "it nests too deeply."
    dialect = validator.META_SCHEMA.get("$schema", "")
    resource = specification_with(dialect, default=DRAFT202012).create_resource(schema)
    resolver = Registry().resolver_with_root(resource)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return f"{reference[:_PROBLEM_CHARS]!r} refers to a place that it does not have."
    return ""


def validate_completion(completion: str, schema: str) -> tuple[bool, str]:
    """Return whether a completion matches, and its compact JSON or the problems. Runs in a worker."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        value = json.loads(_extract_json(completion), parse_constant=_reject_constant)
        compact = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        compact.encode()
    except RecursionError:
        return False, f"It nests deeper than {_MAX_DEPTH} levels."
    except ValueError as error:
        return False, f"It is not JSON: {error}"
    if len(compact.encode()) > MAX_OUTPUT_CHARS:
        return False, f"It has {len(compact.encode()):,} bytes as compact JSON; {MAX_OUTPUT_CHARS:,} is the most."
    if _depth(value) > _MAX_DEPTH:
        return False, f"It nests deeper than {_MAX_DEPTH} levels."
    try:
        errors = list(islice(_validator(json.loads(schema)).iter_errors(value), _MAX_PROBLEMS))
    except RecursionError:
        raise ValueError("The output schema contains an endless reference to itself.") from None
    except Unresolvable as error:
        raise ValueError(f"The output schema refers to something outside it: {error}") from None
    if errors:
        return False, "\n".join(f"- {_describe(error)}" for error in errors)
    return True, compact


def _extract_json(completion: str) -> str:
    text = completion.strip()
    if text[:1] not in {"{", "[", '"'}:
        blocks, body, opened = list[str](), list[str](), None
        scanner = FenceScanner()
        for token in [*scanner.feed(text), *scanner.close()]:
            if not isinstance(token, FenceLine):
                body.append(token)
            elif opened is None:
                opened, body = token, []
            elif not token.info and token.char == opened.char and token.length >= opened.length:
                if opened.language == "json":
                    blocks.append("".join(body))
                opened = None
            else:
                body.append(token.text)
        if len(blocks) == 1:
            return blocks[0]
        if len(blocks) > 1:
            raise ValueError(f"there are {len(blocks)} ```json blocks in it, and one is wanted")
    return text


def _validator(schema: Mapping[str, Any]) -> Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - see TYPE_CHECKING above
    from jsonschema.validators import validator_for  # noqa: PLC0415 - the same
    from referencing import Registry  # noqa: PLC0415 - the same

    kind = validator_for(schema, default=Draft202012Validator)
    # Without a registry of its own, a validator fetches what it does not know.
    validator: Validator = kind(schema, registry=Registry())
    return validator


def _external_references(schema: object, *, top: bool = True) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _external_references(item, top=False)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
            yield (
                f"{key} {value[:_PROBLEM_CHARS]!r} points outside the schema, which is not supported. "
                'Put that schema under "$defs" and refer to it as "#/$defs/name".'
            )
        elif key in {"$id", "id"} and isinstance(value, str) and not top:
            yield f"{key} {value[:_PROBLEM_CHARS]!r} gives a part of it its own address; remove that {key}."
        elif key not in _DATA:
            yield from _external_references(value, top=False)


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            elif key not in _DATA:
                yield from _references(value)


def _describe(error: ValidationError | Any) -> str:  # noqa: ANN401 - a SchemaError has the same attributes
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - see TYPE_CHECKING above

    inner = best_match(error.context) if error.context else None
    more = f" ({inner.json_path}: {inner.message[:_PROBLEM_CHARS]})" if inner is not None else ""
    return f"{error.json_path[:_PROBLEM_CHARS]}: {error.message[:_PROBLEM_CHARS]}{more}"


def _depth(value: object) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
    return depth


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
