"""The webhook server. A delivery is answered as soon as its job is stored durably."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from pydantic import SecretStr
from structlog.contextvars import bind_contextvars, reset_contextvars

from bot.apps import endpoints, large_deliveries
from bot.apps.stranger_log import StrangerLog
from bot.domain.errors import ConfigError, MalformedError, QueueError, UnauthenticatedError
from bot.domain.job import Job
from bot.domain.listening import Listening
from bot.engine.observed import observed, trace_delivery
from bot.engine.protocols import JobEngine
from bot.intake.deliveries import IgnoredDelivery, Proof, from_webhook
from bot.intake.triggers import job_from

T = TypeVar("T")

log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")

MAX_BODY_BYTES = 25 * 1024 * 1024
"""GitHub sends no larger one: https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap"""

_LARGE_BYTES = 512 * 1024
_LARGE_AT_ONCE_BYTES = 4 * MAX_BODY_BYTES
_APP = "integration"
_NOT_THE_APPS = (
    "this delivery is not from the App's webhook, so the bot cannot act on it; delete this webhook in the "
    "repository's or organisation's settings, and install the App instead: its webhook sends the same events"
)
_SHOWABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """How deliveries are received.

    Attributes:
        secret: the webhook's secret.
        listening: what it listens for.
        max_body_bytes: larger deliveries are refused.
        read_seconds: how long a body may take to arrive; GitHub itself gives up after 10 s.
        held_seconds: how long work is held back from the workers, so that it can be acknowledged first.
        folder: where large deliveries are kept while they are read; None for the system's own place.
    """

    secret: SecretStr
    listening: Listening
    max_body_bytes: int = MAX_BODY_BYTES
    read_seconds: float = 10.0
    held_seconds: float = 0.0
    folder: Path | None = None

    def __post_init__(self) -> None:
        """Require a secret: without one, deliveries cannot be verified."""
        if not self.secret.get_secret_value():
            raise ConfigError(("CODEPILOT_WEBHOOK_SECRET is not set, so deliveries cannot be verified",))


async def _keep(_job: Job) -> str:
    return ""


def make_app(
    options: WebhookOptions,
    queue: JobEngine,
    *,
    accepted: Callable[[Job], None] = lambda _job: None,
    unneeded: Callable[[Job], Awaitable[str]] = _keep,
    answered: Callable[[str], None] = lambda _outcome: None,
) -> web.Application:
    """The web application: `POST /webhook` takes deliveries.

    Answers to a delivery are JSON objects with `status` and, by status code: 202 `accepted` with the job's id; 200
    `duplicate` with the job's id, or `ignored` with the reason; 400, 401, 408, 411, 413, 415 `refused` with the reason,
    also 503 when too many large deliveries arrive at once; 503 `failed` when the job could not be stored. Whatever is
    not 2xx shows on GitHub's delivery page, and can be sent again from there.

    Args:
        options: how deliveries are received.
        queue: where jobs go.
        accepted: called with every job that was stored.
        unneeded: why a job need not be stored at all; empty for one that must be.
        answered: told the `status` of every answer.
    """
    # Read by the handler itself, with its own bound; this one would answer with a page of HTML.
    app = web.Application(client_max_size=0)
    webhook = _Webhook(options, queue, accepted, unneeded, answered)
    app.router.add_post("/webhook", webhook.receive)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """What serves the application on a socket, set so that hostile clients cost little.

    Bodies are never decompressed. What is left of a refused body is thrown away for 2 s, for a client that is still
    sending when the connection closes never sees the answer.
    """
    sparing = StrangerLog()
    for logger in (log, _http_log, endpoints.log):
        for old in [each for each in logger.filters if isinstance(each, StrangerLog)]:
            logger.removeFilter(old)
        logger.addFilter(sparing)
    return web.AppRunner(
        app, auto_decompress=False, lingering_time=2, keepalive_timeout=75, access_log=None, logger=_http_log
    )


class _Refused(Exception):  # noqa: N818 - an answer that travels as an exception
    """The request is not taken in."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Webhook:
    """The handlers, with what they share."""

    def __init__(
        self,
        options: WebhookOptions,
        queue: JobEngine,
        accepted: Callable[[Job], None],
        unneeded: Callable[[Job], Awaitable[str]],
        answered: Callable[[str], None],
    ) -> None:
        self._options = options
        self._queue = queue
        self._accepted = accepted
        self._unneeded = unneeded
        self._answered = answered
        self._large_bytes = 0

    async def receive(self, request: web.Request) -> web.Response:
        """One delivery."""
        claimed_id = request.headers.get("X-GitHub-Delivery", "")
        # Not proven yet, so it is shown only when it cannot forge a log line.
        delivery_id = claimed_id if _SHOWABLE_ID.fullmatch(claimed_id) else "-"
        bound = bind_contextvars(delivery=delivery_id)
        try:
            status, answer = await self._answer(request)
        finally:
            reset_contextvars(**bound)
        self._answered(answer["status"])
        response = web.json_response(answer, status=status)
        if answer["status"] == "refused":
            response.force_close()
        return response

    async def _answer(self, request: web.Request) -> tuple[int, dict[str, str]]:
        begun = time.time_ns()
        try:
            found = await self._found(request)
            if isinstance(found, IgnoredDelivery):
                return _ignored(found.reason)
            with observed(found):
                return await self._taken(found, begun)
        except _Refused as refusal:
            return _refusal(refusal.status, str(refusal))
        except UnauthenticatedError as error:
            return _refusal(401, str(error))
        except MalformedError as error:
            return _refusal(400, str(error))
        except (QueueError, OSError):
            log.exception("not stored")
            reason = "the job could not be stored; see the operator's log"
            return 503, {"status": "failed", "reason": reason}

    async def _found(self, request: web.Request) -> Job | IgnoredDelivery:
        """What a delivery asks for, once it is proven genuine."""
        options, size = self._options, request.content_length
        # What cannot be taken is refused before a byte of it is read.
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise _Refused(415, "compressed bodies are not supported; GitHub sends none")
        if size is None:
            raise _Refused(411, "a delivery requires the header Content-Length")
        if size > options.max_body_bytes:
            raise _Refused(413, f"a delivery has at most {options.max_body_bytes:,} bytes")
        secret, listening = options.secret.get_secret_value(), options.listening
        if size <= _LARGE_BYTES:
            # A body that is there already, as most are, needs no timer.
            seconds = None if request.content.is_eof() else options.read_seconds
            body = await self._arrived(request.content.readexactly(size), seconds)
            delivery = from_webhook(request.headers, body, secret)
            _check_sender(request)
            return _with_installation(job_from(delivery, listening))
        proof = Proof(request.headers, secret)
        with self._room_for(size):
            async with AsyncExitStack() as stack:
                opened = large_deliveries.received(options.folder, request.content, size, proof)
                path = await self._arrived(stack.enter_async_context(opened), options.read_seconds)
                proof.check()
                _check_sender(request)
                return _with_installation(await large_deliveries.read(path, request.headers, listening))

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Bound the disk that large bodies take together; ordinary deliveries never wait for them."""
        large = size if size > _LARGE_BYTES else 0
        if self._large_bytes + large > _LARGE_AT_ONCE_BYTES:
            raise _Refused(503, "too many large deliveries at once; send this one again later")
        self._large_bytes += large
        try:
            yield
        finally:
            self._large_bytes -= large

    async def _arrived(self, body: Awaitable[T], seconds: float | None) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await body
        except TimeoutError as error:
            raise _Refused(408, f"the body did not arrive within {self._options.read_seconds:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise _Refused(400, "the body is shorter than its Content-Length") from error

    async def _taken(self, job: Job, begun: int) -> tuple[int, dict[str, str]]:
        if why := await self._unneeded(job):
            return _ignored(why)
        # What steers is done at once: nobody answers it first.
        held = self._options.held_seconds if job.lane == "work" else 0.0
        if not await self._queue.accept(job, held_seconds=held):
            log.info("a duplicate")
            return 200, {"status": "duplicate", "job": job.id}
        log.info("accepted")
        trace_delivery(begun)
        self._accepted(job)
        return 202, {"status": "accepted", "job": job.id}


def _check_sender(request: web.Request) -> None:
    """Refuse what is sent by a webhook of a repository or an organisation: the App's sends the same, and may answer."""
    if request.headers.get("X-GitHub-Hook-Installation-Target-Type", _APP) != _APP:
        raise _Refused(400, _NOT_THE_APPS)


def _with_installation(found: Job | IgnoredDelivery) -> Job | IgnoredDelivery:
    if not isinstance(found, IgnoredDelivery) and found.installation is None:
        raise _Refused(400, _NOT_THE_APPS)
    return found


def _ignored(reason: str) -> tuple[int, dict[str, str]]:
    log.info("ignored: %s", reason)
    return 200, {"status": "ignored", "reason": reason}


def _refusal(status: int, reason: str) -> tuple[int, dict[str, str]]:
    log.warning("refused (%d): %s", status, reason, extra={"stranger": True})
    return status, {"status": "refused", "reason": reason}
