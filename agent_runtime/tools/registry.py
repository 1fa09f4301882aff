"""The tools of one runtime: their names, and their declarations for the model and the checker."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from agent_runtime.core.errors import SettingsError, ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.tools.planned import Planned
from agent_runtime.tools.tool import Judge, Tool, value_type

F = TypeVar("F", bound=Callable[..., Any])

_PRELUDE = "from typing import Any, Literal, TypedDict"


class ToolFamily(Protocol):
    """Tools that share state: every public method named in `value_types` is a tool.

    Attributes:
        value_types: tool name → what a call evaluates to in control code, as the stub writes it.
        labels: tool name → a few words for people watching, a format string over the arguments.
        stub_types: declarations that those types need, e.g. a `TypedDict`.
    """

    value_types: ClassVar[dict[str, str]]
    labels: ClassVar[dict[str, str]]
    stub_types: ClassVar[str]


@runtime_checkable
class Plans(Protocol):
    """A family that can tell what a call of its tools would do, for policies and people to decide on."""

    def plan(self, tool: str, args: dict[str, Any], call: Callable[[], Any]) -> Planned:
        """Tell it, without doing any of it.

        Args:
            tool: one of the family's.
            args: by parameter name, types checked.
            call: calls the tool's function with them.

        Raises:
            ToolError: the call cannot succeed, and nothing else can be said about it.
        """
        ...


@runtime_checkable
class Judges(Protocol):
    """A family whose tools name files or commands, which rules are about, no matter whose function has the name.

    Attributes:
        judged_by: tool name → the parameter that rules decide its calls by.
    """

    judged_by: ClassVar[dict[str, str]]

    def judge(self, tool: str, args: dict[str, Any]) -> CallFacts:
        """Tell what rules decide a call of somebody else's function under one of these names by.

        Args:
            tool: one of `judged_by`.
            args: by parameter name, defaults included; of any type.

        Raises:
            ToolError: it cannot be told.
        """
        ...


@runtime_checkable
class Prepares(Protocol):
    """A family whose calls may have to wait before it can be told what they would do."""

    async def prepare(self, tool: str, args: dict[str, Any]) -> None:
        """Wait for what a call is about.

        Args:
            tool: one of the family's.
            args: by parameter name, types checked.

        Raises:
            ToolError: the call cannot succeed.
        """
        ...


class Registry:
    """The tools of one runtime, in the order in which they were registered."""

    def __init__(
        self,
        adapt: Callable[[Tool], Tool] = lambda tool: tool,
        looks_into: Callable[[str], bool] = lambda _tool: False,
    ) -> None:
        """Begin without tools.

        Args:
            adapt: gives a built-in tool as the transport in use declares and calls it.
            looks_into: whether rules decide calls of that name by the files or commands that they name.
        """
        self._adapt = adapt
        self._looks_into = looks_into
        self._tools: dict[str, Tool] = {}
        self._own: dict[str, Tool] = {}
        self._judges: dict[str, tuple[str, Judge]] = {}
        self._types: list[str] = []

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def unchanged(self) -> tuple[str, ...]:
        """The built-in tools in their own versions, without those that were removed or replaced."""
        return tuple(name for name, tool in self._own.items() if self._tools.get(name) is tool)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names."""
        return tuple(self._tools)

    def add_family(self, family: ToolFamily, *, only: Iterable[str] | None = None) -> None:
        """Register a family's tools, all or `only` those named; rules hold for whatever is registered as another."""
        if isinstance(family, Judges):
            self._judges |= {name: (by, family.judge) for name, by in family.judged_by.items()}
        chosen = list(family.value_types if only is None else only)
        planner = family.plan if isinstance(family, Plans) else None
        prepare = family.prepare if isinstance(family, Prepares) else None
        for name in chosen:
            func, label = getattr(family, name), family.labels.get(name, "")
            tool = self._adapt(Tool(name, func, family.value_types[name], label, planner=planner, prepare=prepare))
            self.add_tool(tool)
            self._own[name] = tool
        if chosen and family.stub_types and family.stub_types not in self._types:
            self._types.append(family.stub_types.strip())

    def register_tool(self, name: str, func: Callable[..., Any], *, replace: bool = False) -> None:
        """Add one callable; its signature and docstring become the declaration that the model reads.

        Raises:
            SettingsError: the name is taken (and `replace` is not set) or cannot be a tool's, an annotation of
                `func` cannot be resolved or checked, or rules decide calls of that name by a parameter that `func`
                does not have.
        """
        by, judge = self._judges.get(name, ("", None)) if self._looks_into(name) else ("", None)
        try:
            tool = Tool(name, func, value_type(func), foreign=True, judge=judge)
            tool.checks  # noqa: B018 - computed here, so that a wrong annotation shows before the first call
        except Exception as error:  # evaluating a stranger's annotations can raise anything
            raise SettingsError(f"tool {name!r}: its signature cannot be used: {error}") from error
        if by and by not in tool.signature.parameters:
            raise SettingsError(
                f"tool {name!r}: the agent's rules decide its calls by {by!r}, and this function has no parameter of "
                "that name. Give it one, or register it under another name"
            )
        self.add_tool(tool, replace=replace)

    def add_tool(self, tool: Tool, *, replace: bool = False) -> None:
        """Add one tool as it is.

        Raises:
            SettingsError: its name is taken (and `replace` is not set) or cannot be a tool's.
        """
        name = tool.name
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or hasattr(builtins, name):
            raise SettingsError(
                f"tool {name!r}: use a Python identifier that is not Python's own and has no leading underscore"
            )
        if name in self._tools and not replace:
            raise SettingsError(f"tool {name!r} is registered already; pass replace=True to put yours in its place")
        self._tools[name] = tool

    def tool(self, name: str | None = None, *, replace: bool = False) -> Callable[[F], F]:
        """Register the function below, under its own name or `name`; it stays callable as it was.

        Raises:
            SettingsError: as for `register_tool`.
        """

        def decorate(func: F) -> F:
            self.register_tool(name or func.__name__, func, replace=replace)
            return func

        return decorate

    def remove_tool(self, name: str) -> None:
        """Take one tool away; unknown names are fine."""
        self._tools.pop(name, None)

    def clear_tools(self) -> None:
        """Take all tools away."""
        self._tools.clear()

    def reset_tools(self) -> None:
        """Go back to the built-in tools, in their own versions."""
        self._tools = dict(self._own)

    def get(self, name: str) -> Tool:
        """Look one up.

        Raises:
            ToolError: there is no such tool.
        """
        try:
            return self._tools[name]
        except KeyError:
            raise ToolError(f"there is no tool {name!r}; there are: {', '.join(self._tools)}") from None

    @property
    def declarations(self) -> str:
        """What the model is told: types and signatures with one paragraph each."""
        return "\n".join([*self._types, *(tool.stub for tool in self._tools.values())])

    @property
    def stubs(self) -> str:
        """The same for the type checker."""
        return "\n".join([_PRELUDE, *self._types, *(tool.bare_stub for tool in self._tools.values())])
