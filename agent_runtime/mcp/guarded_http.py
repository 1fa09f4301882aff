"""HTTP to one MCP server: only to public addresses, unless the operator says otherwise, and within bounds."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2
from typing_extensions import override

from agent_runtime.mcp.budget import Budget
from agent_runtime.mcp.settings import MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES, McpServer, values_in
from agent_runtime.sandbox.egress import addresses, names

_MAX_STREAM_BYTES = 64 * 1024**2
_MAX_STREAMS = 200
"""Of one connection. A stream for what the server says unasked is opened again when it ends, as soon as it wants."""
_ENDS_OF_EVENTS = (b"\n\n", b"\n\r", b"\r\r")
"""A line ends with CR, LF or both, so an empty one ends with one of these, or with LF after the second."""
_LINES_PER_PIECE = 32
"""Each line is parsed, even a comment of one character: a budget of bytes alone would take half a minute of that."""


def guarded_client(server: McpServer, budget: Budget, told: Callable[[str], None]) -> httpx2.AsyncClient:
    """A client for the requests to a server; its users do not follow redirects to elsewhere.

    Args:
        server: its definition.
        budget: for all that it answers; what comes after that is not read.
        told: is given what is wrong with the last answer to a message, or an empty text.
    """
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=server.timeout,
        transport=_Guarded(server, budget, told),
        trust_env=False,
    )


class _Guarded(httpx2.AsyncHTTPTransport):
    """Resolves the server's name itself, so that the address which was judged is the one that is connected to."""

    def __init__(self, server: McpServer, budget: Budget, told: Callable[[str], None]) -> None:
        super().__init__(trust_env=False)
        self._server = server
        self._budget = budget
        self._told = told
        self._streams = 0

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, origin = request.url, httpx2.URL(self._server.url)
        if (url.scheme, url.host, url.port) != (origin.scheme, origin.host, origin.port):
            raise httpx2.ConnectError(f"{url.host} is not the server that was defined")
        if request.method == "GET":
            self._streams += 1
            if self._streams > _MAX_STREAMS:
                raise httpx2.ConnectError(f"{url.host} ended {_MAX_STREAMS} streams")
        try:
            found = await names.resolve(url.host, url.port or 443)
        except OSError as error:
            raise httpx2.ConnectError(f"{url.host} cannot be resolved: {error}") from error
        refused = {address: addresses.refusal(address) for address in found}
        usable = [address for address, reason in refused.items() if self._server.private or reason is None]
        if not usable:
            reasons = ", ".join(f"{address} is {reason}" for address, reason in refused.items())
            raise httpx2.ConnectError(
                f"{url.host} has no public address ({reasons}); if this server is meant, define it with `private: true`"
            )
        response = await self._sent(request, usable)
        if request.method == "POST":
            status = response.status_code
            hint = ": check `headers` in its definition" if status in {401, 403} else ""
            self._told(f"HTTP {status}{hint}" if status >= httpx2.codes.BAD_REQUEST else "")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError(f"{url.host} answered with compressed content, which was not asked for")
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        content = cast("httpx2.AsyncByteStream", response.stream)
        # The package reads the answer to a call on after the call was given up.
        until = time.monotonic() + self._server.timeout if request.method == "POST" else math.inf
        response.stream = _Bounded(content, self._budget, self._told, until=until, streams=streams)
        return response

    async def _sent(self, request: httpx2.Request, usable: list[str]) -> httpx2.Response:
        """What the first of the addresses answers that can be connected to: a server may listen at one of them only."""
        url, failure = request.url, httpx2.ConnectError("no address")
        for address in usable:
            # The header `Host` keeps the name, and so does what the certificate is checked against.
            sent = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await super().handle_async_request(sent)
            except httpx2.ConnectError as error:
                failure = error
        raise failure


class _Bounded(httpx2.AsyncByteStream):
    """What a server answers: up to a number of bytes, and of values in one message, and up to a time."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        budget: Budget,
        told: Callable[[str], None],
        *,
        until: float,
        streams: bool,
    ) -> None:
        self._inner = inner
        self._budget = budget
        self._told = told
        self._until = until
        self._streams = streams
        self._left = self._most = _MAX_STREAM_BYTES if streams else MAX_MESSAGE_BYTES
        self._values = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise self._refusal(f"(It sent a message of more than {self._most:,} bytes.)")
            lines = (chunk.count(b"\n") + chunk.count(b"\r")) // _LINES_PER_PIECE
            if not self._budget.takes(chunk, max(1, lines, sum(map(chunk.count, _ENDS_OF_EVENTS)))):
                raise self._refusal(self._budget.refusal)
            if time.monotonic() > self._until:
                raise self._refusal("(Its answer did not end in time.)")
            # At worst too many are counted: a chunk may have the end of one message and the beginning of the next.
            self._values += values_in(chunk)
            if self._values > MAX_MESSAGE_VALUES:
                raise self._refusal(f"(It sent a message of more than {MAX_MESSAGE_VALUES:,} values.)")
            if self._streams and chunk.endswith((*_ENDS_OF_EVENTS, b"\n\r\n")):
                self._values = 0
            yield chunk

    def _refusal(self, text: str) -> httpx2.ReadError:
        self._told(text)  # of a stream, the package tells only that it has ended
        return httpx2.ReadError(text)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()
