"""Build and run the service of one process: the webhook listens, the worker works, until someone stops it.

`serve` and `work` are the processes of `codepilot serve` and `codepilot work`; `service` builds their parts from the
operator's settings.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web

from agent_runtime import Provider, preload
from bot.dashboard.app import Dashboard, LivePages
from bot.dashboard.auth import People, SignIns
from bot.dashboard.views import DashboardReader
from bot.domain.access import BotProfile
from bot.domain.errors import ConfigError
from bot.domain.job import Job
from bot.git.process import PAUSES as GIT_PAUSES
from bot.github.app import OAuthClient, app_deliveries, installation_ids
from bot.github.client import GitHub
from bot.github.connection import SECONDS_BETWEEN_WRITES, AppSession
from bot.jobs.context import JobContextFactory, JobServices, Listener
from bot.jobs.pipeline import HELD_SECONDS, Acknowledger, Worker
from bot.jobs.repo_events import Receipt
from bot.jobs.waiting import Patience
from bot.publishing.markdown import redact_inertly
from bot.publishing.redact import Redactor
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableLedger, DurableSchedules, reserve_write
from bot.queue.protocols import Ledger, Schedules
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, open_slots
from bot.server import webhook
from bot.server.build import EDIT_SECONDS, app_access, redactor_for, services, storage_of
from bot.server.observability import Metrics, traced_process
from bot.server.periodic import Scheduler, sweeping
from bot.server.process import Watchdog
from bot.server.redelivery import FileDeliverySweeps, PostgresDeliverySweeps, Redelivery
from bot.server.webhook import WebhookOptions, make_app, make_runner, monitor
from bot.settings.load import derive_key
from bot.settings.models import Settings

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 60.0
"""How long GitHub's silence may hold up a job that has a worker."""


async def serve(settings: Settings, watchdog: Watchdog, *, works: bool = True) -> None:
    """Receive deliveries until cancelled, and work on jobs unless others do."""
    if works:
        preload(settings.agent.provider)
    async with _monitored(settings, works=works) as bot:
        await asyncio.to_thread(webhook.sweep_deliveries, settings.agent.data_dir)
        _spare_the_collector()
        async with _listening(bot.runner, settings.host, settings.port, "CODEPILOT_PORT") as address:
            log.info("listening on http://%s/webhook, data in %s", address, settings.agent.data_dir)
            watchdog.start()
            async with bot.redelivery.running(), bot.scheduler.running() if bot.scheduler else nullcontext():
                await (bot.worker.run() if works else bot.queue.watch())


async def work(settings: Settings, watchdog: Watchdog) -> None:
    """Work on jobs until cancelled."""
    preload(settings.agent.provider)
    async with _monitored(settings) as bot:
        _spare_the_collector()
        watchdog.start()
        await bot.worker.run()


@asynccontextmanager
async def _monitored(settings: Settings, *, works: bool = True) -> AsyncIterator[BotService]:
    """Build the service with its metrics and traces."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(traced_process(settings, metrics))
        bot = await stack.enter_async_context(service(settings, metrics=metrics, works=works))
        if settings.metrics_port is not None:
            listening = _listening(bot.monitor, settings.host, settings.metrics_port, "CODEPILOT_METRICS_PORT")
            log.info("metrics on http://%s/metrics", await stack.enter_async_context(listening))
        yield bot


@asynccontextmanager
async def _listening(runner: web.AppRunner, host: str, port: int, setting: str) -> AsyncIterator[str]:
    """Listen while the body runs.

    Args:
        runner: what answers.
        host: the address to listen on.
        port: 0 for a free one.
        setting: what the port is called.

    Raises:
        ConfigError: the port is not available.
    """
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            problem = (
                f"CODEPILOT_HOST and {setting} are {host}:{port}, which is not available: "
                f"{error.strerror or error}. Stop the process that uses it (`ss -ltnp` shows which), or choose "
                f"another port. Example: {setting}=8081"
            )
            raise ConfigError((problem,)) from error
        yield ":".join(map(str, runner.addresses[0][:2]))
    finally:
        await runner.cleanup()


def _spare_the_collector() -> None:
    """Exempt everything that start-up has made, which stays, from garbage collection.

    A full collection holds the event loop for as long as it takes to visit all objects: 0.1 s for the modules and
    classes alone.
    """
    gc.collect()
    gc.freeze()


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
    """Build the parts of a process, which are closed when the body ends.

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
        store = await asyncio.to_thread(JobStore, settings.jobs_url, jobs_of_repository=settings.jobs_per_repository)
        stack.push_async_callback(store.close)
        queue = DurableEngine(store)
        await stack.enter_async_context(sweeping(shared, queue))
        ledger = DurableLedger(store, trusted_bots=settings.agent.trusted_bots)
        session = AppSession(seconds_between_writes, partial(reserve_write, store) if store.path is None else None)
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
            slots=open_slots(store),
            drain_seconds=settings.drain_seconds,
        )
        unneeded = Receipt(queue, ledger, shared.configs, review_on=settings.agent.review_on).unneeded
        accepted, answered = greeter.acknowledge, metrics.answered
        app = make_app(_webhook_options(settings), queue, accepted=accepted, unneeded=unneeded, answered=answered)
        _add_dashboard(app, settings, queue, shared, session)
        read = partial(metrics.read, queue, session)
        yield BotService(
            queue=queue,
            worker=worker,
            runner=make_runner(app),
            monitor=make_runner(monitor(app, queue, read, settings.metrics_token, lambda: worker.draining)),
            redelivery=_redelivery(settings, store),
            scheduler=_scheduler(settings, schedules, ledger, github_of) if schedules else None,
        )


def _webhook_options(settings: Settings) -> WebhookOptions:
    return WebhookOptions(
        secret=settings.webhook_secret,
        listening=BotProfile(
            triggers=settings.agent.triggers,
            own_app_id=settings.app_id,
            trusted_bots=settings.agent.trusted_bots,
            start_label=settings.agent.start_label,
        ),
        held_seconds=HELD_SECONDS,
        folder=settings.agent.data_dir,
    )


def _redelivery(settings: Settings, store: JobStore) -> Redelivery:
    deliveries = partial(app_deliveries, app_access(settings))
    own_file = settings.agent.data_dir / "redelivery.lock"
    return Redelivery(deliveries, FileDeliverySweeps(own_file) if store.path else PostgresDeliverySweeps(store))


def _scheduler(
    settings: Settings, schedules: Schedules, ledger: Ledger, github_of: Callable[[int], GitHub]
) -> Scheduler:
    return Scheduler(schedules, ledger, partial(installation_ids, app_access(settings)), github_of)


def _installed_app(
    settings: Settings,
    redactor: Redactor,
    session: AppSession,
    before_write: Callable[[], Awaitable[None]],
    place: Job | int,
) -> GitHub:
    """Return a client for an installation, or for that of a job."""
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
        redact=redact_inertly(own.redact),
        minted=own.add_secret,
        session=session.of(place),
        before_write=before_write,
        ca_file=settings.agent.ca_file,
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
    sign_ins = SignIns(derive_key(settings.webhook_secret, f"dashboard {shown}"), token)
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
    live = LivePages(queue.pulse, reader.log_stamp)
    Dashboard(reader, sign_ins, live, people, settings.trusted_proxies).add_to(app)
