"""The tools of MCP servers. What a server says is a stranger's text: cleaned, cut, and marked as the server's. Pure.

A tool `search` of the server `docs` is `docs_search`. Its JSON schema becomes a signature for control code, and goes to
the model service as it is, without the keywords that only a validator needs: the server checks its own arguments.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import keyword
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from agent_runtime.core.errors import McpServerError, ToolError
from agent_runtime.core.events import ServedTool
from agent_runtime.core.values import Image, ImageError, Plain, ToolResult
from agent_runtime.interpreter.source import NotPlainError, to_plain
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import CallFacts
from agent_runtime.tools.tool import Planned, Tool, of_call, visible

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    import mcp_types

Serve = Callable[[ServedTool, dict[str, Plain]], Awaitable[ToolResult]]
"""Makes a call of a server's tool; may raise `ToolError`."""

MAX_RESULT_CHARS = 9_000
"""Less than a session keeps of a result whole, so that a replay gives what the run was given."""
_MAX_VALUE_CHARS = 60_000
_MAX_TOOLS = 64
_MAX_DESCRIPTION_CHARS = 400
_MAX_NOTE_CHARS = 200
_MAX_SCHEMA_CHARS = 8_000
_MAX_SERVER_CHARS = 40_000
_MAX_DEPTH = 8
_NAME_CHARS = 64
_MAX_IMAGES = 4
_OTHER = re.compile(r"[^A-Za-z0-9_]")
_WORD = re.compile(r"[A-Za-z0-9_.:/ -]{1,60}")
_KEPT = frozenset({"type", "enum", "const", "default", "minimum", "maximum", "minItems", "maxItems", "required"})
"""Keywords that are kept as they are; `properties` and those that hold schemas are cleaned in their turn."""
_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def tools_of(server: McpServer, offered: Sequence[mcp_types.Tool]) -> tuple[ServedTool, ...]:
    """The tools of a server that the agent has, of those that the server offers.

    Raises:
        McpServerError: they are too many or too large, two have one name, or one that is named in the settings is
            missing.
    """
    where = f"The MCP server {server.name!r}"
    names = [each.name for each in offered]
    for listed in (*(server.tools or ()), *server.allow):
        if listed not in names:
            raise McpServerError(f"{where} has no tool {listed!r}, which its settings name. {_listed(names)}")
    chosen = [each for each in offered if server.tools is None or each.name in server.tools]
    select = f"Select some with `tools`. {_listed(names)}"
    if len(chosen) > _MAX_TOOLS:
        raise McpServerError(f"{where} has {len(chosen)} tools, and {_MAX_TOOLS} are the most. {select}")
    found: dict[str, ServedTool] = {}
    size = 0
    for each in chosen:
        name = server.tool_name(each.name)
        if len(name) > _NAME_CHARS or len(each.name) > _NAME_CHARS:
            raise McpServerError(
                f"{where} has a tool whose name would be longer than {_NAME_CHARS} characters: "
                f"{_one_line(each.name, _NAME_CHARS)!r}. Leave it out with `tools`, or give the server a shorter name."
            )
        if name in found:
            raise McpServerError(f"{where} has two tools that would both be {name!r}. {select}")
        parameters = _object_schema(_without_secrets(server, each.input_schema))
        told = json.dumps(parameters, ensure_ascii=False)
        if len(told) > _MAX_SCHEMA_CHARS:
            raise McpServerError(
                f"{where}: the schema of {name!r} has {len(told):,} characters, and {_MAX_SCHEMA_CHARS:,} are the "
                f"most. {select}"
            )
        described = _one_line(_without_secrets(server, each.description or ""), _MAX_DESCRIPTION_CHARS)
        found[name] = ServedTool(name=name, served_as=each.name, description=described, parameters=parameters)
        size += len(name) + len(described) + len(told)
    if size > _MAX_SERVER_CHARS:
        raise McpServerError(
            f"{where}: the declarations of its tools have {size:,} characters, which every request would hold, and "
            f"{_MAX_SERVER_CHARS:,} are the most. {select}"
        )
    return tuple(found.values())


