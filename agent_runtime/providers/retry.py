"""Asking again after an attempt that broke off, so that a bad connection never costs the run a step.

The SDKs' own retries are switched off: they end when the first byte has come, and most faults come later
(a drop in mid-stream, an early end, a malformed chunk).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from agent_runtime.core.errors import (
    ContextOverflowError,
    ModelError,
    ModelOutageError,
    ModelRefusedError,
    ModelRejectedError,
    ModelUnreachableError,
    SettingsError,
    did_you_mean,
)
from agent_runtime.core.values import Usage
from agent_runtime.providers.protocol import Chunk, Piece, ReplyEnd, ReplyFault, ReplyStart

# ---- Classify a failed request: worth another attempt, or refused for good. Pure.


_MESSAGE_CHARS = 400
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """Who is being asked, for error texts.

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
        """A service's own words, cut to a sane length and without the key."""
        said = text.replace(self.secret, "[key]") if self.secret else text
        return said if len(said) <= _MESSAGE_CHARS else said[:_MESSAGE_CHARS] + "…"


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


def verdict(failure: Failure, service: ModelService) -> BrokenOffError | ModelError:
    """The exception to raise: `BrokenOffError` to try again, any other to give up.

    Returns:
        `ModelRefusedError` when a policy's filter said no, `ContextOverflowError` when the conversation is too long,
        `ModelRejectedError` for whatever else trying again cannot fix.
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
    """The model, or a filter before it, declined to answer."""
    return ModelRefusedError(
        f"{service.name}'s model {service.model!r} declined to answer ({service.clean(why)}). "
        f"Rephrase the task, or choose another `model`."
    )


def _refusal(failure: Failure, service: ModelService) -> str | None:
    """The text for the refusals that a person can fix; None for all others.

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
    """What `x-should-retry` says; None when it is not there."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds to wait by `retry-after-ms` or `retry-after` (RFC 9110 §10.2.3: seconds or a date); None if neither."""
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


Attempt = Callable[[], AsyncGenerator[Piece]]
"""One request: yields text and calls, then a `ReplyEnd` that says why the service stopped; raises `BrokenOffError`."""


_SILENT_ATTEMPTS = 2
"""Replies that may stop in the middle of their text; a model writes on without pauses, so the service has a fault."""

