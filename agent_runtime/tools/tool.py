"""Tools: declarations for the model, plans of calls, and the registry of a runtime.

A call is planned once, for the policy and people; `Tool.apply` makes exactly this call. A preview shows every
character: no part of a call can be hidden, moved or forged.
"""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import inspect
import json
import keyword
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from types import MethodType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from agent_runtime.core.errors import BoundExceededError, Interrupt, SandboxError, SettingsError, ToolError
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.interpreter.source import NotPlainError, to_plain
from agent_runtime.policy.policy import CallFacts
from agent_runtime.processes.spawn import run_in_daemon_thread, run_in_thread
from agent_runtime.providers.protocol import ToolSchema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

F = TypeVar("F", bound=Callable[..., Any])
Texts = str | list[str] | tuple[str, ...]
TEXTS = "Texts = str | list[str] | tuple[str, ...]\n"
"""Its declaration in stubs."""
Progress = Callable[[str], None]
"""Receives a tool's progress reports on the event loop."""
_ARGUMENT_CHARS = 80
_STRICT_TYPES = frozenset({bool, int, float, str, NoneType})
"""Types that pydantic would convert into each other, such as "no" into False; validated strictly."""
_LITERAL = re.compile(r"Literal\[[^]]*\]")
"""Replaced in stubs: the docstring already lists the values, and tokens cost in every request."""
_LITERAL_TYPES = (NoneType, bool, int, float, str)
_EXCERPT_CHARS = 120
_PRELUDE = "from typing import Any, Literal, TypedDict"
_MAX_LINES = 300
_MAX_CHARS = 20_000
_MAX_WIDTH = 500
_WIDTH = 160
_MAX_BLANK_LINES = 3

_BLANK_LABELS = {
    "": "blank lines",
    " ": "blank lines",
    ">": "blank lines",
    "+": "blank lines added",
    "-": "blank lines removed",
}
"""Line prefix of a blank line, and the label of several such lines."""

_VISIBLE_ASCII = re.compile(r"[ -~\n\t]*")
_INVISIBLE = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
"""Invisible letters and symbols in visible categories."""
_MAX_MARKS = 2
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    facts: CallFacts
    """Input of the policy."""
    preview: Callable[[], str]
    """Full text for people, such as a diff or a command; empty if it is too long."""
    apply: Callable[[], Any]
    """Makes the planned call or nothing; like a tool's function, sync, async or a generator."""
    refusal: str = ""
    """Why the call cannot succeed; `apply` raises it even if the reason has gone, so nobody need be asked."""
    digest: str = ""
    """Identifies the effect, to compare plans."""
    on_decline: Callable[[], str] = str
    """Called if the call is not made; returns an addition to the denial."""
    is_current: Callable[[], bool] = lambda: True
    """Whether a new plan would be the same."""
    plan_next: Callable[[Mapping[str, Any]], CallPlan | None] | None = None
    """Plans a further call on top of this one; None if nothing may be disclosed about that call yet."""


def refusal_plan(facts: CallFacts, error: ToolError) -> CallPlan:
    lines = ["This call cannot succeed:", *str(error).split("\n")]
    return CallPlan(
        facts=facts,
        preview=partial(render_clipped, lines),
        apply=partial(_raise, error),
        refusal=str(error),
    )


def _raise(error: ToolError) -> NoReturn:
    raise error


def require_text(tool: str, parameter: str, value: object) -> str:
    """Return the argument that rules apply to."""
    if isinstance(value, str):
        return value
    raise ToolError(f"{tool}: {parameter} must be text, since rules decide by it", kind="TypeError")


Planner = Callable[[str, dict[str, Any], Callable[[], Any]], CallPlan]
"""Plan a call from the tool's name, the validated arguments, and a function that makes the call."""
FactsReader = Callable[[str, dict[str, Any]], CallFacts]
"""Return the policy's input from the tool's name and unvalidated arguments; may raise `ToolError`."""


