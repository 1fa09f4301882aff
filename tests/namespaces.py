"""A network namespace, as another machine has a network of its own; its only link leads to this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked

LOOPBACK = "127.0.0.1"
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace with the link up at both ends.

    Attributes:
        path: the file that it is entered by.
        outside: this machine's address on the link.
    """

    path: Path
    outside: str


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Make one, and remove it; the test is skipped where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("there is no program `ip` (package iproute2)")
    number = next(_NUMBERS)
    # Of the range for benchmarks (RFC 2544); by the process, as others run tests at the same time.
    name, near = f"cp{os.getpid()}n{number}", f"198.18.{os.getpid() % 256}.{number % 64 * 4 + 1}"
    far = near.rpartition(".")[0] + f".{number % 64 * 4 + 2}"
    if refusal := _refusal("netns", "add", name):
        pytest.skip(f"network namespaces cannot be made here: {refusal}")
    try:
        if refusal := _refusal("link", "add", name, "type", "veth", "peer", "name", "up0", "netns", name):
            pytest.skip(f"links between network namespaces cannot be made here: {refusal}")
        _ip("address", "add", f"{near}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-netns", name, "address", "add", f"{far}/30", "dev", "up0")
        for link in ("lo", "up0"):
            _ip("-netns", name, "link", "set", link, "up")
        yield Namespace(path=Path("/run/netns", name), outside=near)
    finally:
        _ip("netns", "delete", name)  # and the link with it


def _ip(*words: str) -> None:
    assert not (refusal := _refusal(*words)), f"ip {' '.join(words)}: {refusal}"


def _refusal(*words: str) -> str:
    """What `ip` says against it; empty when it has done it."""
    made = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    return made.stderr.strip() or f"status {made.returncode}" if made.returncode else ""


@asynccontextmanager
async def reachable(
    there: Namespace, ports: Collection[int], *, at_loopback: Collection[int]
) -> AsyncIterator[Counter[int]]:
    """Let a namespace reach ports of this machine's loopback.

    Args:
        there: the namespace.
        ports: they are reached at `there.outside`.
        at_loopback: those that are reached at the loopback there as well, as by a proxy beside the bot, which speaks
            plain HTTP to nothing else.

    Yields:
        How many connections came over the link, by port.
    """
    seen = Counter(dict.fromkeys(ports, 0))
    async with AsyncExitStack() as stack:
        for port in ports:
            await stack.enter_async_context(await _forwarding(there.outside, LOOPBACK, port, seen))
        stack.enter_context(forked.Forked(forked.inside, there.path, _forward, there.outside, tuple(at_loopback)))
        yield seen


def _forward(to: str, ports: tuple[int, ...]) -> None:
    async def forward() -> None:
        await asyncio.gather(*[(await _forwarding(LOOPBACK, to, port, Counter())).serve_forever() for port in ports])

    asyncio.run(forward())


async def _forwarding(at: str, to: str, port: int, seen: Counter[int]) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen[port] += 1
        onward = await asyncio.open_connection(to, port)
        await asyncio.gather(_copy(reader, onward[1]), _copy(onward[0], writer))

    return await asyncio.start_server(connected, at, port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # what one side broke off, the other one sees as its end
    finally:
        writer.close()
