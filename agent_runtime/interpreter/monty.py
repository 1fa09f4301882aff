"""The control block's interpreter: `pydantic-monty`, a Python subset in a worker process of its own.

The worker holds no host objects. Every name that control code does not define itself is either one of the tools
or an error, and every tool call suspends the worker until the host has answered with plain data. Time, memory and
recursion are bounded inside the worker, calls and printed bytes here, since its clock stops during calls.
"""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_runtime.core.calls import CallTool
from agent_runtime.core.errors import ControlError, FormatError, LimitError, ResumeCode, ResumeError, Suspend, ToolError
from agent_runtime.interpreter.checking import declarations, is_over, start
from agent_runtime.interpreter.limits import BlockUsage, InterpreterLimits
from agent_runtime.interpreter.plain import NotPlainError, plain
from agent_runtime.interpreter.source import CodeError, bound_names, discarded_calls, parse_code
from agent_runtime.interpreter.suspension import InterpreterState, Suspended
from agent_runtime.interpreter.worker import InterpreterWorker
from agent_runtime.processes.tracing import traced

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncFunctionSnapshot, AsyncSnapshot, MontyError

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
_ADVICE = {
    "cannot suspend in this synchronous context": (
        "A tool cannot be called from a key=, map or filter function here: collect the values in a loop first."
    ),
    "exceptions can only be called with zero or one string argument": "Exceptions take one text here.",
}
_TIME_ADVICE = "time.sleep waits for nothing here; wait in the shell instead, e.g. execute('main', 'sleep 1')"


def require_readable(state: InterpreterState) -> None:
    """Make sure that the interpreter that is installed can go on with a state.

    Raises:
        ResumeError: another version took it.
    """
    from pydantic_monty import __version__  # noqa: PLC0415 - see TYPE_CHECKING above

    if state.version != __version__:
        raise ResumeError(ResumeCode.VERSION, found=state.version, installed=__version__)


