"""The web server for GitHub's webhook (`make_app`) and for monitoring (`Endpoints`).

Large deliveries are received to disk and parsed in a bounded process. `StrangerLogFilter` limits log lines that
strangers can cause.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import mmap
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError
from pydantic import SecretStr
from structlog.contextvars import bind_contextvars, reset_contextvars
from typing_extensions import override

from bot.domain.access import BotProfile
from bot.domain.errors import ConfigError, MalformedError, QueueError, UnauthenticatedError
from bot.domain.job import Job
from bot.events.delivery import IgnoredDelivery, from_webhook, signature_of, verify_signature
from bot.events.triggers import job_from
from bot.queue.deliveries import read_delivery
from bot.queue.protocols import JobEngine
from bot.queue.tracing import bind_job, trace_delivery

T = TypeVar("T")
log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")

MAX_BODY_BYTES = 25 * 1024 * 1024
"""GitHub's limit: https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap"""

_LARGE_BYTES = 512 * 1024
_LARGE_TOTAL_BYTES = 4 * MAX_BODY_BYTES
_APP = "integration"
_NOT_APP_WEBHOOK = (
    "this delivery is not from the App's webhook, so the bot cannot act on it; delete this webhook in the "
    "repository's or organisation's settings, and install the App instead: its webhook sends the same events"
)
_PRINTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(slots=True, kw_only=True)
class WebhookOptions:
    """Options of the webhook.

    Attributes:
        profile: replaced when the App's name is known.
        read_seconds: limit for receiving a body; GitHub gives up after 10 s.
        held_seconds: delay of work, so that it can be acknowledged first.
        folder: for large deliveries; None for the system's temporary directory.
    """

    secret: SecretStr
    profile: BotProfile
    max_body_bytes: int = MAX_BODY_BYTES
    read_seconds: float = 10.0
    held_seconds: float = 0.0
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.secret.get_secret_value():
            raise ConfigError(("CODEPILOT_WEBHOOK_SECRET is not set, so deliveries cannot be verified",))


async def _skip_nothing(_job: Job) -> str:
    return ""


def make_app(
    options: WebhookOptions,
    queue: JobEngine,
    *,
    on_accepted: Callable[[Job], None] = lambda _job: None,
    skip_reason: Callable[[Job], Awaitable[str]] = _skip_nothing,
    on_response: Callable[[str], None] = lambda _outcome: None,
) -> web.Application:
    """Create the application with `POST /webhook`.

    Responses are JSON with `status`: 202 `accepted` with the job; 200 `duplicate` with the job, or `ignored` with the
    reason; 400, 401, 408, 411, 413, 415 and, for too many large deliveries, 503 `refused` with the reason; 503 `failed`
    if the job was not stored. GitHub lists all but 2xx as failed.

    Args:
        skip_reason: returns the reason not to store a job; may be empty.
        on_response: called with each response's `status`.
    """
    # The handler limits the size itself; aiohttp's limit would respond with HTML.
    app = web.Application(client_max_size=0)
    app.router.add_post("/webhook", _Webhook(options, queue, on_accepted, skip_reason, on_response).receive)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """Create a runner that is hardened against hostile clients.

    Bodies are not decompressed. The rest of a refused body is read for 2 s, so that the client sees the response.
    """
    stranger_filter = StrangerLogFilter()
    for logger in (log, _http_log):
        for stale in [log_filter for log_filter in logger.filters if isinstance(log_filter, StrangerLogFilter)]:
            logger.removeFilter(stale)
        logger.addFilter(stranger_filter)
    return web.AppRunner(
        app, auto_decompress=False, lingering_time=2, keepalive_timeout=75, access_log=None, logger=_http_log
    )


