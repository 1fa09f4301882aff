"""The rate limit as answers tell it. The hub counts and never refuses; faults can be injected for that."""

from __future__ import annotations

from datetime import datetime

LIMIT = 5000
WINDOW = 3600


class RateCounter:
    """Requests by viewer and resource in the current hour."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str, int], int] = {}

    def count(self, key: str, now: datetime, resource: str) -> None:
        """Count one request. An answer of 304 costs nothing, nor does asking for the limit."""
        place = (key, resource, _window(now))
        self._used[place] = self._used.get(place, 0) + 1

    def left(self, key: str, now: datetime, resource: str) -> dict[str, int]:
        """What is left: `rate-limit`."""
        window = _window(now)
        used = self._used.get((key, resource, window), 0)
        return {"limit": LIMIT, "used": used, "remaining": max(LIMIT - used, 0), "reset": (window + 1) * WINDOW}

    def headers(self, key: str, now: datetime, resource: str) -> dict[str, str]:
        """The same as headers."""
        told = {f"X-RateLimit-{name.capitalize()}": str(value) for name, value in self.left(key, now, resource).items()}
        return told | {"X-RateLimit-Resource": resource}


def _window(now: datetime) -> int:
    return int(now.timestamp()) // WINDOW
