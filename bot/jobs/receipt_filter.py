"""Drop events on receipt that could lead to nothing.

Decided from what lies here, without a request to GitHub: of a storm of labels or pushes each costs a few looks into
the database.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import assert_never
from weakref import WeakValueDictionary

from bot.domain.commands import (
    AccessLost,
    Assigned,
    ChecksFailed,
    Closed,
    Labelled,
    Pushed,
    RecipeDue,
    RepoEvent,
    Review,
    ReviewEvent,
)
from bot.domain.job import Job
from bot.engine.protocols import JobIndex, Ledger
from bot.gate.repo_config import RepoConfig

FRESH_SECONDS = 60.0
"""For how long what a repository's file said is taken for what it says now."""

_MOST_REPOSITORIES = 10_000


class KnownConfigs:
    """What the files of repositories said when somebody last looked, for a short while.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[int, tuple[float, RepoConfig]] = OrderedDict()
        self._reading: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def learn(self, repo_id: int, config: RepoConfig) -> None:
        """Keep what was just read on the default branch."""
        self._known[repo_id] = (self._clock() + FRESH_SECONDS, config)
        self._known.move_to_end(repo_id)
        if len(self._known) > _MOST_REPOSITORIES:
            self._known.popitem(last=False)

    def reading(self, repo_id: int) -> asyncio.Lock:
        """Held while somebody reads a repository's files, so that events that come at once ask GitHub once."""
        return self._reading.setdefault(repo_id, asyncio.Lock())

    def of(self, repo_id: int) -> RepoConfig | None:
        """What it says; None when nobody has looked lately."""
        until, config = self._known.get(repo_id, (0.0, None))
        return config if self._clock() < until else None


class Receipt:
    """Says of a job, before it is stored, whether anything could follow from it.

    Args:
        queue: the jobs that there are.
        ledger: the labels that are kept, and what repositories ask for, as far as any process has looked lately.
        configs: what they ask for, as far as this process has.
        review_on: what starts a review without a command, where a repository does not say.
    """

    def __init__(
        self,
        queue: JobIndex,
        ledger: Ledger,
        configs: KnownConfigs,
        *,
        review_on: frozenset[ReviewEvent] = frozenset(),
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._configs = configs
        self._review_on = review_on

    async def unneeded(self, job: Job) -> str:
        """Why a job can be dropped; empty for one that must be kept, as every word of a person must.

        Raises:
            QueueError: the database could not be read.
        """
        command = job.command
        if isinstance(command, Review) and command.on is not None:
            wanted = await self._may_be_reviewed(job.repo.id, command.on)
            return "" if wanted else "the repository wants no review for this"
        return await self._nothing_follows(job, command) if isinstance(command, RepoEvent) else ""

    async def _config(self, repo_id: int) -> RepoConfig | None:
        return self._configs.of(repo_id) or await self._ledger.config(repo_id)

    async def _may_be_reviewed(self, repo_id: int, on: ReviewEvent) -> bool:
        config = await self._config(repo_id)
        return config is None or config.reviews(on, self._review_on)

    async def _nothing_follows(self, job: Job, command: RepoEvent) -> str:
        repo_id, number = job.repo.id, job.thread.key
        match command:
            case Labelled(label=label):
                config = await self._config(repo_id)
                means_nothing = config is not None and not config.hears_label(label)
                return "the label has no meaning for the bot" if means_nothing else ""
            case Pushed():
                idle = not await self._queue.is_live(repo_id, number) and not await self._ledger.labels(repo_id, number)
                idle = idle and not await self._may_be_reviewed(repo_id, "push")
                # Work of an issue may go on in this pull request.
                live = await self._queue.live_of(job.installation or 0, (repo_id,)) if idle else ()
                idle = idle and all(each.job.thread.kind != "issue" for each in live)
                return "no request is bound to the head of this pull request" if idle else ""
            case Closed():
                return "" if await self._queue.is_live(repo_id, number) else "no job is running in this thread"
            case AccessLost(repo_ids=repo_ids):
                return "" if await self._queue.live_of(job.installation or 0, repo_ids) else "no job is running there"
            case ChecksFailed():
                config = await self._config(repo_id)
                asked = (
                    config is None or config.fix_ci or config.follows_runs or await self._ledger.labels(repo_id, number)
                )
                return "" if asked else "fixing failed checks is not enabled here"
            case Assigned() | RecipeDue():
                return ""
            case other:
                assert_never(other)
