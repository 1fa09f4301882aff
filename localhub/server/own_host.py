"""Refuse requests for host names that are not the hub's: a foreign page whose name was pointed at this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from localhub.state.site import Site


def own_host(site: Site, host: str) -> Middleware:
    """Let requests through that name an address, `localhost`, or a name of the hub's.

    A page of a stranger that is open in a browser here can point its own name at the loopback (DNS rebinding). Its
    requests are then of the hub's origin, cookies and tokens of forms included; only the name tells them apart.

    Args:
        site: the hub; the name in its address is one of its own.
        host: the name or address that it listens at.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            name = urlsplit(f"//{request.host}").hostname or ""
        except ValueError:
            name = ""
        if name in {"localhost", host, urlsplit(site.url).hostname} or name.endswith(".localhost") or _is_address(name):
            return await handler(request)
        raise web.HTTPMisdirectedRequest(text=f"This hub is not {request.host!r}. Open {site.url} instead.\n")

    return check


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
