"""Give hostile repositories to every verb of a real `codepilot serve`, and watch it. Usage: make soak.

For each repository an issue and two pull requests, in every second one from a fork, are opened on a hub, and every verb
is said in them. The agent does whatever the repository wants. Watched are the longest silence of the service's event
loop (see `bench.soak.watching`) and the memory of its processes outside sandboxes. Every command must end in its
comment. The service must end when it is told to, start again, and do an ordinary job.

The service writes to GitHub once a second for each installation, and a command writes three or four times. The issue
and the pull requests are therefore in copies of the repository that belong to different accounts, which are different
installations, and the service works on all three at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.bench_delivery import SECRET
from bench.service import variables
from bench.soak.repositories import REPOSITORIES, Hostile
from bench.soak.watching import Observation, Watched, watched
from bot.domain.job import TRANSITIONS, JobState
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from localhub import App, Comment, LocalHub, Repo
from tests.model_server import ModelServer, Received

MOST_SILENT_SECONDS = 0.25
MOST_MEMORY_BYTES = 700 * 2**20
_MOST_SECONDS = 300.0
_POLL_SECONDS = 0.1
_ON_ISSUE = ("fix", "explain", "plan", "ask why?", "help")
_ON_PULLS = (("review", "fix", "undo", "status"), ("test", "explain", "ask why?"))
_ORDINARY = Hostile(name="ordinary", script="true\n")
_UNDER_WAY = ("Working on it", "Waiting its turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one repository: ends of jobs, observations, and faults."""

    name: str
    states: Sequence[str]
    usage: Observation
    faults: Sequence[str]

    def row(self) -> str:
        """One line of the report."""
        counts = ", ".join(f"{self.states.count(state)} {state}" for state in sorted(set(self.states)))
        figures = f"{self.usage.silent * 1000:6.0f} ms {self.usage.memory / 2**20:6.0f} MB"
        return f"{self.name:20} {figures}  {counts}" + "".join(f"\n    FAULT: {fault}" for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """An issue or pull request in a repository and account of its own, and the verbs that are said in it."""

    repo: Repo
    owner: str
    number: int
    verbs: Sequence[str]


class Soak:
    """The hub, the service's settings, and the view of its queue."""

    def __init__(self, hub: LocalHub, app: App, directory: Path, model: str) -> None:
        jobs = 1 + len(_ON_PULLS)
        self.variables = variables(hub, app, directory, jobs=jobs, provider="openai", base_url=model, model="soak")
        self.variables["CODEPILOT_API_KEY"] = "sk-none"
        self.hub, self.app, self.directory = hub, app, directory
        self.queue = DurableEngine(JobStore(f"sqlite:///{directory / 'bot' / 'jobs.sqlite'}"))
        self._read: set[int] = set()
        self._job_of: dict[int, str] = {}

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
            async with watched(process.pid, found[1]) as watch:
                yield watch
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0, log.read_text()[-4000:]
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def give(self, hostile: Hostile, number: int, watch: Watched) -> Verdict:
        """Every verb in an issue and the pull requests of one repository."""
        threads = await asyncio.to_thread(self._threads, hostile, forked=number % 2 == 1)
        await watch.since()
        said = [each for thread in threads for each in self._say(thread, hostile)]
        ends = await asyncio.gather(*(self._end(each) for each in said))
        seen = await watch.since()
        refused = [each.id for each, (state, _) in zip(said, ends, strict=True) if state == "refused"]
        faults = [fault for _, fault in ends if fault]
        faults += [fault for thread in threads for fault in self._untold(thread, refused)]
        if seen.silent > MOST_SILENT_SECONDS:
            faults.append(f"the event loop was silent for {seen.silent:.2f} s")
        if seen.memory > MOST_MEMORY_BYTES:
            faults.append(f"the host took {seen.memory / 2**20:.0f} MB")
        return Verdict(name=hostile.name, states=[state for state, _ in ends], usage=seen, faults=faults)

    def _threads(self, hostile: Hostile, *, forked: bool) -> list[Thread]:
        source = self.directory / "sources" / f"{hostile.name}-{len(list(self.directory.glob('sources/*')))}.git"
        source.parent.mkdir(exist_ok=True)
        hostile.build(source)
        threads = []
        for place, verbs in enumerate((_ON_ISSUE, *_ON_PULLS)):
            owner = f"mona-{source.stem}-{place}"
            self.hub.add_user(owner)
            repo = self.hub.add_repo(f"{owner}/{source.stem}", owner=owner, source=source)
            if forked and place:
                self.hub.add_repo(f"stranger/{source.stem}-{place}", owner="stranger", fork_of=repo)
            self.hub.install(self.app, repo)
            title = f"soak {hostile.name}"
            if place:
                head, author = ("stranger:topic", "stranger") if forked else ("topic", owner)
                self.hub.open_pull(repo, author=author, head=head, title=title, body=hostile.request)
            else:
                self.hub.open_issue(repo, author=owner, title=title, body=hostile.request)
            threads.append(Thread(repo=repo, owner=owner, number=self.hub.issues(repo)[0].number, verbs=verbs))
        return threads

    def _say(self, thread: Thread, hostile: Hostile) -> list[Comment]:
        return [
            self.hub.comment(
                thread.repo,
                thread.number,
                author=thread.owner,
                body=f"/codepilot {verb}\n\n{hostile.request[:20_000]}",
            )
            for verb in thread.verbs
        ]

    async def _end(self, comment: Comment) -> tuple[str, str]:
        """Return the final state of a command's job, and the faults of its end."""
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                found = None
                while not found:
                    await asyncio.sleep(_POLL_SECONDS)
                    found = await self._ended(comment)
        except TimeoutError:
            return "stuck", f"{comment.body[:40]!r} has not ended after {_MOST_SECONDS:.0f} s"
        if found == "ignored":
            return found, f"{comment.body[:40]!r} was ignored"
        return found, ""

    def _untold(self, thread: Thread, refused: Collection[int]) -> list[str]:
        """What is wrong with the bot's comments: one for each command, and none that still speaks of work.

        The same refusal is told once in a thread; after that a reaction answers.
        """
        faults = []
        comments = self.hub.comments(thread.repo, thread.number)
        bodies = [each.body for each in comments if each.author_id == self.app.bot.id]
        commands, again = len(thread.verbs), max(0, sum(each.id in refused for each in comments) - 1)
        where = f"{thread.repo.full_name}#{thread.number}"
        if not commands - again <= len(bodies) <= commands:
            faults.append(f"{len(bodies)} comments of the bot for {commands} commands in {where}")
        left = [body[:80] for body in bodies if any(words in body[:300] for words in _UNDER_WAY)]
        return [*faults, *(f"left in {where}: {each!r}" for each in left)]

    async def _ended(self, comment: Comment) -> str | None:
        if (job_id := self._jobs().get(comment.id)) is None:
            return None
        if not job_id:
            return "ignored"
        stored = await self.queue.get(job_id)
        if stored is None or (TRANSITIONS[stored.state] and stored.state is not JobState.WAITING):
            return None
        return stored.state.value

    def _jobs(self) -> dict[int, str]:
        """The jobs that the service has made of comments; each delivery is read once, as they are many and large."""
        for delivery in self.hub.deliveries:
            if delivery.event != "issue_comment" or not delivery.status_code or delivery.id in self._read:
                continue
            self._read.add(delivery.id)
            payload = json.loads(delivery.body)
            if payload["action"] == "created":
                self._job_of[payload["comment"]["id"]] = json.loads(delivery.response_body).get("job", "")
        return self._job_of


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


async def soak(repositories: Sequence[Hostile], directory: Path) -> int:
    """Run the soak test; return the number of faults."""
    async with ModelServer(reply) as model, LocalHub(directory / "hub") as hub:
        hub.add_user("stranger")
        here = Soak(hub, hub.add_app("codepilot", webhook_secret=SECRET), directory, model.url_openai)
        faults = 0
        async with here.serving() as watch:
            for number, hostile in enumerate(repositories):
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
