"""One callable that the model may use: its declaration, how a call of it is planned, how that is made."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import MethodType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import BoundExceededError, Interrupt, SandboxError, ToolError
from agent_runtime.core.policy import CallFacts
from agent_runtime.interpreter.plain import NotPlainError, plain
from agent_runtime.processes.daemon_thread import run_in_daemon_thread
from agent_runtime.processes.spawn import in_thread
from agent_runtime.tools import preview
from agent_runtime.tools.planned import Planned, refused

if TYPE_CHECKING:  # a tenth of a second to import, and needed by the first call only
    from pydantic import TypeAdapter

_ARGUMENT_CHARS = 80
_EXACT = frozenset({bool, int, float, str, NoneType})
"""Types that pydantic would make of one another, e.g. False of "no"; an argument of such a type is taken as it is."""
_LITERAL = re.compile(r"Literal\[[^]]*\]")
"""The docstring of a built-in tool names what such a parameter takes; twice would cost tokens in every request."""
_LITERALS = (NoneType, bool, int, float, str)

Progress = Callable[[str], None]
"""Told, on the event loop, of each step that a tool reports."""

Planner = Callable[[str, dict[str, Any], Callable[[], Any]], Planned]
"""Plans a call, given the tool's name, the checked arguments, and what calls the tool's function with them."""

Judge = Callable[[str, dict[str, Any]], CallFacts]
"""Tells what rules decide a call by, given the tool's name and all arguments, unchecked; may raise `ToolError`."""


@lru_cache(maxsize=128)
def _bound(method: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method; each run has objects of its own, with the same methods."""
    return inspect.signature(MethodType(method, method), eval_str=True)


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
        return await in_thread(partial(self._planned, args))

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
        return Planned(facts=facts, preview=partial(preview.of_call, self.name, args), apply=call)

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
            value = plain(answer, f"what {self.name} returned")
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
            answer = await in_thread(call)
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


def is_cancelled(error: BaseException) -> bool:
    """Whether an error is that the present task is to end, as opposed to one that a stranger's code has raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _drain(steps: Generator[object, Any, object], tell: Progress) -> object:
    """Go through a generator in a thread of its own; its answer is what it returns."""
    while True:
        try:
            tell(str(next(steps)))
        except StopIteration as end:
            return end.value


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


def value_type(func: Callable[..., Any]) -> str:
    """The value type of a custom tool: what its author annotated, `object` where the checker could not know it."""
    annotation = inspect.signature(func).return_annotation
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    known = {"None", "bool", "int", "float", "str", "list", "dict", "tuple"}
    return written if written.partition("[")[0] in known else "Any"