def tool_of(server: str, served: ServedTool, serve: Serve) -> Tool:
    """The tool as the model calls it.

    Args:
        server: the server's name.
        served: one of its tools.
        serve: makes its calls.
    """
    schema = cast("dict[str, Any]", served.parameters)
    names = _parameter_names(schema)
    required = [name for name in names if name in schema.get("required", ())]
    signature = inspect.Signature(
        [
            inspect.Parameter(
                names[name],
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if name in required else ...,
                annotation=_annotation(schema["properties"][name]),
            )
            for name in (*required, *(name for name in names if name not in required))
        ]
    )

    async def call(*args: Plain, **kwargs: Plain) -> ToolResult:
        given = signature.bind(*args, **kwargs).arguments
        return await serve(served, {name: given[own] for name, own in names.items() if own in given})

    call.__signature__ = signature  # type: ignore[attr-defined] # inspect reads it
    call.__doc__ = f"[MCP server {server}] {served.description}"

    def planned(tool: str, args: dict[str, Any], make: Callable[[], Any]) -> Planned:
        facts = CallFacts(tool=tool, args=args, outside=True)
        return Planned(facts=facts, preview=partial(of_call, tool, args), apply=make)

    own = {**schema, "properties": {names[name]: each for name, each in schema["properties"].items()}}
    if required:
        own["required"] = [names[name] for name in required]
    return Tool(served.name, call, "Any", foreign=True, planner=planned, parameters=own)


def result_of(
    server: McpServer, served: ServedTool, result: mcp_types.CallToolResult, *, sees_images: bool, note: str = ""
) -> ToolResult:
    """What a call gave, for control code and for the model.

    Args:
        server: who answered.
        served: the tool.
        result: the answer.
        sees_images: whether the model is shown pictures.
        note: what the model should know beside it.

    Raises:
        ToolError: the server says that the call failed.
    """
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image":
                texts.append(_shown(served.name, block.data, images, sees_images=sees_images))
            case "resource" if hasattr(block.resource, "text"):
                texts.append(block.resource.text)
            case "resource_link":
                texts.append(f"[resource {block.uri}]")
            case _:
                texts.append(f"[{block.type}: not shown]")
    text = cleaned(server, "\n".join(texts))
    if result.is_error:
        raise ToolError(f"{served.name}: {text or 'the server says that the call failed'}", value=text)
    value: Plain = text
    if result.structured_content is not None:
        try:
            whole = to_plain(result.structured_content, served.name)
        except NotPlainError:  # the text alone then
            whole = None
        told = json.dumps(whole, ensure_ascii=False)
        if whole is not None and len(told) <= _MAX_VALUE_CHARS:
            value = _clean_value(server, whole)
            text = text or cleaned(server, told)
    return ToolResult(value=value, text="\n".join([f"[{served.name}]{note}", text]), images=tuple(images))


def cleaned(server: McpServer, text: str) -> str:
    """A text of a server: without its secrets, bounded, and with all characters visible."""
    text = _without_secrets(server, text)
    half = MAX_RESULT_CHARS // 2
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
    shown = visible(text)
    return shown if len(shown) <= MAX_RESULT_CHARS + 100 else f"{shown[:MAX_RESULT_CHARS]}\n[cut]"


def _without_secrets(server: McpServer, value: Any) -> Any:  # noqa: ANN401 - JSON of a stranger
    if isinstance(value, str):
        for secret in server.secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, dict):
        return {_without_secrets(server, key): _without_secrets(server, item) for key, item in value.items()}
    return [_without_secrets(server, item) for item in value] if isinstance(value, list) else value


def _clean_value(server: McpServer, value: Plain) -> Plain:
    if isinstance(value, str):
        return cleaned(server, value)
    if isinstance(value, dict):
        return {cleaned(server, key): _clean_value(server, item) for key, item in value.items()}
    return [_clean_value(server, item) for item in value] if isinstance(value, list | tuple) else value


