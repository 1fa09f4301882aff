"""Build the service of one process from the operator's settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web

from agent_runtime import Provider
from bot.apps.app_access import app_access
from bot.apps.endpoints import monitor
from bot.apps.keys import key_for
from bot.apps.metrics import Metrics
from bot.apps.redelivery import Redelivery
from bot.apps.schedules import Scheduler
from bot.apps.services import EDIT_SECONDS, redactor_for, services
from bot.apps.storage import storage_of
from bot.apps.sweeping import kept_swept
from bot.apps.webhook import WebhookOptions, make_app, make_runner
from bot.dashboard.live import LivePages
from bot.dashboard.pages import Dashboard
from bot.dashboard.people import People
from bot.dashboard.reader import DashboardReader
from bot.dashboard.sign_in import SignIns
from bot.domain.errors import ConfigError
from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.engine.delivery_sweeps import FileDeliverySweeps
from bot.engine.durable.delivery_sweeps import PostgresDeliverySweeps
from bot.engine.durable.engine import DurableEngine
from bot.engine.durable.ledger import DurableLedger
from bot.engine.durable.old_file import import_file
from bot.engine.durable.paces import reserve_for
from bot.engine.durable.schedules import DurableSchedules
from bot.engine.durable.slots import slots_of
from bot.engine.durable.store import JobStore
from bot.engine.durable.worker import DurableWorker
from bot.engine.protocols import Ledger, Schedules
from bot.github import SECONDS_BETWEEN_WRITES, AppSession, GitHub, OAuthClient, app_deliveries, installation_ids
from bot.jobs.context import JobContextFactory
from bot.jobs.patience import Patience
from bot.jobs.receipt_filter import Receipt
from bot.jobs.services import JobServices, Listener
from bot.pipeline.acknowledge import HELD_SECONDS, Acknowledger
from bot.pipeline.worker import Worker
from bot.publishing.live import quiet
from bot.publishing.redact import Redactor
from bot.settings.model import Settings
from bot.workspace import GIT_PAUSES

_LONGEST_PAUSE_SECONDS = 60.0
"""How long GitHub's silence may hold up a job that has a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotService:
    """A bot ready to run in one process.

    Attributes:
        queue: the engine in it.
        worker: takes jobs from it; not yet begun.
        runner: the webhook's web server, not yet listening.
        redelivery: has GitHub deliver again what came while nobody was listening.
        monitor: the web server of the port for metrics, not yet listening.
        scheduler: starts recipes when they are due; None where the operator has none run.
    """

    queue: DurableEngine
    worker: DurableWorker
    runner: web.AppRunner
    redelivery: Redelivery
    monitor: web.AppRunner
    scheduler: Scheduler | None


@asynccontextmanager
async def service(
    settings: Settings,
    *,
    listeners: Sequence[Listener] = (),
    edit_seconds: float = EDIT_SECONDS,
    provider: Callable[[], Provider] | None = None,
    seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
    git_pauses: tuple[float, ...] = GIT_PAUSES,
    metrics: Metrics | None = None,
    works: bool = True,
) -> AsyncIterator[BotService]:
    """Everything that `serve` and `work` need; closed when the body ends.

    Args:
        settings: the operator's.
        listeners: called with every event of every run.
        edit_seconds: between two edits of a status comment.
        provider: makes the model of a run, in place of the one that the settings name.
        seconds_between_writes: the pause that GitHub asks for; a hub of ours needs none.
        git_pauses: seconds before each further try at a git server whose trouble may pass.
        metrics: of the process; those of the service alone by default.
        works: whether its worker is to run; a process that only receives needs no sandbox.

    Raises:
        SandboxError: agents could not run safely here.
        QueueError: the job database cannot be used.
        SessionError: the database of sessions cannot be used.
        StorageError: the directory of the blob store cannot be made.
    """
    redactor = redactor_for(settings)
    shared = services(
        settings.agent,
        server_url=settings.server_url,
        secret=settings.webhook_secret,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=edit_seconds,
        provider=provider,
        storage=await asyncio.to_thread(storage_of, settings),
        works=works,
        git_pauses=git_pauses,
    )
    metrics = metrics or Metrics()
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(_opened_store, settings)
        stack.push_async_callback(store.close)
        queue = DurableEngine(store)
        await stack.enter_async_context(kept_swept(shared, queue))
        ledger = DurableLedger(store, trusted_bots=settings.agent.trusted_bots)
        session = AppSession(seconds_between_writes, partial(reserve_for, store) if store.path is None else None)
        schedules = DurableSchedules(store) if settings.schedules else None
        shared = replace(shared, schedules=schedules, history=queue if settings.has_dashboard else None)
        # A worker that comes back from a long pause writes nothing more for jobs that others have taken over.
        github_of = partial(_installed_app, settings, redactor, session, queue.check_work)
        contexts = JobContextFactory(services=shared, queue=queue, ledger=ledger, github_for=github_of)
        greeter = Acknowledger(contexts, comments=works)
        stack.push_async_callback(greeter.close)
        worker = DurableWorker(
            store,
            Worker(contexts, Patience(longest_pause=_LONGEST_PAUSE_SECONDS)),
            jobs_at_once=settings.jobs,
            slots=slots_of(store),
            drain_seconds=settings.drain_seconds,
        )
        unneeded = Receipt(queue, ledger, shared.configs, review_on=settings.agent.review_on).unneeded
        app = make_app(
            _webhook_options(settings), queue, accepted=greeter.greet, unneeded=unneeded, answered=metrics.answered
        )
        _add_dashboard(app, settings, queue, shared, session)
        read = partial(metrics.read, queue, session)
        yield BotService(
            queue=queue,
            worker=worker,
            runner=make_runner(app),
            monitor=make_runner(monitor(app, queue, read, settings.metrics_token, lambda: worker.draining)),
            redelivery=_redelivery(settings, store),
            scheduler=_scheduler(settings, shared.schedules, ledger, github_of),
        )


