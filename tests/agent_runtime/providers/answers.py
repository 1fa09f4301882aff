"""Answers of a model service, by the class that `agent_runtime.providers.faults` puts them in."""

from __future__ import annotations

import json

from tests.model_server import Breaks, Fails, Reply, Says, Sends, Tokens, Wire

_PAGE = b"<!doctype html><title>Bad gateway</title>\n\n<p>proxy01.corp.internal cannot reach 10.1.2.3:4000\n\n"
_JSON = "application/json"


def _document(error: object) -> Sends:
    return Sends(json.dumps({"type": "error", "error": error}).encode(), _JSON)


def _event(error: object) -> Sends:
    return Sends(f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n".encode())


OUTAGES: dict[str, Reply] = {
    **{f"status {status}": Fails(status) for status in (408, 409, 424, 425, 429, 500, 502, 503, 504, 529)},
    "a rate limit that names tokens": Fails(429, "rate_limit_error", "Too many tokens in this minute"),
    "a page": Sends(_PAGE, "text/html; charset=utf-8"),
    "a page that is called a stream": Sends(_PAGE),
    "a page with 502": Sends(_PAGE, "text/html", status=502),
    "JSON that is cut off": Sends(b'{"id": "msg_1", "content": [', _JSON),
    "an event that is not JSON": Sends(b"event: message_start\ndata: <html>\n\n"),
    "bytes that are no UTF-8": Sends(b"event: message_start\ndata: \xff\xfe\xfa\n\n"),
    "bytes that are no UTF-8 in a document": Sends(b'{"id": "\xff\xfe"', _JSON),
    "bytes that are not compressed as they say": Sends(b"no gzip", headers={"content-encoding": "gzip"}),
    "overloaded in a document": _document({"type": "overloaded_error", "message": "Overloaded"}),
    "a rate limit in a document": _document({"code": "rate_limit_exceeded", "message": "Rate limit reached"}),
    "a server error in a document": _document("Internal server error"),
    "a long number in an event": _event({"code": "4" * 5000, "message": "No such error"}),
    "a status in a document": _document({"code": 503, "message": "No worker is free"}),
    "overloaded in an event": _event({"type": "overloaded_error", "message": "Overloaded"}),
    "a rate limit in an event": _event({"code": "rate_limit_exceeded", "message": "Rate limit reached"}),
    "a server error in an event": _event({"type": "server_error", "message": "The server had an error"}),
    "an error without a code in an event": _event({"message": "Something went wrong"}),
    "overloaded in the middle of a reply": Breaks("error"),
    "nothing": Sends(b""),
    "nothing in place of a document": Sends(b"", _JSON),
    "an empty reply": Says("", tokens=Tokens(output=0)),
    "a connection that breaks before the text": Breaks("drop", text=""),
    "a connection that breaks in the text": Breaks("drop"),
    "a stream that ends before the text": Breaks("early", text=""),
    "a stream that ends in the text": Breaks("early"),
    "a stream that goes bad in the text": Breaks("malformed"),
    "a stream that stalls before the text": Breaks("silence", text=""),
    "a stream that stalls in the text": Breaks("silence"),
}
"""Retried, and waited for."""

_TOO_LONG = {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens."}

DEFINITE: dict[str, tuple[Reply, str]] = {
    "a wrong key": (Fails(401, "authentication_error"), "ModelRejectedError"),
    "a wrong key in a document": (_document({"code": "invalid_api_key"}), "ModelRejectedError"),
    "no credit": (Fails(402, "billing_error"), "ModelRejectedError"),
    "no credit in an event": (_event({"code": "insufficient_quota"}), "ModelRejectedError"),
    "a forbidden model": (Fails(403, "permission_error"), "ModelRejectedError"),
    "a page with 403": (Sends(_PAGE, "text/html", status=403), "ModelRejectedError"),
    "an unknown model": (Fails(404, "not_found_error"), "ModelRejectedError"),
    "an unknown model in a document": (_document({"code": "model_not_found"}), "ModelRejectedError"),
    "an invalid request": (Fails(400, "invalid_request_error"), "ModelRejectedError"),
    "an invalid request in an event": (_event({"type": "invalid_request_error"}), "ModelRejectedError"),
    "a status in an event": (_event({"code": 422, "message": "No such parameter"}), "ModelRejectedError"),
    "too long a conversation": (Fails(413), "ContextOverflowError"),
    "too long a conversation in a document": (_document(_TOO_LONG), "ContextOverflowError"),
    "too long a conversation in an event": (_event(_TOO_LONG), "ContextOverflowError"),
    "refused content": (Fails(400, "content_policy_violation"), "ModelRefusedError"),
    "refused content in an event": (_event({"code": "content_policy_violation"}), "ModelRefusedError"),
}
"""Not repeated; with the error."""

_USAGE = {"input_tokens": "many", "output_tokens": "few"}
_RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "usage": _USAGE}

UNREADABLE: dict[Wire, dict[str, object]] = {
    "anthropic": {"type": "content_block_start", "index": [1], "content_block": {"type": "thinking", "thinking": ""}},
    "responses": {"type": "response.completed", "response": {**_RESPONSE, "status": "completed"}},
    "chat": {"id": "c", "choices": [{"index": 0, "delta": {"refusal": 5}}]},
}
"""Events of a known kind with values of other types."""
