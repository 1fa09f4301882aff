"""OpenAI and compatible servers, streamed through its SDK.

Responses is for OpenAI, Chat Completions for compatible servers. https://developers.openai.com/api/docs/:
/api-reference, /api-reference/chat, /guides/prompt-caching, /guides/reasoning (sent back encrypted between calls).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_runtime.core.values import Image, ToolRequest, Usage
from agent_runtime.providers.faults import AttemptFailedError, ModelService, classify, refusal
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
    parse_arguments,
    split_parts,
)
from agent_runtime.providers.sdk import KeyedApi, ReadEvent, SdkProvider

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
    def __init__(
        self,
        service: ModelService,
        *,
        options: ModelOptions,
        api: OpenAIApi,
        compatible: bool,
        parallel_on_request: bool = False,
    ) -> None:
        """Store the settings; send nothing. `compatible` servers get only parameters that all know."""
        super().__init__(service, options)
        self._api, self._compatible, self._parallel = api, compatible, parallel_on_request

    @override
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> openai.AsyncOpenAI:
        import openai  # noqa: PLC0415 - see SdkProvider._client

        client = openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(verify=ssl_context), **settings)
        if self._service.is_foreign:
            client.organization = client.project = None  # from OPENAI_ORG_ID and OPENAI_PROJECT_ID
        return client

    @override
    def _prepare(self, request: Request) -> tuple[ReadEvent, Callable[[], Awaitable[openai.AsyncStream[Any]]]]:
        parts = ReplyParts(self.model)
        if self._api == "responses":
            body = responses_body(request, model=self.model, options=self._options)
            reader = ResponsesReader(service=self._service, parts=parts)
            return reader.read, lambda: self._client.responses.create(**body)
        chat_body = _chat_body(
            request, model=self.model, options=self._options, compatible=self._compatible, parallel=self._parallel
        )
        chat_reader = ChatReader(service=self._service, parts=parts)
        return chat_reader.read, lambda: self._client.chat.completions.create(**chat_body)


class OpenAIProvider(OpenAIClient):
    """Models of OpenAI, or of a compatible server at `base_url`, by Chat Completions."""

    keyed_api = KeyedApi(
        provider="openai",
        name="OpenAI",
        url="https://api.openai.com/v1",
        hosts=("api.openai.com",),
        default_model="gpt-6.2-sol",
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
    )

    def __init__(
        self,
        *,
        api_key: str | None,
        model: str | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
    ) -> None:
        """Validate the settings; send nothing. A server at `base_url` may need no key."""
        options = options or ModelOptions()
        compatible = bool(base_url)
        service = self.keyed_api.create_service(options, api_key=api_key, model=model, base_url=base_url)
        if compatible:
            service = replace(service, name="The OpenAI-compatible server")
        super().__init__(
            service, options=options, api=options.api or ("chat" if compatible else "responses"), compatible=compatible
        )

    @property
    @override
    def tool_calling(self) -> ToolCalling:
        """Not preferred on compatible servers, which may not parse calls."""
        return "supported" if self._compatible else super().tool_calling


def _chat_body(
    request: Request, *, model: str, options: ModelOptions, compatible: bool, parallel: bool = False
) -> CompletionCreateParamsStreaming:
    body: CompletionCreateParamsStreaming = {
        "model": model,
        "messages": _chat_messages(request, model),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
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


def _chat_messages(request: Request, model: str) -> list[ChatCompletionMessageParam]:
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
    if not message.requests:
        return {"role": "assistant", "content": message.text}
    reply: ChatCompletionAssistantMessageParam = {
        "role": "assistant",
        "content": message.text or None,
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json_arguments(call)}}
            for call in message.requests
        ],
    }
    for part in split_parts(message, model):
        if isinstance(part, dict):
            reply.update(part)  # type: ignore[typeddict-item] # `reasoning_content`, which OpenAI does not have
    return reply


_CHAT_STOP_REASONS: dict[str, StopReason] = {"stop": "stop", "tool_calls": "stop", "function_call": "stop"}
"""All other reasons, e.g. `length`, cut a reply off."""


@dataclass(slots=True, kw_only=True)
class ChatReader:
    """Converts events of a Chat Completions reply to chunks; usage may follow the stop reason."""

    service: ModelService
    parts: ReplyParts
    thoughts: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    id_changes: int = 0
    refusal: str = ""
    reason: str | None = None
    usage: Usage = field(default_factory=lambda: Usage(requests=1, cost_usd=None))

    def read(self, event: object) -> list[Piece]:
        from openai.types.chat import chat_completion_chunk as chunks  # noqa: PLC0415 - as above
        from openai.types.completion_usage import CompletionUsage  # noqa: PLC0415 - as above

        output, previous = list[Piece](), (self.reason, self.usage)
        for choice in getattr(event, "choices", None) or []:
            match choice:
                case chunks.Choice(delta=chunks.ChoiceDelta() as delta):
                    self.reason = choice.finish_reason or self.reason
                    self.refusal += delta.refusal or ""
                    if isinstance(delta.content, str) and delta.content:
                        output.append(TextChunk(text=self.parts.add_text(delta.content)))
                    pieces: list[object] = [*delta.tool_calls] if isinstance(delta.tool_calls, list) else []
                    output += [self._call(piece) for piece in pieces if isinstance(piece, chunks.ChoiceDeltaToolCall)]
                    self._store_thoughts(getattr(delta, "reasoning_content", None))
                case _:
                    pass
        match getattr(event, "usage", None):
            case CompletionUsage(prompt_tokens=int(prompt), completion_tokens=int(completion)) as counts:
                usage = _to_usage(prompt=prompt, completion=completion, details=counts.prompt_tokens_details)
                self.usage = load_prices().with_cost(self.service.model, usage)
            case _:
                pass
        if self.reason is None or (self.reason, self.usage) == previous:
            return output
        if self.refusal or self.reason == "content_filter":
            raise refusal(self.refusal or self.reason, self.service)
        stop = _CHAT_STOP_REASONS.get(self.reason, "length")
        return [*output, ReplyEnd(stop=stop, usage=self.usage, reasoning=self.parts.reasoning)]

    def _call(self, piece: ChoiceDeltaToolCall) -> CallChunk:
        """Return a chunk of a call. Some servers number all calls 0 and only vary ids."""
        index, id_ = str(piece.index), str(piece.id or "")
        if id_ and self.ids.get(index, id_) != id_:
            self.id_changes += 1
        if id_:
            self.ids[index] = id_
        function = piece.function
        return self.parts.add_call(
            (index, self.id_changes),
            id_=id_,
            name=getattr(function, "name", ""),
            arguments=getattr(function, "arguments", ""),
        )

    def _store_thoughts(self, more: object) -> None:
        """Store streamed reasoning, which some servers want back with the calls."""
        if isinstance(more, str) and more:
            if not self.thoughts:
                self.parts.add_block(self.thoughts)
            self.thoughts["reasoning_content"] = self.thoughts.get("reasoning_content", "") + more


_CACHED_USER_MESSAGES = 2
"""Rolling marks: the older one hits the previous request's cache, the newer one writes the next."""

