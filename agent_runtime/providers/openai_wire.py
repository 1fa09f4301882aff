"""Parts that OpenAI's two APIs share: failures in a stream, usage, images and arguments. Pure."""

from __future__ import annotations

import json

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.images import Image
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.faults import Failure
from agent_runtime.providers.reply_parts import INVALID, arguments_of

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