@dataclass(frozen=True)
class Tool:
    name: str
    """Its function name in control code."""
    func: Callable[..., Any]
    """Sync (run in a thread), async, or a generator; returns a `ToolResult`, or plain data, which is also the text.
    Generators yield progress; an async one yields its result last."""
    value_type: str
    """The return type in the stub."""
    label: str = ""
    """Format string over the arguments for people; empty for `name(arguments)`."""
    foreign: bool = False
    """Whether users supplied `func`: its exceptions fail the call, and a sync one is abandoned on cancellation."""
    planner: Planner | None = None
    """Plans calls; by default only name and arguments are known."""
    policy_facts: FactsReader | None = None
    """For a function that replaces a built-in tool: the policy's input."""
    prepare: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
    """Awaited before planning, with the tool's name and the validated arguments."""
    parameters: dict[str, Plain] | None = None
    """JSON schema of the arguments in place of the signature's."""
    is_listed: bool = True
    """Whether the prompt lists it; a tool that is not listed can be called nevertheless."""
    minor: tuple[str, ...] = ()
    """Parameters that only `help` shows."""
    brief: str = ""
    """Description in the prompt, in place of the first paragraph; tools that share one share a line."""

    @cached_property
    def signature(self) -> inspect.Signature:
        if isinstance(self.func, MethodType):
            return _method_signature(self.func.__func__)
        return inspect.signature(self.func, eval_str=True)

    @property
    def description(self) -> str:
        """For the prompt: `brief`, or the first paragraph of the docstring."""
        return self.brief or (inspect.getdoc(self.func) or "").partition("\n\n")[0]

    @property
    def details(self) -> str:
        """Full text of a built-in tool for `help`; of a user's function, the description."""
        return self.description if self.foreign else (inspect.getdoc(self.func) or "").partition("\n\nRaises:")[0]

    @property
    def brief_head(self) -> str:
        """Name and parameters of a built-in tool, for the prompt."""
        parameters = [each for each in self.signature.parameters.values() if each.name not in self.minor]
        shown = (each.replace(annotation=each.empty, kind=each.POSITIONAL_OR_KEYWORD) for each in parameters)
        return f"{self.name}({', '.join(map(str, shown))})"

    @cached_property
    def stub(self) -> str:
        """Declaration with all details."""
        text = self.details.replace('"""', "'''")
        body = "\n".join(f"    {line}".rstrip() for line in f'"""{text}"""'.splitlines()) if text else "    ..."
        head = self._head if self.foreign else _LITERAL.sub("str", self._head).replace(" | None = None", " = None")
        return f"{head}\n{body}"

    @property
    def bare_stub(self) -> str:
        """Declaration for the type checker, without description, which might not parse."""
        return f"{self._head} ..."

    @property
    def _head(self) -> str:
        return f"def {self.name}({_parameter_list(self.func)}) -> {self.value_type}:"

    @cached_property
    def validators(self) -> dict[str, TypeAdapter[Any]]:
        from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - see TYPE_CHECKING above

        return {
            p.name: TypeAdapter(p.annotation, config=ConfigDict(strict=_is_strict(p.annotation)))
            for p in self.signature.parameters.values()
            if p.annotation is not p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
        }

    def bind(self, args: tuple[Plain, ...], kwargs: dict[str, Plain]) -> dict[str, Plain]:
        try:
            return dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise ToolError(f"{self.name}: {error}", kind="TypeError") from error

    def describe_call(self, args: dict[str, Plain]) -> str:
        """Describe a call in a few words, for example ``Running `pytest -q` ``."""
        # Only the beginning of a long text is used.
        heads = {name: arg[: 10 * _ARGUMENT_CHARS] if isinstance(arg, str) else str(arg) for name, arg in args.items()}
        short = {name: " ".join(head.split())[:_ARGUMENT_CHARS] for name, head in heads.items()}
        if self.label:
            return self.label.format_map(dict.fromkeys(self.signature.parameters, "") | short).rstrip()
        return f"{self.name}({', '.join(short.values())})"

    async def plan(self, args: dict[str, Plain]) -> CallPlan:
        """Validate the arguments and plan the call without side effects. `refusal` has errors."""
        if self.planner is None and self.policy_facts is None:
            return self._plan(args)
        if self.prepare is not None:
            try:
                await self.prepare(self.name, {name: self._validate(name, value) for name, value in args.items()})
            except ToolError as error:
                return refusal_plan(CallFacts(tool=self.name, args=args), error)
        return await run_in_thread(partial(self._plan, args))

    def _plan(self, args: dict[str, Plain]) -> CallPlan:
        facts = CallFacts(tool=self.name, args=args)
        try:
            checked = OrderedDict((name, self._validate(name, value)) for name, value in args.items())
            bound = inspect.BoundArguments(self.signature, checked)
            call = partial(self.func, *bound.args, **bound.kwargs)
            if self.planner is not None:
                return self.planner(self.name, dict(checked), call)
            if self.policy_facts is not None:
                arguments = inspect.BoundArguments(self.signature, OrderedDict(args))
                arguments.apply_defaults()
                facts = self.policy_facts(self.name, dict(arguments.arguments))
        except ToolError as error:
            return refusal_plan(facts, error)
        return CallPlan(facts=facts, preview=partial(preview_call, self.name, args), apply=call)

    async def apply(self, planned: CallPlan, progress: Progress = lambda _text: None) -> ToolResult:
        """Make a planned call; `progress` receives a generator's reports."""
        try:
            answer = await self._call(planned.apply, progress)
        except (ToolError, SandboxError, Interrupt):
            raise
        except BoundExceededError as error:
            raise ToolError(f"{self.name}: {error}", kind="TimeoutError") from error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if not self.foreign or is_cancelled(error):
                raise
            # An error of a foreign tool fails the call, not the run.
            raise ToolError(f"{self.name}: {type(error).__name__}: {error}") from error
        if isinstance(answer, ToolResult):
            return answer
        try:  # a custom tool may return bare data; anything else would not survive the way to the control block
            value = to_plain(answer, f"what {self.name} returned")
        except NotPlainError as error:
            raise ToolError(f"{error}. Return plain data from the tool.", kind="TypeError") from error
        if value is None:
            text = f"[{self.name}] done"
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        return ToolResult(value=value, text=text)

    async def _call(self, call: Callable[[], Any], progress: Progress) -> Any:  # noqa: ANN401 - a stranger's value
        sync = not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call))
        if sync and not self.foreign:  # it must not outlive the run
            answer = await run_in_thread(call)
        else:
            # `asyncio.to_thread` would delay the process's exit, and before Python 3.12.3 loses a `StopIteration`.
            answer = await run_in_daemon_thread(call) if sync else call()
        if inspect.isawaitable(answer):
            return await answer
        if inspect.isgenerator(answer):
            loop = asyncio.get_running_loop()

            def report(text: str) -> None:
                loop.call_soon_threadsafe(lambda: progress(text))

            return await asyncio.to_thread(_drain, answer, report)
        if inspect.isasyncgen(answer):
            last = None
            async for last in answer:
                progress(str(last))
            return last
        return answer

    def _validate(self, name: str, value: Plain) -> Any:  # noqa: ANN401 - whatever the tool's author annotated
        from pydantic import ValidationError  # noqa: PLC0415 - see TYPE_CHECKING above

        if name not in self.validators:
            return value
        try:
            return self.validators[name].validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            location = ".".join([name, *map(str, first["loc"])])
            raise ToolError(f"{self.name}: argument {location}: {first['msg']}", kind="TypeError") from error


