"""A service that is asked through OpenAI's own SDK, streamed; `openai_wire` knows what is said."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from agent_runtime.providers.faults import Failure, Service, retry_after, should_retry, verdict
from agent_runtime.providers.openai_wire import ChatReading, ResponsesReading, chat_body, responses_body, told
from agent_runtime.providers.options import ModelOptions, OpenAIApi
from agent_runtime.providers.protocol import Chunk, ReplyEnd, Request, TextChunk

if TYPE_CHECKING:
    import openai

_CONNECT_SECONDS = 10.0


class OpenAIClient:
    """What providers that speak one of OpenAI's APIs have in common: everything but who is asked."""

    def __init__(self, service: Service, *, options: ModelOptions, api: OpenAIApi, compatible: bool) -> None:
        """Get ready; nothing is sent yet.

        Args:
            service: who is asked, with the key.
            options: everything else.
            api: which API to speak.
            compatible: whether this is somebody else's server, which knows only what all of them know.
        """
        self._service, self._options, self._api, self._compatible = service, options, api, compatible
        self._made: openai.AsyncOpenAI | None = None

    @property
    def _client(self) -> openai.AsyncOpenAI:
        """Made for the first request: the SDK takes half a second and 60 MB, which an idle runtime need not pay."""
        import openai  # noqa: PLC0415 - as said

        if self._made is None:
            self._made = openai.AsyncOpenAI(
                api_key=self._service.secret,
                base_url=self._service.url,
                timeout=openai.Timeout(self._options.silence, connect=_CONNECT_SECONDS),
                max_retries=0,
            )
        return self._made

    @property
    def model(self) -> str:
        """The model's name, as the service knows it."""
        return self._service.model

    def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Answer one request; see `Provider.reply`."""
        return self._options.retry.run(lambda: self._attempt(request), self._service)

    async def close(self) -> None:
        """Give back connections; idempotent."""
        if self._made is not None:
            await self._made.close()

    async def _attempt(self, request: Request) -> AsyncGenerator[TextChunk | ReplyEnd]:
        import httpx2  # noqa: PLC0415 - the SDK lets some of its errors through once a stream has begun
        import openai  # noqa: PLC0415 - see _client

        chunks = self._responses(request) if self._api == "responses" else self._chat(request)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except (openai.APIError, httpx2.HTTPError, httpx2.StreamError, json.JSONDecodeError) as error:
            raise verdict(_failure(error), self._service) from None

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
    import openai  # noqa: PLC0415 - see OpenAIClient.__init__

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
