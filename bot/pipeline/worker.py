"""The worker: runs each job that the engine gives it, and makes sure that its end is reported."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import replace
from typing import assert_never

from agent_runtime import AgentError, SessionInUseError, SessionNewerError, SessionUnavailableError, traced
from bot.domain.errors import BotError, OtherVersionError, QueueError, StorageError, WrongInputError
from bot.domain.job import JobState
from bot.engine.deaths import MOST_DEATHS
from bot.engine.job_record import StoredRecord
from bot.engine.observed import observed
from bot.engine.owed_endings import Owed
from bot.engine.work import Disposition, JobAttempt, JobEnded, JobParked, JobReleased
from bot.gate.repo_config import RepoConfigError
from bot.github import GitHubError, Urgency
from bot.jobs import approvals
from bot.jobs.context import Ending, JobContext, JobContextFactory
from bot.jobs.patience import Patience
from bot.jobs.run_logs import keep_log
from bot.pipeline.pipeline import JobPipeline
from bot.reporting import endings
from bot.reporting.notices import notice_of, notify
from bot.workspace import WorkspaceError

log = logging.getLogger(__name__)

_PUBLISHING_DEATHS = MOST_DEATHS + 3
"""Up to how many deaths it is tried to publish work that is finished."""
_KEEPING_DEATHS = _PUBLISHING_DEATHS + 2
"""Up to how many it is tried to find out what a job did; from then on it only gets its last words."""
_SESSION_SECONDS = 5.0


class Worker:
    """Runs each job through the pipeline, and sees to it that its end is told.

    Args:
        contexts: where jobs come from, and all that they share.
        patience: for how long GitHub may be silent before a job is given up.
    """

    def __init__(self, contexts: JobContextFactory, patience: Patience) -> None:
        self._contexts = contexts
        self._patience = patience

    async def tell(self, owed: Owed) -> bool:
        """See `JobHandler.tell`."""
        with observed(owed.job) if owed.job is not None else nullcontext():
            return await endings.tell_late(self._contexts, owed)

    async def handle(self, attempt: JobAttempt) -> Disposition:
        """See `JobHandler.handle`."""
        job = attempt.job
        about: dict[str, str | int] = {
            "codepilot.job.id": job.id,
            "codepilot.job.attempt": attempt.number,
            "codepilot.job.command": job.command.verb,
            "codepilot.repository.id": job.repo.id,
        }
        with observed(job, attempt=attempt.number), traced("job", about) as span:
            log.info("attempt %d", attempt.number)
            disposition: Disposition
            try:
                disposition = await self._see_through(attempt)
            except GitHubError as error:
                # What could not be asked or told now is asked or told when the job is resumed.
                pause = await self._patience.pause(StoredRecord(self._contexts.queue, job.id), error)
                seconds = self._patience.longest_pause if pause is None else pause
                log.exception("GitHub is not reachable; trying again in %.0f s", seconds)
                disposition = JobReleased(held_seconds=seconds)
            except (SessionInUseError, SessionUnavailableError) as error:
                log.warning(
                    "job %s: its log cannot be kept now; trying again in %.0f s: %s", job.id, _SESSION_SECONDS, error
                )
                disposition = JobReleased(held_seconds=_SESSION_SECONDS)
            except (StorageError, OtherVersionError, SessionNewerError) as error:
                # What another version wrote is for its workers, which run beside this one while a version is deployed.
                seconds = self._patience.longest_pause
                log.warning("trying again in %.0f s: %s", seconds, error)
                disposition = JobReleased(held_seconds=seconds)
            except QueueError:
                raise
            except Exception as error:  # one job must not take the worker, and so all the others, with it
                log.exception("given up")
                reason = str(error) if isinstance(error, BotError) else "The bot has an internal error; see the log."
                await endings.keep_fault(self._contexts, job, reason)
                await keep_log(self._contexts.services, job)
                disposition = JobEnded(state=JobState.FAILED, reason=reason, owed=0.0)
            span.set_attribute("codepilot.job.state", _state_after(disposition))
            return disposition

    async def _see_through(self, attempt: JobAttempt) -> Disposition:
        """Run a job and tell its ending."""
        job = attempt.job
        async with self._contexts.opened(job) as context:
            record = context.record
            pipeline = JobPipeline(context)
            if (ended := (await record.read()).ending) is not None:
                context.phases.begin("publish")
                owed = await endings.tell(context, comment=pipeline.comment)
                return JobEnded(state=ended.state, reason="reported by a later attempt", owed=owed)
            context.phases.begin("admit")
            async with attempt.listening(pipeline.hear, lambda: pipeline.steps):
                ending = await self._ending(pipeline, context, attempt)
                ending = await pipeline.in_words(ending)
                # Of a run that came to no result, whose session is still there. This takes a while: messages are heard.
                if ending.state is not JobState.WAITING:
                    await keep_log(context.services, job)
            context.phases.begin("publish")
            context.github.hurry(Urgency.ENDING)
            ending = pipeline.heard_out(ending)
            log.info(": ".join(filter(None, (ending.state, ending.reason))))
            if ending.state is JobState.WAITING:
                self._contexts.ended(ending)
                try:
                    await pipeline.show_check(ending)
                    if (body := await endings.body_of(context, ending)) is not None:
                        await pipeline.comment.put(body)
                    if pipeline.comment.told_at:
                        await approvals.note_shown(record, at=pipeline.comment.told_at)
                    await notify(context, f"waiting-{ending.request_id}", notice_of(ending, pipeline.notify))
                except GitHubError as error:
                    if await self._patience.pause(record, error) is not None:
                        raise  # the job is to be taken up again to tell it
                    log.warning("the job's request could not be shown: %s", error)
                if pipeline.is_to_stop:
                    return JobReleased()
                return JobParked(until=ending.until, request_id=ending.request_id)
            self._contexts.ended(ending)
            final = await endings.recorded(context, ending, checked=await pipeline.checked(), wanted=pipeline.notify)
            await endings.keep(record, final)
            unpublished = ending.patch and not ending.partial
            if not unpublished and ending.view is not None and ending.state is not JobState.REFUSED:
                await asyncio.to_thread(self._contexts.services.work.narrow, job.id, ending.patch)
            # What GitHub does not take now is told later.
            owed = await endings.tell(context, comment=pipeline.comment, check=pipeline.check)
            return JobEnded(state=ending.state, reason=ending.reason, owed=owed)

    async def _ending(self, pipeline: JobPipeline, context: JobContext, attempt: JobAttempt) -> Ending:
        """Run the pipeline; every failure in it becomes an ending."""
        try:
            finished = attempt.exhausted and (await context.record.read()).result is not None
            if not attempt.exhausted or (finished and attempt.deaths < _PUBLISHING_DEATHS):
                return await pipeline.run()
            # Its workers keep dying while running it: report as much of what it did as is possible without dying again.
            reason = "The bot's process died several times while this job was running, so the job was ended."
            remedy = f"The operator finds the cause in the log under job `{attempt.job.id}`; then ask again."
            ending = await pipeline.give_up(f"{reason} {remedy}") if attempt.deaths < _KEEPING_DEATHS else None
            return ending or await pipeline.failed(reason, remedy, unproven=True)
        except GitHubError as error:
            # A job that is to stop, e.g. since the App is gone, waits for nothing; its end is told when it can be.
            stops = pipeline.is_to_stop and error.unsettled
            if not stops and await self._patience.pause(context.record, error) is not None:
                raise
            ending = await pipeline.failed(str(error), unproven=True)
            return replace(ending, misconfigured=error.lacks_permission)
        except (WorkspaceError, RepoConfigError) as error:
            return await pipeline.failed(error.reason, error.remedy)
        except (SessionInUseError, SessionUnavailableError, QueueError):
            raise  # nothing is wrong with the job
        except (BotError, AgentError) as error:
            if isinstance(error, StorageError) and not pipeline.is_to_stop:
                raise  # nothing is lost: what is stored can be read when the store is back
            if isinstance(error, SessionNewerError) and context.services.comes_back:
                raise
            return replace(await pipeline.failed(str(error)), misconfigured=isinstance(error, WrongInputError))
        except Exception as error:  # the last line: a fault of ours must still reach the person who waits, and the log
            log.exception("an internal error of the bot, or a fault of its machine")
            said = error.strerror if isinstance(error, OSError) else ""
            reason = f"The machine that the bot runs on failed: {said}." if said else "The bot has an internal error."
            return await pipeline.failed(reason, f"The operator finds it in the log under job `{attempt.job.id}`.")


def _state_after(disposition: Disposition) -> str:
    match disposition:
        case JobEnded(state=state):
            return state.value
        case JobParked():
            return JobState.WAITING.value
        case JobReleased():
            return JobState.QUEUED.value
        case other:
            assert_never(other)
