"""OpenAI, and servers compatible with it, streamed through OpenAI's own SDK.

There are two APIs: Responses (https://developers.openai.com/api/docs/api-reference) for OpenAI itself, and Chat
Completions (https://developers.openai.com/api/docs/api-reference/chat) for all that is compatible. `OpenAIClient` sends
a request by either; `_chat_body` and `ChatReader`, `responses_body` and `ResponsesReader` are the two formats.

The cache: https://developers.openai.com/api/docs/guides/prompt-caching. Reasoning between calls goes back encrypted:
https://developers.openai.com/api/docs/guides/reasoning.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.core.values import Image, ToolRequest, Usage
from agent_runtime.providers.models import ModelOptions, OpenAIApi, load_prices
from agent_runtime.providers.protocol import (
    INVALID,
    BlockJoiner,
    CallChunk,
    Message,
    Part,
    Piece,
    ReplyEnd,
    ReplyParts,
    Request,
    StopReason,
    TextChunk,
    ToolCalling,
    arguments_of,
    parts_of,
)
from agent_runtime.providers.retry import Failure, ModelService, refused, retry_after, should_retry, verdict
from agent_runtime.providers.sdk import KeyedApi, SdkProvider, connection_failure, yield_regularly

if TYPE_CHECKING:
    import ssl

    import openai
    from openai.types import responses
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionContentPartParam,
        ChatCompletionMessageParam,
    )
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming


class OpenAIClient(SdkProvider["openai.AsyncOpenAI"]):
    """Base of providers that speak one of OpenAI's APIs; a subclass names the service."""

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
            service: the service, with the key.
            options: everything else.
            api: which API to speak.
            compatible: whether this is another server, which is sent only the parameters that all of them know.
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

        reading: ResponsesReader | ChatReader
        sent: Awaitable[openai.AsyncStream[Any]]
        if self._api == "responses":
            reading = ResponsesReader(service=self._service, parts=ReplyParts(self.model))
            sent = self._client.responses.create(**responses_body(request, model=self.model, options=self._options))
        else:
            reading = ChatReader(service=self._service, parts=ReplyParts(self.model))
            body = _chat_body(
                request, model=self.model, options=self._options, compatible=self._compatible, parallel=self._parallel
            )
            sent = self._client.chat.completions.create(**body)
        begun = False
        try:
            async with await sent as stream:
                begun = True
                async for event in yield_regularly(stream):
                    for chunk in reading.read(event):
                        yield chunk
        except (openai.APIError, httpx2.HTTPError, httpx2.StreamError, json.JSONDecodeError) as error:
            raise verdict(_failure(error, begun=begun), self._service) from None


