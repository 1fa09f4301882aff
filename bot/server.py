"""The service as a process: the webhook listening, the worker working, until someone stops it."""

from __future__ import annotations

import logging

from aiohttp import web

from agent_runtime import preload
from bot.config import Settings
from bot.watchdog import Watchdog
from bot.wiring import service

log = logging.getLogger(__name__)


async def serve(settings: Settings, watchdog: Watchdog) -> None:
    """Receive deliveries and work on jobs until cancelled."""
    preload(settings.agent.provider)
    async with service(settings) as bot:
        await bot.runner.setup()
        try:
            await web.TCPSite(bot.runner, settings.host, settings.port).start()
            host, port = bot.runner.addresses[0][:2]
            log.info("listening on http://%s:%s/webhook, data in %s", host, port, settings.agent.data_dir)
            watchdog.start()
            async with bot.redelivery.running():
                await bot.worker.run()
        finally:
            await bot.runner.cleanup()


async def work(settings: Settings, watchdog: Watchdog) -> None:
    """Work on jobs until cancelled."""
    async with service(settings) as bot:
        log.info("working on the jobs in %s", settings.agent.data_dir)
        watchdog.start()
        await bot.worker.run()