_MIN_MARK_VERSION = (5, 6)

_GPT_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-|$)")


def responses_body(request: Request, *, model: str, options: ModelOptions) -> ResponseCreateParamsStreaming:
    """Build a request to the Responses API.

    Since gpt-5.6 only marked prefixes are cached; so mark the messages before the volatile status.
    """
    version = _GPT_VERSION.match(model)  # older models refuse marks, and cache every long beginning by themselves
    marks = version is not None and (int(version[1]), int(version[2] or 0)) >= _MIN_MARK_VERSION
    body: ResponseCreateParamsStreaming = {
        "model": model,
        "input": _input_items(request, model, marks=marks),
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


def _input_items(request: Request, model: str, *, marks: bool) -> list[responses.ResponseInputItemParam]:
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    marked = set(users[-_CACHED_USER_MESSAGES:]) if marks else set()
    items: list[responses.ResponseInputItemParam] = []
    if request.system:
        items.append({"role": "developer", "content": [_input_text(request.system, mark=marks)]})
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            items += [_output_item(part) for part in split_parts(message, model)] or [_assistant_text(message.text)]
            continue
        is_answer_only = bool(message.answers) and not (message.text or message.images)
        last = len(message.answers) - 1
        for position, answer in enumerate(message.answers):
            words: responses.ResponseInputTextContentParam = {"type": "input_text", "text": answer.text or "(empty)"}
            if is_answer_only and position == last and index in marked:
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
        if not is_answer_only:
            text = _input_text(message.text, mark=index in marked)
            items.append({"role": "user", "content": [*map(_input_image, message.images), text]})
    if request.status:
        items.append({"role": "user", "content": [_input_text(request.status)]})
    return items


def _output_item(part: Part) -> responses.ResponseInputItemParam:
    if isinstance(part, str):
        return _assistant_text(part)
    if isinstance(part, ToolRequest):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": _json_arguments(part)}
    return part  # type: ignore[return-value] # reasoning, as it came


def _assistant_text(text: str) -> responses.EasyInputMessageParam:
    return {"role": "assistant", "content": text}


def _input_text(text: str, *, mark: bool = False) -> responses.ResponseInputTextParam:
    part: responses.ResponseInputTextParam = {"type": "input_text", "text": text}
    if mark:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part


def _input_image(image: Image) -> responses.ResponseInputImageParam:
    return {"type": "input_image", "image_url": _data_url(image), "detail": "auto"}


@dataclass(slots=True, kw_only=True)
class ResponsesReader:
    service: ModelService
    parts: ReplyParts
    joiner: BlockJoiner = field(default_factory=BlockJoiner)
    refusal: str = ""

    def read(self, event: object) -> list[Piece]:
        from openai.types import responses  # noqa: PLC0415 - loaded when the provider was made

        match event:
            case responses.ResponseTextDeltaEvent(delta=str(text)) if text:
                joined = self.joiner.join((event.output_index, event.content_index), text)
                return [TextChunk(text=self.parts.add_text(joined))]
            case responses.ResponseRefusalDeltaEvent(delta=str(text)):
                self.refusal += text
            case responses.ResponseCompletedEvent(response=responses.Response() as response):
                return [self._end("stop", response)]
            case responses.ResponseIncompleteEvent(response=responses.Response() as response):
                return [self._end("length", response)]
            case responses.ResponseFailedEvent(response=responses.Response(error=error)):
                code, message = (error.code, error.message) if error else (None, None)
                raise classify(AttemptFailedError(message or "", code=code or ""), self.service)
            case responses.ResponseErrorEvent(code=code, message=message):
                raise classify(AttemptFailedError(message, code=code or ""), self.service)
            case responses.ResponseOutputItemAddedEvent(item=responses.ResponseFunctionToolCall() as call):
                return [self.parts.add_call(event.output_index, id_=call.call_id, name=call.name)]
            case responses.ResponseFunctionCallArgumentsDeltaEvent(output_index=index, delta=str(more)) if more:
                return [self.parts.add_call(index, arguments=more)]
            case responses.ResponseOutputItemDoneEvent(item=responses.ResponseReasoningItem() as item) if (
                item.encrypted_content  # without it there is nothing that could be read there again
            ):
                self.parts.add_block(item.to_dict(mode="json", exclude_none=True))
            case _:
                pass
        return []

    def _end(self, stop: StopReason, response: responses.Response) -> ReplyEnd:
        incomplete = response.incomplete_details
        if self.refusal or (incomplete and incomplete.reason == "content_filter"):
            raise refusal(self.refusal or "content_filter", self.service)
        if response.usage is None:
            return ReplyEnd(stop=stop, usage=Usage(requests=1, cost_usd=None), reasoning=self.parts.reasoning)
        usage = _to_usage(
            prompt=response.usage.input_tokens,
            completion=response.usage.output_tokens,
            details=response.usage.input_tokens_details,
        )
        priced = load_prices().with_cost(self.service.model, usage)
        return ReplyEnd(stop=stop, usage=priced, reasoning=self.parts.reasoning)


def _to_usage(*, prompt: int, completion: int, details: object) -> Usage:
    """Convert the usage: OpenAI includes cached tokens in those sent."""
    cached, cache_writes = _read_count(details, "cached_tokens"), _read_count(details, "cache_write_tokens")
    return Usage(
        requests=1,
        input_tokens=max(0, prompt - cached - cache_writes),
        cached_tokens=cached,
        cache_write_tokens=cache_writes,
        output_tokens=completion,
    )


def _read_count(details: object, name: str) -> int:
    value = getattr(details, name, None)
    return value if isinstance(value, int) else 0


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def _json_arguments(request: ToolRequest) -> str:
    """Return a call's arguments as a JSON object, since many servers parse them."""
    arguments = parse_arguments(request)
    return json.dumps(arguments, ensure_ascii=False) if INVALID in arguments else request.arguments.strip() or "{}"
