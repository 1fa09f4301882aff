"""The worker: takes jobs from the queue, and sees to it that each ends in a word to its asker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Never, TypeVar

from agent_runtime import AgentError
from bot.errors import BotError, LeaseLostError, QueueError
from bot.gate.repo_config import RepoConfigError
from bot.github import GitHub, GitHubError
from bot.jobs.corridor import Corridor, Ending
from bot.jobs.house import House
from bot.jobs.job import Job, JobState
from bot.jobs.memory import JobMemory
from bot.jobs.queue import Claimed, Queue
from bot.jobs.status import StatusComment
from bot.publishing.marker import marker
from bot.publishing.render import render_status
from bot.workspace import WorkspaceError

T = TypeVar("T")

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
POLL_SECONDS = 2.0


class Worker:
    """Walks jobs through the corridor."""

    def __init__(
        self,
        name: str,
        *,
        queue: Queue,
        house: House,
        github_for: Callable[[Job], GitHub],
        marker_key: bytes,
        jobs_at_once: int = 1,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Prepare; nothing is claimed before `run`.

        Args:
            name: no other live worker has it.
            queue: where jobs come from.
            house: what all jobs share.
            github_for: the client that may act for a job.
            marker_key: signs the mark in status comments.
            jobs_at_once: how many jobs, of different threads, it walks side by side.
            lease_seconds: how long a claimed job stays this worker's without a sign of life.
        """
        self._name = name
        self._queue = queue
        self._house = house
        self._github_for = github_for
        self._marker_key = marker_key
        self._jobs_at_once = jobs_at_once
        self._lease_seconds = lease_seconds

    async def run(self) -> None:
        """Work until cancelled; jobs in hand are then given back to the queue.

        Raises:
            QueueError: the queue cannot be used any more.
        """
        hands = [asyncio.create_task(self._keep_working()) for _ in range(self._jobs_at_once)]
        try:
            await asyncio.gather(*hands)
        finally:
            for hand in hands:
                hand.cancel()
            await asyncio.gather(*hands, return_exceptions=True)

    async def _keep_working(self) -> Never:
        while True:
            if not await self.step():
                await self._queue.wait_for_work(POLL_SECONDS)

    async def step(self) -> bool:
        """Take one job and see it through; False when there was none."""
        claimed = await self._queue.claim(self._name, self._lease_seconds)
        if claimed is None:
            return False
        job = claimed.job
        log.info("job %s: attempt %d, delivery %s", job.id, claimed.attempt, job.delivery_id)
        try:
            state, reason = await self._while_ours(job.id, self._see_through(claimed))
            await self._queue.finish(job.id, state, reason, worker=self._name)
            log.info("job %s: %s %s", job.id, state, reason)
        except LeaseLostError:
            log.warning("job %s: taken over by another worker; nothing more is done here", job.id)
        except asyncio.CancelledError:
            await asyncio.shield(self._queue.release(job.id, self._name))
            raise
        except GitHubError:
            # Its ending could not be told. When the lease has run out it is taken up again, and told then.
            log.exception("job %s: GitHub cannot be reached; trying again when the lease has run out", job.id)
        except QueueError:
            raise
        except Exception as error:  # one job must not take the worker, and so all the others, with it
            log.exception("job %s: given up", job.id)
            reason = str(error) if isinstance(error, BotError) else "The bot has a fault of its own; see the log."
            await self._queue.finish(job.id, JobState.FAILED, reason, worker=self._name)
        return True

    async def _see_through(self, claimed: Claimed) -> tuple[JobState, str]:
        """Walk the job, and tell its ending."""
        job = claimed.job
        memory = JobMemory(self._queue, job.id)
        async with self._github_for(job) as github:
            mark = marker(job.id, job.repo.id, job.thread.number, key=self._marker_key)
            comment = StatusComment(github, memory, job, marker=mark)
            told_before = await memory.recall("ending")
            if told_before is not None:
                state, _, body = told_before.partition("\n")
                await _tell(comment, body, job)
                return JobState(state), "told by a later attempt"
            corridor = Corridor(self._house, job, github=github, memory=memory, comment=comment, marker=mark)
            ending = await self._ending(corridor, claimed, told=await memory.recall("commenting") is not None)
            if ending.view is not None:
                body = await asyncio.to_thread(render_status, ending.view)
                # Kept before it is sent: should this worker die now, the next one tells it without working again.
                await memory.remember("ending", f"{ending.state}\n{body}")
                await _tell(comment, body, job)
            return ending.state, ending.reason

    async def _ending(self, corridor: Corridor, claimed: Claimed, *, told: bool) -> Ending:
        """Walk the corridor; whatever goes wrong there becomes an ending."""
        if claimed.exhausted:
            return corridor.failed(
                f"This job was begun {claimed.attempt - 1} times and never came to its end, so it was given up.",
                f"The operator finds the cause in the log under job `{claimed.job.id}`; then ask again.",
                told=told,
            )
        try:
            return await corridor.walk()
        except GitHubError as error:
            if error.passing:
                raise
            return corridor.failed(str(error))
        except (WorkspaceError, RepoConfigError) as error:
            return corridor.failed(error.reason, error.remedy)
        except LeaseLostError:
            raise
        except (BotError, AgentError) as error:
            return corridor.failed(str(error))
        except Exception:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("job %s: a fault of the bot's own", claimed.job.id)
            return corridor.failed(
                "The bot has a fault of its own.", f"The operator finds it in the log under job `{claimed.job.id}`."
            )

    async def _while_ours(self, job_id: str, work: Coroutine[object, object, T]) -> T:
        """Do `work` while the job's lease is renewed; when the lease is lost the work is cancelled.

        Raises:
            LeaseLostError: another worker has the job now.
        """
        working, renewing = asyncio.create_task(work), asyncio.create_task(self._renew(job_id))
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()
            return await working
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)

    async def _renew(self, job_id: str) -> Never:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            await self._queue.renew(job_id, self._name, self._lease_seconds)


async def _tell(comment: StatusComment, body: str, job: Job) -> None:
    """Tell the ending; where GitHub will not take it (archived, conversation or comment gone), the log has it."""
    try:
        await comment.put(body)
    except GitHubError as error:
        if error.passing:
            raise
        log.warning("job %s: its ending could not be told: %s", job.id, error)
