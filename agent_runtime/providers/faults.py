"""What a failed request means: worth another attempt, or refused for good. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from agent_runtime.errors import ModelError, ModelRejectedError

_MESSAGE_CHARS = 400
_NO_CREDIT = frozenset({"billing_error", "insufficient_quota", "billing_hard_limit_reached"})
_OVERFLOW = (
    "prompt is too long",
    "context window",
    "context length",
    "context_length",
    "maximum context",
    "too many tokens",
)
_TRANSIENT = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)


class BrokenOffError(Exception):
    """One attempt failed in a way the next one may not. Never leaves the providers.

    Attributes:
        retry_after: seconds the service asked to be left alone, if it said.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who is being asked, for error texts.

    Attributes:
        name: the company or server, as people call it.
        model: the model asked for.
        url: the address of its API.
        key_variable: the environment variable that usually holds the key.
        secret: the key itself, to keep it out of every text.
    """

    name: str
    model: str
    url: str
    key_variable: str
    secret: str = field(default="", repr=False)

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
    """

    status: int | None
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    again: bool | None = None


def verdict(failure: Failure, service: Service) -> BrokenOffError | ModelError:
    """The exception to raise: `BrokenOffError` to try again, `ModelRejectedError` to give up."""
    if failure.status is None:
        return BrokenOffError(service.clean(failure.message), retry_after=failure.retry_after)
    refusal = _refusal(failure, service)
    if refusal is not None:
        return ModelRejectedError(refusal)
    said = service.clean(" ".join(filter(None, [failure.code, failure.message])))
    text = f"HTTP {failure.status}{': ' if said else ''}{said}"
    transient = failure.status in _TRANSIENT or failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if transient and failure.again is not False:
        return BrokenOffError(text, retry_after=failure.retry_after)
    return ModelRejectedError(f"{service.name} refused the request to model {service.model!r} ({text}).")


def _refusal(failure: Failure, service: Service) -> str | None:
    """The text for the refusals that a person can mend; None for all others.

    The service's own words are left out where they may quote a part of the key.
    """
    who, model, said = service.name, service.model, service.clean(failure.message)
    if failure.code in _NO_CREDIT or failure.status == HTTPStatus.PAYMENT_REQUIRED:
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
    if failure.status == HTTPStatus.NOT_FOUND:
        return (
            f"{who} knows no model {model!r} at {service.place} (HTTP 404{': ' if said else ''}{said}). "
            f"Set `model` to one that your key can use, and check `base_url` if you have set it."
        )
    if failure.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _overflows(failure):
        return (
            f"The conversation no longer fits into the context window of model {model!r} at {who} ({said}). "
            f"Choose a `model` with a larger one, or split the task."
        )
    return None


def _overflows(failure: Failure) -> bool:
    words = f"{failure.code} {failure.message}".lower()
    return failure.status == HTTPStatus.BAD_REQUEST and any(sign in words for sign in _OVERFLOW)


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
