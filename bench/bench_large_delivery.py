"""Memory that deliveries of 20 MB take, above an idle receiver without a worker process, and memory that it keeps."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.measure import Figure
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from bot.server.webhook import make_app, make_runner
from tests.builders import a_comment_event, a_request
from tests.webhook_receiver import webhook_options

_BYTES = 20_000_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAUSE = 0.002
_MOST_MB = 150.0


def measure() -> list[Figure]:
    """Send a delivery with one long text, and one with 280,000 objects, each three times to a receiver of its own."""
    objects = [{"id": n, "name": f"n{n}", "url": f"https://api.github.com/x/{n}"} for n in range(_BYTES // 70)]
    shapes: dict[str, dict[str, object]] = {
        "one text": a_comment_event("/codepilot fix", issue__body="x" * _BYTES),
        "280,000 objects": {**a_comment_event("/codepilot fix"), "extra": objects},
    }
    figures = []
    for name, event in shapes.items():
        peak, kept = asyncio.run(_deliver(event))
        label = f"memory of a delivery of 20 MB, {name}"
        figures.append(
            Figure(label=label, value=peak, unit="MB", bound=_MOST_MB, note=f"the receiver keeps {kept:.0f} MB")
        )
    return figures


async def _deliver(event: dict[str, object]) -> tuple[float, float]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    assert server.pid is not None
    assert ours.poll(60)
    url = f"http://127.0.0.1:{ours.recv()}/webhook"
    async with aiohttp.ClientSession() as client:
        await _post(client, url, a_request(a_comment_event("/codepilot fix"), delivery_id="warm"))
        idle = _tree_bytes(server.pid)
        with _sampled(server.pid) as samples:
            for number in range(3):
                await _post(client, url, a_request(event, delivery_id=f"d{number}"))
    kept = _own_bytes(server.pid) - idle
    ours.send("stop")
    server.join(timeout=10)
    return (max(samples) - idle) / 1e6, kept / 1e6


async def _post(client: aiohttp.ClientSession, url: str, request: tuple[dict[str, str], bytes]) -> None:
    headers, body = request
    async with client.post(url, data=io.BytesIO(body), headers=headers) as answer:
        assert answer.status in {200, 202}, await answer.text()


def _serve(pipe: Connection) -> None:
    async def serve() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = JobStore(f"sqlite:///{directory}/jobs.sqlite")
            runner = make_runner(make_app(webhook_options(folder=Path(directory)), DurableEngine(store)))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            pipe.send(runner.addresses[0][1])
            await asyncio.to_thread(pipe.recv)
            await runner.cleanup()
            await store.close()

    asyncio.run(serve())


@contextmanager
def _sampled(pid: int) -> Iterator[list[int]]:
    """Collect the memory of a process and its children every two milliseconds."""
    samples, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(_PAUSE):
            samples.append(_tree_bytes(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _tree_bytes(pid: int) -> int:
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _read(task / "children")]
    except FileNotFoundError:
        return 0
    return _own_bytes(pid) + sum(map(_tree_bytes, children))


def _own_bytes(pid: int) -> int:
    return int((_read(Path(f"/proc/{pid}/statm")) or ["0", "0"])[1]) * _PAGE


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return []
