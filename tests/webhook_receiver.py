"""The webhook server on a real socket, for tests."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from bot.domain.access import BotProfile
from bot.github.connection import AppSession
from bot.queue.protocols import JobEngine
from bot.server.observability import Metrics
from bot.server.webhook import Endpoints, WebhookOptions, make_app, make_runner
from tests.builders import SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A webhook server that listens."""

    port: int
    client: aiohttp.ClientSession

    async def post(self, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        """Deliver, and give the answer's status code and JSON."""
        url = f"http://127.0.0.1:{self.port}/webhook"
        async with self.client.post(url, data=io.BytesIO(body), headers=headers) as answer:
            return answer.status, await answer.json()


def webhook_options(**changes: Any) -> WebhookOptions:  # noqa: ANN401 - any field of WebhookOptions or BotProfile
    """Options for tests, with any field replaced."""
    profile_changes = {name: changes.pop(name) for name in BotProfile.__slots__ if name in changes}
    profile = BotProfile(**{"own_ids": frozenset({77}), **profile_changes})
    return WebhookOptions(**{"secret": SecretStr(SECRET), "profile": profile, **changes})


@asynccontextmanager
async def receiving(queue: JobEngine, **changes: Any) -> AsyncIterator[Receiver]:  # noqa: ANN401 - as webhook_options
    """Listen on a free port of this machine until the block ends."""
    checked_seconds = changes.pop("checked_seconds", 1.0)
    app, metrics = make_app(webhook_options(**changes), queue), Metrics()
    read = partial(metrics.render, queue, AppSession(0.0))
    Endpoints(queue, read, token=None, private=False, checked_seconds=checked_seconds).mount(app)
    runner = make_runner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as client:
            yield Receiver(port=runner.addresses[0][1], client=client)
    finally:
        await runner.cleanup()
