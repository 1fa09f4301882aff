"""Replies of a model service in three formats: Anthropic Messages, OpenAI Responses and Chat. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

CHUNK_CHARS = 7
DONE = b"data: [DONE]\n\n"
Wire = Literal["anthropic", "responses", "chat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The usage of a reply."""

    uncached: int = 100
    cached: int = 0
    cache_write: int = 0
    output: int = 20

    @property
    def sent(self) -> int:
        return self.uncached + self.cached + self.cache_write


@dataclass(frozen=True, slots=True)
class Says:
    """A reply in full.

    Attributes:
        blocks: the text; several make several blocks (Anthropic) or output items (Responses).
        stop: `stop`, `length`, `refusal`, or any other word, sent verbatim where the wire has a place for it.
        thinking: reasoning to stream before the text, where the wire can carry it.
        calls: id, name and arguments of calls, behind the text.
    """

    blocks: str | tuple[str, ...]
    stop: str = "stop"
    tokens: Tokens = field(default_factory=Tokens)
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        if self.calls and not self.blocks:
            return ()
        return (self.blocks,) if isinstance(self.blocks, str) else self.blocks


@dataclass(frozen=True, slots=True)
class Fails:
    """An error instead of a stream; each wire words it in its own way."""

    status: int
    code: str = ""
    message: str = ""
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sends:
    """Bytes that are no stream of the wire, such as a proxy's page."""

    body: bytes
    kind: str = "text/event-stream"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Breaks:
    """A stream that begins and goes wrong after `text`.

    `drop`: the connection is cut. `early`: it ends without a word. `malformed`: a chunk is not JSON. `odd`: a chunk
    is JSON of no known shape, then it ends. `error`: an error event with `code`. `silence`: nothing more comes until
    the client goes away. `late drop` and `late silence`: all of that, but only after the wire has said why the reply
    stopped, before its last word.
    """

    how: Literal["drop", "early", "malformed", "odd", "error", "silence", "late drop", "late silence"]
    text: str = "Half of a repl"
    code: str = "overloaded_error"
    message: str = "Overloaded"


Reply = str | Says | Fails | Breaks | Sends


Events = list[dict[str, Any]]


def begun(reply: Says, wire: Wire, model: str) -> list[bytes]:
    """The stream up to the last piece of text."""
    return _frames(_BEGUN[wire](reply, model), wire)


def ended(reply: Says, wire: Wire, model: str) -> list[bytes]:
    """The rest: that the reply is over, why, and what it used."""
    return _frames(_ENDED[wire](reply, model), wire) + ([DONE] if wire == "chat" else [])


def broken(reply: Breaks, wire: Wire) -> list[bytes]:
    """The events after the text of a reply that fails."""
    match reply.how:
        case "error":
            return _frames([_error_event(reply, wire)], wire)
        case "odd":
            return _frames([{"type": "message_delta", "list": [1]}, {"type": "surprise"}], wire)
        case "malformed":
            return [b'event: message_delta\ndata: {"type": "message_de\n\n']
        case "early":
            return [DONE] if wire == "chat" else []
        case "drop" | "silence":
            return []
        case "late drop" | "late silence":
            return _frames(_ENDED[wire](Says(reply.text), "model")[:1], wire)


def error_body(reply: Fails, wire: Wire) -> dict[str, Any]:
    """The body of an error that comes instead of a stream."""
    error = {"type": reply.code, "message": reply.message}
    if wire == "anthropic":
        return {"type": "error", "error": error}
    return {"error": {**error, "code": reply.code, "param": None}}


def _error_event(reply: Breaks, wire: Wire) -> dict[str, Any]:
    error = {"code": reply.code, "message": reply.message}
    match wire:
        case "anthropic":
            return {"type": "error", "error": {"type": reply.code, "message": reply.message}}
        case "responses":
            return {"type": "response.failed", "response": {**_response("model"), "status": "failed", "error": error}}
        case "chat":
            return {"error": error}


def _frames(events: Events, wire: Wire) -> list[bytes]:
    """Server-sent events; Chat Completions does not name its own."""
    return [
        (("" if wire == "chat" else f"event: {event['type']}\n") + f"data: {json.dumps(event)}\n\n").encode()
        for event in events
    ]


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


