"""How long GitHub waits for an answer to a delivery, and how many are answered a second: SQLite, PostgreSQL, Probot.

The receiver stores each job for good before it answers. Probot, which is installed here from npm, stores nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import multiprocessing
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from bench.measure import Figure, percentile
from bench.stores import stores
from bot.apps.webhook import WebhookOptions, make_app, make_runner
from bot.domain.listening import Listening
from bot.engine.durable.engine import DurableEngine
from bot.engine.durable.store import JobStore

SECRET = "bench" * 8
RATE = 100
SECONDS = 10
PERSON = {"id": 1, "login": "mona", "type": "User"}
COMMAND = "/codepilot fix it"
_ALL, _AT_ONCE = 3000, 32
_LEAST = {"SQLite": 300, "PostgreSQL": 500}
_PROBOT = "14.3.2"
Signed = tuple[bytes, dict[str, str]]


def measure() -> list[Figure]:
    """Each server in a process of its own; all are sent the same by this one."""
    with _probot() as url:
        theirs = asyncio.run(_load(url)) if url else None
    beside = f"Probot {_PROBOT}: {theirs[0]:.0f}/s, {theirs[2]:.1f} ms" if theirs else "no Node here for Probot"
    figures = []
    with stores() as found:
        for name, new in found.items():
            with _receiver(new()) as url:
                rate, middle, late = asyncio.run(_load(url))
            least = _LEAST[name]
            figures += [
                Figure(
                    what=f"answer to a delivery, as many as can be, {name}", value=1000 / rate, unit="ms",
                    bound=1000 / least, beside=f"{rate:.0f}/s; {beside}",
                ),
                Figure(what=f"answer to a delivery at {RATE}/s, {name} (median)", value=middle, unit="ms"),
                Figure(what=f"the same (p99), {name}", value=late, unit="ms", bound=100, beside=beside),
            ]  # fmt: skip
    return figures


@contextmanager
def _receiver(store: str) -> Iterator[str]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, store), daemon=True)
    server.start()
    yield f"http://127.0.0.1:{ours.recv()}/webhook"
    ours.send("stop")
    server.join(timeout=10)


def _serve(pipe: Connection, store: str) -> None:
    asyncio.run(_server(pipe.send, pipe.recv, store))


async def _server(tell: Callable[[int], None], wait: Callable[[], object], url: str) -> None:
    store = JobStore(url)
    options = WebhookOptions(secret=SecretStr(SECRET), listening=Listening())
    runner = make_runner(make_app(options, DurableEngine(store)))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tell(runner.addresses[0][1])
    await asyncio.to_thread(wait)
    await runner.cleanup()
    await store.close()


@contextmanager
def _probot() -> Iterator[str]:
    """An App on Probot that does nothing with what it is sent; empty when there is no Node."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        yield ""
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / f"codepilot-bench/probot-{_PROBOT}"
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"probot@{_PROBOT}"]
        subprocess.run(npm, cwd=folder, check=True, capture_output=True)
    program = shutil.copy(Path(__file__).with_name("probot_server.mjs"), folder)
    with subprocess.Popen(["node", program, SECRET], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/webhook"
        finally:
            server.kill()


async def _load(url: str) -> tuple[float, float, float]:
    """Answers a second with many at once; then the median and the 99th percentile in ms, sent on a fixed schedule."""
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(_send(session, url, signed(10**6 + number)) for number in range(_AT_ONCE)))
        deliveries = iter([signed(number) for number in range(_ALL)])

        async def some() -> None:
            for delivery in deliveries:
                await _send(session, url, delivery)

        begun = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))
        rate = _ALL / (time.perf_counter() - begun)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(RATE * SECONDS):
                await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
                tasks.append(group.create_task(_send(session, url, signed(_ALL + number))))
    waits = [task.result() * 1000 for task in tasks]
    return rate, percentile(waits, 0.5), percentile(waits, 0.99)


async def _send(session: aiohttp.ClientSession, url: str, delivery: Signed) -> float:
    body, headers = delivery
    begun = time.perf_counter()
    async with session.post(url, data=body, headers=headers) as response:
        answer = await response.text()
        assert response.status in {200, 202}, answer
        assert "duplicate" not in answer, answer
        assert "ignored" not in answer, answer
    return time.perf_counter() - begun


def signed(number: int, *, person: dict[str, Any] = PERSON, said: str = COMMAND, **other: Any) -> Signed:  # noqa: ANN401 - JSON
    """A new comment, by default in a thread of its own: the delivery's body and headers.

    Args:
        number: of the comment, and of the thread.
        person: who comments.
        said: the comment.
        other: parts of the payload to put in place of the usual ones.
    """
    body = json.dumps(_payload(number, person, said) | other).encode()
    return body, {
        "Content-Type": "application/json",
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
    }


def _payload(number: int, user: dict[str, Any], said: str) -> dict[str, Any]:
    stamp = "2026-11-21T00:00:00Z"
    return {
        "action": "created",
        "installation": {"id": 1},
        "sender": user,
        "repository": {"id": 1, "full_name": "acme/widgets", "private": False, "default_branch": "main"},
        "issue": {"number": number + 1, "title": "A title", "body": "A body " * 200, "user": user, "state": "open"},
        "comment": {
            "id": number + 1,
            "body": said,
            "user": user,
            "created_at": stamp,
            "updated_at": stamp,
        },
    }
