"""Wait for a model service that is down, and count what its broken replies cost.

A provider makes a few quick attempts and, in a chain, asks the next model. Whoever runs an agent has more time than
that: here an outage is waited for, with growing pauses, for as long as the run's limits say. A run that has waited long
enough ends its leg, and `resume` goes on with the same request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, aclosing
from dataclasses import dataclass, field

from agent_runtime.core.errors import ModelOutageError, ModelUnreachableError
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.protocol import Chunk, Provider, ReplyFault, ReplyStart, Request, TextChunk

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 60.0
MOST_BILLED = 5
"""Replies to one request that may break off before it is asked no more, however many outages lie between them."""
MOST_SILENT = 2

_UNITS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How outages are waited for.

    Attributes:
        seconds: for how long one request is waited for, the pauses between the provider's own attempts included.
        sleep: waits.
        token: random hexadecimal digits for so many bytes, to spread the pauses of many runs.
        untimed: while this is entered, the run's clock stands still.
    """

    seconds: float
    sleep: Callable[[float], Awaitable[None]]
    token: Callable[[int], str]
    untimed: Callable[[], AbstractContextManager[None]]

    def pause(self, number: int) -> float:
        """Seconds before the provider is asked again for the `number`th time, from 1."""
        chance = int(self.token(2), 16) / _UNITS
        return min(FIRST_PAUSE * 2.0 ** (number - 1), LONGEST_PAUSE) * (0.5 + chance / 2)


@dataclass(slots=True)
class _Faults:
    """What went wrong with one request so far."""

    billed: int = 0
    silent: int = 0
    waited: float = 0.0
    text: list[str] = field(default_factory=list)


class PatientProvider:
    """A provider whose outages are waited for; what the run is told of them comes by callbacks."""

    def __init__(
        self,
        provider: Provider,
        waits: Waits,
        *,
        tell: Callable[[str, float], None],
        charge: Callable[[str, Usage], None],
        spent: Callable[[str, str], Usage],
    ) -> None:
        """Wait for `provider`.

        Args:
            provider: the model, or a chain of them.
            waits: for how long, and how.
            tell: told why there is no reply yet, and in how many seconds it is asked for again.
            charge: given why a reply broke off, and what it probably cost.
            spent: estimates that, from the model's name and the text that came.
        """
        self._inner, self._waits = provider, waits
        self._tell, self._charge, self._spent = tell, charge, spent

    @property
    def model(self) -> str:
        """The inner provider's model."""
        return self._inner.model

    @property
    def sees_images(self) -> bool:
        """Whether the inner provider's model sees."""
        return self._inner.sees_images

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
                    async with aclosing(self._inner.reply(request)) as chunks:
                        async for chunk in chunks:
                            match chunk:
                                case ReplyStart(attempt=attempt):
                                    attempts, faults.text = before + attempt, []
                                    yield ReplyStart(attempt=attempts)
                                case ReplyFault():
                                    self._note(chunk, faults)
                                case _:
                                    if isinstance(chunk, TextChunk):
                                        untimed.close()
                                        faults.text.append(chunk.text)
                                    yield chunk
                except ModelOutageError as error:
                    pause = self._pause(error, tries, faults)
                    if tries == 1:
                        untimed.enter_context(self._waits.untimed())
                    self._tell(str(error), pause)
                else:
                    return
                await self._waits.sleep(pause)
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
            self._charge(fault.reason, self._spent(model, "".join(faults.text)))
        if fault.wait is None:
            return
        if faults.silent >= MOST_SILENT or faults.billed >= MOST_BILLED:
            raise ModelUnreachableError(
                f"Model {self._inner.model!r} broke off {faults.billed} replies to the same request, which its service "
                f"has probably charged for; the last one: {fault.reason}. Try again later, or choose another `model`."
            )
        faults.waited += fault.wait
        self._tell(fault.reason, fault.wait)

    def _pause(self, error: ModelOutageError, tries: int, faults: _Faults) -> float:
        """Seconds to wait before the provider is asked again.

        Raises:
            ModelOutageError: that would be longer than outages are waited for.
        """
        pause = max(self._waits.pause(tries), error.retry_after or 0.0)
        if faults.waited + pause > self._waits.seconds:
            raise error
        return pause
