"""A model service on a real socket: Anthropic Messages, OpenAI Responses and Chat Completions, streamed, with faults.

    async with ModelServer(replies=["Hello.", Fails(429, retry_after="1"), Breaks("drop")]) as server:
        provider = AnthropicProvider(api_key="k", base_url=server.url_anthropic)  # or server.url_openai
        ...
    server.requests[0].json["messages"]

Replies are given in order, one a request, whichever wire is asked; a plain text is `Says(text)`. Instead of a list, a
function from the request to a reply may be given. A request beyond the last reply is answered with HTTP 400 and kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from aiohttp import web

from tests.model_wires import Breaks, Fails, Reply, Says, Sends, Tokens, Wire, begun, broken, ended, error_body

__all__ = ["Breaks", "Fails", "ModelServer", "Received", "Reply", "Says", "Sends", "Tokens", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it came in; `port` is the client's, and tells connections apart."""

    wire: Wire
    port: int
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict)
        return parsed


class ModelServer:
    """See the module's docstring.

    Attributes:
        requests: all that came in, oldest first.
        unexpected: requests beyond the last reply.
    """

    def __init__(self, replies: Iterable[Reply] | Callable[[Received], Reply]) -> None:
        self._choose = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self.requests: list[Received] = []
        self.unexpected: list[Received] = []
        self._gone = asyncio.Event()
        self._url = ""

    @property
    def url_anthropic(self) -> str:
        return self._url

    @property
    def url_openai(self) -> str:
        return f"{self._url}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/messages", partial(self._answer, wire="anthropic"))
        app.router.add_post("/v1/messages/count_tokens", _count_tokens)
        app.router.add_post("/v1/responses", partial(self._answer, wire="responses"))
        app.router.add_post("/v1/chat/completions", partial(self._answer, wire="chat"))
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request, wire: Wire) -> web.StreamResponse:
        body = await request.read()
        port = request.transport.get_extra_info("peername")[1] if request.transport else 0
        received = Received(wire=wire, port=port, path=request.path, headers=dict(request.headers), body=body)
        self.requests.append(received)
        model = received.json["model"]
        reply = self._next(received)
        match reply:
            case Fails(retry_after=wait):
                headers = reply.headers if wait is None else {**reply.headers, "retry-after": wait}
                return web.json_response(error_body(reply, wire), status=reply.status, headers=headers)
            case Says():
                return await _stream(request, begun(reply, wire, model) + ended(reply, wire, model))
            case Sends():
                headers = {"content-type": reply.kind, **reply.headers}
                return web.Response(body=reply.body, status=reply.status, headers=headers)
            case Breaks():
                frames = begun(Says(reply.text), wire, model) + broken(reply, wire)
                return await self._break(request, reply, await _stream(request, frames))

    def _next(self, received: Received) -> Says | Fails | Breaks | Sends:
        if self._choose is not None:
            reply = self._choose(received)
        elif self._replies:
            reply = self._replies.pop(0)
        else:
            self.unexpected.append(received)
            reply = Fails(400, "invalid_request_error", "the test's model server has no reply left")
        return Says(reply) if isinstance(reply, str) else reply

    async def _break(self, request: web.Request, reply: Breaks, response: web.StreamResponse) -> web.StreamResponse:
        if reply.how.endswith("drop") and request.transport is not None:
            request.transport.close()
        if reply.how.endswith("silence"):
            await self._gone.wait()
        return response


async def _stream(request: web.Request, frames: Iterable[bytes]) -> web.StreamResponse:
    """Send the frames; the caller's return ends the stream properly."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for frame in frames:
        await response.write(frame)
    return response


async def _count_tokens(request: web.Request) -> web.Response:
    return web.json_response({"input_tokens": len(await request.read()) // 4})
