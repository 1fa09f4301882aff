"""The endings that GitHub has not accepted yet, and when they are tried again."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.job import Job

KEEP_SECONDS = 7 * 24 * 3600.0
"""For how long an ending is tried to be told."""

_PAUSES = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """An ending that one worker tells now.

    Attributes:
        job: whose it is; None when this version cannot read it.
        job_id: its id.
        since: when it was first to be told, in seconds since the epoch.
        tries: how often it was tried, this time included.
    """

    job: Job | None
    job_id: str
    since: float
    tries: int


def pause_after(tries: int) -> float:
    """Seconds before an ending is tried again that was tried so often."""
    return _PAUSES[min(tries, len(_PAUSES) - 1)]
