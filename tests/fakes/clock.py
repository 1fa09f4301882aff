"""The time of a seam: real time with steps of the test."""

from __future__ import annotations

import time

_STEP_SECONDS = 0.05
_real_time = time.time


class SteppedClock:
    """Seconds since the epoch, which tests move forward."""

    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        return _real_time() + self.offset

    def advance(self, seconds: float) -> None:
        self.offset += seconds

    def advance_to(self, at: float) -> None:
        self.offset += max(0.0, at - self())

    def step(self) -> None:
        """Let file times and exit codes of consecutive calls differ by more than a clock's tick."""
        self.offset += _STEP_SECONDS
