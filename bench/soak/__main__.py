"""Give hostile repositories to every verb of a real `codepilot serve`, and watch it. Usage: make soak.

For each repository an issue and a pull request, every second one from a fork, are opened on a hub, and every verb is
said in both. The agent does whatever the repository wants. Watched are the longest silence of the service's event loop,
by its health check, and the memory of its processes outside sandboxes. Every command must end in its comment. The
service must end when it is told to, start again, and do an ordinary job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.bench_delivery import SECRET
from bench.soak.repositories import REPOSITORIES, Hostile
from bench.soak.watching import Seen, Watched, watched
from bot.jobs.database import Database
from bot.jobs.job import TRANSITIONS, JobState
from bot.jobs.queue import SqliteQueue
from bot.localhub import LocalHub
from bot.localhub.model import App, Comment, Repo
from tests.model_server import ModelServer, Received
from tests.waiting import eventually

MOST_SILENT_SECONDS = 0.25
MOST_MEMORY_BYTES = 700 * 2**20
_MOST_SECONDS = 300.0
_ON_ISSUE = ("fix", "explain", "plan", "ask why?", "help")
_ON_PULL = ("review", "fix", "test", "explain", "ask why?", "undo", "status")
_ORDINARY = Hostile(name="ordinary", script="true\n")
_UNDER_WAY = ("Working on it", "Waiting its turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one repository: how its jobs ended, what was seen meanwhile, and what was wrong."""

    name: str
    states: Sequence[str]
    seen: Seen
    faults: Sequence[str]

    def row(self) -> str:
        """One line of the report."""
        counts = ", ".join(f"{self.states.count(state)} {state}" for state in sorted(set(self.states)))
        figures = f"{self.seen.silent * 1000:6.0f} ms {self.seen.memory / 2**20:6.0f} MB"
        return f"{self.name:20} {figures}  {counts}" + "".join(f"\n    FAULT: {fault}" for fault in self.faults)


class Soak:
    """The hub, the service's settings, and the view of its queue."""

    def __init__(self, hub: LocalHub, app: App, directory: Path, model: str) -> None:
        key = directory / "app.pem"
        key.touch(mode=0o600)
        key.write_text(app.private_key_pem)
        (directory / "bot").mkdir(mode=0o700)
        self.hub, self.app, self.directory = hub, app, directory
        self.queue = SqliteQueue(Database(directory / "bot" / "queue.sqlite"))
        self.variables = {
            "PATH": os.environ["PATH"],
            "CODEPILOT_WEBHOOK_SECRET": SECRET,
            "CODEPILOT_APP_ID": str(app.id),
            "CODEPILOT_PRIVATE_KEY_FILE": str(key),
            "CODEPILOT_PROVIDER": "openai",
            "CODEPILOT_BASE_URL": model,
            "CODEPILOT_MODEL": "soak",
            "OPENAI_API_KEY": "sk-none",
            "CODEPILOT_DATA_DIR": str(directory / "bot"),
            "CODEPILOT_API_URL": hub.api_url,
            "CODEPILOT_SERVER_URL": hub.url,
            "CODEPILOT_PORT": "0",
            "CODEPILOT_LEVEL": "auto",
            "CODEPILOT_CAPS": "thread=10000,user=10000,repository=10000,installation=10000",
            "CODEPILOT_ALLOW_ROOT": "yes",
        }

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Watched]:
        """The service, watched; it must end by itself when it is told to."""
        log = self.directory / f"serve-{len(list(self.directory.glob('serve-*')))}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bot",
                "serve",
                env=self.variables,
                stderr=stderr,
            )
        try:
            async with asyncio.timeout(60):
                while not (found := re.search(r"listening on (http://\S+)/webhook", log.read_text())):
                    assert process.returncode is None, log.read_text()[-4000:]
                    await asyncio.sleep(0.05)
            self.hub.set_webhook(self.app, f"{found[1]}/webhook", SECRET)
            async with watched(process.pid, f"{found[1]}/healthz") as watch:
                yield watch
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0, log.read_text()[-4000:]
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def give(self, hostile: Hostile, number: int, watch: Watched) -> Verdict:
        """Every verb in an issue and a pull request of one repository."""
        repo = await asyncio.to_thread(self._repository, hostile, forked=number % 2 == 1)
        await watch.since()
        said = self._say(repo, hostile)
        ends = await asyncio.gather(*(self._end(each) for each in said))
        seen = await watch.since()
        refused = [each.number for each, (state, _) in zip(said, ends, strict=True) if state == "refused"]
        faults = [*(fault for _, fault in ends if fault), *self._untold(repo, said, refused)]
        if seen.silent > MOST_SILENT_SECONDS:
            faults.append(f"the event loop was silent for {seen.silent:.2f} s")
        if seen.memory > MOST_MEMORY_BYTES:
            faults.append(f"the host took {seen.memory / 2**20:.0f} MB")
        return Verdict(name=hostile.name, states=[state for state, _ in ends], seen=seen, faults=faults)

    def _repository(self, hostile: Hostile, *, forked: bool) -> Repo:
        source = self.directory / "sources" / f"{hostile.name}-{len(list(self.directory.glob('sources/*')))}.git"
        source.parent.mkdir(exist_ok=True)
        hostile.build(source)
        repo = self.hub.add_repo(f"mona/{source.stem}", owner="mona", source=source)
        if forked:
            self.hub.add_repo(f"stranger/{source.stem}", owner="stranger", fork_of=repo)
        self.hub.install(self.app, repo)
        title = f"soak {hostile.name}"
        self.hub.open_issue(repo, author="mona", title=title, body=hostile.said)
        head, author = ("stranger:topic", "stranger") if forked else ("topic", "mona")
        self.hub.open_pull(repo, author=author, head=head, title=title, body=hostile.said)
        return repo

    def _say(self, repo: Repo, hostile: Hostile) -> list[Comment]:
        threads = {issue.pull is not None: issue.number for issue in self.hub.issues(repo)}
        wanted = [(threads[False], verb) for verb in _ON_ISSUE] + [(threads[True], verb) for verb in _ON_PULL]
        return [
            self.hub.comment(repo, number, author="mona", body=f"/codepilot {verb}\n\n{hostile.said[:20_000]}")
            for number, verb in wanted
        ]

    async def _end(self, comment: Comment) -> tuple[str, str]:
        """The state in which a command's job ended, and what is wrong with its end."""
        try:
            found = await eventually(partial(self._ended, comment), within=_MOST_SECONDS)
        except AssertionError:
            return "stuck", f"{comment.body[:40]!r} has not ended after {_MOST_SECONDS:.0f} s"
        if found == "ignored":
            return found, f"{comment.body[:40]!r} was ignored"
        return found, ""

    def _untold(self, repo: Repo, said: Sequence[Comment], refused: Sequence[int]) -> list[str]:
        """What is wrong with the bot's comments: one for each command, and none that still speaks of work.

        The same refusal is told once in a thread; after that a reaction answers.
        """
        faults = []
        for number in sorted({each.number for each in said}):
            bodies = [each.body for each in self.hub.comments(repo, number) if each.author_id == self.app.bot.id]
            commands = sum(each.number == number for each in said)
            if not commands - max(0, refused.count(number) - 1) <= len(bodies) <= commands:
                faults.append(f"{len(bodies)} comments of the bot for {commands} commands in #{number}")
            faults += [
                f"left in #{number}: {body[:80]!r}"
                for body in bodies
                if any(words in body[:300] for words in _UNDER_WAY)
            ]
        return faults

    async def _ended(self, comment: Comment) -> str | None:
        for delivery in self.hub.deliveries:
            if delivery.event != "issue_comment" or not delivery.status_code:
                continue
            payload = json.loads(delivery.body)
            if payload["comment"]["id"] != comment.id or payload["action"] != "created":
                continue
            job_id = json.loads(delivery.response_body).get("job")
            if job_id is None:
                return "ignored"
            stored = await self.queue.get(job_id)
            if stored is None or (TRANSITIONS[stored.state] and stored.state is not JobState.WAITING):
                return None
            return stored.state.value
        return None


