"""The control block's interpreter: `pydantic-monty`, a Python subset in a worker process of its own.

The worker holds no host objects. Every name that control code does not define itself is either one of the tools
or an error, and every tool call suspends the worker until the host has answered with plain data. Time, memory and
recursion are bounded inside the worker, calls and printed bytes here, since its clock stops during calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypeIs

from agent_runtime.errors import ControlError, FormatError, LimitError, SandboxError, ToolError
from agent_runtime.interpreter.diagnostics import parse_findings, render
from agent_runtime.interpreter.plain import NotPlainError, plain
from agent_runtime.interpreter.source import Span, assigned_names, discarded_calls
from agent_runtime.tools.protocol import Plain

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncFunctionSnapshot, AsyncMontySession, AsyncSnapshot, MontyError

# The checker's idea of the builtins lacks these, though the interpreter has them.
EXCEPTION_STUBS = "\n".join(
    f"class {name}(OSError): ..."
    for name in (
        "FileNotFoundError",
        "FileExistsError",
        "IsADirectoryError",
        "NotADirectoryError",
        "PermissionError",
    )
)
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
        self._stubs = f"{EXCEPTION_STUBS}\n{stubs}"
        self._limits = limits or InterpreterLimits()
        self._stack = AsyncExitStack()
        self._session: AsyncMontySession | None = None
        self._blocks = 0
        self._discarded: dict[str, frozenset[Span]] = {}
        self._unchecked_names: frozenset[str] = frozenset()

    async def run(self, source: str, *, call: CallTool, show: Callable[[str], None]) -> None:
        """Run one block to its end.

        Args:
            source: the control code.
            call: answers its tool calls.
            show: gets what it prints, in order with the calls.

        Raises:
            FormatError: the code does not pass the type checker; none of it ran.
            ControlError: it raised and did not catch; the text is the traceback.
            LimitError: it went over a limit; what it had defined is gone.
            SandboxError: the worker cannot be started.
        """
        from pydantic_monty import MontyCrashedError, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        session = await self._started()
        block = _Block(call=call, show=show, limits=self._limits)
        try:
            await self._drive(await self._feed(session, source, block), block)
        except FormatError:
            raise
        except MontyCrashedError as error:
            await self.close()
            raise LimitError(f"the interpreter stopped: {error}. Its variables are gone.") from error
        except MontyError as error:
            self._unchecked_names |= assigned_names(source)
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
        self._unchecked_names = frozenset()
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
        return self._session

    async def _feed(self, session: AsyncMontySession, source: str, block: _Block) -> AsyncSnapshot:
        """Type-check and start a block.

        The checker forgets what a failed block had defined, while the interpreter still has it; findings about
        such names are dropped and the block is fed without the checker.
        """
        from pydantic_monty import MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

        name = f"<python-input-{self._blocks}>"
        self._discarded[name] = discarded_calls(source)
        try:
            snapshot = await session.feed_start(source, print_callback=block.printed)
            while _asks_for_stubs(snapshot):
                snapshot = await snapshot.resume_not_handled()
        except MontyTypingError as error:
            findings = [f for f in parse_findings(error.display()) if not f.is_about(self._unchecked_names)]
            if findings:
                self._blocks -= 1  # the worker numbers only the blocks that it starts
                raise FormatError(
                    "control_syntax",
                    "The control block was not run: it does not fit the tools or the interpreter.\n"
                    + render(findings, source),
                ) from error
            snapshot = await session.feed_start(source, print_callback=block.printed, skip_type_check=True)
        finally:
            self._blocks += 1
        return snapshot

    async def _drive(self, snapshot: AsyncSnapshot, block: _Block) -> None:
        """Answer suspensions until the block is complete."""
        from pydantic_monty import (  # noqa: PLC0415 - see TYPE_CHECKING above
            AsyncFunctionSnapshot,
            AsyncNameLookupSnapshot,
            MontyComplete,
        )

        while not isinstance(snapshot, MontyComplete):
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
            block.count_call()
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
        return ControlError(told)


class _Block:
    """What one control block has used so far."""

    def __init__(self, *, call: CallTool, show: Callable[[str], None], limits: InterpreterLimits) -> None:
        self.call = call
        self.over_limit = ""
        self._show = show
        self._limits = limits
        self._calls = 0
        self._printed = 0

    def printed(self, _stream: str, text: str) -> None:
        """Take what the block prints; raising here is how the worker is told to stop."""
        self._printed += len(text)
        if self._printed > self._limits.printed_chars:
            self.over_limit = f"The block printed more than {self._limits.printed_chars:,} characters."
            raise MemoryError(self.over_limit)
        self._show(text)

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
