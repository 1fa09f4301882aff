"""Receivers and workers as processes with data directories of their own, on PostgreSQL and a blob store."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from bench.chaos.machines import Machine
from bench.service import variables
from bot.domain.job import JobState
from bot.queue.engine import DurableEngine
from bot.queue.store import JobStore
from localhub import LocalHub
from tests import s3
from tests.namespaces import Namespace, namespace, reachable
from tests.pauses import pause_of
from tests.postgres import Postgres, programs, running
from tests.stage import COMPLETION, FILES, FIX, FIXED_CALC, Stage, acting, build, watch
from tests.waiting import eventually

_SETS_UP = "head -c 300000 /dev/urandom > cache/deep/by-setup"
_TREE = {
    **FILES,
    "tool.sh": "#!/bin/sh\nexit 0\n",
    ".gitignore": "cache/\n",
    ".github/codepilot.yml": f"setup: [mkdir -p cache/deep, {_SETS_UP}]\n",
}
_SUMS = "find . -type f ! -path './.git/*' ! -name sums -exec sha256sum {} + | LC_ALL=C sort > sums"
_ASKS = acting(
    f'write_file("calc.py")\nwrite_file("notes/new.txt")\nexecute("main", "{_SUMS}")',
    FIXED_CALC,
    "untracked\n",
    completion=COMPLETION,
)
_WAITS = acting('execute("main", "until [ -e go ]; do sleep 0.02; done; rm go")')


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of these tests' own, which they stop."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (scripts/system-programs dev installs it)")
    with running(found) as server:
        yield server


@pytest.fixture(scope="module")
def bucket() -> Iterator[s3.S3]:
    with s3.running() as running_s3:
        yield running_s3


@dataclass(slots=True, kw_only=True)
class Site:
    """A hub, a database, a blob store, and machines."""

    stage: Stage
    shared: Mapping[str, str]
    machines: list[Machine] = field(default_factory=list)

    async def start(
        self, name: str, *words: str, replies: list[str], there: Namespace | None = None, **others: str
    ) -> Machine:
        """Start a machine, whose model gives these replies; it is in a namespace if there is one."""
        place = self.stage.directory / name
        place.mkdir()
        (place / "script.yaml").write_text(yaml.safe_dump([{"reply": each} for each in replies]))
        told = variables(
            self.stage.hub, self.stage.app, place, jobs=2, provider="scripted", model=str(place / "script.yaml")
        )
        machine = Machine(
            name=name,
            words=words,
            variables={**told, **self.shared, **others},
            directory=place,
            namespace=there.path if there else None,
        )
        self.machines.append(machine)
        await self.begin(machine)
        return machine

    async def begin(self, machine: Machine) -> None:
        """Start a machine's process, once more or for the first time."""
        await machine.start()
        await machine.ready()
        if machine.receives:
            self.stage.hub.set_webhook(self.stage.app, machine.address, machine.variables["CODEPILOT_WEBHOOK_SECRET"])


@asynccontextmanager
async def site(
    hub: LocalHub, directory: Path, server: Postgres, shared: Mapping[str, str], files: dict[str, str] | None = None
) -> AsyncIterator[Site]:
    name = f"db{hashlib.sha256(str(directory).encode()).hexdigest()[:12]}"
    server.run(f"CREATE DATABASE {name}")
    app, repo = build(hub, files)
    store = JobStore(server.url(name))
    stage = Stage(hub=hub, directory=directory, app=app, repo=repo, queue=DurableEngine(store), address="")
    watch(stage)
    settings = {"CODEPILOT_DATABASE_URL": server.url(name), "CODEPILOT_DRAIN_SECONDS": "0", **shared}
    made = Site(stage=stage, shared=settings)
    try:
        yield made
    finally:
        for machine in made.machines:
            await machine.end()
        await store.close()


@asynccontextmanager
async def _network(
    there: Namespace | None, hub: LocalHub, server: Postgres, bucket: s3.S3
) -> AsyncIterator[tuple[str, Counter[int]]]:
    """Let a machine there reach what the others do: where PostgreSQL is to it, and the connections that it made."""
    if there is None:
        yield "127.0.0.1", Counter()
        return
    http = (urlsplit(hub.url).port or 0, bucket.port)
    async with reachable(there, (*http, server.port), at_loopback=http) as seen:
        yield there.outside, seen