def reply(received: Received) -> str:
    """First everything that reads, writes and runs; then the last words."""
    messages = received.json["messages"]
    text = json.dumps(messages)
    name = re.search(r"soak ([a-z-]+)", text)
    hostile = next((each for each in REPOSITORIES if name and each.name == name[1]), _ORDINARY)
    if any(message["role"] == "assistant" for message in messages):
        return f"~~~~~~completion\n{hostile.answer}\n~~~~~~\n"
    calls = (
        "list_files()",
        "list_files('**/*a*a*a*a*a*a*b')",
        "find('add')",
        "read_file('calc.py')",
        "execute('main', 'sh hostile.sh', timeout=60)",
        "write_file('big.csv', mode='replace')",
        "write_file('new.py')",
        *hostile.calls,
    )
    tried = "".join(
        f"try:\n    print(str({call})[:300])\nexcept Exception as e:\n    print(str(e)[:300])\n" for call in calls
    )
    block = f"```codepilot\n{tried}```\n"
    return (
        f"Looking.\n{block}```text\n<<<<<<< old\nnot there\n=======\nthere\n>>>>>>> new\n```\n```python\nx = 1\n```\n"
    )


async def soak(wanted: Sequence[Hostile], directory: Path) -> int:
    """Run it; how many faults there were."""
    async with ModelServer(reply) as model, LocalHub(directory / "hub") as hub:
        hub.add_user("mona")
        hub.add_user("stranger")
        here = Soak(hub, hub.add_app("codepilot", webhook_secret=SECRET), directory, model.url_openai)
        faults = 0
        async with here.serving() as watch:
            for number, hostile in enumerate(wanted):
                verdict = await here.give(hostile, number, watch)
                faults += len(verdict.faults)
                print(verdict.row(), flush=True)
        async with here.serving() as watch:
            verdict = await here.give(_ORDINARY, 0, watch)
            faults += len(verdict.faults)
            print(f"after a restart: {verdict.row()}")
        return faults


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these repositories")
    parser.add_argument("--keep", type=Path, help="a directory for logs and data, kept afterwards")
    chosen = parser.parse_args()
    wanted = [each for each in REPOSITORIES if not chosen.names or each.name in chosen.names]
    if chosen.keep:
        chosen.keep.mkdir(parents=True)
        faults = asyncio.run(soak(wanted, chosen.keep))
    else:
        with tempfile.TemporaryDirectory() as directory:
            faults = asyncio.run(soak(wanted, Path(directory)))
    print(f"{len(wanted)} repositories, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
