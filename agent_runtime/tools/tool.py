"""Tools: a callable with its declaration for the model, the plan of each call, and the registry of a runtime.

A call is planned once (`Tool.plan`): the plan says which files and commands it concerns, so that the policy can decide,
and shows people a preview; then `Tool.apply` makes exactly the planned call. A preview shows every character of a call:
nothing in it can hide, move or forge a part of it (`visible`, `whole`).
"""

from __future__ import annotations

import asyncio
import builtins
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
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
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
Progress = Callable[[str], None]
"""Told, on the event loop, of each step that a tool reports."""
_ARGUMENT_CHARS = 80
_EXACT = frozenset({bool, int, float, str, NoneType})
"""Types that pydantic would make of one another, e.g. False of "no"; an argument of such a type is taken as it is."""
_LITERAL = re.compile(r"Literal\[[^]]*\]")
"""The docstring of a built-in tool names what such a parameter takes; twice would cost tokens in every request."""
_LITERALS = (NoneType, bool, int, float, str)
_EXCERPT_CHARS = 120
_PRELUDE = "from typing import Any, Literal, TypedDict"
_MAX_LINES = 300
_MAX_CHARS = 20_000
_MAX_WIDTH = 500
_FOLD = 160
_BLANK_LINES = 3
"""As many blank lines in a row are shown; of more, their number."""

_BLANK = {
    "": "blank lines",
    " ": "blank lines",
    ">": "blank lines",
    "+": "blank lines added",
    "-": "blank lines removed",
}
"""What marks a line before its text, and how blank lines with this mark are told."""

_PLAIN = re.compile(r"[ -~\n\t]*")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0\U0001d159")
"""Letters and symbols that show nothing, though their category says otherwise."""
_MOST_MARKS = 2
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A call as it is decided on, and then made or not.

    Attributes:
        facts: what the policy decides by.
        preview: gives what the call would do, whole, as text for people: a diff for a write, the command for a shell;
            empty where it is too long to be shown.
        apply: makes the call: what was planned, or nothing. Sync, async or a generator of either kind, as a tool's own
            function may be.
        refusal: why the call cannot succeed even if approved, or empty. `apply` raises it, also if the reason is
            gone by then; so nobody need be asked about it.
        digest: identifies what the call would do, for comparing two plans of it; empty where nothing is compared.
        declined: told that the call is not made; gives what its author should know beside the denial, or nothing.
        is_current: whether a plan of the same call, made now, would be the same.
        follow: plans a further call of the same tool as if this one had been made; None where nothing may be said
            about that one yet. None for a tool whose calls cannot be planned ahead.
    """

    facts: CallFacts
    preview: Callable[[], str]
    apply: Callable[[], Any]
    refusal: str = ""
    digest: str = ""
    declined: Callable[[], str] = str
    is_current: Callable[[], bool] = lambda: True
    follow: Callable[[Mapping[str, Any]], Planned | None] | None = None


def refused(facts: CallFacts, error: ToolError) -> Planned:
    """The plan of a call that cannot succeed."""
    lines = ["This call cannot succeed:", *str(error).split("\n")]
    return Planned(
        facts=facts,
        preview=partial(clipped, lines),
        apply=partial(_fail, error),
        refusal=str(error),
    )


def _fail(error: ToolError) -> NoReturn:
    raise error


def text_of(tool: str, parameter: str, value: object) -> str:
    """The argument that rules decide a call by.

    Raises:
        ToolError: it is no text, so that no rule can be held against it.
    """
    if isinstance(value, str):
        return value
    raise ToolError(f"{tool}: {parameter} must be text, since rules decide by it", kind="TypeError")


Planner = Callable[[str, dict[str, Any], Callable[[], Any]], Planned]
"""Plans a call, given the tool's name, the checked arguments, and what calls the tool's function with them."""
Judge = Callable[[str, dict[str, Any]], CallFacts]
"""Tells what rules decide a call by, given the tool's name and all arguments, unchecked; may raise `ToolError`."""


