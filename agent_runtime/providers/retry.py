"""Asking again after an attempt that broke off, so that a bad connection never costs the run a step.

The SDKs' own retries are switched off: they end when the first byte has come, and most faults come later
(a drop in mid-stream, an early end, a malformed chunk).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from agent_runtime.errors import ModelUnreachableError, SettingsError
from agent_runtime.providers.faults import BrokenOffError, Service
from agent_runtime.providers.protocol import Chunk, ReplyEnd, ReplyStart, TextChunk

Attempt = Callable[[], AsyncGenerator[TextChunk | ReplyEnd]]
"""One request: yields text, and a `ReplyEnd` once the service has said why it stopped; raises `BrokenOffError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and how soon.

    Attributes:
        attempts: requests at most, the first one included.
        first_wait: seconds before the second attempt; doubled for each further one.
        longest_wait: seconds that the doubling stops at.
        longest_retry_after: seconds to which a service's own `retry-after` is cut.
        sleep: waits; replaced in tests.
        chance: a number in [0, 1) to spread waits by, so that many workers do not return all at once.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 120.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        """Refuse a policy that never asks.

        Raises:
            SettingsError: fewer than one attempt.
        """
        if self.attempts < 1:
            raise SettingsError(f"attempts is {self.attempts}; it must be at least 1 (1 means: never try again).")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Seconds between a failed `attempt` (from 1) and the next: never sooner than the service asked."""
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + self.chance() / 2)
        return max(backoff, min(retry_after or 0.0, self.longest_retry_after))

    async def run(self, attempt: Attempt, service: Service) -> AsyncGenerator[Chunk]:
        """The chunks of one reply, however many attempts it takes; each begins with a `ReplyStart`.

        An attempt that ends without a `ReplyEnd` has broken off. What a broken attempt was billed is unknown, as no
        service says; it is in no usage.

        Raises:
            ModelUnreachableError: the last attempt broke off as well.
            ModelError: whatever else an attempt raises.
        """
        fault = early = BrokenOffError("the stream ended before the reply was complete")
        for number in range(1, self.attempts + 1):
            yield ReplyStart(attempt=number)
            fault, end = early, None
            try:
                async with aclosing(attempt()) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, ReplyEnd):
                            # Held back while the stream is read out: only then can its connection be used again.
                            end = chunk
                        else:
                            yield chunk
            except BrokenOffError as error:
                fault = error
            if end is not None:
                yield end
                return
            if number < self.attempts:
                await self.sleep(self.wait(number, fault.retry_after))
        raise ModelUnreachableError(_last_words(fault, self.attempts, service))


def _last_words(fault: BrokenOffError, attempts: int, service: Service) -> str:
    tries = f"{attempts} attempts" if attempts > 1 else "1 attempt"
    return (
        f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {fault}. "
        f"Try again later, choose another `model` or provider, or check that {service.place} can be reached from here."
    )
