"""Recipes are started when they are due, and old data is swept."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import sqlalchemy as sa
from typing_extensions import override

from bot.domain.errors import QueueError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from bot.github.app import AppAccess, list_installation_ids
from bot.github.client import GitHub
from bot.github.types import GitHubError
from bot.jobs.context import JobServices
from bot.jobs.storage import FileJobSessions, PatchFiles, RunResults
from bot.queue.ledger import DurableLedger, DurableSchedules
from bot.queue.memory import InMemoryEngine
from bot.queue.protocols import Schedules
from bot.queue.store import SCHEDULES, JobStore
from bot.server import periodic
from bot.server.periodic import REFRESH_SECONDS, TURN_SECONDS, Scheduler, job_sweeps, run_sweeps, sweep_all
from localhub import App, LocalHub
from tests.builders import a_job
from tests.clocks import Clock
from tests.origin import Origin
from tests.waiting import eventually

DAILY = "---\non: {schedule: '0 4 * * *'}\n---\nTidy.\n"
BROKEN = "---\non: {schedule: '* * * * *'}\n---\nTidy.\n"


def scheduler_of(hub: LocalHub, app: App, store: JobStore) -> Scheduler:
    key = app.private_key_pem
    return Scheduler(
        DurableSchedules(store),
        DurableLedger(store),
        partial(list_installation_ids, AppAccess(app_id=app.id, private_key=key, api_url=hub.api_url)),
        lambda installation: GitHub.for_installation(app.id, key, installation, hub.api_url, redact=str),
    )


async def stored_schedules(store: JobStore) -> set[tuple[str, str]]:
    """The repository and the recipe of each schedule."""
    rows = await store.run(lambda tx: tx.rows.execute(sa.select(SCHEDULES.c.repo, SCHEDULES.c.recipe)).all())
    return {(each.repo, each.recipe) for each in rows}


async def test_the_recipes_of_all_repositories_are_read_once_in_six_hours(hub: LocalHub, tmp_path: Path) -> None:
    for name in ("mona", "hubot"):
        hub.add_user(name)
    files = {".github/codepilot/daily.md": DAILY, ".github/codepilot/broken.md": BROKEN}
    calc = hub.add_repo("mona/calc", owner="mona", files=files)
    plain = hub.add_repo("mona/plain", owner="mona", files={"README.md": "x\n"})
    other = hub.add_repo("hubot/other", owner="hubot", files=files)
    app = hub.add_app("codepilot", webhook_secret="a-secret-of-the-test")
    hub.install(app, calc)
    hub.install(app, plain)
    installed = hub.install(app, other)
    clock = Clock()
    url = f"sqlite:///{tmp_path / 'jobs.sqlite'}"
    store, second = JobStore(url, clock=clock), JobStore(url, clock=clock)
    await scheduler_of(hub, app, store).refresh()
    assert await stored_schedules(store) == {("mona/calc", "daily"), ("hubot/other", "daily")}
    hub.commit(plain, {".github/codepilot/daily.md": DAILY}, message="A recipe", author="mona")
    await scheduler_of(hub, app, second).refresh()
    assert len(await stored_schedules(store)) == 2
    clock.now += REFRESH_SECONDS
    hub.archive(calc, by="mona")
    hub.uninstall(installed)
    await scheduler_of(hub, app, second).refresh()
    assert await stored_schedules(store) == {("mona/plain", "daily")}
    await store.close()
    await second.close()


async def test_a_recipe_that_is_refused_for_its_label_has_no_schedule(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("hubot")
    files = {
        f".github/codepilot/{name}.md": f"---\non: {{schedule: '0 4 * * *', label: '{label}'}}\n---\nTidy.\n"
        for name, label in {"tidy": "tidy", "allows": "codepilot:auto", "asks": "May Ask"}.items()
    }
    files[".github/codepilot.yml"] = "labels: {ask: may ask}\n"
    app = hub.add_app("codepilot", webhook_secret="a-secret-of-the-test")
    hub.install(app, hub.add_repo("hubot/other", owner="hubot", files=files))
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    await scheduler_of(hub, app, store).refresh()
    assert await stored_schedules(store) == {("hubot/other", "tidy")}
    await store.close()


@pytest.mark.parametrize("path", ["*/installation/repositories", "*/repos/hubot/other/contents/*"])
async def test_what_could_not_be_read_is_read_at_the_next_look(hub: LocalHub, tmp_path: Path, path: str) -> None:
    hub.add_user("hubot")
    other = hub.add_repo("hubot/other", owner="hubot", files={".github/codepilot/daily.md": DAILY})
    app = hub.add_app("codepilot", webhook_secret="a-secret-of-the-test")
    hub.install(app, other)
    clock = Clock()
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}", clock=clock)
    scheduler = scheduler_of(hub, app, store)
    hub.faults.add("GET", path, "rate_limited", retry_after=3600)
    await scheduler.refresh()
    await scheduler.refresh()
    assert await stored_schedules(store) == set()
    clock.now += TURN_SECONDS
    await scheduler.refresh()
    assert await stored_schedules(store) == {("hubot/other", "daily")}
    hub.faults.add("GET", path, "rate_limited", retry_after=3600)
    clock.now += REFRESH_SECONDS - 1
    await scheduler.refresh()
    assert len(hub.faults) == 1, "read again before its time"
    await store.close()


class _Slow:
    """Stands in for a client whose server does not answer before it is told to."""

    def __init__(self, answers: asyncio.Event) -> None:
        self._answers = answers

    async def __aenter__(self) -> GitHub:
        await self._answers.wait()
        raise GitHubError("list the installation's repositories", 0, "no answer", "")

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_an_installation_that_is_read_slowly_holds_up_no_other(hub: LocalHub, tmp_path: Path) -> None:
    hub.add_user("hubot")
    other = hub.add_repo("hubot/other", owner="hubot", files={".github/codepilot/daily.md": DAILY})
    app = hub.add_app("codepilot", webhook_secret="a-secret-of-the-test")
    number = hub.install(app, other)
    store, answers = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), asyncio.Event()

    async def installed() -> tuple[int, ...]:
        return (number + 1, number)

    def client(installation: int) -> GitHub:
        if installation != number:
            return cast("GitHub", _Slow(answers))
        return GitHub.for_installation(app.id, app.private_key_pem, installation, hub.api_url, redact=str)

    reading = asyncio.create_task(Scheduler(DurableSchedules(store), DurableLedger(store), installed, client).refresh())

    async def read_schedules() -> set[tuple[str, str]] | None:
        return await stored_schedules(store) or None

    read: set[tuple[str, str]] = await eventually(read_schedules)
    assert read == {("hubot/other", "daily")}
    assert not reading.done()
    answers.set()
    await reading
    await store.close()


class _Due:
    """Stands in for the schedules: fails the first time it looks for what is due, and knows no installation."""

    def __init__(self) -> None:
        self.looked = 0
        self.installation_requests = 0

    async def start_due(self) -> int:
        self.looked += 1
        if self.looked == 1:
            raise QueueError("the database is locked")
        return 0

    async def installations(self) -> frozenset[int]:
        self.installation_requests += 1
        return frozenset()


async def test_a_running_scheduler_looks_again_after_a_failure_until_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic, "TICK_SECONDS", 0.0)
    store, due = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}"), _Due()

    async def none() -> tuple[int, ...]:
        return ()

    scheduler = Scheduler(cast("Schedules", due), DurableLedger(store), none, lambda _: pytest.fail("asked GitHub"))
    before = asyncio.all_tasks()
    async with scheduler.run():
        await eventually(lambda: due.looked > 2 and due.installation_requests > 0)
    assert asyncio.all_tasks() == before
    await store.close()


DAYS = 30


class _Unreachable(InMemoryEngine):
    @override
    async def live_ids(self) -> frozenset[str]:
        raise QueueError("the job database cannot be reached")


def services(place: Path) -> JobServices:
    shared = SimpleNamespace(
        spending=None,
        workspaces=Workspaces(place / "workspaces"),
        work=RunResults(PatchFiles(place / "patches"), most_bytes=10**9),
        sessions=FileJobSessions(place / "sessions"),
        keep_days=DAYS,
    )
    return cast("JobServices", shared)


def left_by(job_id: str, place: Path) -> tuple[Path, ...]:
    """The files of a job, made so long ago that those of an ended one go."""
    patch = place / f"patches/{job_id}.patch"
    session, files = place / f"sessions/{job_id}", place / f"workspaces/jobs/{job_id}"
    for folder in (session, files, patch.parent):
        folder.mkdir(parents=True, exist_ok=True)
    patch.write_text("diff")
    for path in (patch, session):
        os.utime(path, (time.time() - (DAYS + 1) * 86_400,) * 2)
    return session, files, patch


async def test_what_an_ended_job_left_goes_and_what_a_live_one_has_stays(tmp_path: Path) -> None:
    engine, shared = InMemoryEngine(), services(tmp_path)
    live = a_job()
    await engine.accept(live)
    ended, kept = left_by("ended", tmp_path), left_by(live.id, tmp_path)
    await sweep_all(job_sweeps(shared, engine))
    assert not any(path.exists() for path in ended)
    assert all(path.exists() for path in kept)


async def test_a_sweep_that_fails_keeps_no_other_from_running(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine, shared = InMemoryEngine(), services(tmp_path)
    *_, patch = left_by("ended", tmp_path)
    (tmp_path / "sessions").rename(tmp_path / "elsewhere")
    (tmp_path / "sessions").write_text("no directory")
    await sweep_all(job_sweeps(shared, engine))
    assert not patch.exists()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["sessions"]


async def test_nothing_waits_for_a_sweep(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Slow(InMemoryEngine):
        @override
        async def live_ids(self) -> frozenset[str]:
            asked.set()
            await asyncio.Event().wait()
            return frozenset()

    async with asyncio.timeout(30), run_sweeps(services(tmp_path), Slow()):
        await asked.wait()


async def test_without_the_database_nothing_is_taken_for_ended(tmp_path: Path) -> None:
    left = left_by("perhaps-live", tmp_path)
    await sweep_all(job_sweeps(services(tmp_path), _Unreachable()))
    assert all(path.exists() for path in left)


async def test_files_of_jobs_are_removed_after_an_error_of_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removals, is_repeated = count(), asyncio.Event()

    async def remove(_workspaces: Workspaces) -> None:
        if not next(removals):
            raise OSError(errno.ENOSPC, "No space left on device")
        is_repeated.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Workspaces, "remove_ended", remove)
    async with asyncio.timeout(30), run_sweeps(services(tmp_path), InMemoryEngine()):
        await is_repeated.wait()


async def test_the_checkout_of_the_next_job_is_prepared_while_a_job_runs(tmp_path: Path) -> None:
    class Slow(InMemoryEngine):
        @override
        async def live_ids(self) -> frozenset[str]:
            await asyncio.Event().wait()
            return frozenset()

    shared, origin = services(tmp_path), Origin(tmp_path / "origin")
    source = Source(url=origin.url, token="", ref="refs/heads/main", sha=origin.commit({"a.txt": "a"}))
    async with run_sweeps(shared, Slow()), shared.workspaces.open("job", 1, source):
        await eventually((tmp_path / "workspaces/mirrors/1.files/commit").exists)
