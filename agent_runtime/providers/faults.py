"""Classification of a model service's answers, the same for every SDK.

`RetryPolicy` retries outages a few times, then raises `ModelOutageError`, for which runs and jobs wait.
"""

# | answer | is |
# |---|---|
# | no connection: refused, reset, DNS, TLS or proxy failure, connect time-out | outage |
# | 408, 409, 424, 425, 429, 5xx | outage |
# | 200 with a page, with undecodable or invalid data, with nothing, or with an error that no row below names | outage |
# | a stream that breaks off or stalls | retry at once, then outage |
# | a complete event or document that is no reply | retry at once, then definite |
# | 400, 401, 402, 403, 404, 413, other 4xx | definite |
# | an error in a 200 with a code of `_STATUSES` or `_CODES`, or a text of `_TEXTS` | definite |

from __future__ import annotations

import errno
import json
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from agent_runtime.core.errors import ContextOverflowError, ModelError, ModelRefusedError, ModelRejectedError

_MESSAGE_CHARS = 400

# In linear time: a scheme and a name begin at their first character only.
_INTERNAL_ADDRESS = re.compile(
    r"(?:\b\w+://)?(?:\[(?=[0-9a-fA-F]*:)[0-9a-fA-F:.]+\]|\b(?:\d{1,3}\.){3}\d{1,3}\b|\blocalhost\b"
    r"|(?<![\w-])(?<![\w-]\.)[\w-]+(?:\.[\w-]+)*\.(?:corp|internal|intranet|lan|local|svc)\b)(?::\d+)?(?:/\S*)?"
)


@dataclass(eq=False, repr=False)
class AttemptFailedError(Exception):
    """A failed attempt, retried if `classify` returns it; never leaves the providers.

    Attributes:
        status: HTTP status of an error; None without one, as in a stream.
        code: e.g. `overloaded_error`.
        retry_hint: header `x-should-retry`.
        billed: the service began to work.
        silent: read time-out; counts as billed.
        unreadable: if it stays so, the reason is not an outage.
        tries: maximum, if the host cannot be reached.
        detail: text for the log only.
    """

    message: str = ""
    _: KW_ONLY
    status: int | None = None
    code: str = ""
    retry_after: float | None = None
    retry_hint: bool | None = None
    billed: bool = False
    silent: bool = False
    unreadable: bool = False
    tries: int | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        self.billed = self.billed or self.silent

    @override
    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """A service's facts for error texts; `is_foreign` if not the server that the SDK's variables are meant for."""

    name: str
    model: str
    url: str
    key_variable: str
    secret: str = field(default="", repr=False)
    is_foreign: bool = False
    # As the user calls them.
    model_setting: str = "`model`"
    url_setting: str = "`base_url`"

    @property
    def address(self) -> str:
        """The address without credentials and query, for the log."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def redact(self, text: str) -> str:
        """Redact the key, and truncate."""
        text = text.replace(self.secret, "[key]") if self.secret else text
        return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "…"

    def sanitize(self, text: str) -> str:
        """Redact a service's text for a public thread, and truncate."""
        if host := urlsplit(self.url).hostname:  # with the port and the path, which the operator chose, too
            address = rf"(?:\b\w+://)?{re.escape(host)}(?::\d+)?(?:/\S*)?"
            text = re.sub(address, "[address]", text, flags=re.IGNORECASE)
        return self.redact(_INTERNAL_ADDRESS.sub("[address]", text))


_STATUSES: Mapping[str, int] = {
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "invalidparameter": 400,
    "validationexception": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "invalidapikey": 401,
    "access_denied": 403,
    "accessdeniedexception": 403,
    "permission_error": 403,
    "not_found_error": 404,
    "resourcenotfoundexception": 404,
    "request_too_large": 413,
}
"""HTTP status for error codes in an answer with status 200; all others are outages."""

_BAD_KEY, _FORBIDDEN, _NO_CREDIT, _OVERFLOW = "bad key", "forbidden", "no credit", "overflow"
_REFUSED, _UNKNOWN_MODEL = "refused", "unknown model"

_MEANINGS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: _BAD_KEY,
    HTTPStatus.PAYMENT_REQUIRED: _NO_CREDIT,
    HTTPStatus.FORBIDDEN: _FORBIDDEN,
    HTTPStatus.NOT_FOUND: _UNKNOWN_MODEL,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: _OVERFLOW,
}

