"""Wait for a model service that is down, and count what its broken replies cost.

A provider makes a few quick attempts and, in a chain, asks the next model. The caller of an agent has more time than
that: here an outage is waited for, with growing pauses, for as long as the run's limits say. A run that has waited long
enough ends its leg, and `resume` sends the same request again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field

from agent_runtime.core.clock_and_random import ClockAndRandom
from agent_runtime.core.errors import ModelOutageError, ModelUnreachableError
from agent_runtime.core.events import ModelAwaited, ReplyBroken
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.protocol import CallChunk, Chunk, Provider, ReplyFault, ReplyStart, Request, TextChunk
from agent_runtime.providers.traced import traced_reply
from agent_runtime.providers.wrapped import WrappedProvider
from agent_runtime.run.state import RunState

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 60.0
MOST_BILLED = 5
"""Replies to one request that may break off before it is asked no more, however many outages lie between them."""
MOST_SILENT = 2

_UNITS = 65_536


@dataclass(slots=True)
class _Faults:
    """What went wrong with one request so far."""

    billed: int = 0
    silent: int = 0
    waited: float = 0.0
    text: list[str] = field(default_factory=list)


class PatientProvider(WrappedProvider):
    """A provider whose outages are waited for. What its broken replies have probably cost is recorded."""

    def __init__(
        self,
        provider: Provider,
        state: RunState,
        *,
        seconds: float,
        clock_and_random: ClockAndRandom,
        spent: Callable[[str, str], Usage],
    ) -> None:
        """Wait for `provider`.

        Args:
            provider: the model, or a chain of them.
            state: the run's log and watchers, and its clock, which stands still during the wait.
            seconds: for how long one request is waited for, the pauses between the provider's own attempts included.
            clock_and_random: to wait, and to spread the pauses of many runs.
            spent: estimates what a broken reply cost, from the model's name and the text that came.
        """
        super().__init__(provider)
        self._state, self._spent = state, spent
        self._seconds, self._clock_and_random = seconds, clock_and_random

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`. Attempts are counted on over the pauses.

        Raises:
            ModelOutageError: the outage lasts longer than it is waited for here.
            ModelUnreachableError: too many replies broke off that were charged for.
            ModelError: as for the inner provider.
        """
        faults, attempts, tries = _Faults(), 0, 0
        with ExitStack() as untimed:
            while True:
                tries, before = tries + 1, attempts
                try:
                    async with aclosing(traced_reply(self._inner, request)) as chunks:
                        async for chunk in chunks:
                            match chunk:
                                case ReplyStart(attempt=attempt):
                                    attempts, faults.text = before + attempt, []
                                    yield ReplyStart(attempt=attempts)
                                case ReplyFault():
                                    self._note(chunk, faults)
                                case _:
                                    if isinstance(chunk, TextChunk | CallChunk):
                                        untimed.close()
                                        told = chunk.text if isinstance(chunk, TextChunk) else chunk.arguments
                                        faults.text.append(told)
                                    yield chunk
                except asyncio.CancelledError:
                    self._note(ReplyFault(reason="the run ended while it came", billed=bool(faults.text)), faults)
                    raise
                except ModelOutageError as error:
                    chance = int(self._clock_and_random.token(2), 16) / _UNITS
                    usual = min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE) * (0.5 + chance / 2)
                    pause = max(usual, error.retry_after or 0.0)
                    if faults.waited + pause > self._seconds:
                        raise
                    untimed.close()  # where it stands still already, it goes on doing so
                    untimed.enter_context(self._state.clock.stopped())
                    self._state.emit(ModelAwaited(reason=str(error), seconds=pause))
                else:
                    return
                await self._clock_and_random.sleep(pause)
                faults.waited += pause

    async def close(self) -> None:
        """Close the inner provider; idempotent."""
        await self._inner.close()

    def _note(self, fault: ReplyFault, faults: _Faults) -> None:
        """Count a failed attempt.

        Raises:
            ModelUnreachableError: the same request is not to be bought once more.
        """
        faults.billed += fault.billed
        faults.silent += fault.silent
        if fault.billed:
            model = fault.model or self._inner.model
            usage = self._spent(model, "".join(faults.text))
            faults.text = []
            self._state.record(ReplyBroken(reason=fault.reason, usage=usage))
        if fault.wait is None:
            return
        if faults.silent >= MOST_SILENT or faults.billed >= MOST_BILLED:
            raise ModelUnreachableError(
                f"Model {self._inner.model!r} broke off {faults.billed} replies to the same request, which its service "
                f"has probably charged for; the last one: {fault.reason}. Try again later, or choose another `model`."
            )
        faults.waited += fault.wait
        self._state.emit(ModelAwaited(reason=fault.reason, seconds=fault.wait))
