"""OpenAI, and servers compatible with it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.core.values import Image, ToolRequest, Usage
from agent_runtime.providers.models import load_prices
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
from agent_runtime.providers.retry import (
    Failure,
    ModelOptions,
    ModelService,
    OpenAIApi,
    checked_key,
    checked_url,
    is_foreign_address,
    is_own_address,
    refused,
    retry_after,
    should_retry,
    verdict,
)
from agent_runtime.providers.sdk import SdkProvider, broken_off, in_turns

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


# ---- Parts that OpenAI's two APIs share: failures in a stream, usage, images and arguments. Pure.


_STATUS_IN_STREAM = {
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
}


def told(code: str | None, message: str | None) -> Failure:
    """A failure that was told inside a stream, where it has no HTTP status of its own."""
    return Failure(status=_STATUS_IN_STREAM.get(code or "", 500), code=code or "", message=message or "")


def usage_of(*, sent: int, received: int, details: object) -> Usage:
    """OpenAI counts cached and newly cached tokens as part of those sent; ours are kept apart."""
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


def data_url(image: Image) -> str:
    """A picture as an address."""
    return f"data:{image.media_type};base64,{image.data}"


def json_arguments(request: ToolRequest) -> str:
    """The arguments of a call as an object in JSON, since many servers parse what they are sent back."""
    arguments = arguments_of(request)
    return json.dumps(arguments, ensure_ascii=False) if INVALID in arguments else request.arguments.strip() or "{}"


# ---- Requests to Chat Completions, of OpenAI and of compatible servers, and the meaning of its answers. Pure.


_CHAT_STOPS: dict[str, StopReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop"}
"""All other reasons (`length`, ones yet to come) cut a reply off."""


def chat_body(
    request: Request, *, model: str, options: ModelOptions, compatible: bool, parallel: bool = False
) -> CompletionCreateParamsStreaming:
    """The request as Chat Completions reads it; `compatible` servers get only what the oldest of them know."""
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
                {"type": "image_url", "image_url": {"url": data_url(image)}} for image in pictures + message.images
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
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": json_arguments(each)}}
            for each in message.requests
        ],
    }
    for part in parts_of(message, model):
        if isinstance(part, dict):
            reply.update(part)  # type: ignore[typeddict-item] # `reasoning_content`, which OpenAI does not have
    return reply


@dataclass(slots=True, kw_only=True)
class ChatReading:
    """One reply of Chat Completions being read.

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
        """What an event adds to the reply; a shape that we do not know adds nothing.

        Raises:
            ModelRefusedError: the model declined.
        """
        from openai.types.chat import chat_completion_chunk as chunks  # noqa: PLC0415 - as above
        from openai.types.completion_usage import CompletionUsage  # noqa: PLC0415 - as above

        told, known = list[Piece](), (self.reason, self.usage)
        for choice in getattr(event, "choices", None) or []:
            match choice:
                case chunks.Choice(delta=chunks.ChoiceDelta() as delta):
                    self.reason = choice.finish_reason or self.reason
                    self.refusal += delta.refusal or ""
                    if isinstance(delta.content, str) and delta.content:
                        told.append(TextChunk(text=self.parts.text(delta.content)))
                    pieces: list[object] = [*delta.tool_calls] if isinstance(delta.tool_calls, list) else []
                    told += [self._call(piece) for piece in pieces if isinstance(piece, chunks.ChoiceDeltaToolCall)]
                    self._think(getattr(delta, "reasoning_content", None))
                case _:
                    pass
        match getattr(event, "usage", None):
            case CompletionUsage(prompt_tokens=int(sent), completion_tokens=int(received)) as counted:
                usage = usage_of(sent=sent, received=received, details=counted.prompt_tokens_details)
                self.usage = load_prices().priced(self.service.model, usage)
            case _:
                pass
        if self.reason is None or (self.reason, self.usage) == known:
            return told
        if self.refusal or self.reason == "content_filter":
            raise refused(self.refusal or self.reason, self.service)
        stop = _CHAT_STOPS.get(self.reason, "length")
        return [*told, ReplyEnd(stop=stop, usage=self.usage, reasoning=self.parts.reasoning)]

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