class Interpreter:
    """Runs the control blocks of one run, one after the other; what they define lives on to the next."""

    def __init__(
        self,
        *,
        tools: Collection[str],
        stubs: str,
        limits: InterpreterLimits | None = None,
        enclose: Callable[[Path], Path] | None = None,
    ) -> None:
        """Prepare; the worker starts with the first block.

        Args:
            tools: names that control code may call.
            stubs: Python declarations of those names, for the type checker.
            limits: bounds of each block.
            enclose: given the worker's program, the one to start in its place, e.g. in a sandbox (`sandbox.enclosed`).
        """
        self._tools = {name: _marker(name) for name in tools}
        self._stubs = declarations(stubs)
        self._limits = limits or InterpreterLimits()
        self._enclose = enclose
        self._worker: InterpreterWorker | None = None

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
            Suspended: `call` raised `Suspend`; the error has what `resume` goes on from.
        """
        source = source.replace("\r\n", "\n").replace("\r", "\n")  # as Python's own reader does
        try:
            nodes = [*ast.walk(parse_code(source))]
        except CodeError as error:
            where = f" (line {error.line})" if error.line else ""
            raise FormatError(
                "control_syntax", f"The control block was not run: it does not parse{where}: {error}"
            ) from error
        block = BlockUsage(limits=self._limits, show=show)
        async with self._translated(block):
            if self._worker is None:
                self._worker = await self._start()
                await self._worker.session.feed_run(_PRELUDE, skip_type_check=True)
                self._worker.blocks = 1
            worker = self._worker
            worker.bound |= bound_names(nodes)
            discarded = discarded_calls(nodes, source)
            tools = self._tools.keys()
            snapshot = await start(worker, source, tools=tools, discarded=discarded, printed=block.printed)
            await self._drive(worker, snapshot, block, call)

    async def resume(self, state: InterpreterState, *, call: CallTool, show: Callable[[str], None]) -> None:
        """Go on with a block that was suspended, here or in another process; then `run` as ever.

        The call that waited is put to `call` again, and the block runs to its end with the answer. What this
        interpreter had defined is gone; what the suspended one had is there. The bounds are the tighter of those
        that the block was started with and this interpreter's; what it had used of them counts.

        The worker does not prove where a state comes from: check its signature first.

        Args:
            state: of the block.
            call: answers its tool calls, the one that waited first.
            show: gets what it prints from now on.

        Raises:
            ResumeError: the state is of another version of the interpreter, or damaged, or its tool is gone.
            ControlError, LimitError, SandboxError, Suspended: as for `run`.
        """
        from pydantic_monty import AsyncFunctionSnapshot, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        await self.close()
        block = BlockUsage(
            limits=self._limits,
            show=show,
            calls=state.calls,
            suspensions=state.suspensions,
            printed_chars=state.printed_chars,
        )
        async with self._translated(block):
            self._worker = worker = await self._start()
            require_readable(state)
            try:
                snapshot = await worker.session.load_snapshot(state.snapshot, print_callback=block.printed)
            except (MontyError, RuntimeError) as error:
                raise ResumeError(ResumeCode.DAMAGED, error=error) from error
            name = snapshot.function_name if isinstance(snapshot, AsyncFunctionSnapshot) else None
            if name not in self._tools:
                raise ResumeError(ResumeCode.TOOL_MISSING, tool=name or "no call")
            worker.blocks, worker.discarded, worker.bound = state.blocks, dict(state.discarded), state.bound
            await self._drive(worker, snapshot, block, call)

    async def close(self) -> None:
        """End the worker; a later block gets a fresh one. Idempotent."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()

    async def _start(self) -> InterpreterWorker:
        with traced("interpreter start"):
            return await InterpreterWorker.start(stubs=self._stubs, limits=self._limits, enclose=self._enclose)

    @asynccontextmanager
    async def _translated(self, block: BlockUsage) -> AsyncIterator[None]:
        """Turn whatever stops a block into one of our errors, and end a worker that cannot take another block."""
        from pydantic_monty import MontyCrashedError, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            yield
        except FormatError:
            raise
        except MontyCrashedError as error:
            await self.close()
            raise LimitError(f"the interpreter stopped: {error}. Its variables are gone.") from error
        except MontyError as error:
            if block.over_limit or not is_over(error):
                raise await self._failure(error, block) from error
        except BaseException:  # left in mid-call: frozen, a stop, a limit, a broken sandbox
            await self.close()
            raise

    async def _drive(
        self, worker: InterpreterWorker, snapshot: AsyncSnapshot, block: BlockUsage, call: CallTool
    ) -> None:
        """Answer suspensions until the block is complete."""
        from pydantic_monty import (  # noqa: PLC0415 - see TYPE_CHECKING above
            AsyncFunctionSnapshot,
            AsyncNameLookupSnapshot,
            MontyComplete,
        )

        while not isinstance(snapshot, MontyComplete):
            block.count_suspension()
            if isinstance(snapshot, AsyncFunctionSnapshot):
                block.count_call()
                snapshot = await self._answer(worker, snapshot, block, call)
            elif isinstance(snapshot, AsyncNameLookupSnapshot):
                tool = self._tools.get(snapshot.variable_name)
                snapshot = await (snapshot.resume(value=tool) if tool else snapshot.resume())
            else:
                raise ControlError("RuntimeError: nothing that can be awaited is left; tools are called without await")

    async def _answer(
        self, worker: InterpreterWorker, snapshot: AsyncFunctionSnapshot, block: BlockUsage, call: CallTool
    ) -> AsyncSnapshot:
        """Answer one call: a tool's, or a refusal."""
        name = snapshot.function_name
        if snapshot.is_os_function:
            if name == "system.sleep":
                return await snapshot.resume({"exc_type": "RuntimeError", "message": _TIME_ADVICE})
            return await snapshot.resume_not_handled()
        if name not in self._tools:
            return await snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        position = snapshot.position
        spans = worker.discarded.get(position.filename)
        shown = spans is None or (position.start, position.end) in spans
        try:
            args = tuple(plain(value, f"{name}: argument {i}") for i, value in enumerate(snapshot.args, 1))
            kwargs = {key: plain(value, f"{name}: {key}") for key, value in snapshot.kwargs.items()}
            value: Any = await call(name, args, kwargs, shown=shown)
        except NotPlainError as error:
            return await snapshot.resume({"exc_type": "TypeError", "message": str(error)})
        except ToolError as error:
            told = str(error).encode(errors="backslashreplace").decode()  # of names that are no UTF-8, for one
            return await snapshot.resume({"exc_type": error.kind, "message": told})
        except Suspend:
            raise Suspended(await self._frozen(worker, name, block)) from None
        return await snapshot.resume({"return_value": value})

    async def _frozen(self, worker: InterpreterWorker, tool: str, block: BlockUsage) -> InterpreterState:
        """The block as it stands at a call of `tool`, which counts as not made yet.

        Raises:
            LimitError: its variables are too much to be kept.
        """
        from pydantic_monty import MontyError, __version__  # noqa: PLC0415 - see TYPE_CHECKING above

        most = self._limits.snapshot_bytes
        try:
            frozen = await worker.session.dump()
        except MontyError as error:  # copying them took it over its memory limit
            raise LimitError(_too_much(tool, most)) from error
        if len(frozen) > most:
            raise LimitError(_too_much(tool, most))
        return InterpreterState(
            version=__version__,
            snapshot=frozen,
            blocks=worker.blocks,
            calls=block.calls - 1,
            suspensions=block.suspensions - 1,
            printed_chars=block.printed_chars,
            discarded=worker.discarded,
            bound=worker.bound,
        )

    async def _failure(self, error: MontyError, block: BlockUsage) -> ControlError | LimitError:
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


def _too_much(tool: str, most: int) -> str:
    return (
        f"{tool} was not called: a person must agree first, and the block's variables are too large to be kept until "
        f"then (more than {most:,} bytes). They are gone; call {tool} before reading so much."
    )


def _marker(name: str) -> Callable[..., None]:
    """A callable that stands for a tool when control code passes the tool's name around as a value."""

    def tool(*_args: object, **_kwargs: object) -> None:
        raise AssertionError(f"{name} is answered by suspension, never called")

    tool.__name__ = tool.__qualname__ = name
    return tool