def _anthropic_begun(reply: Says, model: str) -> Events:
    tokens = reply.tokens
    usage = {
        "input_tokens": tokens.uncached,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.cache_write,
        "output_tokens": min(1, tokens.output),
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    events: Events = [{"type": "message_start", "message": message}, {"type": "ping"}]
    thoughts = [("thinking", reply.thinking)] if reply.thinking else []
    for index, (kind, text) in enumerate(thoughts + [("text", text) for text in reply.texts]):
        events.append({"type": "content_block_start", "index": index, "content_block": {"type": kind, kind: ""}})
        events += [
            {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", kind: piece}}
            for piece in _pieces(text)
        ]
        if kind == "thinking":
            signed = {"type": "signature_delta", "signature": "signed"}
            events.append({"type": "content_block_delta", "index": index, "delta": signed})
        events.append({"type": "content_block_stop", "index": index})
    for index, (id_, name, arguments) in enumerate(reply.calls, start=len(thoughts) + len(reply.texts)):
        block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in ["", *_pieces(arguments)]
        ]
        events.append({"type": "content_block_stop", "index": index})
    return events


def _anthropic_ended(reply: Says, _model: str) -> Events:
    words = {"stop": "tool_use" if reply.calls else "end_turn", "length": "max_tokens"}
    delta: dict[str, Any] = {"stop_reason": words.get(reply.stop, reply.stop)}
    if reply.stop == "refusal":
        delta["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": "This could do harm."}
    usage = {"output_tokens": reply.tokens.output}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _response(model: str) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "output": [], "error": None}


def _responses_begun(reply: Says, model: str) -> Events:
    events: Events = [{"type": "response.created", "response": {**_response(model), "status": "in_progress"}}]
    for piece in _pieces(reply.thinking):
        place = {"item_id": "rs_0", "output_index": 0, "summary_index": 0, "sequence_number": 1}
        events.append({"type": "response.reasoning_summary_text.delta", **place, "delta": piece})
    kind = "refusal" if reply.stop == "refusal" else "output_text"
    for index, text in enumerate(reply.texts):
        place = {"item_id": f"msg_{index}", "output_index": index, "content_index": 0}
        events += [{"type": f"response.{kind}.delta", **place, "delta": piece} for piece in _pieces(text)]
    if reply.thinking and reply.calls:
        reasoning = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "sealed"}
        done = {"output_index": 0, "sequence_number": 1, "item": reasoning}
        events.insert(1, {"type": "response.output_item.done", **done})
    for index, (id_, name, arguments) in enumerate(reply.calls, start=len(reply.texts) + 1):
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": id_, "name": name, "arguments": ""}
        place = {"output_index": index, "sequence_number": 1}
        events.append({"type": "response.output_item.added", **place, "item": item})
        events += [
            {"type": "response.function_call_arguments.delta", "item_id": f"fc_{index}", **place, "delta": piece}
            for piece in _pieces(arguments)
        ]
    return events


def _responses_ended(reply: Says, model: str) -> Events:
    tokens = reply.tokens
    usage = {
        "input_tokens": tokens.sent,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.sent + tokens.output,
    }
    if reply.stop in {"stop", "refusal"}:
        done = {**_response(model), "status": "completed", "usage": usage}
        return [{"type": "response.completed", "response": done}]
    reason = "max_output_tokens" if reply.stop == "length" else reply.stop
    cut = {**_response(model), "status": "incomplete", "incomplete_details": {"reason": reason}, "usage": usage}
    return [{"type": "response.incomplete", "response": cut}]


def _chunk(model: str, *choices: dict[str, Any]) -> dict[str, Any]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    return {**base, "choices": [{"index": 0, "finish_reason": None, **choice} for choice in choices]}


def _chat_begun(reply: Says, model: str) -> Events:
    part = "refusal" if reply.stop == "refusal" else "content"
    # Not of OpenAI's own, but how DashScope and other compatible servers stream what a model thinks.
    thoughts = [{"content": None, "reasoning_content": piece} for piece in _pieces(reply.thinking)]
    texts = [{part: piece} for piece in _pieces("".join(reply.texts))]
    calls: Events = [
        {"tool_calls": [{"index": index, **piece}]}
        for index, (id_, name, arguments) in enumerate(reply.calls)
        for piece in _call_pieces(id_, name, arguments)
    ]
    deltas = [{"role": "assistant", "content": ""}, *thoughts, *texts, *calls]
    return [_chunk(model, {"delta": delta}) for delta in deltas]


def _call_pieces(id_: str, name: str, arguments: str) -> Events:
    begun = {"id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
    return [begun, *({"function": {"arguments": each}} for each in _pieces(arguments))]


def _chat_ended(reply: Says, model: str) -> Events:
    tokens = reply.tokens
    usage = {
        "prompt_tokens": tokens.sent,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write},
        "completion_tokens": tokens.output,
        "total_tokens": tokens.sent + tokens.output,
    }
    why = "stop" if reply.stop == "refusal" else "tool_calls" if reply.calls and reply.stop == "stop" else reply.stop
    return [_chunk(model, {"delta": {}, "finish_reason": why}), {**_chunk(model), "usage": usage}]


_BEGUN = {"anthropic": _anthropic_begun, "responses": _responses_begun, "chat": _chat_begun}
_ENDED = {"anthropic": _anthropic_ended, "responses": _responses_ended, "chat": _chat_ended}
