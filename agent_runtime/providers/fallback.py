"""A chain of models: when one cannot answer, the next is asked."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
)
from agent_runtime.providers.protocol import (
    Chunk,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    ToolCalling,
    tool_calling,
)

STICKY_SECONDS = 600.0
"""How long a model that stood in is kept before the first one is tried again."""


class FallbackProvider:
    """Asks the next model when one cannot be reached or rejects the request: outage, overload, key, credit, name.

    It does not ask elsewhere when the conversation is too long (`ContextOverflowError`: the caller can make it
    shorter, and a chain would hide that) nor when the model declined (`ModelRefusedError`: an answer, not a fault;
    shopping around for a model that consents is for people to decide).

    When all of them failed and one may be back later, the chain's error is an outage: a caller that waits for outages
    asks the whole chain again.

    A model that stood in is kept for `sticky_seconds`: going back and forth would leave each time a warm cache behind.
    Each provider still makes its own retries first; give all but the last a `Retry` with few attempts.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        sticky_seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chain providers.

        Args:
            providers: the preferred one first; closed by `close`.
            sticky_seconds: how long a model that stood in is asked first; after that the preferred one is again.
            clock: seconds that only grow.

        Raises:
            SettingsError: no provider, or a negative time.
        """
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
        """The model that is asked first now; `ReplyEnd.model` says which one answered."""
        return self._providers[self._first()].model

    @property
    def sees_images(self) -> bool:
        """Whether every model of the chain sees: any of them may be asked in the middle of a conversation."""
        return all(provider.sees_images for provider in self._providers)

    @property
    def tool_calling(self) -> ToolCalling:
        """What the preferred model says; nothing where a model of the chain cannot, as any of them may be asked."""
        each = [tool_calling(provider) for provider in self._providers]
        return "unsupported" if "unsupported" in each else each[0]

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`. Attempts are counted on over the whole chain.

        Raises:
            ModelOutageError: none could answer, and at least one may be asked again later.
            ModelRejectedError: none could answer, and at least one rejected the request.
            ModelUnreachableError: no model of the chain could be reached.
            ContextOverflowError: the conversation is too long for the model that was asked.
            ModelRefusedError: the model that was asked declined.
        """
        first, attempts = self._first(), 0
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
                                self._keep(index)
                                yield replace(chunk, model=chunk.model or provider.model)
                            case _:
                                yield chunk
            except ContextOverflowError:
                raise
            except (ModelUnreachableError, ModelRejectedError) as error:
                faults.append((provider.model, error))
            else:
                return
        raise _all_failed(faults)

    async def close(self) -> None:
        """Close every provider of the chain; idempotent."""
        for provider in self._providers:
            await provider.close()

    def _first(self) -> int:
        return self._current if self._current and self._clock() < self._until else 0

    def _keep(self, index: int) -> None:
        """Ask this model first for a while; the time runs from when it first stood in."""
        if index != self._first():
            self._current, self._until = index, self._clock() + self._sticky_seconds


def _all_failed(faults: Sequence[tuple[str, ModelError]]) -> ModelError:
    if len(faults) == 1:
        return faults[0][1]
    told = "\n".join(f"- {model}: {error}" for model, error in faults)
    text = f"None of the {len(faults)} models of the fallback chain could answer:\n{told}"
    outages = [error for _, error in faults if isinstance(error, ModelOutageError)]
    if outages:
        return ModelOutageError(text, retry_after=min(error.retry_after or 0.0 for error in outages) or None)
    rejected = any(isinstance(error, ModelRejectedError) for _, error in faults)
    return ModelRejectedError(text) if rejected else ModelUnreachableError(text)
