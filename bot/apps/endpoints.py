"""The endpoints for an operator's monitoring: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import SecretStr

from bot.domain.errors import QueueError
from bot.engine.protocols import EngineUpkeep

log = logging.getLogger(__name__)

_CLOSED = (
    "metrics are read with the header `Authorization: Bearer` and the token in CODEPILOT_METRICS_TOKEN; without a "
    "token, only from this machine at CODEPILOT_METRICS_PORT"
)


class Endpoints:
    """The handlers, with what they share.

    Args:
        engine: is asked whether jobs can be stored.
        metrics: makes the text of `/metrics`.
        token: a request that has it may read the metrics; None for no such request.
        private: whether the loopback address alone is proof enough, without a token: not on a port that a proxy on
            this machine forwards to.
        draining: whether this process is about to stop, so that nothing new should be sent to it.
        checked_seconds: how long a check of the engine counts: anybody may ask for one, and it writes to the disk.
    """

    def __init__(
        self,
        engine: EngineUpkeep,
        metrics: Callable[[], Awaitable[bytes]],
        *,
        token: SecretStr | None,
        private: bool,
        draining: Callable[[], bool] = lambda: False,
        checked_seconds: float = 1.0,
    ) -> None:
        self._engine, self._metrics, self._token, self._private = engine, metrics, token, private
        self._draining, self._checking = draining, asyncio.Lock()
        self._checked_seconds, self._checked_until = checked_seconds, 0.0
        self._works = False

    def add_to(self, app: web.Application) -> None:
        """Have an application answer them."""
        app.router.add_get("/healthz", self.health)
        app.router.add_get("/readyz", self.readiness)
        app.router.add_get("/metrics", self.metrics)

    async def health(self, _request: web.Request) -> web.Response:
        """Whether the process works; a database that does not answer is no reason to restart it."""
        return web.json_response({"status": "ok"})

    async def readiness(self, _request: web.Request) -> web.Response:
        """Whether jobs can be stored here, without a word about them: anyone may ask."""
        if self._draining():
            return web.json_response({"status": "draining"}, status=503)
        async with self._checking:
            if time.monotonic() >= self._checked_until:
                try:
                    await self._engine.check()
                except QueueError as error:
                    log.error("not ready: %s", error, extra={"stranger": True})  # noqa: TRY400 - the text has it
                    self._works = False
                else:
                    self._works = True
                self._checked_until = time.monotonic() + self._checked_seconds
        if not self._works:
            return web.json_response({"status": "failed"}, status=503)
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics, for those who may read them."""
        if not self._may_read(request):
            status, headers = (403, None) if self._token is None else (401, {"WWW-Authenticate": "Bearer"})
            return web.json_response({"status": "refused", "reason": _CLOSED}, status=status, headers=headers)
        text = await self._metrics()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _may_read(self, request: web.Request) -> bool:
        if self._token is not None:
            shown = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            return hmac.compare_digest(shown, f"Bearer {self._token.get_secret_value()}".encode())
        return self._private and ipaddress.ip_address(request.remote or "::").is_loopback


def monitor(
    app: web.Application,
    engine: EngineUpkeep,
    metrics: Callable[[], Awaitable[bytes]],
    token: SecretStr | None,
    draining: Callable[[], bool],
) -> web.Application:
    """Add the endpoints to the receiver, and make the application of the port for metrics."""
    own = web.Application()
    for each in (app, own):
        Endpoints(engine, metrics, token=token, private=each is own, draining=draining).add_to(each)
    return own