@dataclass(slots=True)
class _Webhook:
    _options: WebhookOptions
    _queue: JobEngine
    _on_accepted: Callable[[Job], None]
    _skip_reason: Callable[[Job], Awaitable[str]]
    _on_response: Callable[[str], None]
    _large_bytes: int = 0
    _mapping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One large body at a time is mapped into memory."""

    async def receive(self, request: web.Request) -> web.Response:
        claimed_id = request.headers.get("X-GitHub-Delivery", "")
        # Not authenticated yet, so it is logged only if it cannot forge a line.
        delivery_id = claimed_id if _PRINTABLE_ID.fullmatch(claimed_id) else "-"
        bound = bind_contextvars(delivery=delivery_id)
        try:
            status, answer = await self._answer(request)
        finally:
            reset_contextvars(**bound)
        self._on_response(answer["status"])
        response = web.json_response(answer, status=status)
        if answer["status"] == "refused":
            response.force_close()
        return response

    async def _answer(self, request: web.Request) -> tuple[int, dict[str, str]]:
        started = time.time_ns()
        try:
            job = await self._read_job(request)
            if isinstance(job, IgnoredDelivery):
                return _ignored(job.reason)
            with bind_job(job):
                return await self._store(job, started)
        except _RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))
        except UnauthenticatedError as error:
            return _refusal(401, str(error))
        except MalformedError as error:
            return _refusal(400, str(error))
        except (QueueError, OSError):
            log.exception("not stored")
            reason = "the job could not be stored; see the operator's log"
            return 503, {"status": "failed", "reason": reason}

    async def _read_job(self, request: web.Request) -> Job | IgnoredDelivery:
        options, size = self._options, request.content_length
        # Checked before the body is read.
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise _RefusedError(415, "compressed bodies are not supported; GitHub sends none")
        if size is None:
            raise _RefusedError(411, "a delivery requires the header Content-Length")
        if size > options.max_body_bytes:
            raise _RefusedError(413, f"a delivery has at most {options.max_body_bytes:,} bytes")
        secret, profile = options.secret.get_secret_value(), options.profile
        if size <= _LARGE_BYTES:
            # Most bodies have arrived already and need no timer.
            seconds = None if request.content.is_eof() else options.read_seconds
            body = await self._receive_body(request.content.readexactly(size), seconds)
            delivery = from_webhook(request.headers, body, secret)
            _check_sender(request)
            return _require_installation(job_from(delivery, profile))
        signature = signature_of(request.headers, secret)
        with self._reserve_disk(size):
            async with AsyncExitStack() as stack:
                receiving = receive_to_disk(options.folder, request.content, size)
                path = await self._receive_body(stack.enter_async_context(receiving), options.read_seconds)
                async with self._mapping:
                    await asyncio.to_thread(_verify_file, path, signature, secret)
                _check_sender(request)
                return _require_installation(await read_delivery(path, request.headers, profile))

    @contextmanager
    def _reserve_disk(self, size: int) -> Iterator[None]:
        """Limit the disk space of large bodies; other deliveries never wait for them."""
        if self._large_bytes + size > _LARGE_TOTAL_BYTES:
            raise _RefusedError(503, "too many large deliveries at once; send this one again later")
        self._large_bytes += size
        try:
            yield
        finally:
            self._large_bytes -= size

    async def _receive_body(self, body: Awaitable[T], seconds: float | None) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await body
        except TimeoutError as error:
            raise _RefusedError(408, f"the body did not arrive within {self._options.read_seconds:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise _RefusedError(400, "the body is shorter than its Content-Length") from error

    async def _store(self, job: Job, started: int) -> tuple[int, dict[str, str]]:
        if reason := await self._skip_reason(job):
            return _ignored(reason)
        # Steering is not acknowledged, so it runs immediately.
        held_seconds = self._options.held_seconds if job.lane == "work" else 0.0
        if not await self._queue.accept(job, held_seconds=held_seconds):
            log.info("duplicate")
            return 200, {"status": "duplicate", "job": job.id}
        log.info("accepted")
        trace_delivery(started)
        self._on_accepted(job)
        return 202, {"status": "accepted", "job": job.id}


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _check_sender(request: web.Request) -> None:
    """Refuse webhooks of repositories and organizations, whose events the App's webhook sends too."""
    if request.headers.get("X-GitHub-Hook-Installation-Target-Type", _APP) != _APP:
        raise _RefusedError(400, _NOT_APP_WEBHOOK)


def _require_installation(job: Job | IgnoredDelivery) -> Job | IgnoredDelivery:
    if not isinstance(job, IgnoredDelivery) and job.installation is None:
        raise _RefusedError(400, _NOT_APP_WEBHOOK)
    return job


def _ignored(reason: str) -> tuple[int, dict[str, str]]:
    log.info("ignored: %s", reason)
    return 200, {"status": "ignored", "reason": reason}


def _refusal(status: int, reason: str) -> tuple[int, dict[str, str]]:
    log.warning("refused (%d): %s", status, reason, extra={"stranger": True})
    return status, {"status": "refused", "reason": reason}


_CHUNK_BYTES = 1024 * 1024

_PREFIX = "delivery-"
_STALE_SECONDS = 3600.0


