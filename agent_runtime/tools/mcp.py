"""Tools of MCP servers. Their texts are untrusted: cleaned, cut, and marked as the server's. Pure.

The tool `search` of the server `docs` is `docs_search`.
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
from agent_runtime.tools.tool import CallPlan, Tool, preview_call, visible

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    import mcp_types

CallServer = Callable[[ServedTool, dict[str, Plain]], Awaitable[ToolResult]]
"""Call a server's tool; may raise `ToolError`."""

MAX_RESULT_CHARS = 9_000
"""Below the limit of session records, so that a replay returns the same result."""
_MAX_VALUE_CHARS = 60_000
_MAX_TOOLS = 64
_MAX_DESCRIPTION_CHARS = 400
_MAX_NOTE_CHARS = 200
_MAX_SCHEMA_CHARS = 8_000
_MAX_SERVER_CHARS = 40_000
_MAX_DEPTH = 8
_NAME_CHARS = 64
_MAX_IMAGES = 4
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9_]")
_WORD = re.compile(r"[A-Za-z0-9_.:/ -]{1,60}")
_KEYWORDS = frozenset({"type", "enum", "const", "default", "minimum", "maximum", "minItems", "maxItems", "required"})
"""Keywords copied unchanged; `properties` and schemas are cleaned recursively."""
_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def select_tools(server: McpServer, offered: Sequence[mcp_types.Tool]) -> tuple[ServedTool, ...]:
    """Return the agent's tools of those that a server offers."""
    subject = f"The MCP server {server.name!r}"
    names = [tool.name for tool in offered]
    for configured in (*(server.tools or ()), *server.allow):
        if configured not in names:
            raise McpServerError(f"{subject} has no tool {configured!r}, which its settings name. {_list_names(names)}")
    chosen = [tool for tool in offered if server.tools is None or tool.name in server.tools]
    select = f"Select some with `tools`. {_list_names(names)}"
    if len(chosen) > _MAX_TOOLS:
        raise McpServerError(f"{subject} has {len(chosen)} tools, and {_MAX_TOOLS} are the most. {select}")
    tools: dict[str, ServedTool] = {}
    size = 0
    for tool in chosen:
        name = server.tool_name(tool.name)
        if len(name) > _NAME_CHARS or len(tool.name) > _NAME_CHARS:
            raise McpServerError(
                f"{subject} has a tool whose name would be longer than {_NAME_CHARS} characters: "
                f"{_one_line(tool.name, _NAME_CHARS)!r}. Leave it out with `tools`, or give the server a shorter name."
            )
        if name in tools:
            raise McpServerError(f"{subject} has two tools that would both be {name!r}. {select}")
        parameters = _object_schema(_without_secrets(server, tool.input_schema))
        encoded = json.dumps(parameters, ensure_ascii=False)
        if len(encoded) > _MAX_SCHEMA_CHARS:
            raise McpServerError(
                f"{subject}: the schema of {name!r} has {len(encoded):,} characters, and {_MAX_SCHEMA_CHARS:,} are the "
                f"most. {select}"
            )
        description = _one_line(_without_secrets(server, tool.description or ""), _MAX_DESCRIPTION_CHARS)
        tools[name] = ServedTool(name=name, served_as=tool.name, description=description, parameters=parameters)
        size += len(name) + len(description) + len(encoded)
    if size > _MAX_SERVER_CHARS:
        raise McpServerError(
            f"{subject}: the declarations of its tools have {size:,} characters, which every request would hold, and "
            f"{_MAX_SERVER_CHARS:,} are the most. {select}"
        )
    return tuple(tools.values())


def build_tool(server: str, served: ServedTool, serve: CallServer) -> Tool:
    """Return a server's tool for the model; `serve` makes its calls."""
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
        values = signature.bind(*args, **kwargs).arguments
        return await serve(served, {name: values[own] for name, own in names.items() if own in values})

    call.__signature__ = signature  # type: ignore[attr-defined] # inspect reads it
    call.__doc__ = f"[MCP server {server}] {served.description}"

    def plan(tool: str, args: dict[str, Any], make: Callable[[], Any]) -> CallPlan:
        facts = CallFacts(tool=tool, args=args, is_external=True)
        return CallPlan(facts=facts, preview=partial(preview_call, tool, args), apply=make)

    own = {**schema, "properties": {names[name]: value for name, value in schema["properties"].items()}}
    if required:
        own["required"] = [names[name] for name in required]
    return Tool(served.name, call, "Any", foreign=True, planner=plan, parameters=own)


