"""Retries of one model and fallbacks to others.

`faults` decides which failed attempts are retried. The SDKs' own retries are off, as they end with the first byte.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
)
from agent_runtime.core.values import Usage
from agent_runtime.providers.faults import AttemptFailedError, ModelService
from agent_runtime.providers.protocol import (
    Chunk,
    Piece,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    ToolCalling,
    tool_calling,
)

STICKY_SECONDS = 600.0
"""Use of a fallback model before the first is tried again."""

_MAX_BILLED_ATTEMPTS = 2
"""Broken replies before a longer pause, since the service probably charges for them."""

_DRAIN_SECONDS = 5.0
"""Timeout for the stream after the reply's end."""

_EARLY_END = AttemptFailedError("the stream ended before the reply was complete", billed=True)

Attempt = Callable[[], AsyncGenerator[Piece]]
"""One request: yields text and calls, then a `ReplyEnd`; raises `AttemptFailedError`."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number of attempts and the pauses between them; `longest_retry_after` bounds the service's own, in seconds."""

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 120.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise SettingsError(f"attempts is {self.attempts}; it must be at least 1 (1 means: do not retry).")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Return the pause after `attempt` (from 1), at least `retry_after`."""
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + self.chance() / 2)
        return max(backoff, retry_after or 0.0)

    async def run(self, attempt: Attempt, service: ModelService) -> AsyncGenerator[Chunk]:
        """Yield one reply's chunks over all attempts, each after a `ReplyStart`.

        An attempt without `ReplyEnd` is retried; a failure after it is not.

        Raises:
            ModelOutageError: all attempts failed, or the next one has to wait for longer.
            ModelUnreachableError: the service's replies cannot be read.
        """
        billed = 0
        for number in range(1, self.attempts + 1):
            yield ReplyStart(attempt=number)
            end, has_started, fault = None, False, None
            try:
                async with aclosing(_drain(attempt())) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, ReplyEnd):
                            # Held back while the stream is read out: only then can its connection be used again.
                            end = chunk
                        else:
                            has_started = True
                            yield chunk
            except AttemptFailedError as error:
                fault = error
            if end is not None and (has_started or end.stop != "stop" or end.usage.output_tokens):
                if fault is not None and not end.usage.total_tokens:
                    yield ReplyFault(reason="the connection was lost before the usage was reported", billed=True)
                    end = replace(end, usage=Usage(requests=1))
                yield end
                return
            fault = fault or (_EARLY_END if end is None else AttemptFailedError("an empty reply"))
            is_billed = fault.billed or has_started
            billed += is_billed
            is_last = (
                number == self.attempts
                or billed == _MAX_BILLED_ATTEMPTS
                or (fault.silent and not has_started)  # it may think still
                or (fault.retry_after or 0.0) > self.longest_retry_after
                or (fault.tries is not None and number >= fault.tries)
            )
            wait = None if is_last else self.wait(number, fault.retry_after)
            yield ReplyFault(reason=str(fault), billed=is_billed, silent=fault.silent, wait=wait)
            if wait is None:
                raise _exhausted_error(service, number, fault, may_think=fault.silent and not has_started)
            await self.sleep(wait)


BRIEF_RETRY = RetryPolicy(attempts=3, first_wait=0.5, longest_wait=1.0, longest_retry_after=60.0)
"""Attempts of at most 1.5 seconds, as the SDKs themselves make: the caller sees an outage at once."""


def _exhausted_error(
    service: ModelService, attempts: int, last: AttemptFailedError, *, may_think: bool
) -> ModelUnreachableError:
    tries = f"{attempts} attempts" if attempts > 1 else "1 attempt"
    log.warning("%s (%s) failed in %s: %s %s", service.name, service.address, tries, last, last.detail)
    if last.tries is not None:
        text = (
            f"{service.name} cannot be reached from this machine ({tries}): {last}. Check the machine's network (DNS, "
            f"firewall, proxy); if you have set {service.url_setting}, check it and that the server runs there."
        )
        return ModelOutageError(text, offline=True)
    text = f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {last}. "
    if last.unreadable:
        remedy = f"Check {service.model_setting} and {service.url_setting}, or choose another provider."
        return ModelUnreachableError(text + remedy)
    text += "Try again later, or choose another model or provider."
    if may_think:
        text += " It may still be thinking: raise `silence` if it needs longer."
    return ModelOutageError(text, retry_after=last.retry_after)


async def _drain(chunks: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """Yield a reply's chunks, and read the stream on for a short time."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if isinstance(chunk, ReplyEnd):
                break
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                ends = [piece async for piece in chunks if isinstance(piece, ReplyEnd)]
        except TimeoutError:
            raise AttemptFailedError("the stream did not end with the reply", billed=True) from None
        for end in ends[-1:]:
            yield end


