"""What is dropped as soon as it is received: what happened to threads, where nothing could follow from it.

Decided from what lies here, without a request to GitHub: of a storm of labels or pushes each costs one look into the
database.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import assert_never

from bot.gate.repo_config import LabelNames
from bot.intake.commands import Assigned, Closed, Departed, Happening, Labelled, Pushed
from bot.jobs.job import Job
from bot.jobs.ledger import Ledger
from bot.jobs.queue import Queue

FRESH_SECONDS = 60.0
"""For how long the names that a repository gave its labels are taken for those that it gives them now."""

_MOST_REPOSITORIES = 10_000


class KnownLabels:
    """What the labels of repositories were called when somebody last looked, for a short while.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[int, tuple[float, LabelNames]] = OrderedDict()

    def learn(self, repo_id: int, names: LabelNames) -> None:
        """Keep what was just read from the repository's configuration."""
        self._known[repo_id] = (self._clock() + FRESH_SECONDS, names)
        self._known.move_to_end(repo_id)
        if len(self._known) > _MOST_REPOSITORIES:
            self._known.popitem(last=False)

    def of(self, repo_id: int) -> LabelNames | None:
        """The names; None when nobody has looked lately."""
        until, names = self._known.get(repo_id, (0.0, None))
        return names if self._clock() < until else None


class Receipt:
    """Says of a job, before it is stored, whether anything could follow from it.

    Args:
        queue: the jobs that there are.
        ledger: the labels that are kept.
        labels: what labels are called.
    """

    def __init__(self, queue: Queue, ledger: Ledger, labels: KnownLabels) -> None:
        self._queue = queue
        self._ledger = ledger
        self._labels = labels

    async def unneeded(self, job: Job) -> str:
        """Why a job can be dropped; empty for one that must be kept, as every word of a person must.

        Raises:
            QueueError: the database could not be read.
        """
        return await self._nothing_follows(job, job.command) if isinstance(job.command, Happening) else ""

    async def _nothing_follows(self, job: Job, command: Happening) -> str:
        repo_id, number = job.repo.id, job.thread.key
        match command:
            case Labelled(label=label):
                names = self._labels.of(repo_id)
                return "" if names is None or names.means_something(label) else "the label means nothing to the bot"
            case Pushed():
                idle = not await self._queue.is_live(repo_id, number) and not await self._ledger.labels(repo_id, number)
                return "nothing of this pull request is bound to its head" if idle else ""
            case Closed():
                return "" if await self._queue.is_live(repo_id, number) else "nothing is under way in this thread"
            case Departed(repo_ids=repo_ids):
                lives = job.installation is not None and await self._queue.live_of(job.installation, repo_ids)
                return "" if lives else "nothing is under way there"
            case Assigned():
                return ""
            case other:
                assert_never(other)
