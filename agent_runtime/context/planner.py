"""Decides when a conversation is made shorter: tokens saved are weighed against the cache that is lost. Pure.

Everything after the first change has to be written to the provider's cache again. So with D tokens removed and S
behind them, shortening pays after S*(write - read) / (D*read) more requests, or at once where the cache is cold anyway.
Changes are made in batches: once the cache is broken at one place, all that can go behind it goes with it.

What is removed piles up again, and then the cache is broken again. So it pays for half as many requests as it took to
pile up, on average, however many are to come: breaks that are too frequent cost more than long requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.core.events import Recorded, Replied, Shrunk, Started

_TYPICAL_REQUESTS = 8
"""Requests of a run about which nothing is known; most tasks take fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that could be shortened.

    Attributes:
        before: tokens of the request that stand before it.
        saves: tokens that the request would have less.
        again: the share of them that the agent is expected to ask for again, 0 to 1.
        task: number of the archived task that it is; None for results.
        output: position in the log of the results that it is; None for a task.
    """

    before: int
    saves: int
    again: float = 0.0
    task: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What the requests to come are expected to be.

    Attributes:
        total: tokens of the next one if nothing is shortened.
        cached: tokens of its beginning that the provider's cache holds; 0 when it is cold.
        requests: how many are still to come, the next one included; at least 1.
        growth: tokens that each has more than the one before; 0 when nothing piles up again.
        read: price of a token read from the cache, as a multiple of a plain one.
        write: price of a token written to the cache, the same.
    """

    total: int
    cached: int
    requests: int
    read: float
    write: float
    growth: int = 0

    def gain(self, removed: int, first: int) -> float:
        """What the requests cost less, as a number of plain tokens, until as much has piled up again.

        Args:
            removed: tokens that they have less.
            first: tokens that stand before the first change.
        """
        again = removed // (2 * self.growth) if self.growth else self.requests
        later = min(self.requests, max(1, again)) - 1
        return self._next() - self._next(removed=removed, first=first) + later * removed * self.read

    def _next(self, *, removed: int = 0, first: int | None = None) -> float:
        """Price of the tokens of the next request."""
        total = self.total - removed
        warm = min(total, self.cached if first is None else min(self.cached, first))
        return warm * self.read + (total - warm) * self.write


def plan(candidates: Sequence[Candidate], prospect: Prospect) -> Shrunk | None:
    """The batch whose shortening pays most, or None when none pays.

    Once the cache is broken at one place, shortening what stands behind it costs nothing more: so the best batch is
    one candidate with all behind it, and one look at each finds it.
    """
    useful = sorted((each for each in candidates if each.saves > 0), key=lambda each: each.before)
    start, most, tokens = len(useful), 0.0, 0
    removed, again = 0, 0.0
    for index in reversed(range(len(useful))):
        candidate = useful[index]
        removed += candidate.saves
        again += candidate.again * candidate.saves * prospect.write
        gain = prospect.gain(removed, candidate.before) - again
        if gain > most:
            start, most, tokens = index, gain, removed
    if start == len(useful):
        return None
    chosen = useful[start:]
    return Shrunk(
        tasks=tuple(each.task for each in chosen if each.task is not None),
        outputs=tuple(each.output for each in chosen if each.output is not None),
        reason=(
            f"about {tokens:,} tokens less; over {prospect.requests} requests, the cache's loss included, "
            f"worth as much as {most:,.0f} plain ones"
        ),
    )


class RequestForecast:
    """How many requests the runs of a growing log took, and so how many the present one will probably still make."""

    def __init__(self) -> None:
        self._taken = 0
        self._runs: list[int] = []

    def update(self, events: Sequence[Recorded]) -> None:
        """Take in what is new in the log; a shorter one is a new one."""
        if len(events) < self._taken:
            self._taken, self._runs = 0, []
        for event in events[self._taken :]:
            if isinstance(event, Started):
                self._runs.append(0)
            elif isinstance(event, Replied) and self._runs:
                self._runs[-1] += 1
        self._taken = len(events)

    def expected(self, limit: int) -> int:
        """Requests that the present run will probably still make, at least one.

        A fresh run is taken to be like those before it; one that has gone on for longer, to be half way through.

        Args:
            limit: the most that a run may make.
        """
        *past, done = self._runs or [0]
        usual = round(sum(past) / len(past)) if past else _TYPICAL_REQUESTS
        return max(1, min(limit - done, max(usual - done, done)))