@asynccontextmanager
async def receive_to_disk(folder: Path | None, content: StreamReader, size: int) -> AsyncIterator[Path]:
    """Receive a body of `size` bytes into a temporary file; yield its path.

    Raises:
        asyncio.IncompleteReadError: too short.
        OSError: the disk failed.
    """
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=folder) as file:
        remaining = size
        while remaining:
            chunk = await content.readexactly(min(remaining, _CHUNK_BYTES))
            await asyncio.to_thread(file.write, chunk)
            remaining -= len(chunk)
        await asyncio.to_thread(file.flush)
        yield Path(file.name)


def _verify_file(path: Path, signature: str, secret: str) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        verify_signature(cast("bytes", body), signature, secret)  # any buffer, of which no copy is made


def sweep_deliveries(folder: Path) -> None:
    """Remove files of processes that were killed during a delivery."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # the process that received it was faster, or it is not ours
            if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                path.unlink()


MAX_LINES = 20
WINDOW_SECONDS = 60.0
_CLIENT_ERRORS = (HttpProcessingError, RequestPayloadError, ConnectionError)


class StrangerLogFilter(logging.Filter):
    """Limit log lines about strangers to `MAX_LINES` in a window, without tracebacks.

    These are aiohttp's about invalid requests, and records with `stranger` in `extra`. The next window reports how many
    lines were omitted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._count = 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _CLIENT_ERRORS):
            record.msg, record.args = "an invalid or incomplete HTTP request was refused: %s", (type(error).__name__,)
            record.exc_info, record.exc_text, record.levelno, record.levelname = None, None, logging.WARNING, "WARNING"
        elif not getattr(record, "stranger", False):
            return True
        if self._clock() >= self._until:
            omitted, self._count, self._until = max(0, self._count - MAX_LINES), 0, self._clock() + WINDOW_SECONDS
            if omitted:
                record.msg = f"{record.msg} ({omitted} similar lines were omitted)"
        self._count += 1
        return self._count <= MAX_LINES


_PROXY_HEADERS = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
_ACCESS_HELP = (
    "metrics are read with the header `Authorization: Bearer` and the token in CODEPILOT_METRICS_TOKEN; without a "
    "token, only from this machine at CODEPILOT_METRICS_PORT"
)


def add_monitoring(
    app: web.Application,
    engine: JobEngine,
    metrics: Callable[[], Awaitable[bytes]],
    token: SecretStr | None,
    draining: Callable[[], bool],
) -> web.Application:
    """Add monitoring endpoints to the receiver; return the application of the metrics port."""
    port_app = web.Application()
    for application in (app, port_app):
        Endpoints(engine, metrics, token=token, private=application is port_app, draining=draining).mount(application)
    return port_app


class Endpoints:
    """Request handlers for monitoring.

    Args:
        private: whether the loopback address suffices without a token; False for a port behind a local proxy.
        checked_seconds: lifetime of a check, which writes to the disk and which anybody can request.
    """

    def __init__(
        self,
        engine: JobEngine,
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
        self._is_working = False

    def mount(self, app: web.Application) -> None:
        app.router.add_get("/healthz", self.health)
        app.router.add_get("/readyz", self.readiness)
        app.router.add_get("/metrics", self.metrics)

    async def health(self, _request: web.Request) -> web.Response:
        """Report that the process runs; a failed database is no reason to restart it."""
        return web.json_response({"status": "ok"})

    async def readiness(self, _request: web.Request) -> web.Response:
        """Report whether jobs can be stored, without details."""
        if self._draining():
            return web.json_response({"status": "draining"}, status=503)
        async with self._checking:
            if time.monotonic() >= self._checked_until:
                try:
                    await self._engine.check()
                except QueueError as error:
                    log.error("not ready: %s", error, extra={"stranger": True})  # noqa: TRY400 - the text has it
                    self._is_working = False
                else:
                    self._is_working = True
                self._checked_until = time.monotonic() + self._checked_seconds
        if not self._is_working:
            return web.json_response({"status": "failed"}, status=503)
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        if not self._can_read(request):
            status, headers = (403, None) if self._token is None else (401, {"WWW-Authenticate": "Bearer"})
            return web.json_response({"status": "refused", "reason": _ACCESS_HELP}, status=status, headers=headers)
        text = await self._metrics()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _can_read(self, request: web.Request) -> bool:
        if self._token is not None:
            header = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            return hmac.compare_digest(header, f"Bearer {self._token.get_secret_value()}".encode())
        if any(name in request.headers for name in _PROXY_HEADERS):  # a program on this machine sends none
            return False
        return self._private and ipaddress.ip_address(request.remote or "::").is_loopback
