"""Pacing of an installation's writes by urgency, within GitHub's limits.

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
"""Commands acknowledged without a pause."""
BURST_SECONDS = 3.0
"""Seconds until one more is."""
BURST_AT_ONCE = 8
WINDOW_SECONDS = 3600.0
MAX_BACKOFF = 12.0
"""Largest poll backoff, when the budget is nearly used up."""
_MAX_DIGITS = 12
_PLENTY = 0.5
"""No backoff while more than this share remains."""


class Urgency(IntEnum):
    """Priority of a write; the lowest number goes first."""

    ACKNOWLEDGEMENT = 1
    """The reaction that acknowledges a command."""
    CONTROL = 2
    """Replies to commands that control jobs: stop, approve, status."""
    RESULT = 3
    """A job's result: commit, pull request, final comment."""
    NORMAL = 4
    """Other writes."""
    IDLE = 5
    """No write; waits until the queue is empty."""


Reserve = Callable[[float], Awaitable[float]]
"""Reserves an installation's next write among all processes, so many seconds after the last; returns the delay."""


async def _no_reserve(_seconds: float) -> float:
    return 0.0


class RequestPace:
    """A queue of writes, shared by an installation's clients; `reserve` spans processes."""

    def __init__(self, seconds: float, reserve: Reserve = _no_reserve) -> None:
        self._seconds, self._reserve = seconds, reserve
        self._queue: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._is_writing = False
        self._free_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._acknowledgements = Allowance(BURST, BURST_SECONDS)
        self._acknowledging = asyncio.Semaphore(BURST_AT_ONCE)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def is_free(self) -> bool:
        return not self._is_writing and not self._queue and time.monotonic() >= self._free_at

    @asynccontextmanager
    async def turn(self, urgency: Urgency = Urgency.NORMAL) -> AsyncIterator[None]:
        """Wait for a turn to write, and hold it. Acknowledgements take none until a burst is used up."""
        if urgency is Urgency.ACKNOWLEDGEMENT and self._acknowledgements.try_take():
            async with self._acknowledging:
                yield
            return
        await self._wait_turn(urgency)
        try:
            await asyncio.sleep(await self._reserve(self._seconds))
            yield
        finally:
            self._release_turn()

    async def wait_until_idle(self) -> None:
        await self._wait_turn(Urgency.IDLE)
        self._free_at = 0.0  # nothing was written
        self._release_turn()

    async def _wait_turn(self, urgency: Urgency) -> None:
        turn = asyncio.get_running_loop().create_future()
        place = (urgency, next(self._numbers), turn)
        heapq.heappush(self._queue, place)
        self._grant_next_turn()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release_turn()  # it came at the same moment
            elif place in self._queue:
                self._queue.remove(place)
                heapq.heapify(self._queue)
            raise

    def _release_turn(self) -> None:
        self._is_writing = False
        self._grant_next_turn()

    def _grant_next_turn(self) -> None:
        if self._is_writing or not self._queue or self._timer is not None:
            return
        now = time.monotonic()
        if now < self._free_at:
            self._timer = asyncio.get_running_loop().call_later(self._free_at - now, self._end_pause)
            return
        while self._queue:
            _, _, turn = heapq.heappop(self._queue)
            if not turn.done():  # else its task was cancelled, and has yet to hear of it
                self._is_writing = True
                self._free_at = now + self._seconds
                turn.set_result(None)
                return

    def _end_pause(self) -> None:
        self._timer = None
        self._grant_next_turn()


class Allowance:
    """A token bucket."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._remaining = float(most)
        self._at = clock()

    def try_take(self) -> bool:
        now = self._clock()
        self._remaining = min(self._most, self._remaining + (now - self._at) / self._seconds)
        self._at = now
        if self._remaining < 1:
            return False
        self._remaining -= 1
        return True


class Limits:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._budgets: dict[str, RequestBudget] = {}
        self._paused_until = 0.0

    def record(self, headers: Mapping[str, str]) -> None:
        budget = RequestBudget.from_headers(headers)
        if budget is not None:
            self._budgets[headers.get("x-ratelimit-resource", "core")] = budget

    def suspend(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def budgets(self) -> Mapping[str, RequestBudget]:
        now = self._clock()
        return {name: budget for name, budget in [*self._budgets.items()] if budget.reset_at > now}

    @property
    def pause_seconds(self) -> float:
        return max(0.0, self._paused_until - self._clock())

    @property
    def poll_backoff(self) -> float:
        now = self._clock()
        return max((budget.poll_backoff(now) for budget in [*self._budgets.values()]), default=1.0)


def parse_number(text: str) -> int | None:
    """Return the number in a header; None for anything else, e.g. more digits than a time has."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBudget:
    limit: int
    remaining: int
    reset_at: float

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> RequestBudget | None:
        limit, remaining, reset = (
            parse_number(headers.get(f"x-ratelimit-{name}", "")) for name in ("limit", "remaining", "reset")
        )
        if limit is None or remaining is None or reset is None:
            return None
        return cls(limit=limit, remaining=remaining, reset_at=float(reset))

    def poll_backoff(self, now: float) -> float:
        """Return the factor for polling intervals that makes the budget last."""
        time_left = (self.reset_at - now) / WINDOW_SECONDS
        share = self.remaining / self.limit if self.limit else 1.0
        if time_left <= 0 or share > _PLENTY or share >= time_left:
            return 1.0
        return min(MAX_BACKOFF, time_left / share) if share else MAX_BACKOFF
