"""The rate-limit headers of every answer. The hub counts and never refuses; faults can be injected for that."""

from __future__ import annotations

from datetime import datetime

LIMIT = 5000
WINDOW = 3600


class RateCounter:
    """Requests by viewer in the current hour."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], int] = {}

    def headers(self, key: str, now: datetime, resource: str) -> dict[str, str]:
        """Count one request and describe what is left, as GitHub does."""
        window = int(now.timestamp()) // WINDOW
        used = self._used[key, window] = self._used.get((key, window), 0) + 1
        return {
            "X-RateLimit-Limit": str(LIMIT),
            "X-RateLimit-Remaining": str(max(LIMIT - used, 0)),
            "X-RateLimit-Used": str(used),
            "X-RateLimit-Reset": str((window + 1) * WINDOW),
            "X-RateLimit-Resource": resource,
        }