_REJECTIONS: Mapping[str, str] = {
    # Without the service's text, which may quote the key.
    _BAD_KEY: "{0.name} did not accept the API key (HTTP 401). Check {0.key_variable}.",
    _FORBIDDEN: (
        "{0.name} accepts the API key but does not let it use model {0.model!r} (HTTP 403). "
        "Choose another model with {0.model_setting}, or set {0.key_variable} to a key that may use it."
    ),
    _NO_CREDIT: "The account at {0.name} has no credit left. Top it up, or set {0.key_variable} to another's key.",
    _UNKNOWN_MODEL: (
        "{0.name} knows no model {0.model!r} ({text}). Set {0.model_setting} to one that your key can use, and check "
        "{0.url_setting} if you have set it."
    ),
}
"""Texts for errors that a person can fix."""

_CODES: Mapping[str, str] = {
    **dict.fromkeys(("arrearage", "billing_error", "billing_hard_limit_reached", "insufficient_quota"), _NO_CREDIT),
    **dict.fromkeys(("bio_policy", "content_filter", "content_policy_violation", "datainspectionfailed"), _REFUSED),
    **dict.fromkeys(("data_inspection_failed", "misalignment_policy_violation"), _REFUSED),
    **dict.fromkeys(("model_not_found", "modelnotfound", "model_not_supported"), _UNKNOWN_MODEL),
}
"""Codes that mean the same under every status."""

_TEXTS: Mapping[str, str] = {
    "credit balance is too low": _NO_CREDIT,
    "content filtering policy": _REFUSED,
    "prompt is too long": _OVERFLOW,
    "context window": _OVERFLOW,
    "context length": _OVERFLOW,
    "context_length": _OVERFLOW,
    "maximum context": _OVERFLOW,
    "too many tokens": _OVERFLOW,
    "range of input length": _OVERFLOW,
    "exceeds the maximum number of tokens": _OVERFLOW,
}
# Limits of tokens for each minute are worded like those of a length, and have status 429.

_TRANSIENT_STATUSES = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.FAILED_DEPENDENCY,  # Amazon Bedrock: the model failed
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


def classify(failure: AttemptFailedError, service: ModelService) -> AttemptFailedError | ModelError:
    """Return the exception to raise, with texts for users; `AttemptFailedError` means retry."""
    status = failure.status or _status_of(failure.code)
    meaning = _meaning(failure, status)
    if meaning == _REFUSED:
        return refusal(failure.message or failure.code, service)
    if meaning == _OVERFLOW:
        return ContextOverflowError(
            f"The conversation no longer fits into the context window of model {service.model!r} at {service.name} "
            f"({service.sanitize(failure.message)}). Choose a model with a larger one, or split the task."
        )
    words = service.sanitize(" ".join(filter(None, [failure.code, failure.message])))
    text = ": ".join(filter(None, [f"HTTP {failure.status}" if failure.status else "", words]))
    rejection = _REJECTIONS.get(meaning)
    is_transient = status is None or status in _TRANSIENT_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if rejection is None and is_transient and failure.retry_hint is not False:
        return replace(failure, message=text or "an error without a text", detail=service.redact(failure.detail))
    rejection = rejection or "{0.name} refused the request to model {0.model!r} ({text})."
    return ModelRejectedError(rejection.format(service, text=text))


def _status_of(code: str) -> int | None:
    """Return the HTTP status that an error code stands for; some servers send the number."""
    return int(code) if re.fullmatch("[45][0-9]{2}", code) else _STATUSES.get(code.lower())


def _meaning(failure: AttemptFailedError, status: int | None) -> str:
    words = f"{failure.code} {failure.message}".lower()
    meanings = [_CODES.get(failure.code.lower(), ""), *(meaning for text, meaning in _TEXTS.items() if text in words)]
    named = (each for each in meanings if each and (each != _OVERFLOW or status in {None, HTTPStatus.BAD_REQUEST}))
    return next(named, _MEANINGS.get(status or 0, ""))


def refusal(reason: str, service: ModelService) -> ModelRefusedError:
    return ModelRefusedError(
        f"{service.name}'s model {service.model!r} declined to answer ({service.sanitize(reason)}). "
        f"Rephrase the task, or choose another model."
    )