def _shown(name: str, data: str, images: list[Image], *, sees_images: bool) -> str:
    """Take a picture among those that the model is shown; what stands in its place in the text."""
    if not sees_images:
        return "[a picture: this model is not shown any]"
    if len(images) == _MAX_IMAGES:
        return f"[a picture: not shown, because {_MAX_IMAGES} are the most]"
    try:
        images.append(Image.of(name, base64.b64decode(data, validate=True)))
    except (ImageError, binascii.Error) as error:
        return f"[a picture that cannot be shown: {error}]"
    return f"[picture {len(images)}]"


def _object_schema(given: Mapping[str, Any]) -> dict[str, Plain]:
    """The schema of a tool's arguments, always of an object."""
    schema = _clean_schema(given, 0)
    written, listed = schema.get("properties"), schema.get("required")
    properties = written if isinstance(written, dict) else {}
    names = listed if isinstance(listed, list) else []
    required: list[Plain] = [each for each in names if isinstance(each, str) and each in properties]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **{key: schema[key] for key in ("$defs", "definitions") if key in schema},
    }


def _clean_schema(given: Any, depth: int) -> dict[str, Plain]:  # noqa: ANN401 - JSON of a stranger
    """A schema without what the model has no use for, and without what is nested too deep."""
    if not isinstance(given, dict) or depth > _MAX_DEPTH:
        return {}
    made: dict[str, Plain] = {}
    for key, value in given.items():
        if key in {"properties", "$defs", "definitions"} and isinstance(value, dict):
            made[key] = {visible(str(name)): _clean_schema(each, depth + 1) for name, each in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            made[key] = _clean_schema(value, depth + 1)
        elif key in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
            made["anyOf" if key == "oneOf" else key] = [_clean_schema(each, depth + 1) for each in value]
        elif isinstance(value, str) and (key == "description" or (key == "$ref" and value.startswith("#/"))):
            made[key] = _one_line(value, _MAX_NOTE_CHARS)
        elif key in _KEPT:
            made[key] = _literal(value)
    return made


def _literal(value: Any) -> Plain:  # noqa: ANN401 - JSON of a stranger
    if isinstance(value, list):
        return [_literal(each) for each in value[:_MAX_SCHEMA_CHARS]]
    if isinstance(value, str):
        return _one_line(value, _MAX_NOTE_CHARS)
    return value if isinstance(value, bool | int | float) else None


def _parameter_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """The server's names of parameters, and ours, which are identifiers."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    alike = Counter[str]()
    for name in schema["properties"]:
        own = _OTHER.sub("_", name)
        if not own.isidentifier() or keyword.iskeyword(own):
            own = f"{own}_" if own.isidentifier() else f"p_{own}"
        first = own
        while own in taken:
            alike[first] += 1
            own = f"{first}_{alike[first] + 1}"
        taken.add(own)
        names[name] = own
    return names


def _annotation(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type
    """The type of a parameter, as far as one says it; anything else is left to the server."""
    kinds = [each.get("type") for each in schema["anyOf"]] if "anyOf" in schema else schema.get("type")
    listed: list[Any] = kinds if isinstance(kinds, list) else [kinds]
    enum = schema.get("enum")
    if isinstance(enum, list) and enum and all(isinstance(each, str) and _WORD.fullmatch(each) for each in enum):
        return Literal[tuple(enum)]
    if not listed or any(not isinstance(each, str) or each not in _TYPES for each in listed):
        return Any
    made: Any = _TYPES[listed[0]]
    for each in listed[1:]:
        made = made | _TYPES[each]
    return made


def _one_line(text: str, most: int) -> str:
    shown = visible(" ".join(text[: 4 * most].split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(_one_line(each, _NAME_CHARS) for each in names[:30])
    return f"It offers: {shown}{', …' if len(names) > 30 else ''}"  # noqa: PLR2004 - as many as fit a message