@dataclass(frozen=True)
class Tool:
    """One callable that the model may use.

    Attributes:
        name: how control code calls it.
        func: sync (it runs in a thread, so that it holds up nobody), async, or a generator of either kind; gives a
            `ToolResult`, or plain data, which is then also the text. What a generator yields is progress for people
            watching; its answer is what it returns, and for an async one, which cannot return anything, what it yielded
            last.
        value_type: what a call evaluates to, as the stub writes it.
        label: a few words for people watching, a format string over the arguments; empty for `name(arguments)`.
        foreign: whether somebody else wrote `func`: whatever it raises is the call's failure and not ours, and if it is
            sync it is not waited for when the run is stopped.
        planner: tells what a call would do; without one, only its name and arguments are known beforehand.
        judge: for a function that stands under the name of a built-in tool: what rules decide its calls by.
        prepare: awaited before that, given the tool's name and the checked arguments.
        parameters: the JSON schema of its arguments, where that says more than the signature.
    """

    name: str
    func: Callable[..., Any]
    value_type: str
    label: str = ""
    foreign: bool = False
    planner: Planner | None = None
    judge: Judge | None = None
    prepare: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
    parameters: dict[str, Plain] | None = None

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters, annotations resolved to types."""
        if isinstance(self.func, MethodType):
            return _bound(self.func.__func__)
        return inspect.signature(self.func, eval_str=True)

    @property
    def told(self) -> str:
        """The docstring's first paragraph, which describes it to the model."""
        return (inspect.getdoc(self.func) or "").partition("\n\n")[0]

    @property
    def line(self) -> str:
        """Its parameters and its description on one line."""
        return f"{self.name}({_parameters(self.func)}): {' '.join(self.told.split())}".replace(
            " | None = None", " = None"
        )

    @cached_property
    def stub(self) -> str:
        """The declaration: signature and the docstring's first paragraph."""
        told = self.told.replace('"""', "'''")
        body = "\n".join(f"    {line}" for line in f'"""{told}"""'.splitlines()) if told else "    ..."
        head = self._head if self.foreign else _LITERAL.sub("str", self._head).replace(" | None = None", " = None")
        return f"{head}\n{body}"

    @property
    def bare_stub(self) -> str:
        """The declaration without its docstring, which the type checker has no use for and might not parse."""
        return f"{self._head} ..."

    @property
    def _head(self) -> str:
        return f"def {self.name}({_parameters(self.func)}) -> {self.value_type}:"

    @cached_property
    def checks(self) -> dict[str, TypeAdapter[Any]]:
        """What checks each annotated parameter.

        Raises:
            PydanticUserError: an annotation that no plain data can be checked against.
        """
        from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - see TYPE_CHECKING above

        return {
            p.name: TypeAdapter(p.annotation, config=ConfigDict(strict=_is_exact(p.annotation)))
            for p in self.signature.parameters.values()
            if p.annotation is not p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
        }

    def bind(self, args: tuple[Plain, ...], kwargs: dict[str, Plain]) -> dict[str, Plain]:
        """Name every argument.

        Raises:
            ToolError: too many, missing or unknown arguments.
        """
        try:
            return dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise ToolError(f"{self.name}: {error}", kind="TypeError") from error

    def described(self, args: dict[str, Plain]) -> str:
        """A call in a few words, e.g. ``Running `pytest -q` ``, on one line."""
        # Of a long text only the beginning is looked at.
        heads = {
            name: each[: 10 * _ARGUMENT_CHARS] if isinstance(each, str) else str(each) for name, each in args.items()
        }
        short = {name: " ".join(head.split())[:_ARGUMENT_CHARS] for name, head in heads.items()}
        if self.label:
            return self.label.format_map(dict.fromkeys(self.signature.parameters, "") | short).rstrip()
        return f"{self.name}({', '.join(short.values())})"

    async def plan(self, args: dict[str, Plain]) -> Planned:
        """Look at a call once: check its arguments, and find out what it would do, without doing any of it.

        A call that cannot be made is planned, too: `Planned.refusal` says why.

        Args:
            args: by parameter name, as `bind` gives them.
        """
        if self.planner is None and self.judge is None:
            return self._planned(args)
        if self.prepare is not None:
            try:
                await self.prepare(self.name, {name: self._checked(name, value) for name, value in args.items()})
            except ToolError as error:
                return refused(CallFacts(tool=self.name, args=args), error)
        return await run_in_thread(partial(self._planned, args))

    def _planned(self, args: dict[str, Plain]) -> Planned:
        facts = CallFacts(tool=self.name, args=args)
        try:
            checked = OrderedDict((name, self._checked(name, value)) for name, value in args.items())
            bound = inspect.BoundArguments(self.signature, checked)
            call = partial(self.func, *bound.args, **bound.kwargs)
            if self.planner is not None:
                return self.planner(self.name, dict(checked), call)
            if self.judge is not None:
                given = inspect.BoundArguments(self.signature, OrderedDict(args))
                given.apply_defaults()
                facts = self.judge(self.name, dict(given.arguments))
        except ToolError as error:
            return refused(facts, error)
        return Planned(facts=facts, preview=partial(of_call, self.name, args), apply=call)

    async def apply(self, planned: Planned, progress: Progress = lambda _text: None) -> ToolResult:
        """Make a call that was planned.

        Args:
            planned: by this tool.
            progress: told what a generator yields.

        Raises:
            ToolError: a wrong argument, or the tool's own refusal.
        """
        try:
            answer = await self._answer(planned.apply, progress)
        except (ToolError, SandboxError, Interrupt):
            raise
        except BoundExceededError as error:
            raise ToolError(f"{self.name}: {error}", kind="TimeoutError") from error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if not self.foreign or is_cancelled(error):
                raise
            # Whatever a stranger's tool raises, the run goes on: the control block is told.
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

    async def _answer(self, call: Callable[[], Any], progress: Progress) -> Any:  # noqa: ANN401 - a stranger's value
        """See a call to its end, whichever kind of callable it is."""
        sync = not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call))
        if sync and not self.foreign:  # it must not go on when nobody waits for it any more
            answer = await run_in_thread(call)
        else:
            # `asyncio.to_thread` would keep the process from ending, and before Python 3.12.3 tells nobody of a
            # `StopIteration`.
            answer = await run_in_daemon_thread(call) if sync else call()
        if inspect.isawaitable(answer):
            return await answer
        if inspect.isgenerator(answer):
            loop = asyncio.get_running_loop()

            def tell(text: str) -> None:
                loop.call_soon_threadsafe(lambda: progress(text))

            return await asyncio.to_thread(_drain, answer, tell)
        if inspect.isasyncgen(answer):
            last = None
            async for last in answer:
                progress(str(last))
            return last
        return answer

    def _checked(self, name: str, value: Plain) -> Any:  # noqa: ANN401 - whatever the tool's author annotated
        from pydantic import ValidationError  # noqa: PLC0415 - see TYPE_CHECKING above

        if name not in self.checks:
            return value
        try:
            return self.checks[name].validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join([name, *map(str, first["loc"])])
            raise ToolError(f"{self.name}: argument {where}: {first['msg']}", kind="TypeError") from error


