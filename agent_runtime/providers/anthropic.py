"""Anthropic and servers with its Messages API, streamed through its SDK.

https://platform.claude.com/docs/en/build-with-claude/ has /streaming, /prompt-caching, /vision (images precede text)
and /extended-thinking (thoughts before a `tool_use` block are sent back).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from agent_runtime.core.errors import ModelRejectedError
from agent_runtime.core.values import Image, ToolAnswer, ToolRequest, Usage
from agent_runtime.providers.faults import AttemptFailedError, ModelService, is_network_error, refusal
from agent_runtime.providers.models import ModelOptions, accepts_temperature, effort_param, load_prices, thinking_param
from agent_runtime.providers.protocol import (
    BlockJoiner,
    Message,
    Part,
    Piece,
    ReplyEnd,
    ReplyParts,
    Request,
    StopReason,
    TextChunk,
    has_blocks,
    parse_arguments,
    split_parts,
)
from agent_runtime.providers.sdk import KeyedApi, ReadEvent, SdkProvider

if TYPE_CHECKING:
    import ssl

    from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex, AsyncStream, types
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    _Block = (
        types.TextBlockParam
        | types.ImageBlockParam
        | types.ToolUseBlockParam
        | types.ToolResultBlockParam
        | types.ThinkingBlockParam
        | types.RedactedThinkingBlockParam
    )
    _Client = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex


class AnthropicClient(SdkProvider["_Client"]):
    def __init__(self, service: ModelService, options: ModelOptions) -> None:
        super().__init__(service, options)
        _reasoning_params(service.model, self._options)  # raises now, not at the first request

    def _credential_errors(self) -> tuple[type[Exception], ...]:
        return ()

    @override
    def _prepare(self, request: Request) -> tuple[ReadEvent, Callable[[], Awaitable[AsyncStream[Any]]]]:
        body = _request_body(request, model=self.model, options=self._options)
        # The SDK has dropped the parameter because newer models refuse it; older ones still take it.
        options = self._options
        sends_temperature = options.temperature is not None and accepts_temperature(self.model, options.thinking)
        extra = {"temperature": options.temperature} if sends_temperature else {}
        reader = _EventReader(service=self._service, parts=ReplyParts(self.model))
        return reader.read, partial(self._open_stream, body, extra)

    async def _open_stream(self, body: MessageCreateParamsStreaming, extra: dict[str, Any]) -> AsyncStream[Any]:
        try:
            return await self._client.messages.create(**body, extra_body=extra)
        except self._credential_errors() as error:
            service = self._service
            if is_network_error(error) or getattr(error, "retryable", False):
                text = f"the credentials could not be fetched ({type(error).__name__})"
                raise AttemptFailedError(text, detail=service.redact(str(error))) from None
            raise ModelRejectedError(
                f"The request to {service.name} could not be signed ({service.sanitize(str(error))}). "
                f"Check {service.key_variable}."
            ) from None


class AnthropicProvider(AnthropicClient):
    """Models of Anthropic or a compatible server."""

    keyed_api = KeyedApi(
        provider="anthropic",
        name="Anthropic",
        url="https://api.anthropic.com",
        hosts=("api.anthropic.com",),
        default_model="claude-sonnet-5-5",
        key_variable="ANTHROPIC_API_KEY",
        address_variable="ANTHROPIC_BASE_URL",
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
        service = self.keyed_api.create_service(options, api_key=api_key, model=model, base_url=base_url)
        super().__init__(service, options)

    @override
    def _connect(self, ssl_context: ssl.SSLContext, **settings: Any) -> AsyncAnthropic:
        import anthropic  # noqa: PLC0415 - see SdkProvider._client

        return anthropic.AsyncAnthropic(http_client=anthropic.DefaultAsyncHttpxClient(verify=ssl_context), **settings)


_CACHED_USER_MESSAGES = 2
"""Rolling marks: the older one hits the previous request's cache, the newer one writes the next."""


def _request_body(request: Request, *, model: str, options: ModelOptions) -> MessageCreateParamsStreaming:
    """Build a request; the status follows the last cache mark, so each request's prefix is stable."""
    users = [index for index, message in enumerate(request.messages) if message.role == "user"]
    marked = set(users[-_CACHED_USER_MESSAGES:])
    contents: list[list[_Block]] = [
        _content_blocks(message, model, mark=index in marked) for index, message in enumerate(request.messages)
    ]
    if request.status:
        contents[-1].append(_text_block(request.status))
    body: MessageCreateParamsStreaming = {
        "model": model,
        "max_tokens": options.max_tokens,
        "messages": [
            _message(message.role, content) for message, content in zip(request.messages, contents, strict=True)
        ],
        "stream": True,
    }
    if request.system:
        body["system"] = [_text_block(request.system, mark=True)]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in request.tools
        ]
    thinking, effort = _reasoning_params(model, options)
    # Thinking within a budget demands thoughts before calls, and the latest calls may be another model's.
    last_call = next((message for message in reversed(request.messages) if message.requests), None)
    is_foreign = last_call is not None and not has_blocks(last_call, model)
    if thinking is not None and not (thinking["type"] == "enabled" and is_foreign):
        body["thinking"] = thinking
    if effort is not None:
        body["output_config"] = effort
    return body


def _reasoning_params(
    model: str, options: ModelOptions
) -> tuple[types.ThinkingConfigParam | None, types.OutputConfigParam | None]:
    """Return the parameters `thinking` and `output_config`, None to omit one."""
    thinking = None if options.thinking is None else thinking_param(model, options.thinking)
    effort = None if options.reasoning_effort is None else effort_param(options.reasoning_effort)
    return thinking, effort