_DRAIN_SECONDS = 5.0
"""How long a stream may go on after the reply's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how soon.

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
            ModelError: whatever else an attempt raises.
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
        raise self._given_up(tally, service)

    def _given_up(self, tally: _Tally, service: ModelService) -> ModelUnreachableError:
        tries = f"{tally.attempts} attempts" if tally.attempts > 1 else "1 attempt"
        told = (
            f"{service.name} gave no whole reply from model {service.model!r} in {tries}; the last one: {tally.last}. "
            "Try again later, choose another `model` or provider, "
            f"or check that {service.place} can be reached from here."
        )
        if tally.unanswered:
            told += (
                " It may still be thinking, and is not asked the same again, because both would be charged for. "
                "Raise `silence` if it needs longer."
            )
        if tally.unanswered or tally.silent == _SILENT_ATTEMPTS or tally.billed == self.attempts:
            return ModelUnreachableError(told)
        return ModelOutageError(told, retry_after=tally.last.retry_after)


_EARLY = BrokenOffError("the stream ended before the reply was complete", billed=True)


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


# ---- The options of a model besides its name, key and address, and the checks that all providers share.


OpenAIApi = Literal["responses", "chat"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_NO_KEY = "no-key"
"""Sent in place of a key to a server that may need none: the SDKs demand one."""
_LEAST_BUDGET = 1024
"""Anthropic's own floor, see `agent_runtime.providers.models`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Extended reasoning before the answer, for `anthropic`.

    Models up to Claude 4.5 think within a budget; later ones decide themselves how long (`reasoning_effort` guides
    them) and refuse a budget, which is then not sent.

    Attributes:
        enabled: whether to think; False switches thinking off in models that would think by themselves.
        budget_tokens: tokens to think with at most; they count towards `max_tokens`.
    """

    enabled: bool = True
    budget_tokens: int = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings that every provider takes; one that a service does not know is not sent to it.

    Attributes:
        max_tokens: longest reply in tokens, reasoning included; less for a model that is known to write less
            (`agent_runtime.providers.models`).
        temperature: sampling temperature; None leaves it to the service. Most reasoning models refuse any other.
            `anthropic` is not sent it where the model thinks.
        silence: seconds without a byte from the service after which an attempt counts as broken off; None for what
            suits the model (`agent_runtime.providers.sdk`): 15 minutes where it may think, else 5.
        retry: how often and how soon a failed attempt is tried again.
        api: for `openai`: which of its two APIs to speak. None means `responses` at OpenAI itself and `chat`
            wherever `base_url` points, because Chat Completions is what compatible servers speak.
        cache_key: for `openai`: sends requests that share a long beginning to the same cache, e.g. a session id.
        thinking: for `anthropic`: whether to reason before answering; None leaves it to the model's own default.
        reasoning_effort: how hard to reason, for models that can; None leaves it to the service. `none` and `minimal`
            are words of `openai` only.
        script: for `scripted`: the file to replay.
        key_variable: the environment variable that the key came from, for error texts; None for the usual one.
        cloud: for `bedrock`, `vertex` and `azure`: region, project and credentials, by the names of the environment
            variables that their SDKs read.
        images: whether the model sees; None for what is known of it by its name (`agent_runtime.providers.models`). The
            models of `llm` say it themselves.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    silence: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    api: OpenAIApi | None = None
    cache_key: str | None = None
    thinking: Thinking | None = None
    reasoning_effort: ReasoningEffort | None = None
    script: Path | None = None
    key_variable: str | None = None
    cloud: Mapping[str, str] = field(default_factory=dict, repr=False)
    images: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what no service can do.

        Raises:
            SettingsError: a number is out of range; the text names it.
        """
        if self.max_tokens < 1:
            raise SettingsError(f"max_tokens is {self.max_tokens}; it must be at least 1 (16000 is a good value).")
        if self.temperature is not None and not 0 <= self.temperature <= 2:  # noqa: PLR2004 - the APIs' own range
            raise SettingsError(f"temperature is {self.temperature}; it must be between 0 and 2, or not set.")
        if self.silence is not None and self.silence <= 0:
            raise SettingsError(f"silence is {self.silence}; it must be a positive number of seconds.")
        if self.reasoning_effort is not None and self.reasoning_effort not in get_args(ReasoningEffort):
            hint = did_you_mean(str(self.reasoning_effort), get_args(ReasoningEffort))
            raise SettingsError(f"There is no reasoning_effort {self.reasoning_effort!r}. {hint}")
        if self.thinking is not None and self.thinking.enabled:
            budget = self.thinking.budget_tokens
            if not _LEAST_BUDGET <= budget < self.max_tokens:
                raise SettingsError(
                    f"thinking.budget_tokens is {budget}; it must be at least {_LEAST_BUDGET} and less than "
                    f"max_tokens, which is {self.max_tokens} and holds the thinking as well as the answer."
                )


def checked_key(api_key: str | None, *, provider: str, variable: str, optional: bool = False) -> str:
    """The API key, fit to travel in a header.

    Args:
        api_key: as the caller gave it.
        provider: the provider, for error texts.
        variable: the environment variable that it comes from, for error texts.
        optional: whether the server may need none; it is sent `no-key` then.

    Raises:
        SettingsError: there is none, or it holds characters no key has. The text never quotes the key.
    """
    key = (api_key or "").strip() or (_NO_KEY if optional else "")
    if not key:
        raise SettingsError(f"The provider `{provider}` needs an API key: set {variable}, or pass api_key=.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            f"The API key for `{provider}` holds a space or another character no key has: check {variable}."
        )
    return key


def is_own_address(base_url: str | None, hosts: tuple[str, ...]) -> bool:
    """Whether an address is a service's own: none at all, or TLS to one of its hosts, or to a subdomain of one."""
    if not base_url:
        return True
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return False
    host = f".{parts.hostname or ''}"
    return parts.scheme == "https" and any(host.endswith(f".{own}") for own in hosts)


def is_foreign_address(base_url: str | None, hosts: tuple[str, ...], *, key_variable: str | None, usual: str) -> bool:
    """Whether an address is neither a service's own nor one that its usual key is named for.

    Args:
        base_url: the address; None for the service's own.
        hosts: where the service itself answers.
        key_variable: the variable that is named for the key; None where none is.
        usual: the one of the service itself.
    """
    return not is_own_address(base_url, hosts) and key_variable != usual


def checked_url(base_url: str | None, *, default: str) -> str:
    """The address of a service's API.

    Raises:
        SettingsError: it is not an http or https address.
    """
    url = base_url or default
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"base_url is {url!r}; it must be an address such as https://models.example.com/v1.")
    return url
