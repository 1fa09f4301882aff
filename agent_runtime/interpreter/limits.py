"""Bounds of one control block, and what it has used of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_runtime.core.errors import LimitError

_NAMES_A_CALL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLimits:
    """Bounds of one control block.

    Attributes:
        seconds: running time of the code itself; tool calls do not count.
        memory_bytes: heap of the worker.
        calls: tool calls.
        printed_chars: characters that `print` may produce.
        recursion: depth of function calls.
        snapshot_bytes: what the variables may take while a call waits for a person.
    """

    seconds: float = 10.0
    memory_bytes: int = 256 * 1024**2
    calls: int = 200
    printed_chars: int = 200_000
    recursion: int = 400
    snapshot_bytes: int = 4 * 1024**2


class BlockUsage:
    """What one control block has used so far.

    Attributes:
        over_limit: which limit its printing went over, or "".
        calls: tool calls made.
        suspensions: questions put to the host, be it a call or what a name means.
        printed_chars: characters printed.
    """

    def __init__(
        self,
        *,
        limits: InterpreterLimits,
        show: Callable[[str], None],
        calls: int = 0,
        suspensions: int = 0,
        printed_chars: int = 0,
    ) -> None:
        """Count from zero, or from what the block had used before it was frozen."""
        self.over_limit = ""
        self.calls = calls
        self.suspensions = suspensions
        self.printed_chars = printed_chars
        self._show = show
        self._limits = limits

    def printed(self, _stream: str, text: str) -> None:
        """Take what the block prints; raising here is how the worker is told to stop."""
        room = max(0, self._limits.printed_chars - self.printed_chars)
        self.printed_chars += len(text)
        self._show(text[:room])
        if self.printed_chars > self._limits.printed_chars:
            self.over_limit = f"The block printed more than {self._limits.printed_chars:,} characters."
            raise MemoryError(self.over_limit)

    def count_suspension(self) -> None:
        """Count one question to the host; the worker's clock stands still then.

        Raises:
            LimitError: it is one too many.
        """
        self.suspensions += 1
        if self.suspensions > self._limits.calls * _NAMES_A_CALL:
            raise LimitError("The block asked for unknown names over and over and was stopped; its variables are gone.")

    def count_call(self) -> None:
        """Count one tool call.

        Raises:
            LimitError: it is one too many.
        """
        self.calls += 1
        if self.calls > self._limits.calls:
            raise LimitError(
                f"The block made more than {self._limits.calls} tool calls and was stopped; its variables are gone."
            )