def sums(files: Path) -> list[str]:
    """Return the output of `_SUMS` in a directory."""
    found = [each for each in files.rglob("*") if each.is_file() and ".git" not in each.relative_to(files).parts]
    return sorted(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  ./{each.relative_to(files)}" for each in found)


@pytest.fixture
def there() -> Iterator[Namespace | None]:
    """The network of the second machine; None for this one, where no other can be made."""
    with ExitStack() as stack:
        try:
            network = stack.enter_context(namespace())
        except pytest.skip.Exception:
            network = None
        yield network


@pytest.mark.slow
@pytest.mark.long
async def test_a_run_approved_after_its_machine_is_gone_goes_on_at_the_same_call_with_the_same_files(
    hub: LocalHub, tmp_path: Path, server: Postgres, bucket: s3.S3, there: Namespace | None
) -> None:
    asking = {
        "CODEPILOT_LEVEL": "ask",
        "CODEPILOT_NETWORK": "nowhere.example",
        "CODEPILOT_STORAGE_URL": f"s3://{s3.BUCKET}/machines",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": s3.KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bucket.port}",
    }
    async with site(hub, tmp_path, server, asking, _TREE) as here:
        stage = here.stage
        receiver = await here.start("receiver", "serve", "--no-work", replies=[])
        first = await here.start("a", "work", replies=[_ASKS])
        number = stage.issue().number
        pause = await pause_of(stage, stage.say(number, "/codepilot fix"))
        expected = sums(first.directory / "bot" / "workspaces" / "jobs" / pause.job_id / "files")
        assert {line.split("  ./")[1] for line in expected} >= {"calc.py", "notes/new.txt", "cache/deep/by-setup"}
        await first.end(signal.SIGKILL)
        shutil.rmtree(first.directory / "bot")
        async with _network(there, hub, server, bucket) as (database, seen):
            address = here.shared["CODEPILOT_DATABASE_URL"].replace("127.0.0.1", database)
            # Asked anything, its model would say something else.
            replies = ["```completion\nBegun again.\n```\n"]
            second = await here.start("b", "work", replies=replies, there=there, CODEPILOT_DATABASE_URL=address)
            assert (second.network == receiver.network) is (there is None)
            stage.say(number, f"/codepilot approve {pause.short_id}")
            end = await stage.ended(pause.job_id, within=60)
            assert end.state is JobState.DONE, second.log_text
            assert all(seen.values()), seen
            await second.end()
        [sha] = stage.bot_branches().values()
        assert stage.file(sha, "sums").splitlines() == expected
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert len(stage.pulls()) == 1


@pytest.mark.slow
@pytest.mark.long
async def test_nothing_is_lost_while_postgresql_is_down(hub: LocalHub, tmp_path: Path, server: Postgres) -> None:
    blobs = {"CODEPILOT_STORAGE_URL": (tmp_path / "blobs").as_uri()}
    async with site(hub, tmp_path, server, blobs) as here:
        stage = here.stage
        receiver = await here.start("receiver", "serve", "--no-work", replies=[])
        worker = await here.start("a", "work", replies=[_WAITS, FIX])
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        files = worker.directory / "bot" / "workspaces" / "jobs" / job_id / "files"
        await eventually(lambda: files.exists() and (files / "calc.py").exists(), within=30)
        await asyncio.to_thread(server.stop)
        # Its supervisor starts it again, until the database is back.
        assert await worker.ended()
        assert "was lost, so other workers take over" in worker.log_text or "failed:" in worker.log_text
        later = stage.say(stage.issue("Another").number, "/codepilot fix")
        [refused] = await eventually(lambda: [each for each in hub.deliveries if each.status_code == 503], within=30)
        assert receiver.alive
        await asyncio.to_thread(server.start)
        (worker.directory / "script.yaml").write_text(yaml.safe_dump([{"reply": FIX}]))
        await here.begin(worker)
        hub.redeliver(refused.guid)
        assert (await stage.ended(job_id, within=60)).state is JobState.DONE, worker.log_text
        redone = await eventually(lambda: _job_of(hub, refused.guid), within=30)
        assert (await stage.ended(redone, within=60)).state is JobState.DONE, worker.log_text
        for each in (command, later):
            assert len(stage.bot_comments(each.number)) == 1
        assert len(stage.pulls()) == 2


def _job_of(hub: LocalHub, guid: str) -> str:
    """The job that a delivery became at its last attempt."""
    answers = [each.response_body for each in hub.deliveries if each.guid == guid and each.status_code == 202]
    return str(yaml.safe_load(answers[-1])["job"]) if answers else ""
