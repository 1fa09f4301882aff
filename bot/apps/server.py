"""The service as a process: the webhook listening, the worker working, until someone stops it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

from aiohttp import web

from agent_runtime import preload
from bot.apps import large_deliveries
from bot.apps.composition import BotService, service
from bot.apps.metrics import Metrics
from bot.apps.traces import traced_process
from bot.apps.watchdog import Watchdog
from bot.domain.errors import ConfigError
from bot.settings.model import Settings

log = logging.getLogger(__name__)


async def serve(settings: Settings, watchdog: Watchdog, *, works: bool = True) -> None:
    """Receive deliveries until cancelled, and work on jobs unless others do."""
    if works:
        preload(settings.agent.provider)
    async with _monitored(settings, works=works) as bot:
        await asyncio.to_thread(large_deliveries.sweep, settings.agent.data_dir)
        _spare_the_collector()
        async with _listening(bot.runner, settings.host, settings.port, "CODEPILOT_PORT") as address:
            log.info("listening on http://%s/webhook, data in %s", address, settings.agent.data_dir)
            watchdog.start()
            async with bot.redelivery.running(), bot.scheduler.running() if bot.scheduler else nullcontext():
                await (bot.worker.run() if works else bot.queue.watch())


@asynccontextmanager
async def _monitored(settings: Settings, *, works: bool = True) -> AsyncIterator[BotService]:
    """The service, with its metrics and traces."""
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


async def work(settings: Settings, watchdog: Watchdog) -> None:
    """Work on jobs until cancelled."""
    preload(settings.agent.provider)
    async with _monitored(settings) as bot:
        _spare_the_collector()
        watchdog.start()
        await bot.worker.run()
