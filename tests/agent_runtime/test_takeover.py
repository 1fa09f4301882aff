"""The worker of a run is killed on one machine, and another one goes on at once."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import DatabaseSession, Ended, Recovered, Replied, Started, Status
from agent_runtime.sessions.tables import LEASES
from tests.agent_runtime.crash_child import ID
from tests.postgres import postgres_server, postgres_url
from tests.source_files import ROOT

__all__ = ["postgres_server", "postgres_url"]

STEPS = 8
KILLED_AFTER = 3
TAKEN_OVER_SECONDS = 3.0


@pytest.mark.slow
async def test_a_run_goes_on_within_three_seconds_of_its_workers_death_on_another_machine(
    tmp_path: Path, postgres_url: str
) -> None:
    first, second = await _worker(tmp_path, postgres_url), await _worker(tmp_path, postgres_url)
    await _heard(first)
    while not (await _heard(first)).startswith("Replied") or len(_replies(postgres_url)) < KILLED_AFTER:
        pass
    _move_to_another_machine(postgres_url)
    first.kill()
    async with asyncio.timeout(TAKEN_OVER_SECONDS):
        assert await _heard(second) == "Recovered"
    while await _heard(second) != "Ended":
        pass
    assert (await second.communicate(b"\n"))[0] == b"ended finished\n"
    assert await first.wait() == -9
    events = DatabaseSession(ID, db_url=postgres_url).events
    assert [event.outcome.status for event in events if isinstance(event, Ended)] == [Status.FINISHED]
    assert sum(isinstance(event, Started) for event in events) == 1
    assert sum(isinstance(event, Recovered) for event in events) == 1
    steps = [event.step for event in events if isinstance(event, Replied)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= STEPS


async def _worker(place: Path, url: str) -> Process:
    """A process that is about to open the session."""
    work = place / "work"
    work.mkdir(exist_ok=True)
    command = ["-m", "tests.agent_runtime.crash_child", str(work), url, str(STEPS)]
    child = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    return child


async def _heard(child: Process) -> str:
    """Let it go on, to the next event that it records; the event's kind."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    return (await child.stdout.readline()).decode().split()[1]


def _replies(url: str) -> list[Replied]:
    """What is kept by now."""
    return [each for each in DatabaseSession(ID, db_url=url)._read() if isinstance(each, Replied)]


def _move_to_another_machine(url: str) -> None:
    """Have the lease say that its holder runs elsewhere: nobody sees whether it lives, and it was heard of just now."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        assert connection.execute(LEASES.update().values(machine="another", host="elsewhere")).rowcount == 1