@lru_cache(maxsize=128)
def _method_signature(method: Callable[..., Any]) -> inspect.Signature:
    """Return a method's signature, cached for all instances."""
    return inspect.signature(MethodType(method, method), eval_str=True)


def _parameter_list(func: Callable[..., Any]) -> str:
    parts: list[str] = []
    star = False
    parameters = list(inspect.signature(func).parameters.values())
    for parameter, following in zip(parameters, [*parameters[1:], None], strict=False):
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        annotation, default = parameter.annotation, parameter.default
        part = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if annotation is not parameter.empty:
            part += f": {annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)}"
        if default is not parameter.empty:
            part += f" = {default!r}" if type(default) in _LITERAL_TYPES else " = ..."
        parts.append(part)
        only = parameter.POSITIONAL_ONLY
        if parameter.kind is only and (following is None or following.kind is not only):
            parts.append("/")
    return ", ".join(parts)


def _is_strict(annotation: object) -> bool:
    members = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    return all(isinstance(member, type) and member in _STRICT_TYPES for member in members)


def _drain(steps: Generator[object, Any, object], report: Progress) -> object:
    while True:
        try:
            report(str(next(steps)))
        except StopIteration as end:
            return end.value


def is_cancelled(error: BaseException) -> bool:
    """Return whether the current task is being cancelled, as opposed to a CancelledError raised by foreign code."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def value_type(func: Callable[..., Any]) -> str:
    """Return the value type of a custom tool: its annotation, if the type checker knows it."""
    annotation = inspect.signature(func).return_annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    checkable = {"None", "bool", "int", "float", "str", "list", "dict", "tuple"}
    return text if text.partition("[")[0] in checkable else "Any"


class ToolFamily:
    """Base of tools with shared state: each method in `value_types` is a tool."""

    value_types: ClassVar[dict[str, str]]
    """Return type of each tool in the stub."""
    labels: ClassVar[dict[str, str]] = {}
    """Label of each tool; see `Tool.label`."""
    stub_types: ClassVar[str] = ""
    """Declarations of these types."""
    policy_parameters: ClassVar[dict[str, str]] = {}
    """The parameter with files or a command, by tool."""
    policy_facts: FactsReader | None = None
    """Returns the policy's input for a call even if a registered function replaces the tool, given unvalidated
    arguments with defaults."""
    plan: Planner | None = None
    """Plans a call without side effects. Raises ToolError if it cannot succeed, and its facts are unknown."""
    prepare: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
    """Waits until a call can be planned."""
    is_listed: bool = True
    """See `Tool.is_listed`."""
    minor_parameters: ClassVar[dict[str, tuple[str, ...]]] = {}
    """See `Tool.minor`."""
    briefs: ClassVar[dict[str, str]] = {}
    """See `Tool.brief`."""


class Registry:
    """Tools of one runtime, in order of registration."""

    def __init__(
        self,
        adapt: Callable[[Tool], Tool] = lambda tool: tool,
        looks_into: Callable[[str], bool] = lambda _tool: False,
    ) -> None:
        self._adapt = adapt
        self._looks_into = looks_into
        self._tools: dict[str, Tool] = {}
        self._built_in: dict[str, Tool] = {}
        self._facts_readers: dict[str, tuple[str, FactsReader]] = {}
        self._types: list[str] = []
        self.missing: dict[str, str] = {"ask_user": "nobody can be asked; decide for yourself"}
        """Why the agent does not have a built-in tool, and what to do instead, by its name."""

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def originals(self) -> tuple[str, ...]:
        """Names of unreplaced built-in tools."""
        return tuple(name for name, tool in self._built_in.items() if self._tools.get(name) is tool)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def add_family(self, family: ToolFamily, *, only: Iterable[str] | None = None) -> None:
        """Register a family's tools, all or `only` some. The policy applies even if they are replaced later."""
        if (facts := family.policy_facts) is not None:
            self._facts_readers |= {name: (by, facts) for name, by in family.policy_parameters.items()}
        chosen = list(family.value_types if only is None else only)
        for name in chosen:
            func, label = getattr(family, name), family.labels.get(name, "")
            tool = Tool(name, func, family.value_types[name], label, planner=family.plan, prepare=family.prepare)
            minor, brief = family.minor_parameters.get(name, ()), family.briefs.get(name, "")
            tool = self._adapt(dataclasses.replace(tool, is_listed=family.is_listed, minor=minor, brief=brief))
            self.add_tool(tool)
            self._built_in[name] = tool
        types = family.stub_types.splitlines() if chosen else []
        self._types += [line for line in types if line not in self._types]

    def register_tool(self, name: str, func: Callable[..., Any], *, replace: bool = False) -> None:
        """Register a function; signature and docstring become its declaration.

        Raises:
            SettingsError: the name or an annotation is invalid, or a parameter that rules need is missing.
        """
        parameter, policy_facts = self._facts_readers.get(name, ("", None)) if self._looks_into(name) else ("", None)
        try:
            tool = Tool(name, func, value_type(func), foreign=True, policy_facts=policy_facts)
            tool.validators  # noqa: B018 - computed here, so that a wrong annotation shows before the first call
        except Exception as error:  # evaluating a stranger's annotations can raise anything
            raise SettingsError(f"tool {name!r}: its signature cannot be used: {error}") from error
        if parameter and parameter not in tool.signature.parameters:
            raise SettingsError(
                f"tool {name!r}: the agent's rules decide its calls by {parameter!r}, and this function has no "
                "parameter of that name. Give it one, or register it under another name"
            )
        self.add_tool(tool, replace=replace)

    def add_tool(self, tool: Tool, *, replace: bool = False) -> None:
        name = tool.name
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or hasattr(builtins, name):
            raise SettingsError(
                f"tool {name!r}: use a Python identifier that is not Python's own and has no leading underscore"
            )
        if name in self._tools and not replace:
            raise SettingsError(f"tool {name!r} is registered already; pass replace=True to put yours in its place")
        self._tools[name] = tool

    def tool(self, name: str | None = None, *, replace: bool = False) -> Callable[[F], F]:
        def decorate(func: F) -> F:
            self.register_tool(name or func.__name__, func, replace=replace)
            return func

        return decorate

    def remove_tool(self, name: str) -> None:
        self._tools.pop(name, None)

    def clear_tools(self) -> None:
        self._tools.clear()

    def reset_tools(self) -> None:
        self._tools = dict(self._built_in)

    def get(self, name: str) -> Tool:
        if name not in self._tools:
            names = ", ".join(self._tools)
            raise ToolError(f"there is no tool {name!r}; {self.missing.get(name, f'there are: {names}')}")
        return self._tools[name]

    @property
    def listed(self) -> tuple[Tool, ...]:
        """The tools that the prompt lists."""
        return tuple(tool for tool in self._tools.values() if tool.is_listed)

    @property
    def listing(self) -> str:
        """Lines for the prompt: brief ones of built-in tools, and stubs of users' functions."""
        users = [tool.stub for tool in self.listed if tool.foreign]
        return "\n".join([*self.brief_lines(tool for tool in self.listed if not tool.foreign), *users])

    @staticmethod
    def brief_lines(tools: Iterable[Tool]) -> list[str]:
        """Return a line for each tool, or for several that have one description."""
        groups = [(text, [*group]) for text, group in groupby(tools, key=lambda tool: tool.description)]
        return [f"{', '.join(tool.brief_head for tool in group)}: {' '.join(text.split())}" for text, group in groups]

    @property
    def declarations(self) -> str:
        """Types and stubs of all tools."""
        return "\n".join([*self._types, *(tool.stub for tool in self._tools.values())])

    def describe(self, name: str) -> str:
        """Return a tool's full declaration.

        Raises:
            ToolError: there is no such tool.
        """
        return self.get(name).stub

    @property
    def stubs(self) -> str:
        """Types and stubs for the type checker."""
        return "\n".join([_PRELUDE, *self._types, *(tool.bare_stub for tool in self._tools.values())])


