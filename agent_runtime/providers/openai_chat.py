"""Requests to Chat Completions, of OpenAI and of compatible servers, and the meaning of its answers. Pure.

The API: https://developers.openai.com/api/docs/api-reference/chat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_runtime.core.outcome import Usage
from agent_runtime.providers.faults import ModelService, refused
from agent_runtime.providers.openai_wire import data_url, json_arguments, usage_of
from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.prices import load_prices
from agent_runtime.providers.protocol import CallChunk, Message, Piece, ReplyEnd, Request, StopReason, TextChunk
from agent_runtime.providers.reply_parts import ReplyParts, parts_of

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionContentPartParam,
        ChatCompletionMessageParam,
    )
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

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
