"""Declare a tool by a JSON schema, and turn the arguments that a model sends for it into a call's. Pure."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from agent_runtime.core.calls import Plain
from agent_runtime.core.errors import ToolError
from agent_runtime.interpreter.plain import NotPlainError, plain
from agent_runtime.providers.protocol import ToolSchema
from agent_runtime.tools.tool import Tool

if TYPE_CHECKING:  # a tenth of a second to import, and needed for the first request only
    from pydantic import TypeAdapter

_EXCERPT_CHARS = 120


def tool_schema(tool: Tool) -> ToolSchema:
    """A tool's declaration for a service: from the signature and the docstring that make its stub."""
    described = " ".join(tool.told.split())
    if tool.parameters is not None:
        return ToolSchema(name=tool.name, description=described, parameters=tool.parameters)
    properties: dict[str, Plain] = {}
    required: list[Plain] = []
    definitions: dict[str, Plain] = {}
    for parameter in tool.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        each = _parameter(tool.checks.get(parameter.name))
        definitions |= each.pop("$defs", {})
        if parameter.kind is parameter.VAR_POSITIONAL:
            each = {"type": "array", "items": each}
        elif parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = each
    return ToolSchema(
        name=tool.name,
        description=described,
        parameters={
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            **({"$defs": definitions} if definitions else {}),
        },
    )


def read_arguments(name: str, text: str) -> dict[str, Plain]:
    """The arguments of a call of the tool `name`, from the JSON text that a model wrote.

    Raises:
        ToolError: it is no JSON object, or too large a one, or a text in it could not be written anywhere.
    """
    try:
        value = json.loads(text, parse_constant=_no_number) if text.strip() else {}
        if type(value) is not dict:
            raise ToolError(
                f"{name} was not called: its arguments must be a JSON object such as "
                f'{{"name": "value"}}, not {_excerpt(text)}',
                kind="TypeError",
            )
        values = {key: plain(item, f"{name}: {key}") for key, item in value.items()}
        json.dumps(values, ensure_ascii=False).encode()  # JSON can escape half of an emoji, and models do when cut off
    except NotPlainError as error:
        raise ToolError(f"{name} was not called: {error}", kind="TypeError") from error
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{name} was not called: its arguments hold half of a character ({error.object[error.start]!r}), which can "
            "stand in no file, command or request; send the whole character",
            kind="ValueError",
        ) from error
    except RecursionError:
        raise ToolError(f"{name} was not called: its arguments nest too deeply", kind="ValueError") from None
    except ValueError as error:
        raise ToolError(
            f"{name} was not called: its arguments are not JSON ({error}): {_excerpt(text)}", kind="ValueError"
        ) from error
    return values


def call_arguments(tool: Tool, values: Mapping[str, Plain]) -> tuple[tuple[Plain, ...], dict[str, Plain]]:
    """Arguments by name as a call of the tool takes them: those that have no name there by position.

    Raises:
        ToolError: what belongs to `*args` is no list.
    """
    known: dict[str, Any] = {}
    for each in tool.signature.parameters.values():
        if each.name in values and each.kind is not each.VAR_KEYWORD:
            value = values[each.name]
            if each.kind is each.VAR_POSITIONAL and not isinstance(value, list):
                raise ToolError(f"{tool.name}: argument {each.name}: must be a list", kind="TypeError")
            known[each.name] = value
    bound = inspect.BoundArguments(tool.signature, OrderedDict(known))
    return bound.args, {**bound.kwargs, **{name: value for name, value in values.items() if name not in known}}


def _parameter(check: TypeAdapter[Any] | None) -> dict[str, Any]:
    """The schema of one parameter; of one that is not annotated, or of a type without any, that of anything."""
    from pydantic.errors import PydanticInvalidForJsonSchema  # noqa: PLC0415 - see TYPE_CHECKING above

    if check is None:
        return {}
    try:
        schema: dict[str, Any] = _bare(check.json_schema())
    except PydanticInvalidForJsonSchema:
        return {}
    # That an argument may be left out is said by `required`; a null beside it would cost tokens in every request.
    options = schema.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        options = [each for each in options if each != {"type": "null"}]
        return options[0] if len(options) == 1 and "$defs" not in schema else schema | {"anyOf": options}
    return schema


def _bare(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema without the titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _bare(each) for name, each in value.items()} if key in {"properties", "$defs"} else _bare(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