def convert_result(
    server: McpServer, served: ServedTool, result: mcp_types.CallToolResult, *, sees_images: bool, note: str = ""
) -> ToolResult:
    """Convert a call's result for control code and the model."""
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image":
                texts.append(_add_image(served.name, block.data, images, sees_images=sees_images))
            case "resource" if hasattr(block.resource, "text"):
                texts.append(block.resource.text)
            case "resource_link":
                texts.append(f"[resource {block.uri}]")
            case _:
                texts.append(f"[{block.type}: not shown]")
    text = clean_text(server, "\n".join(texts))
    if result.is_error:
        raise ToolError(f"{served.name}: {text or 'the server says that the call failed'}", value=text)
    value: Plain = text
    if result.structured_content is not None:
        try:
            whole = to_plain(result.structured_content, served.name)
        except NotPlainError:  # the text alone then
            whole = None
        encoded = json.dumps(whole, ensure_ascii=False)
        if whole is not None and len(encoded) <= _MAX_VALUE_CHARS:
            value = _clean_value(server, whole)
            text = text or clean_text(server, encoded)
    return ToolResult(value=value, text="\n".join([f"[{served.name}]{note}", text]), images=tuple(images))


def clean_text(server: McpServer, text: str) -> str:
    """Redact secrets in a server's text, limit it, and make all characters visible."""
    text = _without_secrets(server, text)
    half = MAX_RESULT_CHARS // 2
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
    escaped = visible(text)
    return escaped if len(escaped) <= MAX_RESULT_CHARS + 100 else f"{escaped[:MAX_RESULT_CHARS]}\n[cut]"


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
        return clean_text(server, value)
    if isinstance(value, dict):
        return {clean_text(server, key): _clean_value(server, item) for key, item in value.items()}
    return [_clean_value(server, item) for item in value] if isinstance(value, list | tuple) else value


def _add_image(name: str, data: str, images: list[Image], *, sees_images: bool) -> str:
    if not sees_images:
        return "[a picture: this model is not shown any]"
    if len(images) == _MAX_IMAGES:
        return f"[a picture: not shown, because {_MAX_IMAGES} are the most]"
    try:
        images.append(Image.of(name, base64.b64decode(data, validate=True)))
    except (ImageError, binascii.Error) as error:
        return f"[a picture that cannot be shown: {error}]"
    return f"[picture {len(images)}]"


def _object_schema(source: Mapping[str, Any]) -> dict[str, Plain]:
    schema = _clean_schema(source, 0)
    written, listed = schema.get("properties"), schema.get("required")
    properties = written if isinstance(written, dict) else {}
    names = listed if isinstance(listed, list) else []
    required: list[Plain] = [name for name in names if isinstance(name, str) and name in properties]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **{key: schema[key] for key in ("$defs", "definitions") if key in schema},
    }


def _clean_schema(source: Any, depth: int) -> dict[str, Plain]:  # noqa: ANN401 - JSON of a stranger
    """Remove keywords that the model does not need, and deep nesting."""
    if not isinstance(source, dict) or depth > _MAX_DEPTH:
        return {}
    clean: dict[str, Plain] = {}
    for key, value in source.items():
        if key in {"properties", "$defs", "definitions"} and isinstance(value, dict):
            clean[key] = {visible(str(name)): _clean_schema(item, depth + 1) for name, item in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            clean[key] = _clean_schema(value, depth + 1)
        elif key in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
            clean["anyOf" if key == "oneOf" else key] = [_clean_schema(item, depth + 1) for item in value]
        elif isinstance(value, str) and (key == "description" or (key == "$ref" and value.startswith("#/"))):
            clean[key] = _one_line(value, _MAX_NOTE_CHARS)
        elif key in _KEYWORDS:
            clean[key] = _literal(value)
    return clean


def _literal(value: Any) -> Plain:  # noqa: ANN401 - JSON of a stranger
    if isinstance(value, list):
        return [_literal(item) for item in value[:_MAX_SCHEMA_CHARS]]
    if isinstance(value, str):
        return _one_line(value, _MAX_NOTE_CHARS)
    return value if isinstance(value, bool | int | float) else None


def _parameter_names(schema: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    used: set[str] = set()
    repeats = Counter[str]()
    for name in schema["properties"]:
        own = _INVALID_CHARS.sub("_", name)
        if not own.isidentifier() or keyword.iskeyword(own):
            own = f"{own}_" if own.isidentifier() else f"p_{own}"
        first = own
        while own in used:
            repeats[first] += 1
            own = f"{first}_{repeats[first] + 1}"
        used.add(own)
        names[name] = own
    return names


def _annotation(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type
    kinds = [kind.get("type") for kind in schema["anyOf"]] if "anyOf" in schema else schema.get("type")
    listed: list[Any] = kinds if isinstance(kinds, list) else [kinds]
    enum = schema.get("enum")
    if isinstance(enum, list) and enum and all(isinstance(kind, str) and _WORD.fullmatch(kind) for kind in enum):
        return Literal[tuple(enum)]
    if not listed or any(not isinstance(kind, str) or kind not in _TYPES for kind in listed):
        return Any
    union: Any = _TYPES[listed[0]]
    for kind in listed[1:]:
        union = union | _TYPES[kind]
    return union


def _one_line(text: str, max_chars: int) -> str:
    escaped = visible(" ".join(text[: 4 * max_chars].split()))
    return escaped if len(escaped) <= max_chars else f"{escaped[: max_chars - 1]}…"


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(_one_line(name, _NAME_CHARS) for name in names[:30])
    return f"It offers: {listed}{', …' if len(names) > 30 else ''}"  # noqa: PLR2004 - as many as fit a message