@lru_cache(maxsize=128)
def _bound(method: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method; each run has objects of its own, with the same methods."""
    return inspect.signature(MethodType(method, method), eval_str=True)


def _parameters(func: Callable[..., Any]) -> str:
    """The parameter list as the stub writes it; annotations are kept as their author wrote them."""
    written: list[str] = []
    star = False
    parameters = list(inspect.signature(func).parameters.values())
    for parameter, following in zip(parameters, [*parameters[1:], None], strict=False):
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            written.append("*")
        star = star or parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        annotation, default = parameter.annotation, parameter.default
        each = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if annotation is not parameter.empty:
            each += f": {annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)}"
        if default is not parameter.empty:
            each += f" = {default!r}" if type(default) in _LITERALS else " = ..."
        written.append(each)
        only = parameter.POSITIONAL_ONLY
        if parameter.kind is only and (following is None or following.kind is not only):
            written.append("/")
    return ", ".join(written)


def _is_exact(annotation: object) -> bool:
    members = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    return all(isinstance(member, type) and member in _EXACT for member in members)


def _drain(steps: Generator[object, Any, object], tell: Progress) -> object:
    """Go through a generator in a thread of its own; its answer is what it returns."""
    while True:
        try:
            tell(str(next(steps)))
        except StopIteration as end:
            return end.value


def is_cancelled(error: BaseException) -> bool:
    """Whether an error is that the present task is to end, as opposed to one that a stranger's code has raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def value_type(func: Callable[..., Any]) -> str:
    """The value type of a custom tool: what its author annotated, `object` where the checker could not know it."""
    annotation = inspect.signature(func).return_annotation
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    known = {"None", "bool", "int", "float", "str", "list", "dict", "tuple"}
    return written if written.partition("[")[0] in known else "Any"


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


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def of_call(tool: str, args: dict[str, Plain]) -> str:
    """A call of a tool that nothing else is known of: its name, and its arguments as JSON."""
    return whole([tool, *json.dumps(args, ensure_ascii=False, indent=2).split("\n")])


def of_command(command: str, *, terminal: str, cwd: str, fresh: bool) -> str:
    """A command for a shell.

    Args:
        command: as it is.
        terminal: the terminal's name.
        cwd: its working directory; empty where that is not known yet.
        fresh: whether the terminal would be made for it.
    """
    place = f"In {'a new ' if fresh else ''}terminal {terminal}{f', {cwd}' if cwd else ''}:"
    lines = [f"{'$ ' if number == 0 else '> '}{line}" for number, line in enumerate(command.split("\n"))]
    return whole([visible(place).replace("\n", " "), *lines])


def of_typing(text: str, *, terminal: str, running: str) -> str:
    """What is typed into a program that runs."""
    program = narrowed(" ".join(running.split()))
    return whole([f"Typed into terminal {terminal}, where `{program}` runs:", repr(text)])


def in_one_line(facts: CallFacts) -> str:
    """What a call is, without the contents that it writes: the files of a write, the whole command of a shell."""
    args = facts.args
    if facts.command is not None:
        told = f"Execute: {facts.command}"
    elif facts.typed is not None:
        told = f"Type into {args.get('session_id', 'a terminal')!r}: {facts.typed}"
    elif facts.writes and facts.paths:
        told = f"Write {', '.join(map(repr, facts.paths))} ({_operation(facts.tool, args)})"
    else:
        told = f"{facts.tool} {json.dumps(args, ensure_ascii=False)}"
    return visible(told).replace("\n", "\\n")


def _operation(tool: str, args: Mapping[str, Plain]) -> str:
    """How a call writes, in a few words."""
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


def whole(lines: Iterable[str]) -> str:
    """Lines made visible: long ones are folded, of many blank ones in a row the number is told, none is left out.

    What begins with `…` is ours: no line of a call does. A person approves only what was shown in full, so a text that
    is too long is not cut but left out.

    Args:
        lines: each begins with a mark or a word of ours.

    Returns:
        The text, or an empty one where it would have more than 20,000 characters.
    """
    kept: list[str] = []
    room = _MAX_CHARS
    for mark, run in groupby(lines, _blank_mark):
        pieces = list(run)
        if mark is not None and len(pieces) > _BLANK_LINES:
            pieces = [f"… {len(pieces):,} {_BLANK[mark]}"]
        for shown in pieces:
            if len(shown) > _MAX_CHARS:
                return ""
            folded = _folded(visible(shown))
            room -= sum(len(line) + 1 for line in folded)
            if room < 0:
                return ""
            kept += folded
    return "\n".join(kept)


def clipped(lines: Sequence[str]) -> str:
    """Lines made visible, each at most 500 characters, 300 of them, 20,000 characters in all; the rest is counted."""
    kept: list[str] = []
    room = _MAX_CHARS
    for line in lines[:_MAX_LINES]:
        cut = narrowed(line)
        if room < len(cut):
            break
        kept.append(cut)
        room -= len(cut) + 1
    rest = len(lines) - len(kept)
    return "\n".join([*kept, *([f"… {rest:,} more line{'s' if rest > 1 else ''} not shown"] if rest else [])])


def narrowed(line: str) -> str:
    """One line made visible, and cut to 500 characters with the count of the rest."""
    shown = visible(line[: _MAX_WIDTH * 2])
    if len(shown) <= _MAX_WIDTH and len(line) <= _MAX_WIDTH * 2:
        return shown
    cut = visible(line[:_MAX_WIDTH])[:_MAX_WIDTH]
    return f"{cut}… [+{len(line) - _MAX_WIDTH:,} characters]" if len(line) > _MAX_WIDTH else f"{cut}…"


def visible(text: str) -> str:
    r"""A text whose characters can all be seen: control characters, invisible ones, those that turn the direction of
    writing and blanks other than the space stand as escapes such as `\u202e`; line breaks and tabs stay.

    Combining marks stay where one or two of them sit on a letter, as in a name; variation selectors and piles do not.
    """  # noqa: D205 - one sentence
    if _PLAIN.fullmatch(text):
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        unseen = category in _HIDDEN and char not in " \n\t"
        selects = marks > 0 and ("\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef")
        shown.append(_escaped(char) if unseen or char in _BLANKS or selects or marks > _MOST_MARKS else char)
    return "".join(shown)


def _blank_mark(line: str) -> str | None:
    """The mark of a blank line; None for any other."""
    return line[:1] if line[:1] in _BLANK and not line[1:].strip(" \t") else None


def _folded(line: str) -> list[str]:
    """A line in pieces, so that nothing stands beyond an edge."""
    return [line[:_FOLD], *(f"… {line[at : at + _FOLD]}" for at in range(_FOLD, len(line), _FOLD))]


def _escaped(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:  # noqa: PLR2004 - what two hexadecimal digits hold
        return {"\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - what four hold
