"""Shared parts of providers with a vendor's SDK.

`SdkProvider` has one lazy client. `KeyedApi` ensures that a key is sent to its own server only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from agent_runtime.core.errors import ModelError, ModelRejectedError, SettingsError
from agent_runtime.providers.faults import (
    AttemptFailedError,
    ModelService,
    classify,
    classify_document,
    describe_error,
)
from agent_runtime.providers.models import ModelOptions, accepts_images, cap_max_tokens, find_family, thinks_by_default
from agent_runtime.providers.protocol import Chunk, Piece, Request, ToolCalling

if TYPE_CHECKING:
    import ssl


_T = TypeVar("_T")

SILENCE_SECONDS = 300.0
"""Read timeout for models without thinking."""

THINKING_SILENCE_SECONDS = 900.0
"""Read timeout for others; large models think for over ten minutes."""

_CONNECT_SECONDS = 8.0


_DOCUMENTS = frozenset({"application/json", "text/html"})
_DOCUMENT_BYTES = 64_000

log = logging.getLogger(__name__)


ReadEvent = Callable[[object], list[Piece]]
"""Convert an SDK's event of one reply to chunks."""


class _Client(Protocol):
    _custom_headers: Any

    async def close(self) -> None: ...


_C = TypeVar("_C", bound=_Client)


class SdkProvider(ABC, Generic[_C]):
    def __init__(self, service: ModelService, options: ModelOptions) -> None:
        self._options = cap_max_tokens(options, service.model)
        self._service = replace(service, model_setting=options.model_setting, url_setting=options.url_setting)
        self._cached_client: _C | None = None

    @property
    def model(self) -> str:
        return self._service.model

    @property
    def sees_images(self) -> bool:
        return accepts_images(self._service.model, self._options.images)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred if the model works better with it."""
        return "preferred" if find_family(self._service.model).prefers_tools else "supported"

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None:
        if self._cached_client is not None:
            await self._cached_client.close()

    @property
    def _client(self) -> _C:
        """The client, created on first use: an SDK costs half a second and 60 MB."""
        if self._cached_client is None:
            import httpx2  # noqa: PLC0415 - as said

            self._cached_client = self._connect(
                _ssl_context(),
                api_key=self._service.secret,
                base_url=self._service.url,
                timeout=httpx2.Timeout(read_timeout(self._service.model, self._options), connect=_CONNECT_SECONDS),
                max_retries=0,
            )
            if self._service.is_foreign:
                # From ANTHROPIC_CUSTOM_HEADERS and OPENAI_CUSTOM_HEADERS; no argument keeps an SDK from reading them.
                self._cached_client._custom_headers = {}  # noqa: SLF001 - see above
        return self._cached_client

    @abstractmethod
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> _C:  # noqa: ANN401 - what an SDK's client takes
        """Create the SDK's client."""

    @abstractmethod
    def _prepare(self, request: Request) -> tuple[ReadEvent, Callable[[], Awaitable[Any]]]:
        """Return functions that read the reply's events and that open the SDK's stream."""

    async def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        """Send one request; see `retry.Attempt`."""
        read, send = self._prepare(request)
        is_answered = has_started = False
        try:
            async with await send() as stream:
                is_answered = True
                await self._require_stream(stream.response)
                async for event in yield_cooperatively(stream):
                    has_started = True
                    for chunk in self._read_event(read, event):
                        yield chunk
                if not has_started:
                    raise AttemptFailedError("an empty answer")  # noqa: TRY301 - like those of the SDK
        except (ModelError, AttemptFailedError):
            raise
        except Exception as error:  # SDKs let errors of many others through
            failure = describe_error(error, is_answered=is_answered, has_started=has_started)
            if failure is None:
                log.exception("a request could not be made")
                name = self._service.name
                text = f"The request to {name} could not be made ({type(error).__name__}); see the log."
                raise ModelRejectedError(text) from None
            raise classify(failure, self._service) from None

    async def _require_stream(self, response: Any) -> None:  # noqa: ANN401 - the client's own response
        """Raise the error in a document in place of a stream."""
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() in _DOCUMENTS:
            data = b""
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > _DOCUMENT_BYTES:
                    break
            raise classify_document(data, self._service)

    def _read_event(self, read: ReadEvent, event: object) -> list[Piece]:
        try:
            return read(event)
        except (ModelError, AttemptFailedError):
            raise
        except Exception as error:  # noqa: BLE001 - SDKs do not validate events: any part may have another type
            detail = self._service.redact(f"{error!r} in {event!r}")
            raise AttemptFailedError("an event that cannot be read", unreadable=True, detail=detail) from None


