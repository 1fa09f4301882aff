"""DBOS, which assigns jobs to workers through queues in the same database. No other module imports it.

Receivers and workers enqueue workflows with a `WorkflowClient`; a worker's process runs them with `run_workflows`.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from functools import cache, partial
from typing import Protocol

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions
from dbos import error as dbos_error
from sqlalchemy.engine import Connection, Engine

from bot.domain.errors import QueueError
from bot.domain.job import Lane

APPLICATION = "codepilot"
"""Our name in DBOS's tables, which applications may share."""

_VERSION = "1"
"""Version of the workflows, not of Codepilot; increase it if workers of two versions must not share a database."""

RUN, WAKE, REPORT = "codepilot-run", "codepilot-wake", "codepilot-tell"
"""Names of the workflows that run a job, wake it and report its end; stored, so that versions share them."""

TIMERS, REPORT_QUEUE = "codepilot-timers", "codepilot-endings"
"""Queues of wake-ups and of pending reports."""

_POLL_SECONDS: dict[Lane, float] = {"work": 0.2, "steer": 0.25, "event": 0.5}
"""Polling interval of each queue; a poll costs half a millisecond of processor time."""

_TIMER_POLL_SECONDS = 1.0
"""Polling interval of wake-ups and reports, which are less urgent."""

_MESSAGES_SECONDS = 0.05
"""Polling interval of DBOS's messages, unused here; the shutdown waits for it."""

_STEERING_JOBS = 3
"""Several, so that steering continues while GitHub delays one installation."""

_EVENT_JOBS = 8
"""Several in one poll, so that bursts of events end soon."""

_REPORT_JOBS = 2

_PLACES_PER_EXTRA = 4
"""Other installations have one extra place for so many of an installation's, at least one. DBOS assigns free places
randomly among installations."""

_DELETED_AT_ONCE = 500

WorkflowError = dbos_error.DBOSException


def queue_name(lane: Lane) -> str:
    return f"codepilot-{lane}"


def migrate(url: str) -> None:
    """Create or migrate the tables of DBOS."""
    logging.getLogger("dbos").setLevel(logging.WARNING)  # it reports every step of its start
    DBOS.migrate(url)


def active_executors(rows: Connection) -> frozenset[str]:
    """Return the names of the workers to which unfinished workflows are assigned."""
    table = "dbos.workflow_status" if rows.dialect.name == "postgresql" else "workflow_status"
    # DBOS's client would read whole workflows, and on SQLite, where it uses no index, also ended ones.
    query = f"SELECT DISTINCT executor_id FROM {table} WHERE status = 'PENDING' AND application_name = :ours"  # noqa: S608 - ours
    ids = rows.execute(sa.text(query), {"ours": APPLICATION}).scalars()
    return frozenset(executor for executor in ids if executor is not None)


