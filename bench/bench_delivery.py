"""How long GitHub waits for an answer to a delivery, and how many are answered a second: SQLite, PostgreSQL, Probot.

The receiver stores each job for good before it answers. Probot, which is installed here from npm, stores nothing. Each
is measured twice: without its log, and with the log that it writes as installed. All get the same requests over the
same number of kept connections. The requests are made beforehand, so that the sender leaves the processors to them.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import hmac
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from pydantic import SecretStr

from bench.measure import Figure, percentile
from bench.stores import stores
from bot.domain.access import BotProfile
from bot.publishing.redact import Redactor
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from bot.server.process import start_log
from bot.server.webhook import WebhookOptions, make_app, make_runner

SECRET = "bench" * 8
RATE = 100
SECONDS = 10
PERSON = {"id": 1, "login": "mona", "type": "User"}
COMMAND = "/codepilot fix it"
_ALL, _AT_ONCE = 6000, 32
_LEAST = {"SQLite": 300, "PostgreSQL": 500}
_MOST_MS = 100
_PROBOT = "14.3.2"
Signed = tuple[bytes, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server that is measured."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Response times of a server.

    Attributes:
        rate: answers a second, with many at once.
        processor_us: of its processor time, each of these took.
        middle_ms: to an answer, sent on a fixed schedule; the median.
        late_ms: the same, the 99th percentile.
    """

    rate: float
    processor_us: float
    middle_ms: float
    late_ms: float

    @property
    def words(self) -> str:
        """The same for people."""
        return f"{self.rate:.0f}/s, {self.processor_us:.0f} µs of its processor time, {self.late_ms:.1f} ms (p99)"


def measure() -> list[Figure]:
    """Send the same requests to each server, which runs in a process of its own."""
    return _beside_probot(logs=False) + _beside_probot(logs=True)


def _beside_probot(*, logs: bool) -> list[Figure]:
    figures, style = [], ", with its log" if logs else ""
    with _probot(logs=logs) as probot:
        beside = f"Probot {_PROBOT}: {asyncio.run(_load(probot)).words}" if probot else "no Node here for Probot"
    with stores() as found:
        for name, new in found.items():
            with _receiver(new(), logs=logs) as server:
                ours = asyncio.run(_load(server))
            figures += [
                Figure(
                    label=f"answer to a delivery, as many as can be, {name}{style}", value=1000 / ours.rate, unit="ms",
                    bound=1000 / _LEAST[name], note=f"ours: {ours.words}; {beside}",
                ),
                Figure(label=f"at {RATE}/s (median), {name}{style}", value=ours.middle_ms, unit="ms"),
                Figure(label=f"at {RATE}/s (p99), {name}{style}", value=ours.late_ms, unit="ms", bound=_MOST_MS),
            ]  # fmt: skip
    return figures


@contextmanager
def _receiver(store: str, *, logs: bool) -> Iterator[_Server]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, store, logs), daemon=True)
    server.start()
    assert server.pid is not None
    yield _Server(url=f"http://127.0.0.1:{ours.recv()}/webhook", pid=server.pid)
    ours.send("stop")
    server.join(timeout=10)


def _serve(pipe: Connection, store: str, logs: bool) -> None:  # noqa: FBT001 - a process gets its arguments by place
    if logs:
        with Path(os.devnull).open("w") as stream:
            start_log(Redactor((SECRET,)), stream=stream)
            asyncio.run(_server(pipe.send, pipe.recv, store))
    else:
        asyncio.run(_server(pipe.send, pipe.recv, store))


