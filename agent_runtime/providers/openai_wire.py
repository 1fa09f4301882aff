"""Requests to OpenAI's two APIs and the meaning of their answers. Pure.

Both APIs: https://developers.openai.com/api/docs/api-reference. The cache:
https://developers.openai.com/api/docs/guides/prompt-caching.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.blocks import BlockJoiner
from agent_runtime.providers.faults import Failure, ModelService, refused, verdict
from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.prices import load_prices
from agent_runtime.providers.protocol import Message, Piece, ReplyEnd, Request, StopReason, TextChunk

if TYPE_CHECKING:
    from openai.types import responses
    from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

_CACHED_USER_MESSAGES = 2
"""Marks roll: the older one finds what the last request wrote, the newer one writes what the next will find."""

_MARKS_SINCE = (5, 6)
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-|$)")

_CHAT_STOPS: dict[str, StopReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop"}
"""All other reasons (`length`, ones yet to come) cut a reply off."""

_STATUS_IN_STREAM = {
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
}


def responses_body(request: Request, *, model: str, options: ModelOptions) -> ResponseCreateParamsStreaming:
    """The request as the Responses API reads it.

    Since gpt-5.6 the cache only knows prefixes that end at a mark, and by itself the service marks the end of the
    last message: our status, which never comes again. So we mark the messages before it and ask for nothing else.
    The status follows the last mark, so request n, its marks and status aside, is a prefix of request n+1.
    """
    marks = _takes_marks(model)
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    marked = set(users[-_CACHED_USER_MESSAGES:]) if marks else set()
    items: list[responses.ResponseInputItemParam] = []
    if request.system:
        items.append({"role": "developer", "content": [_input(request.system, mark=marks)]})
    for index, message in enumerate(request.messages):
        if message.role == "user":
            text = _input(message.text, mark=index in marked)
            items.append({"role": "user", "content": [*map(_input_image, message.images), text]})
        else:
            items.append({"role": "assistant", "content": message.text})
    if request.status:
        items.append({"role": "user", "content": [_input(request.status)]})
    body: ResponseCreateParamsStreaming = {
        "model": model,
        "input": items,
        "max_output_tokens": options.max_tokens,
        "store": False,  # by default OpenAI keeps every response for 30 days
        "stream": True,
    }
    if marks:
        body["prompt_cache_options"] = {"mode": "explicit"}
    if options.cache_key is not None:
        body["prompt_cache_key"] = options.cache_key
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.reasoning_effort is not None:
        body["reasoning"] = {"effort": options.reasoning_effort}
    return body


def chat_body(
    request: Request, *, model: str, options: ModelOptions, compatible: bool
) -> CompletionCreateParamsStreaming:
    """The request as Chat Completions reads it; `compatible` servers get only what the oldest of them know."""
    messages: list[ChatCompletionMessageParam] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "user":
            messages.append({"role": "user", "content": _chat_content(message)})
        else:
            messages.append({"role": "assistant", "content": message.text})
    if request.status:
        messages.append({"role": "user", "content": request.status})
    body: CompletionCreateParamsStreaming = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
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


def _takes_marks(model: str) -> bool:
    """Whether a model knows cache marks; older ones refuse them, and cache every long beginning by themselves."""
    version = _GPT.match(model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= _MARKS_SINCE


def _input(text: str, *, mark: bool = False) -> responses.ResponseInputTextParam:
    part: responses.ResponseInputTextParam = {"type": "input_text", "text": text}
    if mark:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part


def _input_image(image: Image) -> responses.ResponseInputImageParam:
    return {"type": "input_image", "image_url": _data_url(image), "detail": "auto"}


def _chat_content(message: Message) -> str | list[ChatCompletionContentPartParam]:
    """A message's text, or its parts when it has images; servers without any may know texts only."""
    if not message.images:
        return message.text
    parts: list[ChatCompletionContentPartParam] = [
        {"type": "image_url", "image_url": {"url": _data_url(image)}} for image in message.images
    ]
    return [*parts, {"type": "text", "text": message.text}]


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


@dataclass(slots=True, kw_only=True)
class ResponsesReading:
    """One reply of the Responses API being read: events in, chunks out."""

    service: ModelService
    joiner: BlockJoiner = field(default_factory=BlockJoiner)
    refusal: str = ""

    def read(self, event: object) -> list[Piece]:
        """What an event adds to the reply; a shape that we do not know adds nothing.

        Raises:
            ModelRefusedError: the model declined.
            BrokenOffError: the service failed in mid-stream.
            ModelRejectedError: the service refused in mid-stream.
        """
        from openai.types import responses  # noqa: PLC0415 - loaded by whoever made the provider

        match event:
            case responses.ResponseTextDeltaEvent(delta=str(text)) if text:
                return [TextChunk(text=self.joiner.join((event.output_index, event.content_index), text))]
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
            case _:
                pass
        return []

    def _end(self, stop: StopReason, response: responses.Response) -> ReplyEnd:
        cut = response.incomplete_details
        if self.refusal or (cut and cut.reason == "content_filter"):
            raise refused(self.refusal or "content_filter", self.service)
        if response.usage is None:
            return ReplyEnd(stop=stop, usage=Usage(requests=1, cost_usd=None))
        usage = _usage(
            sent=response.usage.input_tokens,
            received=response.usage.output_tokens,
            details=response.usage.input_tokens_details,
        )
        return ReplyEnd(stop=stop, usage=load_prices().priced(self.service.model, usage))


@dataclass(slots=True, kw_only=True)
class ChatReading:
    """One reply of Chat Completions being read.

    Its usage follows its stop reason, in an event of its own that not every server sends. So there may be two ends, and
    the later one knows more.
    """

    service: ModelService
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

        texts, known = list[str](), (self.reason, self.usage)
        for choice in getattr(event, "choices", None) or []:
            match choice:
                case chunks.Choice(delta=chunks.ChoiceDelta() as delta):
                    self.reason = choice.finish_reason or self.reason
                    self.refusal += delta.refusal or ""
                    texts.append(delta.content or "")
                case _:
                    pass
        match getattr(event, "usage", None):
            case CompletionUsage(prompt_tokens=int(sent), completion_tokens=int(received)) as counted:
                usage = _usage(sent=sent, received=received, details=counted.prompt_tokens_details)
                self.usage = load_prices().priced(self.service.model, usage)
            case _:
                pass
        told: list[Piece] = [TextChunk(text=text) for text in texts if text]
        if self.reason is None or (self.reason, self.usage) == known:
            return told
        if self.refusal or self.reason == "content_filter":
            raise refused(self.refusal or self.reason, self.service)
        return [*told, ReplyEnd(stop=_CHAT_STOPS.get(self.reason, "length"), usage=self.usage)]


def told(code: str | None, message: str | None) -> Failure:
    """A failure that was told inside a stream, where it has no HTTP status of its own."""
    return Failure(status=_STATUS_IN_STREAM.get(code or "", 500), code=code or "", message=message or "")


def _usage(*, sent: int, received: int, details: object) -> Usage:
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
