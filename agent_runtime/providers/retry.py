"""Retries of one model and fallbacks to another, so that a bad connection never costs the run a step.

A provider describes how an attempt failed (`Failure`), `verdict` decides whether it may be repeated, and `RetryPolicy`
repeats it. A `FallbackProvider` asks the next model when one is given up.

The SDKs' own retries are switched off: they end when the first byte has come, and most faults come later
(a drop in mid-stream, an early end, a malformed chunk).
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
"""How long a model that stood in is kept before the first one is tried again."""

_SILENT_ATTEMPTS = 2
"""Replies that may stop in the middle of their text; a model writes on without pauses, so the service has a fault."""

_DRAIN_SECONDS = 5.0
"""How long a stream may go on after the reply's end."""

_MESSAGE_CHARS = 400


class BrokenOffError(Exception):
    """One attempt failed in a way the next one may not. Never leaves the providers.

    Attributes:
        retry_after: seconds the service asked to be left alone, if it said.
        billed: whether the service had begun to work on the request.
        silent: whether it took the request and then said nothing for too long.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, billed: bool = False, silent: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.billed = billed or silent
        self.silent = silent


_EARLY = BrokenOffError("the stream ended before the reply was complete", billed=True)

Attempt = Callable[[], AsyncGenerator[Piece]]
"""One request: yields text and calls, then a `ReplyEnd` that says why the service stopped; raises `BrokenOffError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """The service that is asked, for error texts.

    Attributes:
        name: the company or server, as people call it.
        model: the model asked for.
        url: the address of its API.
        key_variable: the environment variable that usually holds the key.
        secret: the key itself, to keep it out of every text.
        foreign: whether the address is one for which the variables of the SDK are not meant, whatever they hold.
    """

    name: str
    model: str
    url: str
    key_variable: str
    secret: str = field(default="", repr=False)
    foreign: bool = False

    @property
    def place(self) -> str:
        """The address without user name, password and query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def clean(self, text: str) -> str:
        """Return a service's own text, cut to a sane length and without the key."""
        text = text.replace(self.secret, "[key]") if self.secret else text
        return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts and the pauses between them.

    Attributes:
        attempts: requests at most, the first one included.
        first_wait: seconds before the second attempt; doubled for each further one.
        longest_wait: seconds that the doubling stops at.
        longest_retry_after: seconds that a service may ask for and still be waited for here; one that asks for more is
            not asked again.
        sleep: waits; replaced in tests.
        chance: a number in [0, 1) to spread waits by, so that many workers do not return all at once.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 120.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        """Refuse a policy that never asks.

        Raises:
            SettingsError: fewer than one attempt.
        """
        if self.attempts < 1:
            raise SettingsError(f"attempts is {self.attempts}; it must be at least 1 (1 means: do not retry).")

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Seconds between a failed `attempt` (from 1) and the next: never sooner than the service asked."""
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait) * (0.5 + self.chance() / 2)
        return max(backoff, retry_after or 0.0)

    async def run(self, attempt: Attempt, service: ModelService) -> AsyncGenerator[Chunk]:
        """The chunks of one reply, however many attempts it takes; each begins with a `ReplyStart`.

        An attempt that ends without a `ReplyEnd` has broken off. One that broke off after its end is whole.

        Raises:
            ModelOutageError: no attempt got through, or the service asked for a longer pause.
            ModelUnreachableError: the service took as many requests as it is to be sent, and answered none as a whole.
            ModelError: as an attempt raises it.
        """
        tally = _Tally()
        for number in range(1, self.attempts + 1):
            yield ReplyStart(attempt=number)
            end, begun, fault = None, False, None
            try:
                async with aclosing(_drained(attempt())) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, ReplyEnd):
                            # Held back while the stream is read out: only then can its connection be used again.
                            end = chunk
                        else:
                            begun = True
                            yield chunk
            except BrokenOffError as error:
                fault = error
            if end is not None:
                if fault is not None and not end.usage.total_tokens:
                    yield ReplyFault(reason="the connection was lost before the usage was reported", billed=True)
                    end = replace(end, usage=Usage(requests=1))
                yield end
                return
            fault = fault or _EARLY
            tally.count(fault, begun=begun)
            last = (
                number == self.attempts
                or tally.silent == _SILENT_ATTEMPTS
                or tally.unanswered
                or ((fault.retry_after or 0.0) > self.longest_retry_after)
            )
            wait = None if last else self.wait(number, fault.retry_after)
            yield ReplyFault(reason=str(fault), billed=fault.billed or begun, silent=fault.silent, wait=wait)
            if wait is None:
                break
            await self.sleep(wait)
        raise self._exhausted_error(tally, service)

    def _exhausted_error(self, tally: _Tally, service: ModelService) -> ModelUnreachableError:
        tries = f"{tally.attempts} attempts" if tally.attempts > 1 else "1 attempt"
        text = (
            f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {tally.last}. "
            "Try again later, choose another `model` or provider, "
            f"or check that {service.place} can be reached from here."
        )
        if tally.unanswered:
            text += (
                " It may still be thinking, and is not asked the same again, because both would be charged for. "
                "Raise `silence` if it needs longer."
            )
        if tally.unanswered or tally.silent == _SILENT_ATTEMPTS or tally.billed == self.attempts:
            return ModelUnreachableError(text)
        return ModelOutageError(text, retry_after=tally.last.retry_after)


@dataclass(slots=True)
class _Tally:
    """The attempts that broke off.

    Attributes:
        unanswered: whether the last one was taken and had no text when it was given up: the model may think still.
    """

    attempts: int = 0
    unanswered: bool = False
    billed: int = 0
    silent: int = 0
    last: BrokenOffError = _EARLY

    def count(self, fault: BrokenOffError, *, begun: bool) -> None:
        """Add one that gave some text before it broke off, or none."""
        self.attempts += 1
        self.billed += fault.billed or begun
        self.silent += fault.silent
        self.unanswered = fault.silent and not begun
        self.last = fault


async def _drained(chunks: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """A reply's chunks; after its end the stream is read out for a short time only."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if isinstance(chunk, ReplyEnd):
                break
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                ends = [each async for each in chunks if isinstance(each, ReplyEnd)]
        except TimeoutError:
            raise BrokenOffError("the stream did not end with the reply", billed=True) from None
        for end in ends[-1:]:
            yield end


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one attempt failed, in terms all services share.

    Attributes:
        status: the HTTP status, or what it would have been for an error told in mid-stream; None when the
            connection failed.
        code: the service's own word for it, e.g. `overloaded_error`.
        message: the service's own sentence, or ours for a failed connection.
        retry_after: seconds it asked to wait.
        again: what the service says about trying again (`x-should-retry`), if it does.
        billed: whether the service had begun to work on the request.
        silent: whether it took the request and then said nothing for too long.
    """

    status: int | None
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    again: bool | None = None
    billed: bool = False
    silent: bool = False


_NO_CREDIT = frozenset({"billing_error", "insufficient_quota", "billing_hard_limit_reached", "Arrearage"})

_LOW_BALANCE = "credit balance is too low"
"""How Anthropic words an empty account, as an ordinary `invalid_request_error`."""

_POLICY = frozenset(
    {
        "DataInspectionFailed",
        "bio_policy",
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "misalignment_policy_violation",
    }
)

_FILTERED = "content filtering policy"

_UNKNOWN_MODEL = frozenset({"model_not_found", "ModelNotFound", "model_not_supported"})

_OVERFLOW = (
    "prompt is too long",
    "context window",
    "context length",
    "context_length",
    "maximum context",
    "too many tokens",
    "range of input length",
    "exceeds the maximum number of tokens",
)

_TRANSIENT = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)


def verdict(failure: Failure, service: ModelService) -> BrokenOffError | ModelError:
    """Return the exception to raise: `BrokenOffError` to try again, any other to give up.

    Returns:
        `ModelRefusedError` when a policy's filter said no, `ContextOverflowError` when the conversation is too long,
        `ModelRejectedError` for anything else that another attempt cannot fix.
    """
    if failure.status is None:
        said = service.clean(failure.message)
        return BrokenOffError(said, retry_after=failure.retry_after, billed=failure.billed, silent=failure.silent)
    if failure.code in _POLICY or _FILTERED in failure.message.lower():
        return refused(failure.message or failure.code, service)
    words = f"{failure.code} {failure.message}".lower()
    overflows = failure.status == HTTPStatus.BAD_REQUEST and any(sign in words for sign in _OVERFLOW)
    if overflows or failure.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return ContextOverflowError(
            f"The conversation no longer fits into the context window of model {service.model!r} at {service.name} "
            f"({service.clean(failure.message)}). Choose a `model` with a larger one, or split the task."
        )
    refusal = _refusal(failure, service)
    if refusal is not None:
        return ModelRejectedError(refusal)
    said = service.clean(" ".join(filter(None, [failure.code, failure.message])))
    text = f"HTTP {failure.status}{': ' if said else ''}{said}"
    transient = failure.status in _TRANSIENT or failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if transient and failure.again is not False:
        return BrokenOffError(text, retry_after=failure.retry_after)
    return ModelRejectedError(f"{service.name} refused the request to model {service.model!r} ({text}).")


def refused(why: str, service: ModelService) -> ModelRefusedError:
    """Return the error for a model, or a filter before it, that declined to answer."""
    return ModelRefusedError(
        f"{service.name}'s model {service.model!r} declined to answer ({service.clean(why)}). "
        f"Rephrase the task, or choose another `model`."
    )


def _refusal(failure: Failure, service: ModelService) -> str | None:
    """Return the text for a refusal that a person can fix; None for any other.

    The service's own words are left out where they may quote a part of the key.
    """
    who, model, said = service.name, service.model, service.clean(failure.message)
    no_credit = failure.code in _NO_CREDIT or _LOW_BALANCE in failure.message.lower()
    if no_credit or failure.status == HTTPStatus.PAYMENT_REQUIRED:
        return f"The account at {who} has no credit left. Top it up, or set {service.key_variable} to another's key."
    if failure.status == HTTPStatus.UNAUTHORIZED:
        return (
            f"{who} did not accept the API key (HTTP 401). "
            f"Check {service.key_variable}: it needs a valid key for {service.place}."
        )
    if failure.status == HTTPStatus.FORBIDDEN:
        return (
            f"{who} accepts the API key but does not let it use model {model!r} (HTTP 403). "
            f"Choose another `model`, or set {service.key_variable} to a key that may use it."
        )
    if failure.status == HTTPStatus.NOT_FOUND or failure.code in _UNKNOWN_MODEL:
        return (
            f"{who} knows no model {model!r} at {service.place} (HTTP {failure.status}{': ' if said else ''}{said}). "
            f"Set `model` to one that your key can use, and check `base_url` if you have set it."
        )
    return None


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return the header `x-should-retry`; None if it is missing."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait by `retry-after-ms` or `retry-after` (RFC 9110 §10.2.3: seconds or a date), if any."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        return _until(headers.get("retry-after", ""), now or datetime.now(UTC))


def _until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())


class FallbackProvider:
    """Asks the next model when one cannot be reached or rejects the request: outage, overload, key, credit, name.

    It does not ask elsewhere when the conversation is too long (`ContextOverflowError`: the caller can make it
    shorter, and a chain would hide that) nor when the model declined (`ModelRefusedError`: an answer, not a fault;
    shopping around for a model that consents is for people to decide).

    When all of them failed and one may be back later, the chain's error is an outage: a caller that waits for outages
    asks the whole chain again.

    A model that stood in is kept for `sticky_seconds`: going back and forth would leave each time a warm cache behind.
    Each provider still makes its own retries first; give all but the last a `Retry` with few attempts.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        sticky_seconds: float = STICKY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Chain providers.

        Args:
            providers: the preferred one first; closed by `close`.
            sticky_seconds: how long a model that stood in is asked first; after that the preferred one is again.
            clock: seconds that only grow.

        Raises:
            SettingsError: no provider, or a negative time.
        """
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
        """The model that is asked first now; `ReplyEnd.model` says which one answered."""
        return self._providers[self._first()].model

    @property
    def sees_images(self) -> bool:
        """Whether every model of the chain sees: any of them may be asked in the middle of a conversation."""
        return all(provider.sees_images for provider in self._providers)

    @property
    def tool_calling(self) -> ToolCalling:
        """What the preferred model says; nothing where a model of the chain cannot, as any of them may be asked."""
        each = [tool_calling(provider) for provider in self._providers]
        return "unsupported" if "unsupported" in each else each[0]

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`. Attempts are counted on over the whole chain.

        Raises:
            ModelOutageError: none could answer, and at least one may be asked again later.
            ModelRejectedError: none could answer, and at least one rejected the request.
            ModelUnreachableError: no model of the chain could be reached.
            ContextOverflowError: the conversation is too long for the model that was asked.
            ModelRefusedError: the model that was asked declined.
        """
        first, attempts = self._first(), 0
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
                                self._keep(index)
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
        """Close every provider of the chain; idempotent."""
        for provider in self._providers:
            await provider.close()

    def _first(self) -> int:
        return self._current if self._current and self._clock() < self._until else 0

    def _keep(self, index: int) -> None:
        """Ask this model first for a while; the time runs from when it first stood in."""
        if index != self._first():
            self._current, self._until = index, self._clock() + self._sticky_seconds


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
