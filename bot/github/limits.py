"""What GitHub says of its limits: until when it wants to be left alone, and how much of the hour's budget is left.

https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

WINDOW_SECONDS = 3600.0
MOST_SPREAD = 12.0
"""How many times rarer what can wait becomes when hardly anything is left."""
_PLENTY = 0.5
"""While more than this share is left there is no need to save."""


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
    def closed_for(self) -> float:
        """Seconds until GitHub may be asked again."""
        return max(0.0, self._closed_until - self._clock())

    @property
    def spread(self) -> float:
        """How many times rarer than usual requests that can wait should be."""
        now = self._clock()
        return max((each.spread(now) for each in self._budgets.values()), default=1.0)
