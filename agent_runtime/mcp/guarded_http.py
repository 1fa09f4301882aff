"""HTTP to one MCP server: only to public addresses, unless the operator says otherwise, and within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2
from typing_extensions import override

from agent_runtime.mcp.settings import McpServer
from agent_runtime.sandbox.egress import addresses, names

MAX_MESSAGE_BYTES = 6 * 1024**2
"""A picture of the size that models take, as base64, and some words beside it."""
_MAX_STREAM_BYTES = 64 * 1024**2


def guarded_client(server: McpServer) -> httpx2.AsyncClient:
    """A client for the requests to a server; its users do not follow redirects to elsewhere."""
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=server.timeout,
        transport=_Guarded(server),
        trust_env=False,
    )


class _Guarded(httpx2.AsyncHTTPTransport):
    """Resolves the server's name itself, so that the address which was judged is the one that is connected to."""

    def __init__(self, server: McpServer) -> None:
        super().__init__(trust_env=False)
        self._server = server

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, origin = request.url, httpx2.URL(self._server.url)
        if (url.scheme, url.host, url.port) != (origin.scheme, origin.host, origin.port):
            raise httpx2.ConnectError(f"{url.host} is not the server that was defined")
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
        # The header `Host` keeps the name, and so does what the certificate is checked against.
        sent = httpx2.Request(
            request.method,
            url.copy_with(host=usable[0]),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )
        response = await super().handle_async_request(sent)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError(f"{url.host} answered with compressed content, which was not asked for")
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        content = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _Bounded(content, _MAX_STREAM_BYTES if streams else MAX_MESSAGE_BYTES)
        return response


class _Bounded(httpx2.AsyncByteStream):
    """What a server answers, up to a number of bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._left = most
        self._most = most

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError(f"the answer has more than {self._most:,} bytes")
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()
