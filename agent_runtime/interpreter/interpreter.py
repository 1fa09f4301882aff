"""Interpreter of control blocks: `pydantic-monty`, a Python subset, in a worker process without host objects.

Each tool call suspends the worker until the host answers with plain data.
"""

from __future__ import annotations

import ast
import atexit
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
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
    find_missing_tools,
    is_escape,
    parse_code,
    parse_findings,
    render_findings,
    to_plain,
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
_ERROR_ADVICE = {
    "cannot suspend in this synchronous context": (
        "A tool cannot be called from a key=, map or filter function here: collect the values in a loop first."
    ),
    "exceptions can only be called with zero or one string argument": "Exceptions take one text here.",
}
HELP = "help"
"""The function of control code that returns a tool's full text."""
_LONG_MARK = re.compile(r'^(  File "<python-input-[^\n]*\n {4}[^\n]*)\n +~{30,}$', re.MULTILINE)
"""The mark in a traceback under a long call, which says nothing that the line does not say."""
_SLEEP_ADVICE = "time.sleep waits for nothing here; wait in the shell instead, e.g. execute('main', 'sleep 1')"


class Interpreter:
    """Runs the control blocks of one run; definitions persist between blocks."""

    def __init__(
        self,
        *,
        tools: Collection[str],
        stubs: str,
        limits: InterpreterLimits | None = None,
        enclose: Callable[[Path], Path] | None = None,
        missing: Mapping[str, str] | None = None,
        describe: Callable[[str], str] | None = None,
    ) -> None:
        """Store the options; the first block starts the worker, whose program `enclose` may wrap in a sandbox.

        `missing` are reasons for which a tool is not there, by its name; `describe` answers `help`.
        """
        self._tools = {name: _tool_placeholder(name) for name in tools}
        self._stubs = f"{_BUILTINS}\n{stubs}"
        self._limits = limits or InterpreterLimits()
        self._enclose = enclose
        self._missing = missing or {}
        self._describe = describe
        if describe is not None:
            self._tools[HELP] = _tool_placeholder(HELP)
            self._stubs = f"{self._stubs}\ndef {HELP}(tool: Any) -> str: ..."
        self._worker: InterpreterWorker | None = None

    async def run(self, source: str, *, call: CallTool, show: Callable[[str], None]) -> None:
        """Run one block; `show` gets its output.

        Raises:
            FormatError: syntax or type error; nothing ran.
            ControlError: uncaught exception; the text is the traceback.
            LimitError: over a limit; definitions are lost.
            SandboxError: the worker does not start.
            Suspended: `call` raised `Suspend`.
        """
        source = source.replace("\r\n", "\n").replace("\r", "\n")  # as Python's own reader does
        try:
            nodes = [*ast.walk(parse_code(source))]
        except CodeError as error:
            location = f" (line {error.line})" if error.line else ""
            raise FormatError(
                "control_syntax", f"The control block was not run: it does not parse{location}: {error}"
            ) from error
        block = BlockUsage(limits=self._limits, emit=show)
        async with self._translate_errors(block):
            if self._worker is None:
                self._worker = await self._start()
                await self._worker.session.feed_run(_PRELUDE, skip_type_check=True)
                self._worker.blocks = 1
            worker = self._worker
            worker.bound |= bound_names(nodes)
            discarded = discarded_calls(nodes, source)
            snapshot = await start_block(
                worker,
                source,
                tools=self._tools.keys(),
                missing=self._missing,
                discarded=discarded,
                on_output=block.take_output,
            )
            await self._run_to_end(worker, snapshot, block, call)

    async def resume(self, state: InterpreterState, *, call: CallTool, show: Callable[[str], None]) -> None:
        """Run a suspended block to its end, repeating the pending call.

        Its definitions replace this interpreter's; its usage counts. Check the signature first.

        Raises:
            ResumeError: another version, a damaged state, or a missing tool.
            ControlError, LimitError, SandboxError, Suspended: as for `run`.
        """
        from pydantic_monty import AsyncFunctionSnapshot, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        await self.close()
        block = BlockUsage(
            limits=self._limits,
            emit=show,
            calls=state.calls,
            suspensions=state.suspensions,
            printed_chars=state.printed_chars,
        )
        async with self._translate_errors(block):
            self._worker = worker = await self._start()
            require_readable(state)
            try:
                snapshot = await worker.session.load_snapshot(state.snapshot, print_callback=block.take_output)
            except (MontyError, RuntimeError) as error:
                raise ResumeError(ResumeCode.DAMAGED, error=error) from error
            name = snapshot.function_name if isinstance(snapshot, AsyncFunctionSnapshot) else None
            if name not in self._tools:
                raise ResumeError(ResumeCode.TOOL_MISSING, tool=name or "no call")
            worker.blocks, worker.discarded, worker.bound = state.blocks, dict(state.discarded), state.bound
            await self._run_to_end(worker, snapshot, block, call)

    async def close(self) -> None:
        """End the worker, if any; a later block starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()

    async def _start(self) -> InterpreterWorker:
        with traced("interpreter start"):
            return await InterpreterWorker.start(stubs=self._stubs, limits=self._limits, enclose=self._enclose)

    @asynccontextmanager
    async def _translate_errors(self, block: BlockUsage) -> AsyncIterator[None]:
        from pydantic_monty import MontyCrashedError, MontyError  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            yield
        except FormatError:
            raise
        except MontyCrashedError as error:
            await self.close()
            raise LimitError(f"the interpreter stopped: {error}. Its variables are gone.") from error
        except MontyError as error:
            if block.limit_message or not is_completed(error):
                raise await self._convert_error(error, block) from error
        except BaseException:  # interrupted during a call: suspended, stopped, over a limit, a broken sandbox
            await self.close()
            raise

    async def _run_to_end(
        self, worker: InterpreterWorker, snapshot: AsyncSnapshot, block: BlockUsage, call: CallTool
    ) -> None:
        from pydantic_monty import (  # noqa: PLC0415 - see TYPE_CHECKING above
            AsyncFunctionSnapshot,
            AsyncNameLookupSnapshot,
            MontyComplete,
        )

        while not isinstance(snapshot, MontyComplete):
            block.count_suspension()
            if isinstance(snapshot, AsyncFunctionSnapshot):
                block.count_call()
                snapshot = await self._answer_call(worker, snapshot, block, call)
            elif isinstance(snapshot, AsyncNameLookupSnapshot):
                tool = self._tools.get(snapshot.variable_name)
                snapshot = await (snapshot.resume(value=tool) if tool else snapshot.resume())
            else:
                raise ControlError("RuntimeError: nothing that can be awaited is left; tools are called without await")

    async def _answer_call(
        self, worker: InterpreterWorker, snapshot: AsyncFunctionSnapshot, block: BlockUsage, call: CallTool
    ) -> AsyncSnapshot:
        name = snapshot.function_name
        if snapshot.is_os_function:
            if name == "system.sleep":
                return await snapshot.resume({"exc_type": "RuntimeError", "message": _SLEEP_ADVICE})
            return await snapshot.resume_not_handled()
        if name not in self._tools:
            return await snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        position = snapshot.position
        spans = worker.discarded.get(position.filename)
        is_statement = spans is None or (position.start, position.end) in spans
        try:
            value: Any
            if name == HELP and self._describe is not None:
                topic: Any = next(iter((*snapshot.args, *snapshot.kwargs.values())), "")
                value = self._describe(getattr(topic, "__name__", str(topic)))
                block.emit(f"{value}\n" if is_statement else "")
            else:
                args = tuple(to_plain(value, f"{name}: argument {i}") for i, value in enumerate(snapshot.args, 1))
                kwargs = {key: to_plain(value, f"{name}: {key}") for key, value in snapshot.kwargs.items()}
                value = await call(name, args, kwargs, show=is_statement)
        except NotPlainError as error:
            return await snapshot.resume({"exc_type": "TypeError", "message": str(error)})
        except ToolError as error:
            message = str(error).encode(errors="backslashreplace").decode()  # e.g. file names that are not UTF-8
            return await snapshot.resume({"exc_type": error.kind, "message": message})
        except Suspend:
            raise Suspended(await self._suspend_block(worker, name, block)) from None
        return await snapshot.resume({"return_value": value})

    async def _suspend_block(self, worker: InterpreterWorker, tool: str, block: BlockUsage) -> InterpreterState:
        from pydantic_monty import MontyError, __version__  # noqa: PLC0415 - see TYPE_CHECKING above

        max_bytes = self._limits.snapshot_bytes
        dump = None
        with suppress(MontyError):  # the copy exceeds the memory limit
            dump = await worker.session.dump()
        if dump is None or len(dump) > max_bytes:
            raise LimitError(
                f"{tool} was not called: a person must agree first, and the block's variables are too large to be kept "
                f"until then (more than {max_bytes:,} bytes). They are gone; call {tool} before reading so much."
            )
        return InterpreterState(
            version=__version__,
            snapshot=dump,
            blocks=worker.blocks,
            calls=block.calls - 1,
            suspensions=block.suspensions - 1,
            printed_chars=block.printed_chars,
            discarded=worker.discarded,
            bound=worker.bound,
        )

    async def _convert_error(self, error: MontyError, block: BlockUsage) -> ControlError | LimitError:
        from pydantic_monty import MontyRuntimeError, MontySyntaxError  # noqa: PLC0415 - see TYPE_CHECKING above

        inner = error.exception()
        if block.limit_message:  # after a limit inside the worker its heap is not to be trusted
            await self.close()
            return LimitError(f"{block.limit_message} The block was stopped; its variables are gone.")
        message = error.display() if isinstance(error, MontyRuntimeError | MontySyntaxError) else str(error)
        message = _LONG_MARK.sub(r"\1", message)
        if isinstance(inner, MemoryError | RecursionError) or "time limit exceeded" in str(inner):
            await self.close()
            return LimitError(f"{message}\nThe block was stopped; its variables are gone.")
        advice = next((f"\n{advice}" for sign, advice in _ERROR_ADVICE.items() if sign in message), "")
        control_error = ControlError(message + advice)
        control_error.is_escape = is_escape(f"{type(inner).__name__}: {inner}")
        return control_error


def require_readable(state: InterpreterState) -> None:
    """Check that this interpreter version can read a state.

    Raises:
        ResumeError: another version took it.
    """
    from pydantic_monty import __version__  # noqa: PLC0415 - see TYPE_CHECKING above

    if state.version != __version__:
        raise ResumeError(ResumeCode.VERSION, found=state.version, installed=__version__)


def _tool_placeholder(name: str) -> Callable[..., None]:
    def tool(*_args: object, **_kwargs: object) -> None:
        raise AssertionError(f"{name} is answered by suspension, never called")

    tool.__name__ = tool.__qualname__ = name
    return tool


# Builtins of the interpreter that the type checker does not know.
_MISSING_EXCEPTIONS = {
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
_MISSING_FUNCTIONS = ("filter", "format", "getattr", "hasattr", "map", "setattr")
_BUILTINS = "\n".join(
    [
        "from typing import Any",
        *(f"class {name}({base}): ..." for name, base in _MISSING_EXCEPTIONS.items()),
        *(f"def {name}(*args: Any) -> Any: ..." for name in _MISSING_FUNCTIONS),
    ]
)
# Contains no name that a block could rebind. A block that contains this very line ends there.
_END = "assert False, 'the control block is over'"


async def start_block(
    worker: InterpreterWorker,
    source: str,
    *,
    tools: AbstractSet[str],
    missing: Mapping[str, str],
    discarded: frozenset[Span],
    on_output: Callable[[str, str], None],
) -> AsyncSnapshot:
    """Type-check a block and start it, in one turn of the worker.

    The checker treats variables of completed blocks as declared with their type. Hence every block fails after its last
    line (`is_completed`).

    Raises:
        FormatError: the type check failed; nothing ran.
        MontyError: the block completed or failed.
    """
    from pydantic_monty import AsyncFunctionSnapshot, MontyTypingError  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        snapshot = await worker.feed(f"{source}\n{_END}", discarded=discarded, on_output=on_output, type_check=True)
        # The type checker asks the host for stubs of imported modules; there are none.
        while (
            isinstance(snapshot, AsyncFunctionSnapshot)
            and snapshot.is_os_function
            and snapshot.function_name == "import_stubs"
        ):
            snapshot = await snapshot.resume_not_handled()
    except MontyTypingError as error:
        worker.blocks -= 1  # no block started; reuse the number
        findings = parse_findings(error.display())
        failures = [finding for finding in findings if finding.must_fail(tools=tools, bound=worker.bound)]
        if names := find_missing_tools(failures, source):
            named = ", ".join(f"{name} ({missing[name]})" if name in missing else name for name in names)
            text = f"{named}, which this task does not have; its tools are: {', '.join(sorted(tools - {HELP}))}."
            raise FormatError(
                "missing_tool",
                f"The control block was not run: it calls {text}\n{render_findings(failures, source)}",
                reason=f"The model called {text} Give a task that needs no other, or try again.",
            ) from error
        if failures:
            raise FormatError(
                "control_syntax",
                "The control block was not run: it does not fit the tools or the interpreter.\n"
                + render_findings(failures, source),
                is_escape=any(is_escape(failure.message) for failure in failures),
            ) from error
    else:
        return snapshot
    return await worker.feed(source, discarded=discarded, on_output=on_output, type_check=False)


def is_completed(error: MontyError) -> bool:
    """Whether a block started by `start_block` reached its end."""
    from pydantic_monty import MontyRuntimeError  # noqa: PLC0415 - see TYPE_CHECKING above

    if not isinstance(error, MontyRuntimeError):
        return False
    frames = error.traceback()
    return len(frames) == 1 and frames[0].source_line == _END


_SETTLE_SECONDS = 0.05
_MAX_SUSPENSIONS = 1_000_000  # `BlockUsage` counts them per block


class InterpreterWorker:
    """One worker process.

    Attributes:
        discarded: spans of discarded calls by block name.
        bound: names bound by any block.
    """

    def __init__(self, session: AsyncMontySession, stack: AsyncExitStack) -> None:
        self.session = session
        self.blocks = 0
        self.discarded: dict[str, frozenset[Span]] = {}
        self.bound: frozenset[str] = frozenset()
        self._stack = stack

    @classmethod
    async def start(cls, *, stubs: str, limits: InterpreterLimits, enclose: Callable[[Path], Path] | None) -> Self:
        """Start a process; `enclose` wraps its program, e.g. in a sandbox.

        Raises:
            SandboxError: the process does not start.
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
                        binary_path=program, max_processes=1, checkout_timeout=30, request_timeout=limits.seconds + 20
                    )
                )
                session = await stack.enter_async_context(
                    pool.checkout(
                        limits={
                            "max_feed_duration_secs": limits.seconds,
                            "max_memory": limits.memory_bytes,
                            "max_recursion_depth": limits.recursion,
                            "max_suspensions": _MAX_SUSPENSIONS,
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
        self, source: str, *, discarded: frozenset[Span], on_output: Callable[[str, str], None], type_check: bool
    ) -> AsyncSnapshot:
        """Start a block.

        Raises:
            MontyError: the type check or the block failed.
        """
        self.discarded[f"<python-input-{self.blocks}>"] = discarded
        self.blocks += 1
        return await self.session.feed_start(source, print_callback=on_output, skip_type_check=not type_check)

    async def close(self) -> None:
        """End the process."""
        await self._stack.aclose()


@cache
def _settle_at_exit() -> None:
    """Give the library's threads time to finish before exit.

    They release our objects late; during interpreter shutdown that aborts the process (CPython before 3.14). Measured:
    5 of 100 short processes, then none.
    """
    atexit.register(time.sleep, _SETTLE_SECONDS)