def tool_schema(tool: Tool, *, is_brief: bool = False) -> ToolSchema:
    """Return a tool's declaration for a model service; of a built-in tool in brief, as `help` has the rest."""
    is_brief = is_brief and not tool.foreign
    description = " ".join((tool.description if is_brief else tool.details).split())
    if tool.parameters is not None:
        return ToolSchema(name=tool.name, description=description, parameters=tool.parameters)
    properties: dict[str, Plain] = {}
    required: list[Plain] = []
    definitions: dict[str, Plain] = {}
    for parameter in tool.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD or (is_brief and parameter.name in tool.minor):
            continue
        schema = _parameter_schema(tool.validators.get(parameter.name))
        definitions |= schema.pop("$defs", {})
        if is_brief:  # the description lists the values
            schema.pop("enum", None)
        if parameter.kind is parameter.VAR_POSITIONAL:
            schema = {"type": "array", "items": schema}
        elif parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema
    return ToolSchema(
        name=tool.name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            **({"$defs": definitions} if definitions else {}),
        },
    )


def _parameter_schema(check: TypeAdapter[Any] | None) -> dict[str, Any]:
    from pydantic.errors import PydanticInvalidForJsonSchema  # noqa: PLC0415 - see TYPE_CHECKING above

    if check is None:
        return {}
    try:
        schema: dict[str, Any] = _strip(check.json_schema())
    except PydanticInvalidForJsonSchema:
        return {}
    # `required` already marks optional arguments; null would cost tokens in every request.
    options = schema.get("anyOf")
    if isinstance(options, list):  # a list and a tuple have one schema
        null = {"type": "null"}
        options = [each for at, each in enumerate(options) if each != null and each not in options[:at]]
        return options[0] if len(options) == 1 and "$defs" not in schema else schema | {"anyOf": options}
    return schema


