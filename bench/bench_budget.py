"""Requests of jobs in GitHub's budget, and the delay of the first reaction when many commands arrive at once.

The bot is `codepilot serve` as an operator starts it, with the pauses that GitHub asks for, on a hub of our own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.bench_delivery import SECRET
from bench.measure import Figure, percentile
from bench.service import scripted, serving, variables
from localhub import Exchange, LocalHub, Repo

COMMANDS = 30
_HANDS = 8
_MOST_SECONDS = 600
_BUG, _FIXED = "def add(a, b):\n    return a + b + 1\n", "def add(a, b):\n    return a + b\n"
_FIX = f"""Fixing.
```codepilot
write_file("calc.py")
```
```python
{_FIXED}```
```completion
Fixed.
```
"""


class _Watch:
    """Counts the API's requests, and notes when each comment got its reaction."""

    def __init__(self) -> None:
        self.requests = 0
        self.writes = 0
        self.signs: dict[int, float] = {}

    def served(self, exchange: Exchange) -> None:
        self.requests += 1
        parts = exchange.path.split("/")
        reads = exchange.method == "GET" or (parts[-1] == "graphql" and b"mutation" not in exchange.request_body)
        self.writes += not reads and parts[-1] != "access_tokens"
        if parts[-1] == "reactions":
            self.signs.setdefault(int(parts[-2]), time.perf_counter())


def measure() -> list[Figure]:
    """One job alone first, then a burst of commands on issues of their own."""
    with tempfile.TemporaryDirectory() as directory:
        watch, waits, seconds = asyncio.run(_burst(Path(directory)))
    return [
        Figure(label="requests to GitHub a job, in a burst", value=watch.requests / COMMANDS, unit="", bound=15),
        Figure(label="of these writes", value=watch.writes / COMMANDS, unit="", bound=6),
        Figure(label=f"sign for each of {COMMANDS} commands at once (median)", value=percentile(waits, 0.5), unit="s"),
        Figure(label=f"sign for each of {COMMANDS} commands at once (last)", value=max(waits), unit="s", bound=2),
        Figure(label="jobs a minute, one installation", value=COMMANDS / seconds * 60, unit=""),
    ]


async def _burst(directory: Path) -> tuple[_Watch, list[float], float]:
    async with LocalHub(directory / "hub") as hub:
        hub.add_user("mona")
        repo = hub.add_repo("mona/calc", owner="mona", files={"calc.py": _BUG})
        app = hub.add_app("codepilot", webhook_secret=SECRET, events=["issue_comment"])
        hub.install(app, repo)
        issues = [hub.open_issue(repo, author="mona", title=f"It is wrong {n}").number for n in range(COMMANDS + 1)]
        told = variables(hub, app, directory, jobs=_HANDS, **scripted(directory, [_FIX]))
        async with serving(directory, told) as url:
            hub.set_webhook(app, url, SECRET)
            # The first job of a process loads half of its modules.
            hub.comment(repo, issues[0], author="mona", body="/codepilot fix")
            await _wait_for_jobs(hub, repo, app.bot.id, 1)
            watch = _Watch()
            hub.observe(on_exchange=watch.served)
            begun = time.perf_counter()
            said: dict[int, float] = {}
            for number in issues[1:]:
                said[hub.comment(repo, number, author="mona", body="/codepilot fix").id] = time.perf_counter()
            await _wait_for_jobs(hub, repo, app.bot.id, COMMANDS + 1)
            seconds = time.perf_counter() - begun
        return watch, [watch.signs[comment] - at for comment, at in said.items()], seconds


async def _wait_for_jobs(hub: LocalHub, repo: Repo, bot: int, jobs: int) -> None:
    """Wait until so many jobs have said how they ended."""
    deadline = time.monotonic() + _MOST_SECONDS
    threads = [issue.number for issue in hub.issues(repo) if issue.pull is None]
    while True:
        bodies = [each.body for n in threads for each in hub.comments(repo, n) if each.author_id == bot]
        ended = sum("pull request #" in body for body in bodies)
        if ended >= jobs:
            return
        assert time.monotonic() < deadline, f"{ended} of {jobs} jobs are done"
        await asyncio.sleep(0.2)
