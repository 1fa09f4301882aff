"""Clock and randomness of a run in one place, so that a replay can return the same values."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAndRandom:
    """The clock and the dice whose values reach the model. What a program in the sandbox finds there is its own.

    Attributes:
        now: the time, aware of its zone.
        token: random hexadecimal digits, for so many bytes.
        sleep: waits so many seconds, e.g. for a model service that is down.
    """

    now: Callable[[], datetime] = _now
    token: Callable[[int], str] = secrets.token_hex
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
