"""The service as a process: the webhook listening, the worker working, until someone stops it."""

from __future__ import annotations

import asyncio
import gc
import logging

from aiohttp import web

from agent_runtime import preload
from bot.apps import large_deliveries
from bot.apps.composition import service
from bot.apps.watchdog import Watchdog
from bot.domain.errors import ConfigError
from bot.settings.model import Settings

log = logging.getLogger(__name__)


async def serve(settings: Settings, watchdog: Watchdog) -> None:
    """Receive deliveries and work on jobs until cancelled."""
    preload(settings.agent.provider)
    async with service(settings) as bot:
        await asyncio.to_thread(large_deliveries.sweep, settings.agent.data_dir)
        await bot.runner.setup()
        _spare_the_collector()
        try:
            try:
                await web.TCPSite(bot.runner, settings.host, settings.port).start()
            except OSError as error:
                problem = (
                    f"CODEPILOT_HOST and CODEPILOT_PORT are {settings.host}:{settings.port}, which is not available: "
                    f"{error.strerror or error}. Stop the process that uses it (`ss -ltnp` shows which), or choose "
                    "another port. Example: CODEPILOT_PORT=8081"
                )
                raise ConfigError((problem,)) from error
            host, port = bot.runner.addresses[0][:2]
            log.info("listening on http://%s:%s/webhook, data in %s", host, port, settings.agent.data_dir)
            watchdog.start()
            async with bot.redelivery.running():
                await bot.worker.run()
        finally:
            await bot.runner.cleanup()


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
    async with service(settings) as bot:
        _spare_the_collector()
        log.info("working on the jobs in %s", settings.agent.data_dir)
        watchdog.start()
        await bot.worker.run()
