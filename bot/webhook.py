"""The first door: GitHub's webhook over HTTP. A delivery is answered as soon as its job is stored for good."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web
from pydantic import SecretStr

from bot.errors import ConfigError, MalformedError, QueueError, UnauthenticatedError
from bot.intake.deliveries import Delivery, Ignored, from_webhook
from bot.intake.listening import Listening
from bot.intake.triggers import job_from
from bot.jobs.job import Job
from bot.jobs.queue import Queue

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 25 * 1024 * 1024
"""GitHub sends no larger one: https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap"""

_LARGE_BYTES = 512 * 1024
_LARGE_AT_ONCE_BYTES = 4 * MAX_BODY_BYTES
_SHOWABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What the door needs to know.

    Attributes:
        secret: the webhook's secret.
        listening: what it listens for.
        max_body_bytes: larger deliveries are refused.
        read_seconds: how long a body may take to arrive; GitHub itself gives up after 10 s.
        held_seconds: how long work is kept from the workers, for whoever is told of it to answer first.
    """

    secret: SecretStr
    listening: Listening
    max_body_bytes: int = MAX_BODY_BYTES
    read_seconds: float = 10.0
    held_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse to be made without a secret: such a door would be open to all."""
        if not self.secret.get_secret_value():
            raise ConfigError(("CODEPILOT_WEBHOOK_SECRET is not set, so no delivery could be proven genuine",))


async def _keep(_job: Job) -> str:
    return ""


def make_app(
    door: Door,
    queue: Queue,
    *,
    accepted: Callable[[Job], None] = lambda _job: None,
    unneeded: Callable[[Job], Awaitable[str]] = _keep,
) -> web.Application:
    """The web application: `POST /webhook` takes deliveries, `GET /healthz` says whether the queue works.

    Answers to a delivery are JSON objects with `status` and, by status code: 202 `accepted` with the job's id; 200
    `duplicate` with the job's id, or `ignored` with the reason; 400, 401, 408, 411, 413, 415 `refused` with the reason,
    also 503 when too many large deliveries arrive at once; 503 `failed` when the job could not be stored. Whatever is
    not 2xx shows on GitHub's delivery page, and can be sent again from there.

    Args:
        door: what the door needs to know.
        queue: where jobs go.
        accepted: told of every job that was stored.
        unneeded: why a job need not be stored at all; empty for one that must be.
    """
    # Read by the handler itself, with its own bound; this one would answer with a page of HTML.
    app = web.Application(client_max_size=0)
    webhook = _Webhook(door, queue, accepted, unneeded)
    app.router.add_post("/webhook", webhook.receive)
    app.router.add_get("/healthz", webhook.health)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """What serves the application on a socket, set so that hostile clients cost little.

    Bodies are never decompressed. What is left of a refused body is thrown away for 2 s, for a client that is still
    sending when the connection closes never sees the answer.
    """
    return web.AppRunner(app, auto_decompress=False, lingering_time=2, keepalive_timeout=75, access_log=None)


class _Refused(Exception):  # noqa: N818 - an answer that travels as an exception
    """The request is not taken in."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Webhook:
    """The handlers, with what they share."""

    def __init__(
        self,
        door: Door,
        queue: Queue,
        accepted: Callable[[Job], None],
        unneeded: Callable[[Job], Awaitable[str]],
    ) -> None:
        self._door = door
        self._queue = queue
        self._accepted = accepted
        self._unneeded = unneeded
        self._large_bytes = 0

    async def health(self, _request: web.Request) -> web.Response:
        """Whether jobs can be stored, without a word about them: anyone may ask."""
        try:
            await self._queue.counts()
        except QueueError:
            log.exception("the health check failed")
            return web.json_response({"status": "failed"}, status=503)
        return web.json_response({"status": "ok"})

    async def receive(self, request: web.Request) -> web.Response:
        """One delivery."""
        claimed_id = request.headers.get("X-GitHub-Delivery", "")
        # Not proven yet, so it is shown only when it cannot forge a log line.
        delivery_id = claimed_id if _SHOWABLE_ID.fullmatch(claimed_id) else "-"
        try:
            delivery = await self._delivery(request)
            return await self._taken(delivery)
        except _Refused as refusal:
            return _refusal(refusal.status, str(refusal), delivery_id)
        except UnauthenticatedError as error:
            return _refusal(401, str(error), delivery_id)
        except MalformedError as error:
            return _refusal(400, str(error), delivery_id)
        except QueueError:
            log.exception("delivery %s: not stored", delivery_id, extra={"delivery": delivery_id})
            reason = "the job could not be stored; the operator's log says why"
            return web.json_response({"status": "failed", "reason": reason}, status=503)

    async def _delivery(self, request: web.Request) -> Delivery:
        size = self._size(request)
        with self._room_for(size):
            body = await self._body(request, size)
            secret = self._door.secret.get_secret_value()
            if size <= _LARGE_BYTES:
                return from_webhook(request.headers, body, secret)
            # Signing and parsing megabytes takes long enough to hold up everyone else.
            return await asyncio.to_thread(from_webhook, request.headers, body, secret)

    def _size(self, request: web.Request) -> int:
        """The size of the body, by its header; what cannot be taken is refused before a byte of it is read."""
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise _Refused(415, "compressed bodies are not taken; GitHub sends none")
        if request.content_length is None:
            raise _Refused(411, "a delivery needs the header Content-Length")
        if request.content_length > self._door.max_body_bytes:
            raise _Refused(413, f"a delivery has at most {self._door.max_body_bytes:,} bytes")
        return request.content_length

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Bound the memory that large bodies take together; ordinary deliveries never wait for them."""
        large = size if size > _LARGE_BYTES else 0
        if self._large_bytes + large > _LARGE_AT_ONCE_BYTES:
            raise _Refused(503, "too many large deliveries at once; send this one again later")
        self._large_bytes += large
        try:
            yield
        finally:
            self._large_bytes -= large

    async def _body(self, request: web.Request, size: int) -> bytes:
        if size == 0:
            return b""
        try:
            async with asyncio.timeout(self._door.read_seconds):
                return await request.content.readexactly(size)
        except TimeoutError as error:
            raise _Refused(408, f"the body did not arrive within {self._door.read_seconds:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise _Refused(400, "the body is shorter than its header says") from error

    async def _taken(self, delivery: Delivery) -> web.Response:
        found = job_from(delivery, self._door.listening)
        extra = {"delivery": delivery.id}
        if not isinstance(found, Ignored) and (why := await self._unneeded(found)):
            found = Ignored(reason=why)
        if isinstance(found, Ignored):
            log.info("delivery %s: ignored: %s", delivery.id, found.reason, extra=extra)
            return web.json_response({"status": "ignored", "reason": found.reason})
        # What steers is done at once: nobody answers it first.
        held = self._door.held_seconds if found.lane == "work" else 0.0
        if not await self._queue.enqueue(found, held_seconds=held):
            log.info("delivery %s: a duplicate of job %s", delivery.id, found.id, extra=extra)
            return web.json_response({"status": "duplicate", "job": found.id})
        log.info("delivery %s: accepted as job %s", delivery.id, found.id, extra=extra)
        self._accepted(found)
        return web.json_response({"status": "accepted", "job": found.id}, status=202)


def _refusal(status: int, reason: str, delivery_id: str) -> web.Response:
    log.warning("delivery %s: refused (%d): %s", delivery_id, status, reason, extra={"delivery": delivery_id})
    response = web.json_response({"status": "refused", "reason": reason}, status=status)
    response.force_close()
    return response
