"""Build and run the processes of `codepilot serve` and `codepilot work`."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
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
from bot.github.app import OAuthClient, describe_app, list_installation_ids, open_deliveries
from bot.github.client import GitHub
from bot.github.connection import SECONDS_BETWEEN_WRITES, AppSession
from bot.jobs.acknowledger import HOLD_SECONDS, Acknowledger
from bot.jobs.context import JobContextFactory, JobServices, Listener
from bot.jobs.faults import Patience
from bot.jobs.pipeline import Worker
from bot.jobs.posts import background
from bot.jobs.record import has_progress
from bot.jobs.repo_events import EventFilter
from bot.publishing.markdown import redact_inertly
from bot.publishing.redact import Redactor
from bot.queue.engine import DurableEngine
from bot.queue.ledger import DurableLedger, DurableSchedules, DurableSpending, reserve_write
from bot.queue.protocols import Ledger, Schedules
from bot.queue.store import JobStore
from bot.queue.worker import DurableWorker, open_slots
from bot.server import webhook
from bot.server.build import EDIT_SECONDS, build_services, open_storage, read_app_access, redactor_for
from bot.server.observability import Metrics, trace_process
from bot.server.periodic import Scheduler, run_sweeps
from bot.server.process import Watchdog
from bot.server.redelivery import FileSweepTurns, PostgresSweepTurns, Redelivery
from bot.server.webhook import WebhookOptions, add_monitoring, make_app, make_runner
from bot.settings.load import derive_key
from bot.settings.models import Settings

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 60.0
"""How long a running job waits for GitHub."""
_MENTION_SECONDS = 5.0
_APP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")


async def serve(settings: Settings, watchdog: Watchdog, *, works: bool = True) -> None:
    """Receive deliveries until cancelled, and run jobs if `works`."""
    if works:
        preload(settings.agent.provider)
    async with _run_service(settings, works=works) as bot:
        await asyncio.to_thread(webhook.sweep_deliveries, settings.agent.data_dir)
        _freeze_garbage_collector()
        async with (
            listen_for_mentions(settings, bot.webhook),
            _listen(bot.runner, settings.host, settings.port, "CODEPILOT_PORT") as address,
        ):
            log.info("listening on http://%s/webhook, data in %s", address, settings.agent.data_dir)
            watchdog.start()
            async with bot.redelivery.run(), bot.scheduler.run() if bot.scheduler else nullcontext():
                await (bot.worker.run() if works else bot.queue.watch())


async def work(settings: Settings, watchdog: Watchdog) -> None:
    """Run jobs until cancelled."""
    preload(settings.agent.provider)
    async with _run_service(settings) as bot:
        _freeze_garbage_collector()
        watchdog.start()
        await bot.worker.run()


@asynccontextmanager
async def _run_service(settings: Settings, *, works: bool = True) -> AsyncIterator[BotService]:
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(trace_process(settings, metrics))
        bot = await stack.enter_async_context(build_service(settings, metrics=metrics, works=works))
        if settings.metrics_port is not None:
            listening = _listen(bot.monitor, settings.host, settings.metrics_port, "CODEPILOT_METRICS_PORT")
            log.info("metrics on http://%s/metrics", await stack.enter_async_context(listening))
        yield bot


@asynccontextmanager
async def _listen(runner: web.AppRunner, host: str, port: int, setting: str) -> AsyncIterator[str]:
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


@asynccontextmanager
async def listen_for_mentions(settings: Settings, options: WebhookOptions) -> AsyncIterator[None]:
    """Add the App's name to the triggers before the body, or while it runs if GitHub does not answer soon."""
    has_asked, access = asyncio.Event(), read_app_access(settings)

    async def add_name() -> None:
        while settings.mentions:
            app = await describe_app(access)
            if _APP_NAME.fullmatch(app.slug):
                names = (f"@{app.slug}", f"@{app.slug}[bot]")
                options.profile = replace(options.profile, triggers=(*options.profile.triggers, *names))
                break
            log.warning("commands that begin with the App's name are not heard yet: %s", app.refused)
            has_asked.set()
            await asyncio.sleep(_LONGEST_PAUSE_SECONDS)
        has_asked.set()

    async with background(add_name()):
        with suppress(TimeoutError):
            async with asyncio.timeout(_MENTION_SECONDS):
                await has_asked.wait()
        yield


