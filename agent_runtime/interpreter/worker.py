"""The process in which control code runs: how it is started, and what is known of the code in it."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agent_runtime.core.errors import SandboxError
from agent_runtime.interpreter.limits import InterpreterLimits
from agent_runtime.interpreter.source import Span
from agent_runtime.processes.spawn import seen_through

if TYPE_CHECKING:  # the worker library takes a tenth of a second to import; it is loaded by the first run
    from pydantic_monty import AsyncMontySession, AsyncSnapshot

_SETTLE_SECONDS = 0.05
_SUSPENSIONS = 1_000_000  # calls are counted by us, a block at a time


@cache
def _settle_at_exit() -> None:
    """Let the library's threads come to rest before this process ends.

    They give back objects of ours after their last answer, for which they need the interpreter; one that comes while
    it is being taken down aborts the process (CPython before 3.14). Measured: 5 of 100 short processes, then none.
    """
    atexit.register(time.sleep, _SETTLE_SECONDS)


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
        return await seen_through(cls._start(stubs, limits, enclose), end=cls.close)

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
