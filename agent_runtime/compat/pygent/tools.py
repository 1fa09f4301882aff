"""The tools of Pygent's agents: any number of sets of them, and a default one."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from agent_runtime.core.errors import ToolError
from agent_runtime.interpreter.source import to_plain
from agent_runtime.providers.protocol import ToolSchema
from agent_runtime.tools.tool import read_arguments

ToolFunction = Callable[..., Any]
"""Called with the runtime of the agent, and the arguments by name."""
F = TypeVar("F", bound=ToolFunction)

ENDING = ("stop", "continue")
"""Tools that end the loop."""
_TAKEN = frozenset({"finish", "script"})


class _Function(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


class Call(Protocol):
    """A call as a model asks for it."""

    @property
    def function(self) -> _Function: ...


class Tools:
    """A set of tools. A new one holds `bash`, `write_file`, `stop` and `continue`.

    Attributes:
        functions: what each tool calls, by name.
        schemas: how each tool is declared to models.
    """

    def __init__(self) -> None:
        self.functions: dict[str, ToolFunction] = {}
        self.schemas: list[dict[str, Any]] = []
        self.reset_tools()

    def register_tool(self, name: str, description: str, parameters: dict[str, Any], func: ToolFunction) -> None:
        """Add a tool.

        Args:
            name: how models call it.
            description: what it does.
            parameters: the JSON schema of an object with its arguments.
            func: given the runtime, and the arguments by name; its answer is a text or plain data.

        Raises:
            ValueError: there is one of that name, or of one that differs only in '-' and '_'; or services would refuse
                it.
            TypeError: the parameters are no plain data.
        """
        if name in self.functions:
            raise ValueError(f"tool {name} already registered")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,59}", name):
            raise ValueError(f"tool {name!r}: a name has at most 59 characters: ASCII letters, digits, '_' and '-'")
        if alike := next((each for each in self.functions if registered_name(each) == registered_name(name)), None):
            raise ValueError(f"tool {name!r}: the tool {alike!r} is called the same inside; choose another name")
        schema = to_plain(parameters, f"the parameters of the tool {name!r}")
        self.functions[name] = func
        function = {"name": name, "description": description, "parameters": schema}
        self.schemas.append({"type": "function", "function": function})

    def tool(self, name: str, description: str, parameters: dict[str, Any]) -> Callable[[F], F]:
        """Register the function below; it stays callable as it was.

        Raises:
            ValueError: as for `register_tool`.
        """

        def decorator(func: F) -> F:
            self.register_tool(name, description, parameters, func)
            return func

        return decorator

    def execute_tool(self, call: Call, rt: object) -> Any:  # noqa: ANN401 - whatever the tool gives
        """Make a call; one that cannot be made gives a text that says why. What the tool itself raises is raised."""
        name = call.function.name
        if name not in self.functions:
            return f"⚠️ unknown tool {name}"
        try:
            return self.functions[name](rt, **self._fitting(name, read_arguments(name, call.function.arguments)))
        except ToolError as error:
            return f"error: {error}"

    def remove_tool(self, name: str) -> None:
        """Take one tool away.

        Raises:
            ValueError: there is none of that name.
        """
        if name not in self.functions:
            raise ValueError(f"tool {name} not registered")
        del self.functions[name]
        self.schemas[:] = [each for each in self.schemas if each["function"]["name"] != name]

    def clear_tools(self) -> None:
        self.functions.clear()
        self.schemas.clear()

    def reset_tools(self) -> None:
        self.clear_tools()
        for name, description, parameters, func in _BUILT_IN:
            self.register_tool(name, description, parameters, func)

    def declared(self) -> tuple[ToolSchema, ...]:
        return tuple(ToolSchema(**each["function"]) for each in self.schemas)

    def bound(self, name: str, rt: Callable[[], object]) -> ToolFunction:
        def call(**arguments: Any) -> Any:  # noqa: ANN401 - as above
            return self.functions[name](rt(), **self._fitting(name, arguments))

        given = self._properties(name)
        if all(each.isidentifier() and not keyword.iskeyword(each) for each in given):
            keywords = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None) for each in given]
            call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # mypy knows no such attribute
        return call

    def _properties(self, name: str) -> Mapping[str, Any]:
        declared = {each["function"]["name"]: each["function"]["parameters"] for each in self.schemas}
        properties = declared.get(name, {}).get("properties")
        return properties if isinstance(properties, Mapping) else {}

    def _fitting(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            inspect.signature(self.functions[name]).bind(None, **arguments)
        except TypeError as error:
            raise ToolError(f"{name}: {error}", kind="TypeError") from error
        for each, schema in self._properties(name).items():
            kind = schema.get("type") if isinstance(schema, Mapping) else None
            wanted = _TYPES.get(kind) if isinstance(kind, str) else None
            if each in arguments and wanted is not None and not isinstance(arguments[each], wanted):
                raise ToolError(f"{name}: argument {each} must be of the type {schema['type']}", kind="TypeError")
        return arguments


def registered_name(name: str) -> str:
    plain_name = name.replace("-", "_")
    if not plain_name.isidentifier() or plain_name.startswith("_") or keyword.iskeyword(plain_name):
        return f"tool_{plain_name}"
    return f"tool_{plain_name}" if plain_name in _TAKEN or hasattr(builtins, plain_name) else plain_name


_TYPES: Mapping[object, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def _bash(rt: Any, cmd: str) -> Any:  # noqa: ANN401 - any runtime with these methods
    return rt.bash(cmd)


def _write_file(rt: Any, path: str, content: str) -> Any:  # noqa: ANN401 - the same
    return rt.write_file(path, content)


def _stop(_rt: object) -> str:
    return "Stopping."


def _continue(_rt: object) -> str:
    return "Continuing the conversation."


_BUILT_IN: tuple[tuple[str, str, dict[str, Any], ToolFunction], ...] = (
    (
        "bash",
        "Run a shell command in the sandbox. Gives the command, its output and its exit code.",
        {
            "type": "object",
            "properties": {"cmd": {"type": "string", "description": "Command to execute"}},
            "required": ["cmd"],
        },
        _bash,
    ),
    (
        "write_file",
        "Create or overwrite a file in the workspace.",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
        _write_file,
    ),
    ("stop", "Stop working: the task is done, or cannot be done.", _NOTHING, _stop),
    ("continue", "Ask the user for an answer: the loop stops until there is one.", _NOTHING, _continue),
)

DEFAULT = Tools()
"""The tools of agents that are given none."""
TOOLS, TOOL_SCHEMAS = DEFAULT.functions, DEFAULT.schemas
register_tool, tool, execute_tool = DEFAULT.register_tool, DEFAULT.tool, DEFAULT.execute_tool
remove_tool, clear_tools, reset_tools = DEFAULT.remove_tool, DEFAULT.clear_tools, DEFAULT.reset_tools
