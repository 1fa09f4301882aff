"""Requests to OpenAI's Responses API and the meaning of its answers. Pure.

The API: https://developers.openai.com/api/docs/api-reference. The cache:
https://developers.openai.com/api/docs/guides/prompt-caching. Reasoning between calls, which goes back encrypted:
https://developers.openai.com/api/docs/guides/reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.blocks import BlockJoiner
from agent_runtime.providers.faults import ModelService, refused, verdict
from agent_runtime.providers.openai_wire import data_url, json_arguments, told, usage_of
from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.prices import load_prices
from agent_runtime.providers.protocol import Piece, ReplyEnd, Request, StopReason, TextChunk
from agent_runtime.providers.reply_parts import Part, ReplyParts, parts_of

if TYPE_CHECKING:
    from openai.types import responses
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

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