class WorkflowClient:
    def __init__(self, engine: Engine) -> None:
        self._client = DBOSClient(
            system_database_engine=engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            retry_connection_errors=False,
        )

    def enqueue(
        self,
        rows: Connection,
        workflow: str,
        workflow_id: str,
        queue: str,
        *args: str | int,
        partition: str | None = None,
        delay: float = 0.0,
    ) -> None:
        """Enqueue a workflow in the caller's transaction; a known id is ignored."""
        options = EnqueueOptions(workflow_name=workflow, queue_name=queue, workflow_id=workflow_id)
        if partition is not None:
            options["queue_partition_key"] = partition
        if delay > 0:
            options["delay_seconds"] = delay
        self._client.enqueue_in_transaction(rows, options, *args)

    async def end_delay(self, workflow_id: str) -> None:
        await self._client.set_workflow_delay_async(workflow_id, delay_seconds=0)
        # Workers check for expired delays only once a second.
        await asyncio.to_thread(self._client._sys_db.transition_delayed_workflows)  # noqa: SLF001 - no other way in 3.4

    async def delete_completed(self, before: float) -> None:
        """Delete the workflows that were completed before a time in seconds since the epoch."""
        at = datetime.fromtimestamp(before, UTC).isoformat()
        while True:
            workflows = await self._client.list_workflows_async(
                completed_before=at, limit=_DELETED_AT_ONCE, load_input=False, load_output=False
            )
            await self._client.delete_workflows_async([workflow.workflow_id for workflow in workflows])
            if len(workflows) < _DELETED_AT_ONCE:
                return

    async def register_queues(self, jobs_at_once: int) -> None:
        register = partial(self._client.register_queue_async, on_conflict="always_update")
        shares: dict[Lane, tuple[int, int]] = {
            # More places than one installation, or one steering user, can fill.
            "work": (jobs_at_once + max(1, jobs_at_once // _PLACES_PER_EXTRA), jobs_at_once),
            "steer": (_STEERING_JOBS, _STEERING_JOBS - 1),
            "event": (_EVENT_JOBS, _EVENT_JOBS),
        }
        for lane, (at_once, per_partition) in shares.items():
            await register(
                queue_name(lane),
                worker_concurrency=at_once,
                partition_worker_concurrency=per_partition,
                polling_interval_sec=_POLL_SECONDS[lane],
            )
        for name, at_once in ((TIMERS, 10), (REPORT_QUEUE, _REPORT_JOBS)):
            await register(name, worker_concurrency=at_once, polling_interval_sec=_TIMER_POLL_SECONDS)

    def close(self) -> None:
        self._client.destroy()


class WorkflowHandler(Protocol):
    """Runs the workflows of this process. A workflow that raises `CancelledError` stays assigned to the executor."""

    async def run_job(self, job_id: str, leg: int) -> None: ...

    async def report(self, job_id: str) -> None: ...

    async def wake(self, job_id: str, leg: int) -> None: ...


_handler: WorkflowHandler | None = None


def register_handler(handler: WorkflowHandler) -> None:
    """Let a handler run this process's workflows until `destroy`.

    Raises:
        QueueError: there is one already; DBOS has one executor in a process.
    """
    global _handler  # noqa: PLW0603 - DBOS calls plain functions, and is one in a process
    if _handler is not None:
        raise QueueError("there is a worker in this process already")
    _handler = handler


def launch(url: str, executor: str, *, idle_seconds: float) -> None:
    """Run workflows in the caller's event loop until `destroy`.

    Args:
        executor: name that no other living process has.
        idle_seconds: limit of idle time within a transaction.
    """
    config = DBOSConfig(
        name=APPLICATION,
        system_database_url=url,
        executor_id=executor,
        application_version=_VERSION,
        serializer=DBOSPortableJSONSerializer(),
        run_migrations=False,
        sys_db_idle_transaction_timeout_sec=idle_seconds,
        use_listen_notify=False,
        notification_listener_polling_interval_sec=_MESSAGES_SECONDS,
        # DBOS retries after a lost connection, so no check is needed before each use.
        db_engine_kwargs={"pool_pre_ping": False},
        log_level="WARNING",
    )
    dbos = DBOS(config=config)
    # Takes 0.1 to 0.4 s, but in a thread DBOS would run workflows in a loop of its own.
    DBOS.launch()
    # It would read each queue's settings again before each poll, half of what a worker with nothing to do costs.
    sys_db = dbos._sys_db  # noqa: SLF001 - no other way in 3.4
    sys_db.get_queue = cache(sys_db.get_queue)  # type: ignore[method-assign]  # as above


async def recover(executor: str) -> None:
    """Run the unfinished workflows of a dead executor."""
    await asyncio.to_thread(DBOS._recover_pending_workflows, [executor])  # noqa: SLF001 - no other way in 3.4


async def destroy(completion_seconds: int = 0) -> None:
    """Take no more workflows, and wait so long for running ones."""
    global _handler  # noqa: PLW0603 - as above
    try:
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=completion_seconds)
    finally:
        _handler = None


def _current_handler() -> WorkflowHandler:
    if _handler is None:
        raise QueueError("there is no worker in this process")
    return _handler


@DBOS.workflow(name=RUN, max_recovery_attempts=None)
async def _run_job(job_id: str, leg: int) -> None:
    await _current_handler().run_job(job_id, leg)


@DBOS.workflow(name=REPORT, max_recovery_attempts=None)
async def _report_end(job_id: str) -> None:
    await _current_handler().report(job_id)


@DBOS.workflow(name=WAKE, max_recovery_attempts=None)
async def _wake_job(job_id: str, leg: int) -> None:
    await _current_handler().wake(job_id, leg)
