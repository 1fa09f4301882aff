"""The parts shared by providers that use a vendor's SDK: one client, made late and closed once."""

from __future__ import annotations

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from agent_runtime.providers.models import bounded, plain_name, prefers_tools, sees, thinks_by_itself
from agent_runtime.providers.protocol import Chunk, Piece, Request, ToolCalling
from agent_runtime.providers.retry import Failure, ModelOptions, ModelService

if TYPE_CHECKING:
    import ssl

_CONNECT_SECONDS = 10.0
_TURN_SECONDS = 0.01
_T = TypeVar("_T")


SILENCE_SECONDS = 300.0
"""For models that do not think."""
THINKING_SILENCE_SECONDS = 900.0
"""For all others: a hard question takes the largest models more than ten minutes."""
_PLAIN = re.compile(r"gpt-(?:3|4)|chatgpt-4o|qwen(?:2|-(?:turbo|plus|max|long))")
"""Models of before there was thinking."""


async def in_turns(events: AsyncIterable[_T]) -> AsyncGenerator[_T]:
    """The events of a stream; after every 10 ms of work on them the event loop's other tasks get their turn.

    Reading events that have already arrived does not suspend. Without this, a model that sends thousands of small
    ones at once stops everything else in the process for as long as they take to parse.
    """
    since = time.monotonic()
    async for event in events:
        if time.monotonic() - since > _TURN_SECONDS:
            await asyncio.sleep(0)
            since = time.monotonic()
        yield event


class _Client(Protocol):
    """What is needed of an SDK's client here."""

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
            service: who is asked, with the key.
            options: everything else; a longer reply than the model can write is not asked for.

        Raises:
            SettingsError: it cannot think for as long as the options say.
        """
        self._service, self._options = service, bounded(options, service.model)
        self._made: _C | None = None

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        return self._service.model

    @property
    def sees_images(self) -> bool:
        """Whether the model is known to see, or said to by the options."""
        return sees(self._service.model, self._options.images)

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred where the model is known to do better by it."""
        return "preferred" if prefers_tools(self._service.model) else "supported"

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
                timeout=httpx2.Timeout(silence(self._service.model, self._options), connect=_CONNECT_SECONDS),
                max_retries=0,
            )
            if self._service.foreign:
                # From ANTHROPIC_CUSTOM_HEADERS and OPENAI_CUSTOM_HEADERS; no argument keeps an SDK from reading them.
                self._made._custom_headers = {}  # noqa: SLF001 - see above
        return self._made

    @abstractmethod
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> _C:  # noqa: ANN401 - what an SDK's client takes
        """The SDK's client, on connections to whom `trusted` knows."""

    @abstractmethod
    def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        """One request; see `retry.Attempt`."""


def broken_off(error: Exception, *, begun: bool) -> Failure:
    """What a failed connection means.

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
    """Whose certificates this machine trusts; read once, as that takes some 30 ms of processor time."""
    import httpx2  # noqa: PLC0415 - see SdkProvider._client

    return httpx2.create_ssl_context()


def silence(model: str, options: ModelOptions) -> float:
    """Seconds without a byte from the service after which an attempt counts as broken off.

    A model that thinks may send nothing for many minutes, and what it thought is charged for. Giving up too early buys
    the same thoughts again; giving up too late only costs time. So the short limit is for those known not to think.
    """
    if options.silence is not None:
        return options.silence
    name = plain_name(model)
    if options.reasoning_effort == "none" or (options.thinking is not None and not options.thinking.enabled):
        may_think = False
    elif options.reasoning_effort is not None or options.thinking is not None:
        may_think = True
    elif name.startswith("claude-"):
        may_think = thinks_by_itself(model)
    else:
        may_think = _PLAIN.match(name) is None
    return THINKING_SILENCE_SECONDS if may_think else SILENCE_SECONDS
