"""The control block's interpreter: `pydantic-monty`, a Python subset in a worker process of its own.

The worker holds no host objects. Every name that control code does not define itself is either one of the tools
or an error, and every tool call suspends the worker until the host has answered with plain data. Time, memory and
recursion are bounded inside the worker, calls and printed bytes here, since its clock stops during calls.
"""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypeIs

from agent_runtime.errors import ControlError, FormatError, LimitError, SandboxError, ToolError
from agent_runtime.interpreter.diagnostics import parse_findings, render
from agent_runtime.interpreter.plain import NotPlainError, plain
from agent_runtime.interpreter.source import Span, bound_names, discarded_calls
from agent_runtime.payload_plan import CodeError, parse_code
from agent_runtime.tools.protocol import Plain

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncFunctionSnapshot, AsyncMontySession, AsyncSnapshot, MontyError

# The checker's idea of the builtins lacks these, though the interpreter has them.
_EXCEPTIONS = {
    "FileNotFoundError": "OSError",
    "FileExistsError": "OSError",
    "IsADirectoryError": "OSError",
    "NotADirectoryError": "OSError",
    "PermissionError": "OSError",
    "ImportError": "Exception",
    "ModuleNotFoundError": "ImportError",
    "UnboundLocalError": "NameError",
    "UnicodeDecodeError": "ValueError",
    "UnicodeEncodeError": "ValueError",
}
_FUNCTIONS = ("filter", "format", "getattr", "hasattr", "map", "setattr")
BUILTIN_STUBS = "\n".join(
    [
        "from typing import Any",
        *(f"class {name}({base}): ..." for name, base in _EXCEPTIONS.items()),
        *(f"def {name}(*args: Any) -> Any: ..." for name in _FUNCTIONS),
    ]
)
# Generator expressions are lists in this interpreter, so that `next((x for x in xs if ...), None)` would fail. Taking
# the first item off the list is what `next` does to a generator.
_PRELUDE = """
_builtin_next = next
def next(iterator, *default):
    if not isinstance(iterator, list):
        return _builtin_next(iterator, *default)
    if iterator:
        return iterator.pop(0)
    if default:
        return default[0]
    raise StopIteration
"""
_NAMES_A_CALL = 50
_NOT_THERE = "only_checked__"  # stubs are imported by `*`, which leaves out names with a leading underscore
_ADVICE = {
    "cannot suspend in this synchronous context": (
        "A tool cannot be called from a key=, map or filter function here: collect the values in a loop first."
    ),
    "exceptions can only be called with zero or one string argument": "Exceptions take one text here.",
}
_TIME_ADVICE = "time.sleep waits for nothing here; wait in the shell instead, e.g. execute('main', 'sleep 1')"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLimits:
    """Bounds of one control block.

    Attributes:
        seconds: running time of the code itself; tool calls do not count.
        memory_bytes: heap of the worker.
        calls: tool calls.
        printed_chars: characters that `print` may produce.
        recursion: depth of function calls.
    """

    seconds: float = 10.0
    memory_bytes: int = 256 * 1024**2
    calls: int = 200
    printed_chars: int = 200_000
    recursion: int = 400


class CallTool(Protocol):
    """Answers one tool call of a control block."""

    def __call__(
        self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool
    ) -> Awaitable[Plain]:
        """Run the tool.

        Args:
            tool: its name.
            args: positional arguments, plain data.
            kwargs: keyword arguments, plain data.
            shown: whether the code throws the value away, so that the result must be shown.

        Raises:
            ToolError: told to the control code as an exception, which it may catch.
        """
        ...


