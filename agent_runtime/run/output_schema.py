"""Structured output: a completion that holds JSON which fits a schema.

The schema comes from the caller and the completion from the model. Checking one against the other may backtrack or
recurse without end, so it is done in a worker process. Nothing is ever fetched.
"""

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
"""What still fits in one environment variable, by which programs and workflow steps pass such results on."""
TIMES_ASKED_AGAIN = 2

_MAX_DEPTH = 100
_MAX_PROBLEMS = 10
_PROBLEM_CHARS = 400
_SECONDS = 5.0
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = ("const", "enum", "default", "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a completion came to.

    Attributes:
        output_json: its JSON in compact form, when it fits the schema.
        problems: what is wrong with it, in words for the model; empty when it fits.
    """

    output_json: str = ""
    problems: str = ""


async def require_output_schema(schema: Mapping[str, Plain]) -> None:
    """Check a schema before anybody is asked to keep to it.

    Raises:
        SettingsError: it is no JSON schema, is too large, or refers to something outside itself.
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


async def check_completion(completion: str, schema: Mapping[str, Plain]) -> Checked:
    """Find the JSON in a completion and check it.

    Raises:
        BoundExceededError: the schema takes too long to check it against, or refers to itself without end.
    """
    what = "The check of the completion against the output schema"
    try:
        fits, text = await run_bounded(completion_fits, completion, json.dumps(schema), seconds=_SECONDS, task=what)
    except ValueError as error:
        raise BoundExceededError(str(error), bound="memory") from error
    return Checked(output_json=str(text)) if fits else Checked(problems=str(text))


def schema_problem(text: str) -> str:
    """Why a schema cannot be used; empty when it can. Runs in a worker."""
    from jsonschema import SchemaError  # noqa: PLC0415 - see TYPE_CHECKING above

    schema = json.loads(text)
    try:
        if reference := next(_outside(schema), None):
            return reference
        validator = _validator(schema)
        validator.check_schema(schema)
    except SchemaError as error:
        return _told(error)
    except RecursionError:
        return "it nests too deeply."
    return next(_dangling(schema, validator), "")


def completion_fits(completion: str, schema: str) -> tuple[bool, str]:
    """Whether a completion fits, and its compact JSON or what is wrong with it. Runs in a worker."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        value = json.loads(_json_in(completion), parse_constant=_no_number)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        written.encode()
    except RecursionError:
        return False, f"It nests deeper than {_MAX_DEPTH} levels."
    except ValueError as error:
        return False, f"It is not JSON: {error}"
    if len(written.encode()) > MAX_OUTPUT_CHARS:
        return False, f"It has {len(written.encode()):,} bytes as compact JSON; {MAX_OUTPUT_CHARS:,} is the most."
    if _depth(value) > _MAX_DEPTH:
        return False, f"It nests deeper than {_MAX_DEPTH} levels."
    try:
        found = list(islice(_validator(json.loads(schema)).iter_errors(value), _MAX_PROBLEMS))
    except RecursionError:
        raise ValueError("The output schema contains an endless reference to itself.") from None
    except Unresolvable as error:
        raise ValueError(f"The output schema refers to something outside it: {error}") from None
    if found:
        return False, "\n".join(f"- {_told(each)}" for each in found)
    return True, written


def _json_in(completion: str) -> str:
    """The whole completion, or the one `json` fence in it.

    Raises:
        ValueError: it has several of these, or none and is no JSON.
    """
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
    """One that fetches nothing, whatever the schema refers to."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - see TYPE_CHECKING above
    from jsonschema.validators import validator_for  # noqa: PLC0415 - the same
    from referencing import Registry  # noqa: PLC0415 - the same

    kind = validator_for(schema, default=Draft202012Validator)
    # Without a registry of its own, a validator fetches what it does not know.
    made: Validator = kind(schema, registry=Registry())
    return made


def _outside(schema: object, *, top: bool = True) -> Iterator[str]:
    """What in a schema refers to something outside it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _outside(each, top=False)
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
            yield from _outside(value, top=False)


def _dangling(schema: Mapping[str, Any], validator: Validator) -> Iterator[str]:
    """References to places that the schema does not have."""
    from referencing import Registry  # noqa: PLC0415 - the same
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see TYPE_CHECKING above
    from referencing.jsonschema import DRAFT202012, specification_with  # noqa: PLC0415 - the same

    named = validator.META_SCHEMA.get("$schema", "")
    resource = specification_with(named, default=DRAFT202012).create_resource(schema)
    resolver = Registry().resolver_with_root(resource)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            yield f"{reference[:_PROBLEM_CHARS]!r} refers to a place that it does not have."


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            elif key not in _DATA:
                yield from _references(value)


def _told(error: ValidationError | Any) -> str:  # noqa: ANN401 - a SchemaError has the same attributes
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - see TYPE_CHECKING above

    inner = best_match(error.context) if error.context else None
    more = f" ({inner.json_path}: {inner.message[:_PROBLEM_CHARS]})" if inner is not None else ""
    return f"{error.json_path[:_PROBLEM_CHARS]}: {error.message[:_PROBLEM_CHARS]}{more}"


def _depth(value: object) -> int:
    """How deep JSON nests."""
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
