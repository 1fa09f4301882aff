"""Says 👀 the moment a command is stored, so that nobody wonders whether it was heard while other jobs come first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bot.errors import BotError
from bot.gate.permissions import may_command
from bot.github import GitHub
from bot.jobs.job import Job

log = logging.getLogger(__name__)

AT_ONCE = 8
WAITING = 200


class Greeter:
    """Reacts to commands in the background. A courtesy: the worker does it again, which changes nothing on GitHub."""

    def __init__(self, github_for: Callable[[Job], GitHub]) -> None:
        self._github_for = github_for
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def greet(self, job: Job) -> None:
        """React to the job's command soon; with too many waiting, leave it to the worker."""
        if len(self._tasks) >= WAITING:
            return
        task = asyncio.create_task(self._greet(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, job: Job) -> None:
        try:
            async with self._slots, self._github_for(job) as github:
                if may_command(await github.role(job.repo.full_name, job.actor.login)):
                    await github.react(job.repo.full_name, job.comment_id, "eyes")
        except BotError as error:
            log.warning("job %s: no greeting: %s", job.id, error)