class Interpreter:
    """Runs the control blocks of one run, one after the other; what they define lives on to the next."""

    def __init__(self, *, tools: Collection[str], stubs: str, limits: InterpreterLimits | None = None) -> None:
        """Prepare; the worker starts with the first block.

        Args:
            tools: names that control code may call.
            stubs: Python declarations of those names, for the type checker.
            limits: bounds of each block.
        """
        self._tools = {name: _marker(name) for name in tools}
        self._stubs = f"{BUILTIN_STUBS}\ndef {_NOT_THERE}() -> None: ...\n{stubs}"
        self._limits = limits or InterpreterLimits()
        self._stack = AsyncExitStack()
        self._session: AsyncMontySession | None = None
        self._blocks = 0
        self._discarded: dict[str, frozenset[Span]] = {}
        self._bound: frozenset[str] = frozenset()

    async def run(self, source: str, *, call: CallTool, show: Callable[[str], None]) -> None:
        """Run one block to its end.

        Args:
            source: the control code.
            call: answers its tool calls.
            show: gets what it prints, in order with the calls.

        Raises:
            FormatError: the code does not parse or does not fit the tools; none of it ran.
            ControlError: it raised and did not catch; the text is the traceback.
            LimitError: it went over a limit; what it had defined is gone.
            SandboxError: the worker cannot be started.
        """
        from pydantic_monty import MontyCrashedError, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        source = source.replace("\r\n", "\n").replace("\r", "\n")  # as Python's own reader does
        tree = _parsed(source)
        block = _Block(call=call, show=show, limits=self._limits)
        try:
            session = await self._started()
            self._bound |= bound_names(tree)
            await self._drive(await self._feed(session, source, block, discarded_calls(tree, source)), block)
        except FormatError:
            raise
        except MontyCrashedError as error:
            await self.close()
            raise LimitError(f"the interpreter stopped: {error}. Its variables are gone.") from error
        except MontyError as error:
            raise await self._failure(error, block) from error
        except BaseException:
            # Left in mid-call (a stop, a limit, a broken sandbox): a suspended worker cannot take another block.
            await self.close()
            raise

    async def close(self) -> None:
        """End the worker; a later block gets a fresh one. Idempotent."""
        stack, self._stack = self._stack, AsyncExitStack()
        self._session, self._blocks = None, 0
        self._discarded.clear()
        self._bound = frozenset()
        await stack.aclose()

    async def _started(self) -> AsyncMontySession:
        if self._session is None:
            from pydantic_monty import AsyncMonty  # noqa: PLC0415 - see TYPE_CHECKING above

            limits = self._limits
            try:
                pool = await self._stack.enter_async_context(
                    AsyncMonty(max_processes=1, checkout_timeout=30, request_timeout=limits.seconds + 20)
                )
            except (FileNotFoundError, OSError) as error:
                raise SandboxError(f"the control interpreter cannot start: {error}") from error
            self._session = await self._stack.enter_async_context(
                pool.checkout(
                    limits={
                        "max_feed_duration_secs": limits.seconds,
                        "max_memory": limits.memory_bytes,
                        "max_recursion_depth": limits.recursion,
                        "max_suspensions": 1_000_000,  # calls are counted here, a block at a time
                    },
                    type_check=True,
                    type_check_stubs=self._stubs,
                    type_check_format="json",
                )
            )
            await self._session.feed_run(_PRELUDE, skip_type_check=True)
            self._blocks = 1
        return self._session

    async def _feed(
        self, session: AsyncMontySession, source: str, block: _Block, discarded: frozenset[Span]
    ) -> AsyncSnapshot:
        """Start a block."""
        await self._check(session, source)
        self._discarded[f"<python-input-{self._blocks}>"] = discarded
        self._blocks += 1
        return await session.feed_start(source, print_callback=block.printed, skip_type_check=True)

    async def _check(self, session: AsyncMontySession, source: str) -> None:
        """Hold a block against the type checker by itself.

        The checker would take the variables of earlier blocks for declared, so that no later block could give one of
        them a value of another type. It only remembers blocks that ran to their end: so the block is fed to it below a
        name that is not there, and once more, unchecked, to be run. Names that control code has bound at any time
        are not unknown.
        """
        from pydantic_monty import MontyCrashedError, MontyError, MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            snapshot: Any = await session.feed_start(f"{_NOT_THERE}\n{source}")
            while _asks_for_stubs(snapshot):
                snapshot = await snapshot.resume_not_handled()
            await snapshot.resume()
        except MontyTypingError as error:
            tools = self._tools.keys()
            findings = [f for f in parse_findings(error.display(), above=1) if f.counts(tools=tools, bound=self._bound)]
            if findings:
                raise FormatError(
                    "control_syntax",
                    "The control block was not run: it does not fit the tools or the interpreter.\n"
                    + render(findings, source),
                ) from error
        except MontyCrashedError:
            raise
        except MontyError:  # the name that is not there; whatever else is wrong, running it will tell
            self._blocks += 1  # the worker numbers the blocks that it starts, and it started this one

    async def _drive(self, snapshot: AsyncSnapshot, block: _Block) -> None:
        """Answer suspensions until the block is complete."""
        from pydantic_monty import (  # noqa: PLC0415 - see TYPE_CHECKING above
            AsyncFunctionSnapshot,
            AsyncNameLookupSnapshot,
            MontyComplete,
        )

        while not isinstance(snapshot, MontyComplete):
            block.count_suspension()
            if isinstance(snapshot, AsyncFunctionSnapshot):
                snapshot = await self._answer(snapshot, block)
            elif isinstance(snapshot, AsyncNameLookupSnapshot):
                tool = self._tools.get(snapshot.variable_name)
                snapshot = await (snapshot.resume(value=tool) if tool else snapshot.resume())
            else:
                raise ControlError("RuntimeError: nothing that can be awaited is left; tools are called without await")

    async def _answer(self, snapshot: AsyncFunctionSnapshot, block: _Block) -> AsyncSnapshot:
        """Answer one call: a tool's, or a refusal."""
        name = snapshot.function_name
        block.count_call()
        if snapshot.is_os_function:
            if name == "system.sleep":
                return await snapshot.resume({"exc_type": "RuntimeError", "message": _TIME_ADVICE})
            return await snapshot.resume_not_handled()
        if name not in self._tools:
            return await snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        position = snapshot.position
        spans = self._discarded.get(position.filename)
        shown = spans is None or (position.start, position.end) in spans
        try:
            args = tuple(plain(value, f"{name}: argument {i}") for i, value in enumerate(snapshot.args, 1))
            kwargs = {key: plain(value, f"{name}: {key}") for key, value in snapshot.kwargs.items()}
            value: Any = await block.call(name, args, kwargs, shown=shown)
        except NotPlainError as error:
            return await snapshot.resume({"exc_type": "TypeError", "message": str(error)})
        except ToolError as error:
            return await snapshot.resume({"exc_type": error.kind, "message": str(error)})
        return await snapshot.resume({"return_value": value})

    async def _failure(self, error: MontyError, block: _Block) -> ControlError | LimitError:
        """Name what went wrong; after a limit inside the worker its heap is not to be trusted."""
        from pydantic_monty import MontyRuntimeError, MontySyntaxError  # noqa: PLC0415 - see TYPE_CHECKING above

        inner = error.exception()
        if block.over_limit:
            await self.close()
            return LimitError(f"{block.over_limit} The block was stopped; its variables are gone.")
        told = error.display() if isinstance(error, MontyRuntimeError | MontySyntaxError) else str(error)
        if isinstance(inner, MemoryError | RecursionError) or "time limit exceeded" in str(inner):
            await self.close()
            return LimitError(f"{told}\nThe block was stopped; its variables are gone.")
        advice = next((f"\n{advice}" for sign, advice in _ADVICE.items() if sign in told), "")
        return ControlError(told + advice)