def _add_dashboard(
    app: web.Application, settings: Settings, queue: DurableEngine, shared: JobServices, session: AppSession
) -> None:
    if not settings.has_dashboard:
        return
    reader = DashboardReader(queue, shared, lambda: list(session.budgets()), trace_url=settings.trace_url or "")
    token, secret = settings.dashboard_token, settings.client_secret
    shown = token.get_secret_value() if token else ""
    # With another token, or without one, nobody stays signed in by the old one.
    sign_ins = SignIns(key_for(settings.webhook_secret, f"dashboard {shown}"), token)
    people = None
    if settings.client_id and secret:
        github = OAuthClient(
            client_id=settings.client_id,
            client_secret=secret.get_secret_value(),
            server_url=settings.server_url.rstrip("/"),
            api_url=settings.api_url,
            ca_file=settings.agent.ca_file,
        )
        people = People(github, sign_ins)
    Dashboard(reader, sign_ins, LivePages(queue.pulse, reader.log_stamp), people).add_to(app)


def _opened_store(settings: Settings) -> JobStore:
    store = JobStore(settings.jobs_url, jobs_of_repository=settings.jobs_per_repository)
    try:
        import_file(store, settings.agent.data_dir / "queue.sqlite")
    except BaseException:  # whatever it was, nobody else closes it
        store.close_here()
        raise
    return store


def _redelivery(settings: Settings, store: JobStore) -> Redelivery:
    deliveries = partial(app_deliveries, app_access(settings))
    own_file = settings.agent.data_dir / "redelivery.lock"
    return Redelivery(deliveries, FileDeliverySweeps(own_file) if store.path else PostgresDeliverySweeps(store))


def _scheduler(
    settings: Settings, schedules: Schedules | None, ledger: Ledger, github_of: Callable[[int], GitHub]
) -> Scheduler | None:
    installations = partial(installation_ids, app_access(settings))
    return None if schedules is None else Scheduler(schedules, ledger, installations, github_of)


def _webhook_options(settings: Settings) -> WebhookOptions:
    return WebhookOptions(
        secret=settings.webhook_secret,
        listening=Listening(
            triggers=settings.agent.triggers,
            own_app_id=settings.app_id,
            trusted_bots=settings.agent.trusted_bots,
            start_label=settings.agent.start_label,
        ),
        held_seconds=HELD_SECONDS,
        folder=settings.agent.data_dir,
    )


def _installed_app(
    settings: Settings,
    redactor: Redactor,
    session: AppSession,
    before_write: Callable[[], Awaitable[None]],
    place: Job | int,
) -> GitHub:
    """A client for an installation, or for that of a job."""
    if isinstance(place, Job):
        if place.installation is None:
            raise ConfigError(
                (f"the delivery of job {place.id} names no installation; set the App's webhook URL to this bot",)
            )
        place = place.installation
    # A client lives for one job, and so does what is known of the tokens that it uses.
    own = redactor.copy()
    return GitHub.for_installation(
        settings.app_id,
        settings.private_key.get_secret_value(),
        place,
        settings.api_url,
        redact=quiet(own.redact),
        minted=own.learn,
        session=session.of(place),
        before_write=before_write,
        ca_file=settings.agent.ca_file,
    )
