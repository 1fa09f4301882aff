"""The pace of an installation's requests: one write at a time, the most urgent first, within GitHub's limits.

https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api#pause-between-mutative-requests
https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum

BURST = 30
"""So many commands that come at once are acknowledged at once."""
BURST_SECONDS = 3.0
"""After this long one more of them is allowed."""
BURST_AT_ONCE = 8
WINDOW_SECONDS = 3600.0
MOST_SPREAD = 12.0
"""How many times rarer what can wait becomes when hardly anything is left."""
_PLENTY = 0.5
"""While more than this share is left there is no need to save."""


class Urgency(IntEnum):
    """What a write is for; the lower number goes first."""

    SIGN = 1
    """The reaction that tells a person that their command was received."""
    ANSWER = 2
    """What steers other jobs: stop, approve, status."""
    ENDING = 3
    """What a job came to: its commit, its pull request, its last words."""
    BEGINNING = 4
    """All else."""
    LULL = 5
    """Nothing yet: who comes last wants to know when there is a moment in which nobody has anything to write."""


Reserve = Callable[[float], Awaitable[float]]
"""Reserves the next write of an installation among all processes, so many seconds after the one before; gives back in
how many seconds that is."""


async def _alone(_seconds: float) -> float:
    return 0.0


class RequestPace:
    """Shared by all clients of one installation. Who waits takes up no thread.

    Args:
        seconds: between the beginnings of two writes.
        reserve: keeps the pause between the writes of several processes, too.
    """

    def __init__(self, seconds: float, reserve: Reserve = _alone) -> None:
        self._seconds, self._reserve = seconds, reserve
        self._line: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._taken = False
        self._free_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._signs = Allowance(BURST, BURST_SECONDS)
        self._signs_at_once = asyncio.Semaphore(BURST_AT_ONCE)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._line)

    @property
    def is_free(self) -> bool:
        """Whether a write could begin right now."""
        return not self._taken and not self._line and time.monotonic() >= self._free_at

    @asynccontextmanager
    async def turn(self, urgency: Urgency = Urgency.BEGINNING) -> AsyncIterator[None]:
        """Wait for a turn to write, and hold it.

        A person's command must not wait behind what is written for others, so its sign takes no turn until a burst of
        them is used up; then it is the first in line.
        """
        if urgency is Urgency.SIGN and self._signs.take():
            async with self._signs_at_once:
                yield
            return
        await self._line_up(urgency)
        try:
            await asyncio.sleep(await self._reserve(self._seconds))
            yield
        finally:
            self._give_up_turn()

    async def lull(self) -> None:
        """Wait until nobody else has anything to write; what can wait is put together after that, and is new then."""
        await self._line_up(Urgency.LULL)
        self._free_at = 0.0  # nothing was written
        self._give_up_turn()

    async def _line_up(self, urgency: Urgency) -> None:
        turn = asyncio.get_running_loop().create_future()
        place = (urgency, next(self._numbers), turn)
        heapq.heappush(self._line, place)
        self._advance()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._give_up_turn()  # it came at the same moment
            elif place in self._line:
                self._line.remove(place)
                heapq.heapify(self._line)
            raise

    def _give_up_turn(self) -> None:
        self._taken = False
        self._advance()

    def _advance(self) -> None:
        """Give the turn to the first in line, now or when the pause is over."""
        if self._taken or not self._line or self._timer is not None:
            return
        now = time.monotonic()
        if now < self._free_at:
            self._timer = asyncio.get_running_loop().call_later(self._free_at - now, self._pause_is_over)
            return
        while self._line:
            _, _, turn = heapq.heappop(self._line)
            if not turn.done():  # else its task was cancelled, and has yet to hear of it
                self._taken = True
                self._free_at = now + self._seconds
                turn.set_result(None)
                return

    def _pause_is_over(self) -> None:
        self._timer = None
        self._advance()


class Allowance:
    """A number of things that may happen at once; it grows back by and by.

    Args:
        most: how many.
        seconds: until one more may happen.
        clock: seconds that only grow.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._left = float(most)
        self._at = clock()

    def take(self) -> bool:
        """Whether one more may happen now; it counts as happened then."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) / self._seconds)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Limits:
    """The limits of one installation; all clients of it share them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._budgets: dict[str, RequestBudget] = {}
        self._closed_until = 0.0

    def note(self, headers: Mapping[str, str]) -> None:
        """Take in what the headers of an answer say, names in lower case."""
        budget = RequestBudget.told(headers)
        if budget is not None:
            self._budgets[headers.get("x-ratelimit-resource", "core")] = budget

    def close(self, seconds: float) -> None:
        """GitHub wants no request of the installation's for so long."""
        self._closed_until = max(self._closed_until, self._clock() + seconds)

    @property
    def budgets(self) -> Mapping[str, RequestBudget]:
        """Those that GitHub told and has not renewed since, by its name for each."""
        now = self._clock()
        return {name: each for name, each in [*self._budgets.items()] if each.reset_at > now}

    @property
    def closed_for(self) -> float:
        """Seconds until GitHub may be asked again."""
        return max(0.0, self._closed_until - self._clock())

    @property
    def spread(self) -> float:
        """How many times rarer than usual requests that can wait should be."""
        now = self._clock()
        return max((each.spread(now) for each in [*self._budgets.values()]), default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBudget:
    """One of GitHub's budgets, as an answer told it."""

    limit: int
    remaining: int
    reset_at: float

    @classmethod
    def told(cls, headers: Mapping[str, str]) -> RequestBudget | None:
        """What the headers of an answer say, names in lower case; None when they say nothing of it."""
        limit, remaining, reset = (headers.get(f"x-ratelimit-{name}", "") for name in ("limit", "remaining", "reset"))
        if not (limit.isdecimal() and remaining.isdecimal() and reset.isdecimal()):
            return None
        return cls(limit=int(limit), remaining=int(remaining), reset_at=float(reset))

    def spread(self, now: float) -> float:
        """How many times rarer than usual requests that can wait should be, so that the rest lasts until the reset."""
        time_left = (self.reset_at - now) / WINDOW_SECONDS
        share = self.remaining / self.limit if self.limit else 1.0
        if time_left <= 0 or share > _PLENTY or share >= time_left:
            return 1.0
        return min(MOST_SPREAD, time_left / share) if share else MOST_SPREAD
