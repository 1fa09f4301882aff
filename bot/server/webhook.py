"""The web server for GitHub's webhook and for an operator's monitoring.

A delivery is answered as soon as its job is stored durably (`make_app`). A large one is received to the disk and read
in a bounded worker process. `Endpoints` answers `/healthz`, `/readyz` and `/metrics`. `StrangerLog` bounds the rate of
the log lines that anybody on the internet can cause.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
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

from agent_runtime import BoundExceededError, run_bounded
from bot.domain.access import BotProfile
from bot.domain.errors import ConfigError, MalformedError, QueueError, UnauthenticatedError
from bot.domain.job import Job
from bot.events.delivery import (
    IgnoredDelivery,
    from_webhook,
    lower_names,
    parse_delivery,
    signature_of,
    verify_signature,
)
from bot.events.triggers import job_from, router
from bot.queue.protocols import EngineUpkeep, JobEngine
from bot.queue.records import decode_job, encode_job
from bot.queue.tracing import bind_job, trace_delivery

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
    """Options of the webhook.

    Attributes:
        secret: the webhook's secret.
        listening: what it listens for.
        max_body_bytes: larger deliveries are refused.
        read_seconds: how long a body may take to arrive; GitHub itself gives up after 10 s.
        held_seconds: how long work is held back from the workers, so that it can be acknowledged first.
        folder: where large deliveries are kept while they are read; None for the system's own place.
    """

    secret: SecretStr
    listening: BotProfile
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
    app.router.add_post("/webhook", _Webhook(options, queue, accepted, unneeded, answered).receive)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """Return a runner that serves the application on a socket, set so that hostile clients cost little.

    Bodies are never decompressed. What is left of a refused body is thrown away for 2 s, for a client that is still
    sending when the connection closes never sees the answer.
    """
    sparing = StrangerLog()
    for logger in (log, _http_log):
        for old in [each for each in logger.filters if isinstance(each, StrangerLog)]:
            logger.removeFilter(old)
        logger.addFilter(sparing)
    return web.AppRunner(
        app, auto_decompress=False, lingering_time=2, keepalive_timeout=75, access_log=None, logger=_http_log
    )


@dataclass(slots=True)
class _Webhook:
    """The handler of deliveries; see `make_app`."""

    _options: WebhookOptions
    _queue: JobEngine
    _accepted: Callable[[Job], None]
    _unneeded: Callable[[Job], Awaitable[str]]
    _answered: Callable[[str], None]
    _large_bytes: int = 0
    _mapping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One large body at a time is mapped into memory."""

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
            with bind_job(found):
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
        """Return the job of a delivery, once it is proven genuine."""
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
        signature = signature_of(request.headers, secret)
        with self._room_for(size):
            async with AsyncExitStack() as stack:
                opened = receive_to_disk(options.folder, request.content, size)
                path = await self._arrived(stack.enter_async_context(opened), options.read_seconds)
                async with self._mapping:
                    await asyncio.to_thread(_verify_file, path, signature, secret)
                _check_sender(request)
                return _with_installation(await read_delivery(path, request.headers, listening))

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Bound the disk that large bodies take together; ordinary deliveries never wait for them."""
        if self._large_bytes + size > _LARGE_AT_ONCE_BYTES:
            raise _Refused(503, "too many large deliveries at once; send this one again later")
        self._large_bytes += size
        try:
            yield
        finally:
            self._large_bytes -= size

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


class _Refused(Exception):  # noqa: N818 - an answer that travels as an exception
    """The request is not taken in."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


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


_PIECE_BYTES = 1024 * 1024

_READ_SECONDS = 8.0
"""GitHub waits for ten."""

_READ_MEMORY = 256 * 1024**2
_PREFIX = "delivery-"
_LEFT_SECONDS = 3600.0
_HEADERS = ("content-type", "x-github-event", "x-github-delivery")


@asynccontextmanager
async def receive_to_disk(folder: Path | None, content: StreamReader, size: int) -> AsyncIterator[Path]:
    """Receive a body into a file that is removed afterwards.

    Args:
        folder: where the file is made; None for the system's own.
        content: what comes in.
        size: how many bytes.

    Raises:
        asyncio.IncompleteReadError: there were fewer.
        OSError: the disk does not take them.
    """
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=folder) as file:
        left = size
        while left:
            piece = await content.readexactly(min(left, _PIECE_BYTES))
            await asyncio.to_thread(file.write, piece)
            left -= len(piece)
        await asyncio.to_thread(file.flush)
        yield Path(file.name)