class OpenAIProvider(OpenAIClient):
    """Models of OpenAI, or of a server that speaks one of its APIs.

    OpenAI itself is asked through the Responses API, and any other `base_url` through Chat Completions, which is
    what compatible servers speak; `ModelOptions.api` overrides this.
    """

    keyed_api = KeyedApi(
        provider="openai",
        name="OpenAI",
        url="https://api.openai.com/v1",
        hosts=("api.openai.com",),
        default_model="gpt-6.2-sol",
        key_variable="OPENAI_API_KEY",
    )

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
        options = options or ModelOptions()
        compatible = bool(base_url)
        service = self.keyed_api.service(options, api_key=api_key, model=model, base_url=base_url)
        if compatible:
            service = replace(service, name="The OpenAI-compatible server")
        super().__init__(
            service,
            options=options,
            api=options.api or ("chat" if compatible else "responses"),
            compatible=compatible,
        )

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Never preferred on a compatible server, which may have to be told to parse calls."""
        return "supported" if self._compatible else super().tool_calling


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
            return connection_failure(error, begun=begun)
        case openai.APIError():
            return _stream_failure(error.code or error.type, _message(error))
        case _:
            return connection_failure(error, begun=begun)


def _message(error: openai.APIError) -> str:
    """Return the service's own sentence; the SDK's message holds the whole answer beside it."""
    text = error.body.get("message") if isinstance(error.body, dict) else None
    return text if isinstance(text, str) else ""


_STATUS_IN_STREAM = {
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
}


def _stream_failure(code: str | None, message: str | None) -> Failure:
    """Return a failure that was reported inside a stream, where it has no HTTP status of its own."""
    return Failure(status=_STATUS_IN_STREAM.get(code or "", 500), code=code or "", message=message or "")


def _chat_body(
    request: Request, *, model: str, options: ModelOptions, compatible: bool, parallel: bool = False
) -> CompletionCreateParamsStreaming:
    """Return a request to Chat Completions; `compatible` servers get only what the oldest of them know."""
    body: CompletionCreateParamsStreaming = {
        "model": model,
        "messages": _messages(request, model),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
    if request.tools and parallel:
        body["parallel_tool_calls"] = True
    if compatible:
        body["max_tokens"] = options.max_tokens
    else:
        body["max_completion_tokens"] = options.max_tokens
    if options.cache_key is not None:
        body["prompt_cache_key"] = options.cache_key
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    return body


def _messages(request: Request, model: str) -> list[ChatCompletionMessageParam]:
    messages: list[ChatCompletionMessageParam] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "assistant":
            messages.append(_chat_reply(message, model))
            continue
        messages += [
            {"role": "tool", "tool_call_id": answer.id, "content": answer.text or "(empty)"}
            for answer in message.answers
        ]
        # No place is known to every server for a picture in an answer: it is in the user's words behind it.
        pictures = tuple(image for answer in message.answers for image in answer.images)
        if message.text or pictures or message.images or not message.answers:
            text = message.text or "The pictures of the results."
            parts: list[ChatCompletionContentPartParam] = [
                {"type": "image_url", "image_url": {"url": _data_url(image)}} for image in pictures + message.images
            ]
            # Servers without any images may know texts only.
            messages.append({"role": "user", "content": [*parts, {"type": "text", "text": text}] if parts else text})
    if request.status:
        messages.append({"role": "user", "content": request.status})
    return messages


def _chat_reply(message: Message, model: str) -> ChatCompletionAssistantMessageParam:
    """An earlier reply; where the server streams what its model thinks, that goes back with the calls."""
    if not message.requests:
        return {"role": "assistant", "content": message.text}
    reply: ChatCompletionAssistantMessageParam = {
        "role": "assistant",
        "content": message.text or None,
        "tool_calls": [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": _json_arguments(each)}}
            for each in message.requests
        ],
    }
    for part in parts_of(message, model):
        if isinstance(part, dict):
            reply.update(part)  # type: ignore[typeddict-item] # `reasoning_content`, which OpenAI does not have
    return reply


_CHAT_STOPS: dict[str, StopReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop"}
"""All other reasons (`length`, ones yet to come) cut a reply off."""


@dataclass(slots=True, kw_only=True)
class ChatReader:
    """A reader of one reply of Chat Completions: events in, chunks out.

    Its usage follows its stop reason, in an event of its own that not every server sends. So there may be two ends, and
    the later one knows more.
    """

    service: ModelService
    parts: ReplyParts
    thoughts: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    others: int = 0
    refusal: str = ""
    reason: str | None = None
    usage: Usage = field(default_factory=lambda: Usage(requests=1, cost_usd=None))

    def read(self, event: object) -> list[Piece]:
        """Return the chunks that an event adds to the reply; none for an unknown event.

        Raises:
            ModelRefusedError: the model declined.
        """
        from openai.types.chat import chat_completion_chunk as chunks  # noqa: PLC0415 - as above
        from openai.types.completion_usage import CompletionUsage  # noqa: PLC0415 - as above

        output, known = list[Piece](), (self.reason, self.usage)
        for choice in getattr(event, "choices", None) or []:
            match choice:
                case chunks.Choice(delta=chunks.ChoiceDelta() as delta):
                    self.reason = choice.finish_reason or self.reason
                    self.refusal += delta.refusal or ""
                    if isinstance(delta.content, str) and delta.content:
                        output.append(TextChunk(text=self.parts.text(delta.content)))
                    pieces: list[object] = [*delta.tool_calls] if isinstance(delta.tool_calls, list) else []
                    output += [self._call(piece) for piece in pieces if isinstance(piece, chunks.ChoiceDeltaToolCall)]
                    self._think(getattr(delta, "reasoning_content", None))
                case _:
                    pass
        match getattr(event, "usage", None):
            case CompletionUsage(prompt_tokens=int(sent), completion_tokens=int(received)) as counted:
                usage = _usage(sent=sent, received=received, details=counted.prompt_tokens_details)
                self.usage = load_prices().priced(self.service.model, usage)
            case _:
                pass
        if self.reason is None or (self.reason, self.usage) == known:
            return output
        if self.refusal or self.reason == "content_filter":
            raise refused(self.refusal or self.reason, self.service)
        stop = _CHAT_STOPS.get(self.reason, "length")
        return [*output, ReplyEnd(stop=stop, usage=self.usage, reasoning=self.parts.reasoning)]

    def _call(self, piece: ChoiceDeltaToolCall) -> CallChunk:
        """A piece of a call. Some servers number all calls 0, and tell them apart by their ids alone."""
        place, name = str(piece.index), str(piece.id or "")
        if name and self.ids.get(place, name) != name:
            self.others += 1
        if name:
            self.ids[place] = name
        function = piece.function
        return self.parts.call(
            (place, self.others),
            id_=name,
            name=getattr(function, "name", ""),
            arguments=getattr(function, "arguments", ""),
        )

    def _think(self, more: object) -> None:
        """Keep what the model thinks, where a compatible server streams it: some want it back with the calls."""
        if isinstance(more, str) and more:
            if not self.thoughts:
                self.parts.keep(self.thoughts)
            self.thoughts["reasoning_content"] = self.thoughts.get("reasoning_content", "") + more


_CACHED_USER_MESSAGES = 2
"""Marks roll: the older one finds what the last request wrote, the newer one writes what the next will find."""

_MARKS_SINCE = (5, 6)

_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-|$)")


def responses_body(request: Request, *, model: str, options: ModelOptions) -> ResponseCreateParamsStreaming:
    """Return a request to the Responses API.

    Since gpt-5.6 the cache only knows prefixes that end at a mark, and by itself the service marks the end of the
    last message: our status, which never comes again. So we mark the messages before it and ask for nothing else.
    The status follows the last mark, so request n, its marks and status aside, is a prefix of request n+1.
    """
    version = _GPT.match(model)  # older models refuse marks, and cache every long beginning by themselves
    marks = version is not None and (int(version[1]), int(version[2] or 0)) >= _MARKS_SINCE
    body: ResponseCreateParamsStreaming = {
        "model": model,
        "input": _items(request, model, marks=marks),
        "max_output_tokens": options.max_tokens,
        "store": False,  # by default OpenAI keeps every response for 30 days
        "stream": True,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,  # it would demand every parameter in every call
            }
            for tool in request.tools
        ]
    if marks:
        body["prompt_cache_options"] = {"mode": "explicit"}
    if options.cache_key is not None:
        body["prompt_cache_key"] = options.cache_key
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.reasoning_effort is not None:
        body["reasoning"] = {"effort": options.reasoning_effort}
    return body


def _items(request: Request, model: str, *, marks: bool) -> list[responses.ResponseInputItemParam]:
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    marked = set(users[-_CACHED_USER_MESSAGES:]) if marks else set()
    items: list[responses.ResponseInputItemParam] = []
    if request.system:
        items.append({"role": "developer", "content": [_input(request.system, mark=marks)]})
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            items += [_output_item(part) for part in parts_of(message, model)] or [_assistant_text(message.text)]
            continue
        bare = bool(message.answers) and not (message.text or message.images)
        last = len(message.answers) - 1
        for at, answer in enumerate(message.answers):
            words: responses.ResponseInputTextContentParam = {"type": "input_text", "text": answer.text or "(empty)"}
            if bare and at == last and index in marked:
                words["prompt_cache_breakpoint"] = {"mode": "explicit"}
            images: list[responses.ResponseInputImageContentParam] = [
                {"type": "input_image", "image_url": _data_url(image), "detail": "auto"} for image in answer.images
            ]
            output: responses.response_input_item_param.FunctionCallOutput = {
                "type": "function_call_output",
                "call_id": answer.id,
                "output": [*images, words] if images or marks else words["text"],
            }
            items.append(output)
        if not bare:
            text = _input(message.text, mark=index in marked)
            items.append({"role": "user", "content": [*map(_input_image, message.images), text]})
    if request.status:
        items.append({"role": "user", "content": [_input(request.status)]})
    return items


def _output_item(part: Part) -> responses.ResponseInputItemParam:
    """A part of an earlier reply."""
    if isinstance(part, str):
        return _assistant_text(part)
    if isinstance(part, ToolRequest):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": _json_arguments(part)}
    return part  # type: ignore[return-value] # reasoning, as it came


def _assistant_text(text: str) -> responses.EasyInputMessageParam:
    return {"role": "assistant", "content": text}


def _input(text: str, *, mark: bool = False) -> responses.ResponseInputTextParam:
    part: responses.ResponseInputTextParam = {"type": "input_text", "text": text}
    if mark:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part


def _input_image(image: Image) -> responses.ResponseInputImageParam:
    return {"type": "input_image", "image_url": _data_url(image), "detail": "auto"}


@dataclass(slots=True, kw_only=True)
class ResponsesReader:
    """A reader of one reply of the Responses API: events in, chunks out."""

    service: ModelService
    parts: ReplyParts
    joiner: BlockJoiner = field(default_factory=BlockJoiner)
    refusal: str = ""

    def read(self, event: object) -> list[Piece]:
        """Return the chunks that an event adds to the reply; none for an unknown event.

        Raises:
            ModelRefusedError: the model declined.
            BrokenOffError: the service failed in mid-stream.
            ModelRejectedError: the service refused in mid-stream.
        """
        from openai.types import responses  # noqa: PLC0415 - loaded when the provider was made

        match event:
            case responses.ResponseTextDeltaEvent(delta=str(text)) if text:
                joined = self.joiner.join((event.output_index, event.content_index), text)
                return [TextChunk(text=self.parts.text(joined))]
            case responses.ResponseRefusalDeltaEvent(delta=str(text)):
                self.refusal += text
            case responses.ResponseCompletedEvent(response=responses.Response() as response):
                return [self._end("stop", response)]
            case responses.ResponseIncompleteEvent(response=responses.Response() as response):
                return [self._end("length", response)]
            case responses.ResponseFailedEvent(response=responses.Response(error=error)):
                raise verdict(
                    _stream_failure(error.code, error.message) if error else _stream_failure(None, None), self.service
                )
            case responses.ResponseErrorEvent(code=code, message=message):
                raise verdict(_stream_failure(code, message), self.service)
            case responses.ResponseOutputItemAddedEvent(item=responses.ResponseFunctionToolCall() as call):
                return [self.parts.call(event.output_index, id_=call.call_id, name=call.name)]
            case responses.ResponseFunctionCallArgumentsDeltaEvent(output_index=index, delta=str(more)) if more:
                return [self.parts.call(index, arguments=more)]
            case responses.ResponseOutputItemDoneEvent(item=responses.ResponseReasoningItem() as item) if (
                item.encrypted_content  # without it there is nothing that could be read there again
            ):
                self.parts.keep(item.to_dict(mode="json", exclude_none=True))
            case _:
                pass
        return []

    def _end(self, stop: StopReason, response: responses.Response) -> ReplyEnd:
        cut = response.incomplete_details
        if self.refusal or (cut and cut.reason == "content_filter"):
            raise refused(self.refusal or "content_filter", self.service)
        if response.usage is None:
            return ReplyEnd(stop=stop, usage=Usage(requests=1, cost_usd=None), reasoning=self.parts.reasoning)
        usage = _usage(
            sent=response.usage.input_tokens,
            received=response.usage.output_tokens,
            details=response.usage.input_tokens_details,
        )
        priced = load_prices().priced(self.service.model, usage)
        return ReplyEnd(stop=stop, usage=priced, reasoning=self.parts.reasoning)


def _usage(*, sent: int, received: int, details: object) -> Usage:
    """Return the usage; OpenAI counts cached and newly cached tokens as part of those sent, `Usage` does not."""
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    return Usage(
        requests=1,
        input_tokens=max(0, sent - cached - written),
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=received,
    )


def _count(details: object, name: str) -> int:
    value = getattr(details, name, None)
    return value if isinstance(value, int) else 0


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def _json_arguments(request: ToolRequest) -> str:
    """Return the arguments of a call as an object in JSON, since many servers parse what they are sent back."""
    arguments = arguments_of(request)
    return json.dumps(arguments, ensure_ascii=False) if INVALID in arguments else request.arguments.strip() or "{}"