class _Block:
    """What one control block has used so far."""

    def __init__(self, *, call: CallTool, show: Callable[[str], None], limits: InterpreterLimits) -> None:
        self.call = call
        self.over_limit = ""
        self._show = show
        self._limits = limits
        self._calls = 0
        self._suspensions = 0
        self._printed = 0

    def printed(self, _stream: str, text: str) -> None:
        """Take what the block prints; raising here is how the worker is told to stop."""
        room = max(0, self._limits.printed_chars - self._printed)
        self._printed += len(text)
        self._show(text[:room])
        if self._printed > self._limits.printed_chars:
            self.over_limit = f"The block printed more than {self._limits.printed_chars:,} characters."
            raise MemoryError(self.over_limit)

    def count_suspension(self) -> None:
        """Count one question to the host, be it a call or what a name means; the worker's clock stands still then.

        Raises:
            LimitError: it is one too many.
        """
        self._suspensions += 1
        if self._suspensions > self._limits.calls * _NAMES_A_CALL:
            raise LimitError("The block asked for unknown names over and over and was stopped; its variables are gone.")

    def count_call(self) -> None:
        """Count one tool call.

        Raises:
            LimitError: it is one too many.
        """
        self._calls += 1
        if self._calls > self._limits.calls:
            raise LimitError(
                f"The block made more than {self._limits.calls} tool calls and was stopped; its variables are gone."
            )


def _parsed(source: str) -> ast.Module:
    try:
        return parse_code(source)
    except CodeError as error:
        where = f" (line {error.line})" if error.line else ""
        raise FormatError(
            "control_syntax", f"The control block was not run: it does not parse{where}: {error}"
        ) from error


def _asks_for_stubs(snapshot: AsyncSnapshot) -> TypeIs[AsyncFunctionSnapshot]:
    """Whether the type checker asks the host about an imported module; it never has any to offer."""
    from pydantic_monty import AsyncFunctionSnapshot  # noqa: PLC0415 - see TYPE_CHECKING above

    return isinstance(snapshot, AsyncFunctionSnapshot) and snapshot.function_name == "import_stubs"


def _marker(name: str) -> Callable[..., None]:
    """A callable that stands for a tool when control code passes the tool's name around as a value."""

    def tool(*_args: object, **_kwargs: object) -> None:
        raise AssertionError(f"{name} is answered by suspension, never called")

    tool.__name__ = tool.__qualname__ = name
    return tool