def read_timeout(model: str, options: ModelOptions) -> float:
    """Return the read timeout in seconds.

    Thoughts are charged even if discarded, so only models known not to think get the short one.
    """
    if options.silence is not None:
        return options.silence
    if options.reasoning_effort == "none" or (options.thinking is not None and not options.thinking.enabled):
        may_think = False
    elif options.reasoning_effort is not None or options.thinking is not None:
        may_think = True
    else:
        may_think = thinks_by_default(model)
    return THINKING_SILENCE_SECONDS if may_think else SILENCE_SECONDS


@cache
def _ssl_context() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 - see SdkProvider._client

    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        text = f"The TLS certificates cannot be loaded ({error}). Check SSL_CERT_FILE and SSL_CERT_DIR."
        raise ModelRejectedError(text) from None


_MAX_WORK_SECONDS = 0.01


async def yield_cooperatively(events: AsyncIterable[_T]) -> AsyncGenerator[_T]:
    """Yield a stream's events; let other tasks run every 10 ms, as events that already arrived do not suspend."""
    since = time.monotonic()
    async for event in events:
        if time.monotonic() - since > _MAX_WORK_SECONDS:
            await asyncio.sleep(0)
            since = time.monotonic()
        yield event


KEY_ARGUMENT = "the argument `api_key`"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedApi:
    """An API with one key; `hosts` are its official ones, with subdomains."""

    provider: str
    name: str
    url: str
    hosts: tuple[str, ...]
    default_model: str
    key_variable: str
    address_variable: str | None = None

    def create_service(
        self, options: ModelOptions, *, api_key: str | None, model: str | None, base_url: str | None
    ) -> ModelService:
        own = is_own_address(base_url, self.hosts)
        variable = options.key_variable or KEY_ARGUMENT
        is_meant = options.key_variable == self.key_variable or options.url_setting == self.address_variable
        return ModelService(
            name=self.name,
            model=model or self.default_model,
            url=validate_url(base_url, default=self.url),
            key_variable=variable,
            secret=_validate_key(api_key, provider=self.provider, variable=variable, optional=not own),
            is_foreign=not own and not is_meant,
        )


def is_own_address(base_url: str | None, hosts: tuple[str, ...]) -> bool:
    """Return whether an address is the default or TLS to one of the hosts."""
    if not base_url:
        return True
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return False
    host = f".{parts.hostname or ''}"
    return parts.scheme == "https" and any(host.endswith(f".{own}") for own in hosts)


def validate_url(base_url: str | None, *, default: str) -> str:
    """Return the address of an API; refuse all but http and https."""
    url = base_url or default
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"base_url is {url!r}; it must be an address such as https://models.example.com/v1.")
    return url


_NO_KEY = "no-key"
"""Placeholder, since the SDKs demand a key."""


def _validate_key(api_key: str | None, *, provider: str, variable: str, optional: bool = False) -> str:
    key = (api_key or "").strip() or (_NO_KEY if optional else "")
    if not key:
        raise SettingsError(f"The provider `{provider}` needs an API key: set {variable}.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            f"The API key for `{provider}` holds a space or another character no key has: check {variable}."
        )
    return key
