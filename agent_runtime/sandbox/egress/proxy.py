"""The proxy of one sandbox: takes connections from inside, and lets them out to listed hosts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

from agent_runtime.core.network import Connection, Network
from agent_runtime.sandbox.egress import addresses, names
from agent_runtime.sandbox.egress.listener import PORT, listen_inside
from agent_runtime.sandbox.egress.tunnel import ProxyRules, TransferBudget, Tunnel, close

log = logging.getLogger(__name__)

_ADDRESS = f"http://127.0.0.1:{PORT}"
_OWN = "localhost,127.0.0.1,::1"


class Egress:
    """The way out of one sandbox, and of those that are started in its place; its bounds are for all of them together.

    It runs in the event loop that `serve` is called in. Without it, or when it has ended, programs inside get
    "connection refused": there is no other way out that it would have to close.

    Attributes:
        environment: variables that make programs inside use it.
    """

    environment: Mapping[str, str] = {
        **{name: _ADDRESS for stem in ("http_proxy", "https_proxy", "all_proxy") for name in (stem, stem.upper())},
        # Servers that a test starts inside are no business of the proxy's.
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _OWN),
    }

    def __init__(
        self,
        network: Network,
        *,
        told: Callable[[Connection], None],
        lost: Callable[[str], None],
        resolve: names.Resolve = names.resolve,
        refusal: Callable[[str], str | None] = addresses.refusal,
    ) -> None:
        """Prepare; nothing is opened before `serve`.

        Args:
            network: where to, and the bounds.
            told: called with each connection once it is over or was refused.
            lost: called with the reason when the network goes away while it is served.
            resolve: turns names into addresses; for tests.
            refusal: what is wrong with an address; for tests, whose servers live on the loopback.
        """
        budget = TransferBudget(total=network.limits.total_bytes, left=network.limits.total_bytes)
        self._rules = ProxyRules(network=network, budget=budget, resolve=resolve, refusal=refusal)
        self._told = told
        self._lost = lost
        self._made = 0
        self._opening = asyncio.Lock()
        self._served: tuple[int, int] | None = None
        self._work: asyncio.Task[None] | None = None

    async def serve(self, namespace: int) -> None:
        """Take connections from a sandbox; idempotent, and it stops serving the one before.

        Call it before anything but the sandbox's first process runs inside.

        Args:
            namespace: an open descriptor of the sandbox's network namespace.

        Raises:
            SandboxError: the namespace cannot be entered.
        """
        async with self._opening:
            status = os.fstat(namespace)
            wanted = (status.st_dev, status.st_ino)
            if self._served == wanted:
                return
            await self.close()
            opening = asyncio.ensure_future(asyncio.to_thread(listen_inside, namespace))
            try:
                listener = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_discard)
                raise
            self._served = wanted
            self._work = asyncio.create_task(self._serve(listener))
            # Not the task itself: one that is cancelled before it begins does nothing.
            self._work.add_done_callback(lambda _: listener.close())

    async def close(self) -> None:
        """End all connections and take no more; idempotent. `serve` can start again, within what is left."""
        work, self._work, self._served = self._work, None, None
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def _serve(self, listener: socket.socket) -> None:
        """Take connections until there were too many, or until something breaks; say so then."""
        most = self._rules.network.limits.connections
        try:
            async with asyncio.TaskGroup() as tunnels:
                await self._accept(listener, tunnels)
                listener.close()
                self._lost(f"{most} connections were made, and a sandbox may make no more")
        except ExceptionGroup as group:
            # Whatever it was, the network is gone, and the run's report must say so.
            log.exception("the proxy of a sandbox broke")
            self._lost(f"the proxy broke: {group.exceptions[0]!r}")

    async def _accept(self, listener: socket.socket, tunnels: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(self._rules.network.limits.at_once)
        while self._made < self._rules.network.limits.connections:
            await slots.acquire()
            self._made += 1
            try:
                connection = await _next(listener)
            except ConnectionAbortedError:  # it was given up before it was taken
                slots.release()
                continue

            def over(_task: object, connection: socket.socket = connection) -> None:
                connection.close()
                slots.release()

            tunnels.create_task(self._see_through(connection)).add_done_callback(over)

    async def _see_through(self, connection: socket.socket) -> None:
        try:
            client = await asyncio.open_connection(sock=connection)
        except OSError:  # gone already
            return
        tunnel = Tunnel(self._rules, client)
        try:
            await tunnel.serve()
            await close(client[1])
        finally:
            client[1].transport.abort()
            self._told(tunnel.record)


async def _next(listener: socket.socket) -> socket.socket:
    """The next connection; the event loop's own `sock_accept` loses one that comes while it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            came = asyncio.Event()
            loop.add_reader(listener, came.set)
            try:
                await came.wait()
            finally:
                loop.remove_reader(listener)
        else:
            connection.settimeout(0)
            return connection


def _discard(opening: asyncio.Future[socket.socket]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
