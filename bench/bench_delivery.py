"""How long GitHub waits for an answer to a delivery: a real web server and queue, 100 deliveries a second."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import multiprocessing
import tempfile
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from bench.measure import Figure, percentile
from bot.apps.webhook import WebhookOptions, make_app, make_runner
from bot.domain.listening import Listening
from bot.engine.database import Database
from bot.engine.queue import SqliteQueue

SECRET = "bench" * 8
RATE = 100
SECONDS = 10
PERSON = {"id": 1, "login": "mona", "type": "User"}
COMMAND = "/codepilot fix it"
Signed = tuple[bytes, dict[str, str]]


def measure() -> list[Figure]:
    """The server in a process of its own; the client sends on a fixed schedule, whatever the answers take."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    with tempfile.TemporaryDirectory() as directory:
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, directory), daemon=True)
        server.start()
        port = ours.recv()
        waits = asyncio.run(_load(f"http://127.0.0.1:{port}/webhook"))
        ours.send("stop")
        server.join(timeout=10)
    middle, late = (percentile(waits, share) * 1000 for share in (0.5, 0.99))
    return [
        Figure(what=f"answer to a delivery at {RATE}/s (median)", value=middle, unit="ms"),
        Figure(what=f"answer to a delivery at {RATE}/s (p99)", value=late, unit="ms", bound=25),
    ]


def _serve(pipe: Connection, directory: str) -> None:
    asyncio.run(_server(pipe.send, pipe.recv, Path(directory)))


async def _server(tell: Callable[[int], None], wait: Callable[[], object], directory: Path) -> None:
    database = Database(directory / "queue.sqlite")
    queue = SqliteQueue(database)
    options = WebhookOptions(secret=SecretStr(SECRET), listening=Listening())
    runner = make_runner(make_app(options, queue))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tell(runner.addresses[0][1])
    await asyncio.to_thread(wait)
    await runner.cleanup()
    await database.close()


async def _load(url: str) -> list[float]:
    waits: list[float] = []
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        begun = time.perf_counter()
        for number in range(RATE * SECONDS):
            await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            group.create_task(_send(session, url, number, waits))
    return waits


async def _send(session: aiohttp.ClientSession, url: str, number: int, waits: list[float]) -> None:
    body, headers = signed(number)
    begun = time.perf_counter()
    async with session.post(url, data=body, headers=headers) as response:
        assert response.status == 202, await response.text()
    waits.append(time.perf_counter() - begun)


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