def _freeze_garbage_collector() -> None:
    """Exempt start-up objects from garbage collection, which blocks the event loop for 0.1 s per full collection."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True, kw_only=True)
class BotService:
    """A bot in one process; its parts are not started.

    Attributes:
        webhook: the options of the receiver.
        scheduler: None if disabled.
    """

    queue: DurableEngine
    worker: DurableWorker
    runner: web.AppRunner
    webhook: WebhookOptions
    redelivery: Redelivery
    monitor: web.AppRunner
    scheduler: Scheduler | None


@asynccontextmanager
async def build_service(
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
    """Build the parts of a process; they are closed after the body.

    Args:
        provider: replaces the configured model.
        seconds_between_writes: as GitHub recommends; tests need none.
        git_pauses: seconds before each retry of git.
        metrics: of the process; by default of the service alone.
        works: whether the worker will run; otherwise no sandbox is needed.

    Raises:
        SandboxError: no sandbox works.
        QueueError: the job database failed.
        SessionError: the session database failed.
        StorageError: the blob store failed.
    """
    redactor = redactor_for(settings)
    shared = build_services(
        settings.agent,
        server_url=settings.server_url,
        secret=settings.webhook_secret,
        redactor=redactor,
        listeners=listeners,
        edit_seconds=edit_seconds,
        provider=provider,
        storage=await asyncio.to_thread(open_storage, settings),
        works=works,
        git_pauses=git_pauses,
    )
    metrics = metrics or Metrics()
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(JobStore, settings.jobs_url, jobs_of_repository=settings.jobs_per_repository)
        stack.push_async_callback(store.close)
        queue, spending = DurableEngine(store, has_progress=has_progress), DurableSpending(store)
        ledger = DurableLedger(store, trusted_bots=settings.agent.trusted_bots)
        session = AppSession(seconds_between_writes, partial(reserve_write, store) if store.path is None else None)
        schedules = DurableSchedules(store) if settings.schedules else None
        history = queue if settings.has_dashboard else None
        shared = replace(shared, schedules=schedules, history=history, spending=spending)
        await stack.enter_async_context(run_sweeps(shared, queue))
        # After a long pause, a worker writes nothing for jobs that others have claimed.
        github_of = partial(installation_client, settings, redactor, session, queue.check_work)
        contexts = JobContextFactory(services=shared, queue=queue, ledger=ledger, github_for=github_of)
        acknowledger = Acknowledger(contexts, comments=works)
        stack.push_async_callback(acknowledger.close)
        worker = DurableWorker(
            store,
            Worker(contexts, Patience(longest_pause=_LONGEST_PAUSE_SECONDS)),
            jobs_at_once=settings.jobs,
            slots=open_slots(store),
            drain_seconds=settings.drain_seconds,
        )
        skip_reason = EventFilter(queue, ledger, shared.configs, review_on=settings.agent.review_on).drop_reason
        accepted, answered, options = acknowledger.acknowledge, metrics.count_delivery, _webhook_options(settings)
        app = make_app(options, queue, on_accepted=accepted, skip_reason=skip_reason, on_response=answered)
        _add_dashboard(app, settings, queue, shared, session, spending=spending)
        read = partial(metrics.render, queue, session, spending)
        yield BotService(
            queue=queue,
            worker=worker,
            runner=make_runner(app),
            webhook=options,
            monitor=make_runner(add_monitoring(app, queue, read, settings.metrics_token, lambda: worker.draining)),
            redelivery=_redelivery(settings, store),
            scheduler=_scheduler(settings, schedules, ledger, github_of) if schedules else None,
        )


def _webhook_options(settings: Settings) -> WebhookOptions:
    return WebhookOptions(
        secret=settings.webhook_secret,
        profile=BotProfile(
            triggers=settings.agent.triggers,
            own_app_id=settings.app_id,
            trusted_bots=settings.agent.trusted_bots,
            start_label=settings.agent.start_label,
        ),
        held_seconds=HOLD_SECONDS,
        folder=settings.agent.data_dir,
    )


def _redelivery(settings: Settings, store: JobStore) -> Redelivery:
    deliveries = partial(open_deliveries, read_app_access(settings))
    own_file = settings.agent.data_dir / "redelivery.lock"
    return Redelivery(deliveries, FileSweepTurns(own_file) if store.path else PostgresSweepTurns(store))


def _scheduler(
    settings: Settings, schedules: Schedules, ledger: Ledger, github_of: Callable[[int], GitHub]
) -> Scheduler:
    return Scheduler(schedules, ledger, partial(list_installation_ids, read_app_access(settings)), github_of)


def installation_client(
    settings: Settings,
    redactor: Redactor,
    session: AppSession,
    before_write: Callable[[], Awaitable[None]],
    target: Job | int,
) -> GitHub:
    """Open a client for the installation of a job, or of this number.

    Raises:
        ConfigError: the job's delivery names no installation.
    """
    if isinstance(target, Job):
        if target.installation is None:
            raise ConfigError(
                (f"the delivery of job {target.id} names no installation; set the App's webhook URL to this bot",)
            )
        target = target.installation
    # Tokens are known to the redactor only as long as the job's client.
    job_redactor = redactor.copy()
    return GitHub.for_installation(
        settings.app_id,
        settings.private_key.get_secret_value(),
        target,
        settings.api_url,
        redact=redact_inertly(job_redactor.redact),
        on_mint=job_redactor.add_secret,
        session=session.for_installation(target),
        before_write=before_write,
        ca_file=settings.agent.ca_file,
    )


def _add_dashboard(
    app: web.Application,
    settings: Settings,
    queue: DurableEngine,
    shared: JobServices,
    session: AppSession,
    *,
    spending: DurableSpending,
) -> None:
    if not settings.has_dashboard:
        return
    trace_url = settings.trace_url or ""
    reader = DashboardReader(queue, shared, lambda: list(session.budgets()), spending, trace_url=trace_url)
    token, secret = settings.dashboard_token, settings.client_secret
    operator_token = token.get_secret_value() if token else ""
    # A changed token ends all sign-ins.
    sign_ins = SignIns(derive_key(settings.webhook_secret, f"dashboard {operator_token}"), token)
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
    Dashboard(reader, sign_ins, live, people, settings.trusted_proxies).mount(app)
