"""Kill a real `codepilot serve` at random instants while it works on many jobs, and count what is lost or doubled.

Usage: make chaos ARGS="--kills 100 --jobs 300 --seed 1". The hub runs in this process, the model is a script, every job
is a fix in an issue of its own. The service is killed with SIGKILL (every tenth time stopped with SIGTERM) at a moment
that the seed gives, during its start as well, and started again. At the end it runs until every job has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.bench_delivery import SECRET
from bench.service import scripted, variables
from localhub import App, LocalHub, Repo
from tests.origin import git
from tests.waiting import eventually

_OWNERS = 10
"""Writes of one installation are a second apart, so there are several."""
_AT_ONCE = 6
_LATE_SHARE = 0.8
"""Of the lives that begin to count when the service listens; the others may end in its start."""
_LONGEST_LIFE_SECONDS = 5.0
_TERM_EVERY = 10
_GRACE_SECONDS = 20.0
_DONE_SECONDS = 900.0
"""How long the last life may take; a job that is charged with deaths is held for minutes."""
_UNDER_WAY = ("Working on it", "Waiting its turn")
_BUG, _RIGHT = "def add(a, b):\n    return a + b + 1\n", "def add(a, b):\n    return a + b\n"
_FILES = {"calc.py": _BUG, "check.sh": "grep -qx '    return a + b' calc.py\n"}
_LOOK = 'Looking.\n```codepilot\nexecute("main", "sleep 0.3; cat calc.py")\n```\n'
_FIX = f"""Fixing.
```codepilot
write_file("calc.py")
execute("main", "sh check.sh", check=True)
```
```python
{_RIGHT}```
```completion
Fixed.
```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One command: where it was given."""

    repo: Repo
    number: int


@dataclass(slots=True, kw_only=True)
class Chaos:
    """A hub with repositories, and the environment of the service that works there."""

    hub: LocalHub
    app: App
    repos: Sequence[Repo]
    directory: Path
    variables: Mapping[str, str]
    dice: random.Random
    tasks: list[Task] = field(default_factory=list)
    lives: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self, seconds: float, how: signal.Signals) -> None:
        """One life of the service, from its start to its end by a signal."""
        self.lives += 1
        log = self.directory / f"serve-{self.lives}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bot", "serve", env=self.variables, stderr=stderr
            )
        hearing = asyncio.create_task(self._heard(log))
        try:
            if self.dice.random() < _LATE_SHARE:
                await asyncio.wait((hearing,), timeout=_GRACE_SECONDS)
            await asyncio.sleep(seconds)
        finally:
            hearing.cancel()
            if process.returncode is None:
                process.send_signal(how)
            try:
                await asyncio.wait_for(process.wait(), _GRACE_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _heard(self, log: Path) -> None:
        """Tell the hub where the service listens."""
        address: str = await eventually(lambda: _address(log), within=_DONE_SECONDS)
        self.hub.set_webhook(self.app, address, SECRET)
        self.heard.set()

    async def ask(self, jobs: int, *, kills: int) -> None:
        """Give commands, a few under way at a time, spread over all the lives, so that no end meets an idle service."""
        await self.heard.wait()
        for number in range(jobs):
            await eventually(
                lambda due=number * kills: due <= jobs * self.lives and len(self.under_way()) < _AT_ONCE,
                within=_DONE_SECONDS,
            )
            repo = self.repos[number % len(self.repos)]
            issue = self.hub.open_issue(repo, author=repo.owner, title=f"It is wrong {number}")
            self.hub.comment(repo, issue.number, author=repo.owner, body="/codepilot fix")
            self.tasks.append(Task(repo=repo, number=issue.number))

    def under_way(self) -> list[Task]:
        """The tasks that have no last word yet."""
        return [task for task in self.tasks if not _last_words(self.said(task))]

    def said(self, task: Task) -> list[str]:
        """What the bot said about a task."""
        return [each.body for each in self.hub.comments(task.repo, task.number) if each.author_id == self.app.bot.id]

    def is_over(self) -> bool:
        """Whether every task has its last word, and every check run its end."""
        runs = [run for repo in self.repos for run in self.hub.check_runs(repo)]
        return not self.under_way() and all(run.status == "completed" for run in runs)


def _address(log: Path) -> str | None:
    found = re.search(r"listening on (http://\S+/webhook)", log.read_text())
    return found[1] if found else None


def _last_words(comments: Sequence[str]) -> bool:
    return bool(comments) and not any(state in body for body in comments for state in _UNDER_WAY)


def report(chaos: Chaos) -> tuple[list[str], int]:
    """What came of every task, in lines, and how many things are wrong."""
    hub, counts, wrong = chaos.hub, Counter[str](), list[str]()
    runs = {(repo.id, run.id): run for repo in chaos.repos for run in hub.check_runs(repo)}
    named = Counter((repo_id, run.name) for (repo_id, _), run in runs.items())
    for task in chaos.tasks:
        said, place = chaos.said(task), f"{task.repo.full_name}#{task.number}"
        branches = [each for each in hub.branches(task.repo) if each.startswith(f"codepilot/issue-{task.number}-")]
        pulls = [each for each in hub.issues(task.repo) if each.pull is not None and each.pull.head_ref in branches]
        checks = named[task.repo.id, f"Codepilot fix #{task.number}"]
        found = {
            "without a last word": not _last_words(said),
            "with two comments": len(said) > 1,
            "with two branches": len(branches) > 1,
            "with two pull requests": len(pulls) > 1,
            "with two check runs": checks > 1,
        }
        wrong += [f"{place}: {what}: {' | '.join(said)[:300]}" for what, is_so in found.items() if is_so]
        counts["done" if pulls and any("Done" in body for body in said) else "ended otherwise"] += 1
    wrong += [f"check run {run.name} is {run.status}" for run in runs.values() if run.status != "completed"]
    wrong += [f"{branch} has {count} commits" for branch, count in _commits(chaos) if count != 1]
    lines = [
        f"{len(chaos.tasks)} jobs, {chaos.lives - 1} times ended: " + ", ".join(f"{n} {k}" for k, n in counts.items())
    ]
    return [*lines, *(f"WRONG: {each}" for each in wrong)], len(wrong)


def _commits(chaos: Chaos) -> list[tuple[str, int]]:
    return [
        (f"{repo.full_name} {branch}", int(git(repo.path, "rev-list", "--count", f"main..{branch}")))
        for repo in chaos.repos
        for branch in chaos.hub.branches(repo)
        if branch.startswith("codepilot/")
    ]


async def run(*, kills: int, jobs: int, seed: int, directory: Path) -> int:
    """The whole of it; how many things are wrong."""
    async with LocalHub(directory / "hub") as hub:
        chaos = _chaos(hub, directory, random.Random(seed))  # noqa: S311 - to be the same every time
        asking = asyncio.create_task(chaos.ask(jobs, kills=kills))
        begun = time.monotonic()
        for number in range(1, kills + 1):
            how = signal.SIGTERM if number % _TERM_EVERY == 0 else signal.SIGKILL
            await chaos.live(chaos.dice.uniform(0.1, _LONGEST_LIFE_SECONDS), how)
            if number % 5 == 0:
                open_ = len(chaos.under_way())
                print(
                    f"{time.monotonic() - begun:6.0f} s: {number} ends, {len(chaos.tasks)} jobs, {open_} open",
                    flush=True,
                )
        await _last_life(chaos, asking)
        lines, wrong = report(chaos)
        print("\n".join(lines))
        return wrong


async def _last_life(chaos: Chaos, asking: asyncio.Task[None]) -> None:
    """Start the service a last time, and let it come to an end with everything."""
    life = asyncio.create_task(chaos.live(_DONE_SECONDS, signal.SIGTERM))
    try:
        await asyncio.wait_for(asking, _DONE_SECONDS)
        with suppress(AssertionError):  # the report says what did not end
            await eventually(chaos.is_over, within=_DONE_SECONDS)
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


def _chaos(hub: LocalHub, directory: Path, dice: random.Random) -> Chaos:
    app = hub.add_app("codepilot", webhook_secret=SECRET, events=["issue_comment"])
    repos = []
    for number in range(_OWNERS):
        hub.add_user(f"mona{number}")
        repos.append(hub.add_repo(f"mona{number}/calc", owner=f"mona{number}", files=_FILES))
        hub.install(app, repos[-1])
    told = variables(hub, app, directory, jobs=4, **scripted(directory, [_LOOK, _FIX]))
    return Chaos(hub=hub, app=app, repos=repos, directory=directory, variables=told, dice=dice)


def main() -> int:
    """Read the options, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
        return min(
            1, asyncio.run(run(kills=chosen.kills, jobs=chosen.jobs, seed=chosen.seed, directory=Path(directory)))
        )


if __name__ == "__main__":
    sys.exit(main())