_NETWORK_PACKAGES = frozenset({"httpcore", "httpx", "httpx2", "requests", "urllib3"})
_NETWORK_ERRORS = ("ConnectionError", "HTTPClientError", "TimeoutError", "TransportError")
_READ_TIMEOUTS = frozenset({"APITimeoutError", "ReadTimeout"})


def is_network_error(error: BaseException) -> bool:
    """Return whether an error of a client, of any package, is a failed connection."""
    return isinstance(error, OSError) or any(
        kind.__module__.partition(".")[0] in _NETWORK_PACKAGES or kind.__name__.endswith(_NETWORK_ERRORS)
        for kind in type(error).__mro__
    )


def describe_error(
    error: Exception, *, is_answered: bool = False, has_started: bool = False
) -> AttemptFailedError | None:
    """Describe an exception of a client; None if it is neither an answer nor a failure on the way.

    Args:
        is_answered: the service has accepted the request.
        has_started: an event of the reply has come.
    """
    detail, response, body = repr(error), getattr(error, "response", None), getattr(error, "body", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    if isinstance(status, int) or body is not None:
        code, message = read_error(body)
        headers = getattr(response, "headers", {})
        return AttemptFailedError(
            message,
            status=status if isinstance(status, int) and status >= HTTPStatus.BAD_REQUEST else None,
            code=code,
            retry_after=parse_retry_after(headers),
            retry_hint=should_retry(headers),
            billed=has_started,
            detail=f"{detail} {body}",
        )
    cause = error.__cause__ if error.__cause__ is not None and is_network_error(error.__cause__) else error
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if kinds & _READ_TIMEOUTS:
        return AttemptFailedError("no answer in time", silent=True, detail=detail)
    if is_network_error(cause):
        if not is_answered and (offline := _explain_offline(cause)) is not None:
            return AttemptFailedError(offline[0], tries=offline[1], detail=detail)
        summary = "the connection broke off" if is_answered else "no connection"
    elif is_answered or isinstance(error, UnicodeDecodeError | json.JSONDecodeError):
        summary = "invalid data"
    else:
        return None
    return AttemptFailedError(f"{summary} ({type(cause).__name__})", billed=has_started, detail=detail)


_OFFLINE_TRIES = 3
_MAX_CAUSES = 50
_OFFLINE = {
    errno.ECONNREFUSED: "its host refuses connections",
    **dict.fromkeys((errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH), "there is no route to its host"),
}


def _explain_offline(error: BaseException) -> tuple[str, int] | None:
    """Return why a host cannot be reached, and how often to try."""
    if type(error).__name__ == "ConnectTimeout":
        return "its host did not answer", 1  # that took long enough
    causes: list[BaseException | None] = [error]
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return "the name of its host cannot be resolved", _OFFLINE_TRIES
        if isinstance(cause, OSError) and (reason := _OFFLINE.get(cause.errno or 0)):
            return reason, _OFFLINE_TRIES
        if cause is not None and len(causes) < _MAX_CAUSES:
            causes += (
                cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause.__cause__ or cause.__context__]
            )
    return None


def read_error(body: object) -> tuple[str, str]:
    """Return code and message of an error's body."""
    if not isinstance(body, dict):
        return "", ""
    error: Any = body.get("error", body)
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else ""
    code = error.get("code") or error.get("type") or ""
    message = error.get("message") or error.get("detail") or ""
    return str(code) if isinstance(code, str | int) else "", message if isinstance(message, str) else ""


def classify_document(data: bytes, service: ModelService) -> AttemptFailedError | ModelError:
    """Return the exception for a document in place of a stream."""
    detail = data.decode(errors="replace")
    try:
        body = json.loads(detail)
    except ValueError:
        return classify(AttemptFailedError("a page in place of a reply", detail=detail), service)
    if isinstance(body, dict) and body.get("error"):
        code, message = read_error(body)
        return classify(AttemptFailedError(message, code=code, detail=detail), service)
    return AttemptFailedError(
        "a document in place of a stream of events", unreadable=True, detail=service.redact(detail)
    )


def should_retry(headers: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def parse_retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Parse `retry-after-ms` or `retry-after` (RFC 9110 §10.2.3) to seconds."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
        except (OverflowError, ValueError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
