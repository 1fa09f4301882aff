"""OpenAI, and servers compatible with it, through OpenAI's own SDK, streamed; `openai_wire` knows what is said."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from agent_runtime.providers.faults import Failure, Service, retry_after, should_retry
from agent_runtime.providers.openai_wire import ChatReading, ResponsesReading, chat_body, raised, responses_body, told
from agent_runtime.providers.options import ModelOptions, checked_key, checked_url
from agent_runtime.providers.protocol import Chunk, ReplyEnd, Request, TextChunk

if TYPE_CHECKING:
    import openai

DEFAULT_MODEL = "gpt-6.2-sol"
KEY_VARIABLE = "OPENAI_API_KEY"
_URL = "https://api.openai.com/v1"
_CONNECT_SECONDS = 10.0


class OpenAIProvider:
    """Models of OpenAI, or of a server that speaks one of its APIs.

    OpenAI itself is asked through the Responses API, and any other `base_url` through Chat Completions, which is
    what compatible servers speak; `ModelOptions.api` overrides this.
    """

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Get ready; nothing is sent yet. A server of one's own, named by `base_url`, may need no key.

        Raises:
            SettingsError: there is no usable key, or the address is none.
        """
        import openai  # noqa: PLC0415 - takes half a second: only who asks for it pays

        if base_url and not api_key:
            api_key = "none"
        key = checked_key(api_key, provider="openai", variable=KEY_VARIABLE)
        self._options = options or ModelOptions()
        self._compatible = bool(base_url)
        self._api = self._options.api or ("chat" if self._compatible else "responses")
        self._service = Service(
            name="The OpenAI-compatible server" if self._compatible else "OpenAI",
            model=model or DEFAULT_MODEL,
            url=checked_url(base_url, default=_URL),
            key_variable=KEY_VARIABLE,
            secret=key,
        )
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=self._service.url,
            timeout=openai.Timeout(self._options.silence, connect=_CONNECT_SECONDS),
            max_retries=0,
        )

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        return self._service.model

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`."""
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None:
        """Give back connections; idempotent."""
        await self._client.close()

    async def _attempt(self, request: Request) -> AsyncGenerator[TextChunk | ReplyEnd]:
        import httpx2  # noqa: PLC0415 - the SDK lets some of its errors through once a stream has begun
        import openai  # noqa: PLC0415 - see __init__

        chunks = self._responses(request) if self._api == "responses" else self._chat(request)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except (openai.APIError, httpx2.HTTPError, httpx2.StreamError, json.JSONDecodeError) as error:
            raise raised(_failure(error), self._service) from None

    async def _responses(self, request: Request) -> AsyncGenerator[TextChunk | ReplyEnd]:
        body = responses_body(request, model=self.model, options=self._options)
        reading = ResponsesReading(service=self._service)
        async with await self._client.responses.create(**body) as stream:
            async for event in stream:
                for chunk in reading.read(event):
                    yield chunk

    async def _chat(self, request: Request) -> AsyncGenerator[TextChunk | ReplyEnd]:
        body = chat_body(request, model=self.model, options=self._options, compatible=self._compatible)
        reading = ChatReading(service=self._service)
        async with await self._client.chat.completions.create(**body) as stream:
            async for event in stream:
                for chunk in reading.read(event):
                    yield chunk
        for chunk in reading.end():
            yield chunk


def _failure(error: Exception) -> Failure:
    import openai  # noqa: PLC0415 - see OpenAIProvider.__init__

    match error:
        case openai.APIStatusError():
            return Failure(
                status=error.status_code,
                code=error.code or error.type or "",
                message=_message(error),
                retry_after=retry_after(error.response.headers),
                again=should_retry(error.response.headers),
            )
        case openai.APITimeoutError():
            return Failure(status=None, message="no answer in time")
        case openai.APIConnectionError():
            return Failure(status=None, message=f"the connection failed ({type(error.__cause__).__name__})")
        case openai.APIError():
            return told(error.code or error.type, _message(error))
        case json.JSONDecodeError():
            return Failure(status=None, message="a chunk of the stream was not JSON")
        case _:
            return Failure(status=None, message=f"the connection broke off ({type(error).__name__})")


def _message(error: openai.APIError) -> str:
    """The service's own sentence; the SDK's holds the whole answer beside it."""
    said = error.body.get("message") if isinstance(error.body, dict) else None
    return said if isinstance(said, str) else ""
