"""Classify a failed request: worth another attempt, or refused for good. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from agent_runtime.core.errors import ContextOverflowError, ModelError, ModelRefusedError, ModelRejectedError

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
