"""A ledger in memory, beside an engine in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from bot.domain.access import LabelGrant, Tally, is_unattended
from bot.domain.job import Job, JobState
from bot.domain.listening import TrustedBots
from bot.engine.in_memory import InMemoryEngine
from bot.gate.repo_config import RepoConfig

_HOUR = 3600.0


class InMemoryLedger:
    """Implements `Ledger`; what it holds ends with its process.

    Args:
        engine: whose jobs are counted.
        trusted_bots: bots that may command; see `is_unattended`.
        clock: seconds since the epoch; the engine's.
    """

    def __init__(
        self, engine: InMemoryEngine, *, trusted_bots: TrustedBots | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._trusted_bots = trusted_bots or TrustedBots()
        self._clock = clock
        self._labels: dict[tuple[int, int, str], LabelGrant] = {}
        self._told: dict[tuple[int, int, str], float] = {}
        self._configs: dict[int, tuple[float, RepoConfig]] = {}

    async def keep_label(self, label: LabelGrant) -> None:
        """See `Ledger.keep_label`."""
        key = (label.repo_id, label.number, label.name.casefold())
        kept = self._labels.get(key)
        if kept is None or kept.at <= label.at:
            self._labels[key] = label

    async def labels(self, repo_id: int, number: int) -> tuple[LabelGrant, ...]:
        """See `Ledger.labels`."""
        return tuple(label for key, label in sorted(self._labels.items()) if key[:2] == (repo_id, number))

    async def drop_label(self, repo_id: int, number: int, name: str) -> None:
        """See `Ledger.drop_label`."""
        self._labels.pop((repo_id, number, name.casefold()), None)

    async def rebind_labels(self, repo_id: int, number: int, old_sha: str, new_sha: str) -> None:
        """See `Ledger.rebind_labels`."""
        for label in await self.labels(repo_id, number):
            if label.bound_to == old_sha:
                self._labels[repo_id, number, label.name.casefold()] = replace(label, bound_to=new_sha)

    async def may_tell(self, repo_id: int, number: int, cause: str, *, seconds: float = _HOUR, by: str = "") -> bool:
        """See `Ledger.may_tell`."""
        key, own, now = (repo_id, number, cause), (repo_id, number, f"{cause} by {by}"), self._clock()
        self._told = {told: until for told, until in self._told.items() if until > now}
        if key in self._told:
            return bool(by) and own in self._told
        self._told[key] = self._told[own] = now + seconds
        return True

    async def hold_back(self, repo_id: int, number: int, cause: str, *, seconds: float) -> None:
        """See `Ledger.hold_back`."""
        self._told[repo_id, number, cause] = self._clock() + seconds

    async def keep_config(self, repo_id: int, config: RepoConfig, *, seconds: float) -> None:
        """See `Ledger.keep_config`."""
        self._configs[repo_id] = (self._clock() + seconds, config)

    async def config(self, repo_id: int) -> RepoConfig | None:
        """See `Ledger.config`."""
        until, config = self._configs.get(repo_id, (0.0, None))
        return config if self._clock() < until else None

    async def tally(self, job: Job, *, seconds: float = _HOUR) -> Tally:
        """See `Ledger.tally`."""
        since = self._clock() - seconds
        work = [each for each in self._engine.begun_work() if each.stored.state is not JobState.REFUSED]
        # The order in which jobs were stored decides between those that began at one moment: sorting keeps it.
        earlier = takewhile(lambda each: each.stored.job.id != job.id, sorted(work, key=lambda each: each.begun_at))
        recent = [each.stored.job for each in earlier if each.begun_at > since]
        in_thread = [each.stored.job for each in work if _is_in_thread_of(job, each.stored.job)]
        unattended = takewhile(lambda each: is_unattended(each, self._trusted_bots), reversed(in_thread))
        return Tally(
            thread=sum(_is_in_thread_of(job, each) for each in recent),
            user=sum(each.actor.id == job.actor.id for each in recent),
            repository=sum(each.repo.id == job.repo.id for each in recent),
            installation=sum(each.installation == job.installation is not None for each in recent),
            unattended=sum(each.id != job.id for each in unattended) if is_unattended(job, self._trusted_bots) else 0,
        )


def _is_in_thread_of(job: Job, other: Job) -> bool:
    return (other.repo.id, other.thread.key) == (job.repo.id, job.thread.key)
