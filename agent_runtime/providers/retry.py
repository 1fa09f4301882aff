"""Asking again after an attempt that broke off, so that a bad connection never costs the run a step.

The SDKs' own retries are switched off: they end when the first byte has come, and most faults come later
(a drop in mid-stream, an early end, a malformed chunk).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_runtime.core.errors import ModelOutageError, ModelUnreachableError, SettingsError
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.faults import BrokenOffError, ModelService
from agent_runtime.providers.protocol import Chunk, Piece, ReplyEnd, ReplyFault, ReplyStart

Attempt = Callable[[], AsyncGenerator[Piece]]
"""One request: yields text and calls, then a `ReplyEnd` that says why the service stopped; raises `BrokenOffError`."""


_SILENT_ATTEMPTS = 2
"""Replies that may stop in the middle of their text; a model writes on without pauses, so the service has a fault."""

_DRAIN_SECONDS = 5.0
"""How long a stream may go on after the reply's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how soon.

    Attributes:
        attempts: requests at most, the first one included.
        first_wait: seconds before the second attempt; doubled for each further one.
        longest_wait: seconds that the doubling stops at.
        longest_retry_after: seconds that a service may ask for and still be waited for here; one that asks for more is
            not asked again.
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
            raise SettingsError(f"attempts is {self.attempts}; it must be at least 1 (1 means: do not retry).")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Seconds between a failed `attempt` (from 1) and the next: never sooner than the service asked."""
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + self.chance() / 2)
        return max(backoff, retry_after or 0.0)

    async def run(self, attempt: Attempt, service: ModelService) -> AsyncGenerator[Chunk]:
        """The chunks of one reply, however many attempts it takes; each begins with a `ReplyStart`.

        An attempt that ends without a `ReplyEnd` has broken off. One that broke off after its end is whole.

        Raises:
            ModelOutageError: no attempt got through, or the service asked for a longer pause.
            ModelUnreachableError: the service took as many requests as it is to be sent, and answered none as a whole.
            ModelError: whatever else an attempt raises.
        """
        tally = _Tally()
        for number in range(1, self.attempts + 1):
            yield ReplyStart(attempt=number)
            end, begun, fault = None, False, None
            try:
                async with aclosing(_drained(attempt())) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, ReplyEnd):
                            # Held back while the stream is read out: only then can its connection be used again.
                            end = chunk
                        else:
                            begun = True
                            yield chunk
            except BrokenOffError as error:
                fault = error
            if end is not None:
                if fault is not None and not end.usage.total_tokens:
                    yield ReplyFault(reason="the connection was lost before the usage was reported", billed=True)
                    end = replace(end, usage=Usage(requests=1))
                yield end
                return
            fault = fault or _EARLY
            tally.count(fault, begun=begun)
            last = (
                number == self.attempts
                or tally.silent == _SILENT_ATTEMPTS
                or tally.unanswered
                or ((fault.retry_after or 0.0) > self.longest_retry_after)
            )
            wait = None if last else self.wait(number, fault.retry_after)
            yield ReplyFault(reason=str(fault), billed=fault.billed or begun, silent=fault.silent, wait=wait)
            if wait is None:
                break
            await self.sleep(wait)
        raise self._given_up(tally, service)

    def _given_up(self, tally: _Tally, service: ModelService) -> ModelUnreachableError:
        tries = f"{tally.attempts} attempts" if tally.attempts > 1 else "1 attempt"
        told = (
            f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {tally.last}. "
            "Try again later, choose another `model` or provider, "
            f"or check that {service.place} can be reached from here."
        )
        if tally.unanswered:
            told += (
                " It may still be thinking, and is not asked the same again, because both would be charged for. "
                "Raise `silence` if it needs longer."
            )
        if tally.unanswered or tally.silent == _SILENT_ATTEMPTS or tally.billed == self.attempts:
            return ModelUnreachableError(told)
        return ModelOutageError(told, retry_after=tally.last.retry_after)


_EARLY = BrokenOffError("the stream ended before the reply was complete", billed=True)


@dataclass(slots=True)
class _Tally:
    """The attempts that broke off.

    Attributes:
        unanswered: whether the last one was taken and had no text when it was given up: the model may think still.
    """

    attempts: int = 0
    unanswered: bool = False
    billed: int = 0
    silent: int = 0
    last: BrokenOffError = _EARLY

    def count(self, fault: BrokenOffError, *, begun: bool) -> None:
        """Add one that gave some text before it broke off, or none."""
        self.attempts += 1
        self.billed += fault.billed or begun
        self.silent += fault.silent
        self.unanswered = fault.silent and not begun
        self.last = fault


async def _drained(chunks: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """A reply's chunks; after its end the stream is read out for a short time only."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if isinstance(chunk, ReplyEnd):
                break
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                ends = [each async for each in chunks if isinstance(each, ReplyEnd)]
        except TimeoutError:
            raise BrokenOffError("the stream did not end with the reply", billed=True) from None
        for end in ends[-1:]:
            yield end
