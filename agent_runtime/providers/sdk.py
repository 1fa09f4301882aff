"""The parts shared by providers that use a vendor's SDK.

`SdkProvider` has one client, made late and closed once. `KeyedApi` checks the key and the address of an API, so that a
key is sent to no other server than its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from agent_runtime.core.errors import SettingsError
from agent_runtime.providers.models import ModelOptions, accepts_images, family_of, limit_max_tokens, may_think_unasked
from agent_runtime.providers.protocol import Chunk, Piece, Request, ToolCalling
from agent_runtime.providers.retry import Failure, ModelService

if TYPE_CHECKING:
    import ssl


_T = TypeVar("_T")

SILENCE_SECONDS = 300.0
"""For models that do not think."""

THINKING_SILENCE_SECONDS = 900.0
"""For all others: a hard question takes the largest models more than ten minutes."""

_CONNECT_SECONDS = 10.0


class _Client(Protocol):
    """An SDK's client."""

    _custom_headers: Any

    async def close(self) -> None:
        """Give back connections."""
        ...


_C = TypeVar("_C", bound=_Client)


class SdkProvider(ABC, Generic[_C]):
    """A `Provider` but for what its vendor's SDK does its own way."""

    def __init__(self, service: ModelService, options: ModelOptions) -> None:
        """Get ready; nothing is sent yet.

        Args:
            service: the service, with the key.
            options: everything else; a longer reply than the model can write is not asked for.

        Raises:
            SettingsError: it cannot think for as long as the options say.
        """
        self._service, self._options = service, limit_max_tokens(options, service.model)
        self._made: _C | None = None

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        return self._service.model

    @property
    def sees_images(self) -> bool:
        """Whether the model is known to see, or said to by the options."""
        return accepts_images(self._service.model, self._options.images)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred where the model is known to do better by it."""
        return "preferred" if family_of(self._service.model).prefers_tools else "supported"

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`."""
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None:
        """Give back connections; idempotent."""
        if self._made is not None:
            await self._made.close()

    @property
    def _client(self) -> _C:
        """Made for the first request: an SDK takes half a second and 60 MB, which an idle runtime need not pay."""
        if self._made is None:
            import httpx2  # noqa: PLC0415 - as said

            self._made = self._connected(
                _trusted(),
                api_key=self._service.secret,
                base_url=self._service.url,
                timeout=httpx2.Timeout(silence_limit(self._service.model, self._options), connect=_CONNECT_SECONDS),
                max_retries=0,
            )
            if self._service.foreign:
                # From ANTHROPIC_CUSTOM_HEADERS and OPENAI_CUSTOM_HEADERS; no argument keeps an SDK from reading them.
                self._made._custom_headers = {}  # noqa: SLF001 - see above
        return self._made

    @abstractmethod
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> _C:  # noqa: ANN401 - what an SDK's client takes
        """The SDK's client, on connections to servers that `trusted` accepts."""

    @abstractmethod
    def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        """One request; see `retry.Attempt`."""


def silence_limit(model: str, options: ModelOptions) -> float:
    """Return the seconds without a byte from the service after which an attempt counts as broken off.

    A model that thinks may send nothing for many minutes, and what it thought is charged for. Giving up too early buys
    the same thoughts again; giving up too late only costs time. So the short limit is for those known not to think.
    """
    if options.silence is not None:
        return options.silence
    if options.reasoning_effort == "none" or (options.thinking is not None and not options.thinking.enabled):
        may_think = False
    elif options.reasoning_effort is not None or options.thinking is not None:
        may_think = True
    else:
        may_think = may_think_unasked(model)
    return THINKING_SILENCE_SECONDS if may_think else SILENCE_SECONDS


def connection_failure(error: Exception, *, begun: bool) -> Failure:
    """Describe a failed connection.

    Args:
        error: the SDK's own error with its cause, or one that the SDK let through.
        begun: whether the service had begun to answer.
    """
    import httpx2  # noqa: PLC0415 - see SdkProvider._client

    cause = error.__cause__ if isinstance(error.__cause__, httpx2.HTTPError) else error
    if isinstance(cause, httpx2.ReadTimeout):
        return Failure(status=None, message="no answer in time", silent=True)
    if isinstance(error, json.JSONDecodeError):
        return Failure(status=None, message="a chunk of the stream was not JSON", billed=True)
    what = "the connection broke off" if begun else "no connection"
    return Failure(status=None, message=f"{what} ({type(cause).__name__})", billed=begun)


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that this machine trusts; read once, as that takes some 30 ms of processor time."""
    import httpx2  # noqa: PLC0415 - see SdkProvider._client

    return httpx2.create_ssl_context()


_TURN_SECONDS = 0.01


async def yield_regularly(events: AsyncIterable[_T]) -> AsyncGenerator[_T]:
    """Yield the events of a stream; after every 10 ms of work on them the event loop's other tasks get their turn.

    Reading events that have already arrived does not suspend. Without this, a model that sends thousands of small
    ones at once stops everything else in the process for as long as they take to parse.
    """
    since = time.monotonic()
    async for event in events:
        if time.monotonic() - since > _TURN_SECONDS:
            await asyncio.sleep(0)
            since = time.monotonic()
        yield event


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedApi:
    """An API that is used with one key.

    Attributes:
        provider: the provider's name in the catalog.
        name: the company or server, as people call it.
        url: its address.
        hosts: where the service itself answers, subdomains included.
        default_model: the model asked for when none is named.
        key_variable: the environment variable that usually holds the key.
    """

    provider: str
    name: str
    url: str
    hosts: tuple[str, ...]
    default_model: str
    key_variable: str

    def service(
        self, options: ModelOptions, *, api_key: str | None, model: str | None, base_url: str | None
    ) -> ModelService:
        """Return the service to ask: this API, or a compatible server of the user's at `base_url`.

        Raises:
            SettingsError: there is no usable key, or the address is none.
        """
        own = is_own_address(base_url, self.hosts)
        variable = options.key_variable or self.key_variable
        return ModelService(
            name=self.name,
            model=model or self.default_model,
            url=checked_url(base_url, default=self.url),
            key_variable=variable,
            secret=_checked_key(api_key, provider=self.provider, variable=variable, optional=not own),
            foreign=not own and options.key_variable != self.key_variable,
        )


def is_own_address(base_url: str | None, hosts: tuple[str, ...]) -> bool:
    """Return whether an address is a service's own: none, or TLS to one of its hosts or to a subdomain of one."""
    if not base_url:
        return True
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return False
    host = f".{parts.hostname or ''}"
    return parts.scheme == "https" and any(host.endswith(f".{own}") for own in hosts)


def checked_url(base_url: str | None, *, default: str) -> str:
    """Return the address of a service's API.

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


_NO_KEY = "no-key"
"""Sent in place of a key to a server that may need none: the SDKs demand one."""


def _checked_key(api_key: str | None, *, provider: str, variable: str, optional: bool = False) -> str:
    """Return the API key, fit to travel in a header.

    Raises:
        SettingsError: it is missing, or holds characters no key has. The text never quotes the key.
    """
    key = (api_key or "").strip() or (_NO_KEY if optional else "")
    if not key:
        raise SettingsError(f"The provider `{provider}` needs an API key: set {variable}, or pass api_key=.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            f"The API key for `{provider}` holds a space or another character no key has: check {variable}."
        )
    return key
