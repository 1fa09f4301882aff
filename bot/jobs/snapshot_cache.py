"""Hand the snapshot of the acknowledgement to the worker that starts the job right after."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from bot.github import GitHub
from bot.jobs.snapshot import AccessCheck

FRESH_SECONDS = 15.0
"""Older answers are requested again. All are requested again before anything is published."""


class AccessChecks:
    """What was asked about jobs that are about to begin; each is given out once.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, AccessCheck]] = {}

    def keep(self, job_id: str, access: AccessCheck) -> None:
        """Keep what was asked just now."""
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] <= FRESH_SECONDS}
        self._kept[job_id] = now, access

    def take(self, job_id: str, github: GitHub) -> AccessCheck | None:
        """What was asked about a job, if that was just now; `github` goes on asking."""
        at, access = self._kept.pop(job_id, (0.0, None))
        if access is None or self._clock() - at > FRESH_SECONDS:
            return None
        return replace(access, reader=access.reader.continued_by(github))