def _verify_file(path: Path, signature: str, secret: str) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        verify_signature(cast("bytes", body), signature, secret)  # any buffer, of which no copy is made


def sweep_deliveries(folder: Path) -> None:
    """Remove the files of processes that were killed while they received a delivery."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # the process that received it was faster, or it is not ours
            if path.stat().st_mtime < time.time() - _LEFT_SECONDS:
                path.unlink()


async def read_delivery(
    path: Path, headers: Mapping[str, str], listening: BotProfile, *, seconds: float = _READ_SECONDS
) -> Job | IgnoredDelivery:
    """Return the job that a proven delivery asks for, or the reason that it asks for none.

    Args:
        path: its body.
        headers: the request's.
        listening: what is listened for.
        seconds: how long that may take.

    Raises:
        MalformedError: it is not a delivery, or takes more memory to read than any delivery should.
        TimeoutError: it took too long, which may be the machine's fault; what is refused for good never comes again.
    """
    names = {name: value for name, value in lower_names(headers).items() if name in _HEADERS}
    if names.get("x-github-event") not in router.actions:
        return IgnoredDelivery(reason="no trigger handles this event")
    try:
        answer = await run_bounded(
            read_in_worker,
            str(path),
            names,
            listening,
            seconds=seconds,
            memory=_READ_MEMORY,
            task="Reading the delivery",
        )
    except BoundExceededError as error:
        if error.bound == "seconds":
            raise TimeoutError(str(error)) from error
        raise MalformedError("the delivery requires more memory than allowed") from error
    kind, _, text = answer.partition(":")
    match kind:
        case "job":
            return decode_job(text)
        case "ignored":
            return IgnoredDelivery(reason=text)
        case _:
            raise MalformedError(text)


def read_in_worker(path: str, headers: Mapping[str, str], listening: BotProfile) -> str:
    """Read a delivery in the worker; return `job:` and the job, or `ignored:` or `malformed:` and the reason."""
    try:
        found = job_from(parse_delivery(headers, Path(path).read_bytes()), listening)
    except MalformedError as error:
        return f"malformed:{error}"
    return f"ignored:{found.reason}" if isinstance(found, IgnoredDelivery) else f"job:{encode_job(found)}"


LINES = 20
WINDOW_SECONDS = 60.0
_THEIRS = (HttpProcessingError, RequestPayloadError, ConnectionError)


class StrangerLog(logging.Filter):
    """Lets through `LINES` lines about strangers in a window of time, each without a traceback; ours all pass.

    About a stranger is what aiohttp says of a request that is no HTTP or breaks off, and whatever has `stranger` in its
    `extra`. The first line of the next window says how many were left out.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until = 0.0
        self._seen = 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written; it loses its traceback, and may say how many lines were omitted."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _THEIRS):
            record.msg, record.args = "an invalid or incomplete HTTP request was refused: %s", (type(error).__name__,)
            record.exc_info, record.exc_text, record.levelno, record.levelname = None, None, logging.WARNING, "WARNING"
        elif not getattr(record, "stranger", False):
            return True
        if self._clock() >= self._until:
            left_out, self._seen, self._until = max(0, self._seen - LINES), 0, self._clock() + WINDOW_SECONDS
            if left_out:
                record.msg = f"{record.msg} ({left_out} similar lines were omitted)"
        self._seen += 1
        return self._seen <= LINES


_OF_PROXIES = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")
_CLOSED = (
    "metrics are read with the header `Authorization: Bearer` and the token in CODEPILOT_METRICS_TOKEN; without a "
    "token, only from this machine at CODEPILOT_METRICS_PORT"
)


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


class Endpoints:
    """The handlers for an operator's monitoring.

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
        """Report that the process works; a database that does not answer is no reason to restart it."""
        return web.json_response({"status": "ok"})

    async def readiness(self, _request: web.Request) -> web.Response:
        """Report whether jobs can be stored here, without any detail: anyone may ask."""
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
        if any(name in request.headers for name in _OF_PROXIES):  # a program on this machine sends none
            return False
        return self._private and ipaddress.ip_address(request.remote or "::").is_loopback
