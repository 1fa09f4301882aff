"""The control block's interpreter: `pydantic-monty`, a Python subset in a worker process of its own.

The worker holds no host objects. Every name that control code does not define itself is either one of the tools
or an error, and every tool call suspends the worker until the host has answered with plain data. Time, memory and
recursion are bounded inside the worker, calls and printed bytes here, since its clock stops during calls. The type
checker sees each block before any of it runs (`start`).
"""

from __future__ import annotations

import ast
import atexit
import time
from collections.abc import AsyncIterator, Callable, Collection
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agent_runtime.core.errors import (
    ControlError,
    FormatError,
    LimitError,
    ResumeCode,
    ResumeError,
    SandboxError,
    Suspend,
    ToolError,
)
from agent_runtime.core.values import CallTool
from agent_runtime.interpreter.source import (
    BlockUsage,
    CodeError,
    InterpreterLimits,
    InterpreterState,
    NotPlainError,
    Span,
    Suspended,
    bound_names,
    discarded_calls,
    parse_code,
    parse_findings,
    plain,
    render,
)
from agent_runtime.processes.spawn import finish_start, traced

if TYPE_CHECKING:
    from pydantic_monty import AsyncFunctionSnapshot, AsyncMontySession, AsyncSnapshot, MontyError


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
        self._stubs = f"{_BUILTINS}\n{stubs}"
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
        frozen = None
        with suppress(MontyError):  # copying them took it over its memory limit
            frozen = await worker.session.dump()
        if frozen is None or len(frozen) > most:
            raise LimitError(
                f"{tool} was not called: a person must agree first, and the block's variables are too large to be kept "
                f"until then (more than {most:,} bytes). They are gone; call {tool} before reading so much."
            )
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


def require_readable(state: InterpreterState) -> None:
    """Make sure that the interpreter that is installed can go on with a state.

    Raises:
        ResumeError: another version took it.
    """
    from pydantic_monty import __version__  # noqa: PLC0415 - see TYPE_CHECKING above

    if state.version != __version__:
        raise ResumeError(ResumeCode.VERSION, found=state.version, installed=__version__)


def _marker(name: str) -> Callable[..., None]:
    """A callable that stands for a tool when control code passes the tool's name around as a value."""

    def tool(*_args: object, **_kwargs: object) -> None:
        raise AssertionError(f"{name} is answered by suspension, never called")

    tool.__name__ = tool.__qualname__ = name
    return tool


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
_BUILTINS = "\n".join(
    [
        "from typing import Any",
        *(f"class {name}({base}): ..." for name, base in _EXCEPTIONS.items()),
        *(f"def {name}(*args: Any) -> Any: ..." for name in _FUNCTIONS),
    ]
)
# No name is in it that a block could give another meaning. A block that holds this very line ends there.
_END = "assert False, 'the control block is over'"


async def start(
    worker: InterpreterWorker,
    source: str,
    *,
    tools: AbstractSet[str],
    discarded: frozenset[Span],
    printed: Callable[[str, str], None],
) -> AsyncSnapshot:
    """Hold a block against the type checker by itself, and start it; both in one turn of the worker.

    The checker takes the variables of blocks that it saw run to their end for declared, so that no later block could
    give one of them a value of another type. So every block fails behind its last line, see `is_over`. Names that
    control code has bound at any time are not unknown.

    Args:
        worker: has bound the names of this block already.
        source: the control code.
        tools: names that it may call.
        discarded: the spans of its calls whose value is thrown away.
        printed: gets what it prints.

    Raises:
        FormatError: it does not fit the tools or the interpreter; none of it ran.
        MontyError: it is over, or failed.
    """
    from pydantic_monty import AsyncFunctionSnapshot, MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        snapshot = await worker.feed(f"{source}\n{_END}", discarded=discarded, printed=printed, checked=True)
        # The type checker asks the host about imported modules; it never has any to offer.
        while (
            isinstance(snapshot, AsyncFunctionSnapshot)
            and snapshot.is_os_function
            and snapshot.function_name == "import_stubs"
        ):
            snapshot = await snapshot.resume_not_handled()
    except MontyTypingError as error:
        worker.blocks -= 1  # it has started none, and the next one gets the number
        counting = [each for each in parse_findings(error.display()) if each.counts(tools=tools, bound=worker.bound)]
        if counting:
            raise FormatError(
                "control_syntax",
                "The control block was not run: it does not fit the tools or the interpreter.\n"
                + render(counting, source),
            ) from error
    else:
        return snapshot
    return await worker.feed(source, discarded=discarded, printed=printed, checked=False)


