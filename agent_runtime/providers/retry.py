"""Retries of one model and fallbacks to others.

Providers describe a failed attempt (`Failure`), `classify` decides on a retry, `RetryPolicy` retries. The SDKs' own
retries are off, as they end with the first byte.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRefusedError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
)
from agent_runtime.core.values import Usage
from agent_runtime.providers.protocol import (
    Chunk,
    Piece,
    Provider,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    ToolCalling,
    tool_calling,
)

STICKY_SECONDS = 600.0
"""Use of a fallback model before the first is tried again."""

_MAX_SILENT_ATTEMPTS = 2
"""Maximum read timeouts in one reply; a model does not pause in its text."""

_DRAIN_SECONDS = 5.0
"""Timeout for the stream after the reply's end."""

_MESSAGE_CHARS = 400


class AttemptFailedError(Exception):
    """A failed attempt that may be retried; never leaves the providers. See `Failure`."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, billed: bool = False, silent: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.billed = billed or silent
        self.silent = silent


_EARLY_END = AttemptFailedError("the stream ended before the reply was complete", billed=True)

Attempt = Callable[[], AsyncGenerator[Piece]]
"""One request: yields text and calls, then a `ReplyEnd`; raises `AttemptFailedError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """A service's facts for error texts; `is_foreign` if not the server that the SDK's variables are meant for."""

    name: str
    model: str
    url: str
    key_variable: str
    secret: str = field(default="", repr=False)
    is_foreign: bool = False

    @property
    def address(self) -> str:
        """The address without credentials and query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def sanitize(self, text: str) -> str:
        """Redact and truncate a service's text."""
        text = text.replace(self.secret, "[key]") if self.secret else text
        return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number of attempts and the pauses between them; `longest_retry_after` bounds the service's own, in seconds."""

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 120.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise SettingsError(f"attempts is {self.attempts}; it must be at least 1 (1 means: do not retry).")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Return the pause after `attempt` (from 1), at least `retry_after`."""
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + self.chance() / 2)
        return max(backoff, retry_after or 0.0)

    async def run(self, attempt: Attempt, service: ModelService) -> AsyncGenerator[Chunk]:
        """Yield one reply's chunks over all attempts, each after a `ReplyStart`.

        An attempt without `ReplyEnd` is retried; a failure after it is not.

        Raises:
            ModelOutageError: all attempts failed, or the requested pause is too long.
            ModelUnreachableError: accepted requests stayed unanswered.
        """
        tally = _FailureCount()
        for number in range(1, self.attempts + 1):
            yield ReplyStart(attempt=number)
            end, has_started, fault = None, False, None
            try:
                async with aclosing(_drain(attempt())) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, ReplyEnd):
                            # Held back while the stream is read out: only then can its connection be used again.
                            end = chunk
                        else:
                            has_started = True
                            yield chunk
            except AttemptFailedError as error:
                fault = error
            if end is not None:
                if fault is not None and not end.usage.total_tokens:
                    yield ReplyFault(reason="the connection was lost before the usage was reported", billed=True)
                    end = replace(end, usage=Usage(requests=1))
                yield end
                return
            fault = fault or _EARLY_END
            tally.add(fault, has_started=has_started)
            is_last = (
                number == self.attempts
                or tally.silent == _MAX_SILENT_ATTEMPTS
                or tally.is_unanswered
                or ((fault.retry_after or 0.0) > self.longest_retry_after)
            )
            wait = None if is_last else self.wait(number, fault.retry_after)
            yield ReplyFault(reason=str(fault), billed=fault.billed or has_started, silent=fault.silent, wait=wait)
            if wait is None:
                break
            await self.sleep(wait)
        raise self._exhausted_error(tally, service)

    def _exhausted_error(self, tally: _FailureCount, service: ModelService) -> ModelUnreachableError:
        tries = f"{tally.attempts} attempts" if tally.attempts > 1 else "1 attempt"
        text = (
            f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {tally.last}. "
            "Try again later, choose another `model` or provider, "
            f"or check that {service.address} can be reached from here."
        )
        if tally.is_unanswered:
            text += (
                " It may still be thinking, and is not asked the same again, because both would be charged for. "
                "Raise `silence` if it needs longer."
            )
        if tally.is_unanswered or tally.silent == _MAX_SILENT_ATTEMPTS or tally.billed == self.attempts:
            return ModelUnreachableError(text)
        return ModelOutageError(text, retry_after=tally.last.retry_after)


@dataclass(slots=True)
class _FailureCount:
    """Failed attempts; `unanswered` if the last one timed out without text, when the model may still think."""

    attempts: int = 0
    is_unanswered: bool = False
    billed: int = 0
    silent: int = 0
    last: AttemptFailedError = _EARLY_END

    def add(self, fault: AttemptFailedError, *, has_started: bool) -> None:
        self.attempts += 1
        self.billed += fault.billed or has_started
        self.silent += fault.silent
        self.is_unanswered = fault.silent and not has_started
        self.last = fault


async def _drain(chunks: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """Yield a reply's chunks, and read the stream on for a short time."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if isinstance(chunk, ReplyEnd):
                break
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                ends = [piece async for piece in chunks if isinstance(piece, ReplyEnd)]
        except TimeoutError:
            raise AttemptFailedError("the stream did not end with the reply", billed=True) from None
        for end in ends[-1:]:
            yield end


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt.

    Attributes:
        status: HTTP status; None for a failed connection.
        code: e.g. `overloaded_error`.
        retry_hint: header `x-should-retry`.
        billed: the service began to work.
    """

    status: int | None
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    retry_hint: bool | None = None
    billed: bool = False
    silent: bool = False


_CREDIT_CODES = frozenset({"billing_error", "insufficient_quota", "billing_hard_limit_reached", "Arrearage"})

_LOW_BALANCE = "credit balance is too low"
"""Anthropic's text for an empty account, an `invalid_request_error`."""

_POLICY_CODES = frozenset(
    {
        "DataInspectionFailed",
        "bio_policy",
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "misalignment_policy_violation",
    }
)

_FILTER_MESSAGE = "content filtering policy"

_UNKNOWN_MODEL_CODES = frozenset({"model_not_found", "ModelNotFound", "model_not_supported"})

_OVERFLOW_MESSAGES = (
    "prompt is too long",
    "context window",
    "context length",
    "context_length",
    "maximum context",
    "too many tokens",
    "range of input length",
    "exceeds the maximum number of tokens",
)

_TRANSIENT_STATUSES = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)


def classify(failure: Failure, service: ModelService) -> AttemptFailedError | ModelError:
    """Return the exception to raise; `AttemptFailedError` means retry."""
    if failure.status is None:
        text = service.sanitize(failure.message)
        return AttemptFailedError(text, retry_after=failure.retry_after, billed=failure.billed, silent=failure.silent)
    if failure.code in _POLICY_CODES or _FILTER_MESSAGE in failure.message.lower():
        return refusal(failure.message or failure.code, service)
    words = f"{failure.code} {failure.message}".lower()
    overflows = failure.status == HTTPStatus.BAD_REQUEST and any(sign in words for sign in _OVERFLOW_MESSAGES)
    if overflows or failure.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return ContextOverflowError(
            f"The conversation no longer fits into the context window of model {service.model!r} at {service.name} "
            f"({service.sanitize(failure.message)}). Choose a `model` with a larger one, or split the task."
        )
    rejection = _rejection_message(failure, service)
    if rejection is not None:
        return ModelRejectedError(rejection)
    message = service.sanitize(" ".join(filter(None, [failure.code, failure.message])))
    text = f"HTTP {failure.status}{': ' if message else ''}{message}"
    transient = failure.status in _TRANSIENT_STATUSES or failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if transient and failure.retry_hint is not False:
        return AttemptFailedError(text, retry_after=failure.retry_after)
    return ModelRejectedError(f"{service.name} refused the request to model {service.model!r} ({text}).")


def refusal(reason: str, service: ModelService) -> ModelRefusedError:
    return ModelRefusedError(
        f"{service.name}'s model {service.model!r} declined to answer ({service.sanitize(reason)}). "
        f"Rephrase the task, or choose another `model`."
    )


def _rejection_message(failure: Failure, service: ModelService) -> str | None:
    """Return the text for an error that a person can fix, else None.

    Omits the service's text where it may quote the key.
    """
    name, model, message = service.name, service.model, service.sanitize(failure.message)
    no_credit = failure.code in _CREDIT_CODES or _LOW_BALANCE in failure.message.lower()
    if no_credit or failure.status == HTTPStatus.PAYMENT_REQUIRED:
        return f"The account at {name} has no credit left. Top it up, or set {service.key_variable} to another's key."
    if failure.status == HTTPStatus.UNAUTHORIZED:
        return (
            f"{name} did not accept the API key (HTTP 401). "
            f"Check {service.key_variable}: it needs a valid key for {service.address}."
        )
    if failure.status == HTTPStatus.FORBIDDEN:
        return (
            f"{name} accepts the API key but does not let it use model {model!r} (HTTP 403). "
            f"Choose another `model`, or set {service.key_variable} to a key that may use it."
        )
    if failure.status == HTTPStatus.NOT_FOUND or failure.code in _UNKNOWN_MODEL_CODES:
        return (
            f"{name} knows no model {model!r} at {service.address} (HTTP {failure.status}"
            f"{': ' if message else ''}{message}). Set `model` to one that your key can use, and check "
            "`base_url` if you have set it."
        )
    return None


def should_retry(headers: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Parse `retry-after-ms` or `retry-after` (RFC 9110 §10.2.3) to seconds."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        return _seconds_until(headers.get("retry-after", ""), now or datetime.now(UTC))


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


class FallbackProvider:
    """Asks the next model if one is unreachable or rejects the request.

    Not on `ContextOverflowError`, which the caller can fix, or `ModelRefusedError`, which is an answer. A fallback is
    used for `sticky_seconds`, for its warm cache. Each provider retries first; give all but the last few attempts.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        sticky_seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chain providers, in order of preference; closed with this one."""
        if not providers:
            raise SettingsError("A FallbackProvider needs at least one provider; the list is empty.")
        if sticky_seconds < 0:
            raise SettingsError(f"sticky_seconds is {sticky_seconds}; it must be at least 0 (600 is a good value).")
        self._providers = tuple(providers)
        self._sticky_seconds = sticky_seconds
        self._clock = clock
        self._current = 0
        self._until = 0.0

    @property
    def model(self) -> str:
        """Model to be asked first; see `ReplyEnd.model`."""
        return self._providers[self._first_index()].model

    @property
    def sees_images(self) -> bool:
        return all(provider.sees_images for provider in self._providers)

    @property
    def tool_calling(self) -> ToolCalling:
        """Support of the preferred model, if all models have it."""
        support = [tool_calling(provider) for provider in self._providers]
        return "unsupported" if "unsupported" in support else support[0]

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; attempts are counted over the chain.

        Raises:
            ModelOutageError: at least one may be back later.
            ModelRejectedError: at least one rejected the request.
            ModelUnreachableError: none was reachable.
        """
        first, attempts = self._first_index(), 0
        faults: list[tuple[str, ModelError]] = []
        for index in [*range(first, len(self._providers)), *range(first)]:
            provider, before = self._providers[index], attempts
            try:
                async with aclosing(provider.reply(request)) as chunks:
                    async for chunk in chunks:
                        match chunk:
                            case ReplyStart(attempt=attempt):
                                attempts = before + attempt
                                yield ReplyStart(attempt=attempts)
                            case ReplyFault():
                                yield replace(chunk, model=chunk.model or provider.model)
                            case ReplyEnd():
                                if index != self._first_index():
                                    # Prefer this model, for a time counted from its first use.
                                    self._current, self._until = index, self._clock() + self._sticky_seconds
                                yield replace(chunk, model=chunk.model or provider.model)
                            case _:
                                yield chunk
            except ContextOverflowError:
                raise
            except (ModelUnreachableError, ModelRejectedError) as error:
                faults.append((provider.model, error))
            else:
                return
        raise _chain_error(faults)

    async def close(self) -> None:
        for provider in self._providers:
            await provider.close()

    def _first_index(self) -> int:
        return self._current if self._current and self._clock() < self._until else 0


def _chain_error(faults: Sequence[tuple[str, ModelError]]) -> ModelError:
    if len(faults) == 1:
        return faults[0][1]
    causes = "\n".join(f"- {model}: {error}" for model, error in faults)
    text = f"None of the {len(faults)} models of the fallback chain could answer:\n{causes}"
    outages = [error for _, error in faults if isinstance(error, ModelOutageError)]
    if outages:
        return ModelOutageError(text, retry_after=min(error.retry_after or 0.0 for error in outages) or None)
    rejected = any(isinstance(error, ModelRejectedError) for _, error in faults)
    return ModelRejectedError(text) if rejected else ModelUnreachableError(text)