async def _server(tell: Callable[[int], None], wait: Callable[[], object], url: str) -> None:
    store = JobStore(url)
    options = WebhookOptions(secret=SecretStr(SECRET), profile=BotProfile())
    runner = make_runner(make_app(options, DurableEngine(store)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gc.collect()
    gc.freeze()  # as the service does
    tell(runner.addresses[0][1])
    await asyncio.to_thread(wait)
    await runner.cleanup()
    await store.close()


@contextmanager
def _probot(*, logs: bool) -> Iterator[_Server | None]:
    """An App on Probot without handlers; None without Node."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        yield None
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / f"codepilot-bench/probot-{_PROBOT}"
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"probot@{_PROBOT}"]
        subprocess.run(npm, cwd=folder, check=True, capture_output=True)
    program = shutil.copy(Path(__file__).with_name("probot_server.mjs"), folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["node", program, SECRET, str(port), "logs" if logs else "quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder) as server:
        try:
            _wait_for(port)
            yield _Server(url=f"http://127.0.0.1:{port}/webhook", pid=server.pid)
        finally:
            server.kill()


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until, "Probot does not listen"
            time.sleep(0.05)
        else:
            return


async def _load(server: _Server) -> _Measured:
    url = server.url
    async with _connected(url) as idle:
        await _hurry(idle, _requests(url, 10**6, _ALL // 4))
        deliveries = _requests(url, 0, _ALL)
        begun, used = time.perf_counter(), _processor_seconds(server.pid)
        await _hurry(idle, deliveries)
        seconds, used = time.perf_counter() - begun, _processor_seconds(server.pid) - used
        deliveries = _requests(url, _ALL, RATE * SECONDS)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, delivery in enumerate(deliveries):
                await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
                tasks.append(group.create_task(_send(idle, delivery)))
    waits = [task.result() * 1000 for task in tasks]
    return _Measured(
        rate=_ALL / seconds,
        processor_us=used / _ALL * 1e6,
        middle_ms=percentile(waits, 0.5),
        late_ms=percentile(waits, 0.99),
    )


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)


async def _hurry(idle: asyncio.Queue[_Connection], requests: list[bytes]) -> None:
    """Send as fast as answers come, over all connections."""
    left = iter(requests)

    async def some() -> None:
        for request in left:
            await _send(idle, request)

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncio.Queue[_Connection]]:
    place, idle = urlsplit(url), asyncio.Queue[_Connection]()
    for _ in range(_AT_ONCE):
        idle.put_nowait(await asyncio.open_connection(place.hostname, place.port))
    yield idle
    while not idle.empty():
        _, writer = idle.get_nowait()
        writer.close()
        await writer.wait_closed()


def _requests(url: str, first: int, count: int) -> list[bytes]:
    place, requests = urlsplit(url), []
    for number in range(first, first + count):
        body, headers = signed(number)
        named = {"Host": place.netloc, "Accept": "*/*", "Content-Length": str(len(body)), **headers}
        lines = [f"POST {place.path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        requests.append("\r\n".join(lines).encode() + body)
    return requests


async def _send(idle: asyncio.Queue[_Connection], request: bytes) -> float:
    """Send a request; return the seconds until its answer, which must accept the delivery."""
    begun = time.perf_counter()
    reader, writer = connection = await idle.get()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    answer = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    idle.put_nowait(connection)
    assert head.split()[1] in {b"200", b"202"}, answer
    assert b"duplicate" not in answer, answer
    assert b"ignored" not in answer, answer
    return time.perf_counter() - begun


def signed(number: int, *, person: dict[str, Any] = PERSON, comment: str = COMMAND, **overrides: Any) -> Signed:  # noqa: ANN401 - JSON
    """A new comment, by default in a thread of its own: the delivery's body and headers.

    Args:
        number: of the comment, and of the thread.
        person: who comments.
        comment: its text.
        overrides: parts of the payload to put in place of the usual ones.
    """
    body = json.dumps(_payload(number, person, comment) | overrides).encode()
    return body, {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
    }


def _payload(number: int, user: dict[str, Any], comment: str) -> dict[str, Any]:
    stamp = "2026-11-21T00:00:00Z"
    return {
        "action": "created",
        "installation": {"id": 1},
        "sender": user,
        "repository": {"id": 1, "full_name": "acme/widgets", "private": False, "default_branch": "main"},
        "issue": {"number": number + 1, "title": "A title", "body": "A body " * 200, "user": user, "state": "open"},
        "comment": {
            "id": number + 1,
            "body": comment,
            "user": user,
            "created_at": stamp,
            "updated_at": stamp,
        },
    }