def is_over(error: MontyError) -> bool:
    """Whether a block that `start` started did not fail, but came to its end."""
    from pydantic_monty import MontyRuntimeError  # noqa: PLC0415 - see TYPE_CHECKING above

    if not isinstance(error, MontyRuntimeError):
        return False
    frames = error.traceback()
    return len(frames) == 1 and frames[0].source_line == _END


_SETTLE_SECONDS = 0.05
_SUSPENSIONS = 1_000_000  # calls are counted by us, a block at a time


class InterpreterWorker:
    """One worker process.

    Attributes:
        session: drives it.
        blocks: how many blocks it has started; it names them by that number.
        discarded: the spans of the calls whose value is thrown away, by the name of the block they stand in.
        bound: every name that a block has bound.
    """

    def __init__(self, session: AsyncMontySession, stack: AsyncExitStack) -> None:
        """Take over a session, and `stack`, whose closing ends it."""
        self.session = session
        self.blocks = 0
        self.discarded: dict[str, frozenset[Span]] = {}
        self.bound: frozenset[str] = frozenset()
        self._stack = stack

    @classmethod
    async def start(cls, *, stubs: str, limits: InterpreterLimits, enclose: Callable[[Path], Path] | None) -> Self:
        """Start a process.

        Args:
            stubs: Python declarations for its type checker.
            limits: bounds of each block.
            enclose: gives the program to start in place of the worker, e.g. one that starts it in a sandbox.

        Raises:
            SandboxError: it does not start.
        """
        # Bubblewrap that is killed in its first milliseconds leaves a child that never ends; see `starting.end`.
        return await finish_start(cls._start(stubs, limits, enclose), end=cls.close)

    @classmethod
    async def _start(cls, stubs: str, limits: InterpreterLimits, enclose: Callable[[Path], Path] | None) -> Self:
        from pydantic_monty import AsyncMonty, MontyCrashedError  # noqa: PLC0415 - see TYPE_CHECKING above

        _settle_at_exit()
        from pydantic_monty._binary import find_monty_binary  # noqa: PLC0415 - the same

        try:
            program = enclose(Path(find_monty_binary())) if enclose else None
            async with AsyncExitStack() as stack:
                pool = await stack.enter_async_context(
                    AsyncMonty(
                        binary_path=program,
                        max_processes=1,
                        checkout_timeout=30,
                        request_timeout=limits.seconds + 20,
                    )
                )
                session = await stack.enter_async_context(
                    pool.checkout(
                        limits={
                            "max_feed_duration_secs": limits.seconds,
                            "max_memory": limits.memory_bytes,
                            "max_recursion_depth": limits.recursion,
                            "max_suspensions": _SUSPENSIONS,
                        },
                        type_check=True,
                        type_check_stubs=stubs,
                        type_check_format="json",
                    )
                )
                return cls(session, stack.pop_all())
        except (OSError, RuntimeError, MontyCrashedError) as error:
            raise SandboxError(
                f"The interpreter's worker process does not start: {error}. Its own error is on standard error; "
                "repair a damaged installation with: pip install --force-reinstall pydantic-monty-runtime"
            ) from error

    async def feed(
        self, source: str, *, discarded: frozenset[Span], printed: Callable[[str, str], None], checked: bool
    ) -> AsyncSnapshot:
        """Start a block.

        Args:
            source: the code.
            discarded: the spans of its calls whose value is thrown away.
            printed: gets what it prints.
            checked: whether the type checker sees it first.

        Raises:
            MontyError: the checker refuses it, or it failed.
        """
        self.discarded[f"<python-input-{self.blocks}>"] = discarded
        self.blocks += 1
        return await self.session.feed_start(source, print_callback=printed, skip_type_check=not checked)

    async def close(self) -> None:
        """End the process."""
        await self._stack.aclose()


@cache
def _settle_at_exit() -> None:
    """Let the library's threads come to rest before this process ends.

    They give back objects of ours after their last answer, for which they need the interpreter; one that comes while
    it is being taken down aborts the process (CPython before 3.14). Measured: 5 of 100 short processes, then none.
    """
    atexit.register(time.sleep, _SETTLE_SECONDS)
