"""Read what the pages show: jobs, records, logs and patches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent_runtime import SessionError
from bot.domain.errors import BotError
from bot.domain.job import JobState
from bot.engine.job_record import JobRecord, JobRecords
from bot.engine.observed import root_of
from bot.engine.protocols import JobIndex, RunHistory
from bot.engine.records import RunQuery, Stored, WeekCost, week_of
from bot.github.pace import RequestBudget
from bot.jobs.services import JobServices
from bot.publishing.run_log import RunLog, following, log_of, unpack_log

_LIVE = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.WAITING})
_ENDED = frozenset(JobState) - _LIVE
MOST_LIVE = 200
"""Runs of each state that the queue shows."""
_RECENT = 20
_WEEKS = 12
_AT_ONCE = 2


class DashboardEngine(JobIndex, JobRecords, RunHistory, Protocol):
    """What the dashboard asks of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The live jobs by state, and those that ended last."""

    live: Mapping[JobState, tuple[Stored, ...]]
    ended: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMaterial:
    """All that is kept of one run, redacted."""

    stored: Stored
    record: JobRecord
    log: RunLog
    diff: str
    trace: str


class DashboardReader:
    """Reads for the pages; every method may raise `BotError`.

    Args:
        engine: has the jobs.
        services: have the sessions and patches, and the redactor.
        budgets: what GitHub said about its limits: the installation, the resource, the budget.
        trace_url: the address of traces; empty where there are none.
    """

    def __init__(
        self,
        engine: DashboardEngine,
        services: JobServices,
        budgets: Callable[[], list[tuple[int, str, RequestBudget]]],
        *,
        trace_url: str,
    ) -> None:
        self._engine, self._services, self._trace_url = engine, services, trace_url
        self.budgets = budgets
        self.server_url = services.server_url
        # Logs and patches may have megabytes, and each takes a while to read and redact.
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def queue(self, repo_ids: frozenset[int] | None) -> Queue:
        """The newest jobs of each state that have not ended, oldest first, and those that have, newest first."""
        # State by state: however many are queued, all that run or wait are shown.
        queries = {state: RunQuery(states=frozenset({state}), repo_ids=repo_ids, limit=MOST_LIVE) for state in _LIVE}
        live = {state: (await self.runs(query))[::-1] for state, query in queries.items()}
        return Queue(live=live, ended=await self.runs(RunQuery(states=_ENDED, repo_ids=repo_ids, limit=_RECENT)))

    async def runs(self, query: RunQuery) -> tuple[Stored, ...]:
        """The work that a query selects, newest first."""
        found = await self._engine.runs(query)
        return await asyncio.to_thread(lambda: tuple(map(self._told, found)))

    async def stored(self, job_id: str, repo_ids: frozenset[int] | None) -> Stored | None:
        """A piece of work; None where there is none, or the viewer may not see it."""
        found = await self._engine.get(job_id)
        if found is None or found.job.lane != "work":
            return None
        return found if repo_ids is None or found.job.repo.id in repo_ids else None

    async def run(self, stored: Stored) -> RunMaterial:
        """All that is kept of a piece of work."""
        job = stored.job
        record = await self._engine.record(job.id)
        packed = await self._engine.log_of(job.id)

        def read() -> RunMaterial:
            log = None if packed is None else unpack_log(packed)
            if log is None or stored.state in _LIVE:  # where one is kept, it is of an attempt before the one that runs
                try:
                    events = self._services.session_events(job)
                except SessionError as error:
                    raise BotError(f"The log of the run cannot be read: {error}") from error
                log = following(log_of(events, self._shown), log) if events or log is None else log
            return RunMaterial(
                stored=self._told(stored),
                record=_redacted(record, self._shown),
                log=log,
                diff=self._services.redactor.redact(self._services.work.patch(job.id)),
                trace=f"{self._trace_url.rstrip('/')}/{root_of(job).trace_id:032x}" if self._trace_url else "",
            )

        async with self._turn:
            return await asyncio.to_thread(read)

    def log_stamp(self, job_id: str) -> str:
        """A text that is another one after something was recorded of a run. It blocks."""
        sessions = self._services.sessions
        try:
            return "" if sessions is None else sessions.stamp(job_id)
        except (SessionError, OSError):
            return ""

    async def costs(self, repo_ids: frozenset[int] | None) -> tuple[WeekCost, ...]:
        """The cost of the last weeks."""
        return await self._engine.costs(week_of(time.time()) - _WEEKS + 1, repo_ids)

    def _told(self, stored: Stored) -> Stored:
        thread = replace(stored.job.thread, title=self._shown(stored.job.thread.title))
        return replace(stored, job=replace(stored.job, thread=thread), reason=self._shown(stored.reason))

    def _shown(self, text: str) -> str:
        return self._services.without_places(self._services.redactor.redact(text))


def _redacted(record: JobRecord, redact: Callable[[str], str]) -> JobRecord:
    """The record, with secrets taken out of the texts that a page shows."""
    approvals, result = record.approvals, record.result
    waiting = approvals.waiting
    if waiting is not None:
        waiting = replace(waiting, reason=redact(waiting.reason), preview=redact(waiting.preview))
    answers = {key: replace(each, note=redact(each.note)) for key, each in approvals.answers.items()}
    if result is not None and result.outcome.summary:
        result = replace(result, outcome=replace(result.outcome, summary=redact(result.outcome.summary)))
    return replace(record, approvals=replace(approvals, waiting=waiting, answers=answers), result=result)