def _content_blocks(message: Message, model: str, *, mark: bool) -> list[_Block]:
    """Return a message's content blocks: answers first, calls last, as the service requires."""
    if message.requests:
        return [_part_block(part) for part in split_parts(message, model)]
    # The service takes no pictures in the answer to a call that failed: they stand behind the answers.
    failed_images = [image for answer in message.answers if not answer.ok for image in answer.images]
    blocks: list[_Block] = [*map(_answer_block, message.answers), *map(_image_block, [*failed_images, *message.images])]
    if message.text or not blocks:
        blocks.append(_text_block(message.text))
    if mark:
        blocks[-1].update({"cache_control": {"type": "ephemeral"}})  # type: ignore[misc] # all that stand last take it
    return blocks


def _part_block(part: Part) -> _Block:
    if isinstance(part, str):
        return _text_block(part)
    if isinstance(part, ToolRequest):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": parse_arguments(part)}
    return part  # type: ignore[return-value] # a block of thoughts, as it came


def _answer_block(answer: ToolAnswer) -> types.ToolResultBlockParam:
    images = answer.images if answer.ok else ()
    content: list[types.TextBlockParam | types.ImageBlockParam] = [*map(_image_block, images), _text_block(answer.text)]
    return {"type": "tool_result", "tool_use_id": answer.id, "content": content, "is_error": not answer.ok}


def _message(role: Literal["user", "assistant"], content: list[_Block]) -> types.MessageParam:
    return {"role": "user", "content": content} if role == "user" else {"role": "assistant", "content": content}


def _image_block(image: Image) -> types.ImageBlockParam:
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _text_block(text: str, *, mark: bool = False) -> types.TextBlockParam:
    """Return a text block; the service refuses blank ones."""
    block: types.TextBlockParam = {"type": "text", "text": text if text.strip() else "(empty)"}
    if mark:
        block["cache_control"] = {"type": "ephemeral"}
    return block


_STOP_REASONS: dict[str, StopReason] = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "stop"}
"""All other reasons, e.g. `max_tokens`, cut a reply off."""


@dataclass(slots=True, kw_only=True)
class _EventReader:
    service: ModelService
    parts: ReplyParts
    joiner: BlockJoiner = field(default_factory=BlockJoiner)
    thoughts: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=lambda: Usage(requests=1))

    def read(self, event: object) -> list[Piece]:
        from anthropic import types  # noqa: PLC0415 - see SdkProvider._client
        from anthropic.types.raw_message_delta_event import Delta  # noqa: PLC0415 - the same

        match event:
            case types.RawContentBlockStartEvent() | types.RawContentBlockDeltaEvent():
                return self._read_content(event)
            case types.RawMessageStartEvent(message=types.Message(usage=types.Usage() as usage)):
                self._update_usage(usage)
            case types.RawMessageDeltaEvent(delta=Delta() as delta, usage=types.MessageDeltaUsage() as usage):
                self._update_usage(usage)
                if delta.stop_reason == "refusal":
                    details = delta.stop_details
                    reasons = filter(None, [details.category, details.explanation] if details else [])
                    raise refusal(": ".join(reasons) or "no reason given", self.service)
                if delta.stop_reason is not None:
                    stop = _STOP_REASONS.get(delta.stop_reason, "length")
                    priced = load_prices().with_cost(self.service.model, self.usage)
                    return [ReplyEnd(stop=stop, usage=priced, reasoning=self.parts.reasoning)]
            case _:
                pass
        return []

    def _read_content(self, event: object) -> list[Piece]:
        """Return the chunks of a content block's event; store thoughts."""
        from anthropic import types  # noqa: PLC0415 - see SdkProvider._client

        match event:
            case types.RawContentBlockDeltaEvent(index=index, delta=types.TextDelta(text=str(text))) if text:
                return [TextChunk(text=self.parts.add_text(self.joiner.join(index, text)))]
            case types.RawContentBlockStartEvent(index=index, content_block=types.ToolUseBlock() as block):
                return [self.parts.add_call(index, id_=block.id, name=block.name)]
            case types.RawContentBlockDeltaEvent(index=index, delta=types.InputJSONDelta(partial_json=more)) if more:
                return [self.parts.add_call(index, arguments=more)]
            case types.RawContentBlockStartEvent(index=index, content_block=types.ThinkingBlock() as block):
                thought = {"type": "thinking", "thinking": block.thinking, "signature": block.signature or ""}
                self.parts.add_block(self.thoughts.setdefault(index, thought))
            case types.RawContentBlockStartEvent(content_block=types.RedactedThinkingBlock(data=data)):
                self.parts.add_block({"type": "redacted_thinking", "data": data})
            case types.RawContentBlockDeltaEvent(index=index, delta=types.ThinkingDelta(thinking=str(more))) if (
                index in self.thoughts
            ):
                self.thoughts[index]["thinking"] += more
            case types.RawContentBlockDeltaEvent(index=index, delta=types.SignatureDelta(signature=str(more))) if (
                index in self.thoughts
            ):
                self.thoughts[index]["signature"] += more
            case _:
                pass
        return []

    def _update_usage(self, usage: types.Usage | types.MessageDeltaUsage) -> None:
        previous = self.usage
        self.usage = replace(
            previous,
            input_tokens=usage.input_tokens or previous.input_tokens,
            cached_tokens=usage.cache_read_input_tokens or previous.cached_tokens,
            cache_write_tokens=usage.cache_creation_input_tokens or previous.cache_write_tokens,
            output_tokens=usage.output_tokens or previous.output_tokens,
        )