class FallbackProvider:
    """Asks the next model if one is unreachable or rejects the request.

    Not on `ContextOverflowError`, which the caller can fix, or `ModelRefusedError`, which is an answer. A fallback is
    used for `sticky_seconds`, for its warm cache. Each provider retries first; give all but the last few attempts.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        sticky_seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chain providers, in order of preference; closed with this one."""
        if not providers:
            raise SettingsError("A FallbackProvider needs at least one provider; the list is empty.")
        if sticky_seconds < 0:
            raise SettingsError(f"sticky_seconds is {sticky_seconds}; it must be at least 0 (600 is a good value).")
        self._providers = tuple(providers)
        self._sticky_seconds = sticky_seconds
        self._clock = clock
        self._current = 0
        self._until = 0.0

    @property
    def model(self) -> str:
        """Model to be asked first; see `ReplyEnd.model`."""
        return self._providers[self._first_index()].model

    @property
    def sees_images(self) -> bool:
        return all(provider.sees_images for provider in self._providers)

    @property
    def tool_calling(self) -> ToolCalling:
        """Support of the preferred model, if all models have it."""
        support = [tool_calling(provider) for provider in self._providers]
        return "unsupported" if "unsupported" in support else support[0]

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; attempts are counted over the chain.

        Raises:
            ModelOutageError: at least one may be back later.
            ModelRejectedError: at least one rejected the request.
            ModelUnreachableError: none was reachable.
        """
        first, attempts = self._first_index(), 0
        faults: list[tuple[str, ModelError]] = []
        for index in [*range(first, len(self._providers)), *range(first)]:
            provider, before = self._providers[index], attempts
            try:
                async with aclosing(provider.reply(request)) as chunks:
                    async for chunk in chunks:
                        match chunk:
                            case ReplyStart(attempt=attempt):
                                attempts = before + attempt
                                yield ReplyStart(attempt=attempts)
                            case ReplyFault():
                                yield replace(chunk, model=chunk.model or provider.model)
                            case ReplyEnd():
                                if index != self._first_index():
                                    # Prefer this model, for a time counted from its first use.
                                    self._current, self._until = index, self._clock() + self._sticky_seconds
                                yield replace(chunk, model=chunk.model or provider.model)
                            case _:
                                yield chunk
            except ContextOverflowError:
                raise
            except (ModelUnreachableError, ModelRejectedError) as error:
                faults.append((provider.model, error))
            else:
                return
        raise _chain_error(faults)

    async def close(self) -> None:
        for provider in self._providers:
            await provider.close()

    def _first_index(self) -> int:
        return self._current if self._current and self._clock() < self._until else 0


def _chain_error(faults: Sequence[tuple[str, ModelError]]) -> ModelError:
    if len(faults) == 1:
        return faults[0][1]
    causes = "\n".join(f"- {model}: {error}" for model, error in faults)
    text = f"None of the {len(faults)} models of the fallback chain could answer:\n{causes}"
    outages = [error for _, error in faults if isinstance(error, ModelOutageError)]
    if outages:
        wait = min(error.retry_after or 0.0 for error in outages) or None
        return ModelOutageError(text, retry_after=wait, offline=all(error.offline for error in outages))
    rejected = any(isinstance(error, ModelRejectedError) for _, error in faults)
    return ModelRejectedError(text) if rejected else ModelUnreachableError(text)
