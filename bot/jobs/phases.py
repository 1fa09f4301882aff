"""The phase of its job that an attempt is in, as a span."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Literal, Self

from agent_runtime import traced

Phase = Literal["admit", "prepare", "run", "publish"]


class Phases:
    """A phase lasts until the next one begins, or the body ends; all of it in one task."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._open = ExitStack()

    def begin(self, phase: Phase) -> None:
        """End the phase before; go on with the same one."""
        if phase != self._phase:
            self._open.close()
            self._phase = phase
            self._open.enter_context(traced(phase, {"codepilot.phase": phase}))

    def __enter__(self) -> Self:
        """Begin; there is no phase yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the last phase."""
        self._open.__exit__(kind, error, trace)