def _strip(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Remove the titles that pydantic adds."""
    if isinstance(schema, list):
        return [_strip(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _strip(item) for name, item in value.items()} if key in {"properties", "$defs"} else _strip(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }


def read_arguments(name: str, text: str) -> dict[str, Plain]:
    """Parse the arguments of a native call."""
    try:
        value = json.loads(text, parse_constant=_reject_constant) if text.strip() else {}
        if type(value) is not dict:
            raise ToolError(
                f"{name} was not called: its arguments must be a JSON object such as "
                f'{{"name": "value"}}, not {_excerpt(text)}',
                kind="TypeError",
            )
        values = {key: to_plain(item, f"{name}: {key}") for key, item in value.items()}
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
    """Convert arguments by name to positional and keyword arguments."""
    named_values: dict[str, Any] = {}
    for parameter in tool.signature.parameters.values():
        if parameter.name in values and parameter.kind is not parameter.VAR_KEYWORD:
            value = values[parameter.name]
            if parameter.kind is parameter.VAR_POSITIONAL and not isinstance(value, list):
                raise ToolError(f"{tool.name}: argument {parameter.name}: must be a list", kind="TypeError")
            named_values[parameter.name] = value
    bound = inspect.BoundArguments(tool.signature, OrderedDict(named_values))
    return bound.args, {**bound.kwargs, **{name: value for name, value in values.items() if name not in named_values}}


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def preview_call(tool: str, args: dict[str, Plain]) -> str:
    return render_whole([tool, *json.dumps(args, ensure_ascii=False, indent=2).split("\n")])


def preview_command(command: str, *, terminal: str, cwd: str, fresh: bool) -> str:
    """Preview a shell command; `cwd` is empty if unknown, `fresh` whether a terminal would be created."""
    header = f"In {'a new ' if fresh else ''}terminal {terminal}{f', {cwd}' if cwd else ''}:"
    lines = [f"{'$ ' if number == 0 else '> '}{line}" for number, line in enumerate(command.split("\n"))]
    return render_whole([visible(header).replace("\n", " "), *lines])


def preview_input(text: str, *, terminal: str, running: str) -> str:
    program = clip_line(" ".join(running.split()))
    return render_whole([f"Typed into terminal {terminal}, where `{program}` runs:", repr(text)])


def describe_in_line(facts: CallFacts) -> str:
    """Describe a call in one line, without written contents."""
    args = facts.args
    if facts.command is not None:
        text = f"Execute: {facts.command}"
    elif facts.typed_input is not None:
        text = f"Type into {args.get('session_id', 'a terminal')!r}: {facts.typed_input}"
    elif facts.writes and facts.paths:
        text = f"Write {', '.join(map(repr, facts.paths))} ({_write_operation(facts.tool, args)})"
    else:
        text = f"{facts.tool} {json.dumps(args, ensure_ascii=False)}"
    return visible(text).replace("\n", "\\n")


def _write_operation(tool: str, args: Mapping[str, Plain]) -> str:
    if tool != "write_file":
        return tool
    match args.get("mode") or "w":
        case "edit":
            return f"replace lines {args.get('start_line')}-{args.get('end_line')}"
        case "insert":
            return f"insert after line {args.get('after_line')}"
        case "multi_edit":
            return f"replace lines {args.get('edits')}"
        case "w":
            return "full file"
        case mode:
            return str(mode)


def render_whole(lines: Iterable[str]) -> str:
    """Render lines with every character visible; empty above 20,000 characters.

    Long lines are folded, runs of blank ones counted. Each line begins with a prefix of ours.
    """
    rendered: list[str] = []
    room = _MAX_CHARS
    for mark, run in groupby(lines, _blank_mark):
        pieces = list(run)
        if mark is not None and len(pieces) > _MAX_BLANK_LINES:
            pieces = [f"… {len(pieces):,} {_BLANK_LABELS[mark]}"]
        for piece in pieces:
            if len(piece) > _MAX_CHARS:
                return ""
            folded = _fold(visible(piece))
            room -= sum(len(line) + 1 for line in folded)
            if room < 0:
                return ""
            rendered += folded
    return "\n".join(rendered)


def render_clipped(lines: Sequence[str]) -> str:
    """Render lines with every character visible, within limits."""
    rendered: list[str] = []
    room = _MAX_CHARS
    for line in lines[:_MAX_LINES]:
        cut = clip_line(line)
        if room < len(cut):
            break
        rendered.append(cut)
        room -= len(cut) + 1
    rest = len(lines) - len(rendered)
    return "\n".join([*rendered, *([f"… {rest:,} more line{'s' if rest > 1 else ''} not shown"] if rest else [])])


def clip_line(line: str) -> str:
    """Render one line with every character visible, cut to 500 characters."""
    escaped = visible(line[: _MAX_WIDTH * 2])
    if len(escaped) <= _MAX_WIDTH and len(line) <= _MAX_WIDTH * 2:
        return escaped
    cut = visible(line[:_MAX_WIDTH])[:_MAX_WIDTH]
    return f"{cut}… [+{len(line) - _MAX_WIDTH:,} characters]" if len(line) > _MAX_WIDTH else f"{cut}…"


def visible(text: str) -> str:
    """Escape control characters, invisible characters, bidirectional marks and unusual blanks.

    One or two combining marks may follow a letter, as in names.
    """
    if _VISIBLE_ASCII.fullmatch(text):
        return text
    chars: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        is_hidden = category in _HIDDEN_CATEGORIES and char not in " \n\t"
        is_selector = marks > 0 and ("\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef")
        chars.append(_escape(char) if is_hidden or char in _INVISIBLE or is_selector or marks > _MAX_MARKS else char)
    return "".join(chars)


def _blank_mark(line: str) -> str | None:
    return line[:1] if line[:1] in _BLANK_LABELS and not line[1:].strip(" \t") else None


def _fold(line: str) -> list[str]:
    return [line[:_WIDTH], *(f"… {line[at : at + _WIDTH]}" for at in range(_WIDTH, len(line), _WIDTH))]


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:  # noqa: PLR2004 - what two hexadecimal digits hold
        return {"\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - what four hold
