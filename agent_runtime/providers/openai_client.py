"""A service that is asked through OpenAI's own SDK, streamed, by one of its two APIs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.providers.faults import Failure, ModelService, retry_after, should_retry, verdict
from agent_runtime.providers.openai_chat import ChatReading, chat_body
from agent_runtime.providers.openai_responses import ResponsesReading, responses_body
from agent_runtime.providers.openai_wire import told
from agent_runtime.providers.options import ModelOptions, OpenAIApi
from agent_runtime.providers.protocol import Piece, Request
from agent_runtime.providers.reply_parts import ReplyParts
from agent_runtime.providers.sdk import SdkProvider, broken_off, in_turns

if TYPE_CHECKING:
    import ssl

    import openai


class OpenAIClient(SdkProvider["openai.AsyncOpenAI"]):
    """What providers that speak one of OpenAI's APIs have in common: everything but who is asked."""

    def __init__(
        self,
        service: ModelService,
        *,
        options: ModelOptions,
        api: OpenAIApi,
        compatible: bool,
        parallel_on_request: bool = False,
    ) -> None:
        """Get ready; nothing is sent yet.

        Args:
            service: who is asked, with the key.
            options: everything else.
            api: which API to speak.
            compatible: whether this is somebody else's server, which knows only what all of them know.
            parallel_on_request: whether its models make several calls in one reply only if they are told that they may.
        """
        super().__init__(service, options)
        self._api, self._compatible, self._parallel = api, compatible, parallel_on_request

    @override
    def _connected(self, trusted: ssl.SSLContext, **settings: Any) -> openai.AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        client = openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(verify=trusted), **settings)
        if self._service.foreign:
            client.organization = client.project = None  # from OPENAI_ORG_ID and OPENAI_PROJECT_ID
        return client

    @override
    async def _attempt(self, request: Request) -> AsyncGenerator[Piece]:
        import httpx2  # noqa: PLC0415 - the SDK lets some of its errors through once a stream has begun
        import openai  # noqa: PLC0415 - see SdkProvider._client

        reading: ResponsesReading | ChatReading
        sent: Awaitable[openai.AsyncStream[Any]]
        if self._api == "responses":
            reading = ResponsesReading(service=self._service, parts=ReplyParts(self.model))
            asked = responses_body(request, model=self.model, options=self._options)
            sent = self._client.responses.create(**asked)
        else:
            reading = ChatReading(service=self._service, parts=ReplyParts(self.model))
            body = chat_body(
                request, model=self.model, options=self._options, compatible=self._compatible, parallel=self._parallel
            )
            sent = self._client.chat.completions.create(**body)
        begun = False
        try:
            async with await sent as stream:
                begun = True
                async for event in in_turns(stream):
                    for chunk in reading.read(event):
                        yield chunk
        except (openai.APIError, httpx2.HTTPError, httpx2.StreamError, json.JSONDecodeError) as error:
            raise verdict(_failure(error, begun=begun), self._service) from None


def _failure(error: Exception, *, begun: bool) -> Failure:
    import openai  # noqa: PLC0415 - see SdkProvider._client

    match error:
        case openai.APIStatusError():
            return Failure(
                status=error.status_code,
                code=error.code or error.type or "",
                message=_message(error),
                retry_after=retry_after(error.response.headers),
                again=should_retry(error.response.headers),
            )
        case openai.APIConnectionError():
            return broken_off(error, begun=begun)
        case openai.APIError():
            return told(error.code or error.type, _message(error))
        case _:
            return broken_off(error, begun=begun)


def _message(error: openai.APIError) -> str:
    """The service's own sentence; the SDK's holds the whole answer beside it."""
    said = error.body.get("message") if isinstance(error.body, dict) else None
    return said if isinstance(said, str) else ""
