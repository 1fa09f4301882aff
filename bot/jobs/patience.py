"""Limit how long a job is put off because GitHub does not respond."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from bot.engine.job_record import GitHubOutage, StoredRecord
from bot.github import GitHubError

PATIENCE_SECONDS = 6 * 3600.0
"""Longer than a rate limit of GitHub's lasts, and most of its outages."""

ACCESS_PATIENCE_SECONDS = 600.0
"""For 401, 403 and 404, which GitHub also answers for seconds or minutes when nothing is wrong."""

_FIRST_PAUSE_SECONDS = 2.0
_FORGOTTEN_SECONDS = 1800.0
"""After so much time without trouble, and more than any pause, the next trouble is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When to ask again.

    Attributes:
        seconds: for how long GitHub is asked again in all.
        longest_pause: between two times.
    """

    seconds: float = PATIENCE_SECONDS
    longest_pause: float = 60.0

    async def pause(self, record: StoredRecord, error: GitHubError) -> float | None:
        """Seconds to put the job off, which grow with the time that it lasts; None when it has lasted for too long."""
        if not (error.passing or error.unsettled):
            return None
        now = time.time()
        met = (await record.read()).github_outage
        begun = met.since if met is not None and now - met.last < _FORGOTTEN_SECONDS else now
        await record.update(lambda kept: replace(kept, github_outage=GitHubOutage(since=begun, last=now)))
        lasts = now - begun
        if lasts > (self.seconds if error.passing else min(self.seconds, ACCESS_PATIENCE_SECONDS)):
            return None
        return max(error.retry_after, min(self.longest_pause, max(_FIRST_PAUSE_SECONDS, lasts / 2)))