# ---- Requests to OpenAI's Responses API and the meaning of its answers. Pure.


_CACHED_USER_MESSAGES = 2
"""Marks roll: the older one finds what the last request wrote, the newer one writes what the next will find."""

_MARKS_SINCE = (5, 6)
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-|$)")


def responses_body(request: Request, *, model: str, options: ModelOptions) -> ResponseCreateParamsStreaming:
    """The request as the Responses API reads it.

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
            items += [_output_item(part) for part in parts_of(message, model)] or [_said(message.text)]
            continue
        bare = bool(message.answers) and not (message.text or message.images)
        last = len(message.answers) - 1
        for at, answer in enumerate(message.answers):
            words: responses.ResponseInputTextContentParam = {"type": "input_text", "text": answer.text or "(empty)"}
            if bare and at == last and index in marked:
                words["prompt_cache_breakpoint"] = {"mode": "explicit"}
            images: list[responses.ResponseInputImageContentParam] = [
                {"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in answer.images
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
        return _said(part)
    if isinstance(part, ToolRequest):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": json_arguments(part)}
    return part  # type: ignore[return-value] # reasoning, as it came


def _said(text: str) -> responses.EasyInputMessageParam:
    return {"role": "assistant", "content": text}


def _input(text: str, *, mark: bool = False) -> responses.ResponseInputTextParam:
    part: responses.ResponseInputTextParam = {"type": "input_text", "text": text}
    if mark:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part


def _input_image(image: Image) -> responses.ResponseInputImageParam:
    return {"type": "input_image", "image_url": data_url(image), "detail": "auto"}


@dataclass(slots=True, kw_only=True)
class ResponsesReading:
    """One reply of the Responses API being read: events in, chunks out."""

    service: ModelService
    parts: ReplyParts
    joiner: BlockJoiner = field(default_factory=BlockJoiner)
    refusal: str = ""

    def read(self, event: object) -> list[Piece]:
        """What an event adds to the reply; a shape that we do not know adds nothing.

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
                raise verdict(told(error.code, error.message) if error else told(None, None), self.service)
            case responses.ResponseErrorEvent(code=code, message=message):
                raise verdict(told(code, message), self.service)
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
        usage = usage_of(
            sent=response.usage.input_tokens,
            received=response.usage.output_tokens,
            details=response.usage.input_tokens_details,
        )
        priced = load_prices().priced(self.service.model, usage)
        return ReplyEnd(stop=stop, usage=priced, reasoning=self.parts.reasoning)


# ---- A service that is asked through OpenAI's own SDK, streamed, by one of its two APIs.


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


DEFAULT_MODEL = "gpt-6.2-sol"
KEY_VARIABLE = "OPENAI_API_KEY"
HOSTS = ("api.openai.com",)
_URL = "https://api.openai.com/v1"


class OpenAIProvider(OpenAIClient):
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
        options = options or ModelOptions()
        compatible = bool(base_url)
        variable = options.key_variable or KEY_VARIABLE
        service = ModelService(
            name="The OpenAI-compatible server" if compatible else "OpenAI",
            model=model or DEFAULT_MODEL,
            url=checked_url(base_url, default=_URL),
            key_variable=variable,
            secret=checked_key(
                api_key, provider="openai", variable=variable, optional=not is_own_address(base_url, HOSTS)
            ),
            foreign=is_foreign_address(base_url, HOSTS, key_variable=options.key_variable, usual=KEY_VARIABLE),
        )
        super().__init__(
            service,
            options=options,
            api=options.api or ("chat" if compatible else "responses"),
            compatible=compatible,
        )

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Never preferred on somebody else's server, which may have to be told to parse calls."""
        return "supported" if self._compatible else super().tool_calling
