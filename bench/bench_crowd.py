"""How long GitHub waits for an answer while jobs keep the machine busy: the whole bot, its hub, and real sandboxes.

The bot is `codepilot serve` as an operator starts it, on a hub of our own with a scripted model. Deliveries come from a
process of their own, on a fixed schedule, from the first command to the last pull request.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp

from bench.bench_delivery import SECRET, signed
from bench.measure import Figure, percentile
from bench.service import scripted, serving, variables
from localhub import LocalHub, Repo

JOBS = 20
RATE = 20
_BUSY_SECONDS = 8
_MOST_SECONDS = 300
_COMMENTS = 10**9
_BUG, _FIXED = "def add(a, b):\n    return a + b + 1\n", "def add(a, b):\n    return a + b\n"
_FILES = {"calc.py": _BUG, "check.sh": "grep -qx '    return a + b' calc.py\n"}
# A test suite that would take every processor there is, writes files, and says much.
_SUITE = (
    f"end=$((SECONDS + {_BUSY_SECONDS})); for worker in 1 2; do "
    "(while [ $SECONDS -lt $end ]; do for i in {1..2000}; do :; done; head -c 100000 /dev/zero >out$worker; "
    "echo passed a test; done) & done; wait; rm out*"
)
_TEST = f'Testing.\n```codepilot\nexecute("main", {_SUITE!r}, timeout=120)\n```\n'
_FIX = f"""Fixing.
```codepilot
write_file("calc.py")
execute("main", "sh check.sh", check=True)
```
```python
{_FIXED}```
```completion
Fixed.
```
"""


def measure() -> list[Figure]:
    """One delivery a second is a command, which must reach the disk before it is answered; the others are talk."""
    with tempfile.TemporaryDirectory() as directory:
        waits, seconds = asyncio.run(_crowded(Path(directory)))
    middle, late = (percentile(waits, share) * 1000 for share in (0.5, 0.99))
    return [
        Figure(label=f"{JOBS} jobs at once, from first command to last pull request", value=seconds, unit="s"),
        Figure(label=f"answer to a delivery meanwhile, {RATE}/s (median)", value=middle, unit="ms"),
        Figure(label=f"answer to a delivery meanwhile, {RATE}/s (p99)", value=late, unit="ms", bound=50),
    ]


async def _crowded(directory: Path) -> tuple[list[float], float]:
    async with LocalHub(directory / "hub") as hub:
        hub.add_user("mona")
        stranger = hub.add_user("stranger")
        repo = hub.add_repo("mona/calc", owner="mona", files=_FILES)
        app = hub.add_app("codepilot", webhook_secret=SECRET, events=["issue_comment"])
        issues = [
            hub.open_issue(repo, author="mona", title=f"It is wrong {number}").number for number in range(JOBS + 1)
        ]
        # Of someone who may give no commands, in the first job's thread: each that is stored waits for its turn.
        person = {"id": stranger.id, "login": stranger.login, "type": "User"}
        more = {
            "installation": {"id": hub.install(app, repo)},
            "person": person,
            "repository": {"id": repo.id, "full_name": repo.full_name, "private": False, "default_branch": "main"},
            "issue": {"number": issues[1], "title": "It is wrong", "body": "", "state": "open", "user": person},
        }
        told = variables(hub, app, directory, jobs=JOBS, **scripted(directory, [_TEST, _FIX]))
        async with serving(directory, told) as url:
            hub.set_webhook(app, url, SECRET)
            # The first job of a process loads half of its modules.
            hub.comment(repo, issues[0], author="mona", body="/codepilot fix")
            await _wait_for_pulls(hub, repo, 1)
            begun = time.perf_counter()
            for number in issues[1:]:
                hub.comment(repo, number, author="mona", body="/codepilot fix")
            async with _deliveries(url, more) as waits:
                await _wait_for_pulls(hub, repo, JOBS + 1)
            seconds = time.perf_counter() - begun
        return waits, seconds


async def _wait_for_pulls(hub: LocalHub, repo: Repo, jobs: int) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while (pulls := sum(issue.pull is not None for issue in hub.issues(repo))) < jobs:
        assert time.monotonic() < deadline, f"{pulls} of {jobs} jobs are done"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _deliveries(url: str, parts: dict[str, Any]) -> AsyncIterator[list[float]]:
    """Send deliveries while the body runs; the list holds the response times afterwards."""
    waits: list[float] = []
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    sender = multiprocessing.get_context("spawn").Process(target=_send, args=(theirs, url, parts), daemon=True)
    sender.start()
    theirs.close()  # so that its end is seen, should it break
    await asyncio.to_thread(ours.recv)
    yield waits
    ours.send("stop")
    waits += await asyncio.to_thread(ours.recv)
    await asyncio.to_thread(sender.join)


def _send(pipe: Connection, url: str, parts: dict[str, Any]) -> None:
    pipe.send(asyncio.run(_load(pipe, url, parts)))


async def _load(pipe: Connection, url: str, parts: dict[str, Any]) -> list[float]:
    waits: list[float] = []

    async def send(number: int) -> None:
        said = "/codepilot fix it" if number % RATE == 0 else "I have seen this, too. " * 50
        body, headers = signed(_COMMENTS + number, comment=said, **parts)
        begun = time.perf_counter()
        async with session.post(url, data=body, headers=headers) as response:
            assert response.status == (202 if said.startswith("/") else 200), await response.text()
        waits.append(time.perf_counter() - begun)

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        pipe.send("ready")
        begun, number = time.perf_counter(), 0
        while not pipe.poll():
            number += 1
            group.create_task(send(number))
            await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
    return waits
