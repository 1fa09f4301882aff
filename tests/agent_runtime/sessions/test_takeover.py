"""The worker of a run is killed on one machine, and another one goes on at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from agent_runtime import DatabaseSession, Ended, Recovered, Replied, Started, Status
from agent_runtime.sessions.tables import LEASES
from tests.agent_runtime.run.crash_child import ID, count
from tests.forked import Forked
from tests.postgres import postgres_server, postgres_url
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

STEPS = 8
STEP = 3
"""In the middle of which the first worker dies."""
TAKEN_OVER_SECONDS = 3.0


@pytest.mark.slow
async def test_a_run_goes_on_within_three_seconds_of_its_workers_death_on_another_machine(
    tmp_path: Path, postgres_url: str, workers: list[Forked]
) -> None:
    first, second = workers
    told = [await _heard(first)]
    while told.count("Replied") < STEP or told[-1] != "ToolReturned":
        told.append(await _heard(first))
    # What the step in flight has done is kept, too: the next worker must not take it for undone.
    await eventually(lambda: _kept(postgres_url) == told)
    _move_to_another_machine(postgres_url)
    first.kill()
    async with asyncio.timeout(TAKEN_OVER_SECONDS):
        assert await _heard(second) == "Recovered"
    while await _heard(second) != "Ended":
        pass
    second.stdin.write("\n")
    assert await asyncio.to_thread(second.stdout.read) == "ended finished\n"
    assert await first.wait() == -9
    events = DatabaseSession(ID, db_url=postgres_url).events
    assert [event.outcome.status for event in events if isinstance(event, Ended)] == [Status.FINISHED]
    assert sum(isinstance(event, Started) for event in events) == 1
    [recovered] = [event for event in events if isinstance(event, Recovered)]
    assert f"in the middle of step {STEP}" in recovered.text
    steps = [event.step for event in events if isinstance(event, Replied)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= STEPS
    assert max(Counter((tmp_path / "work" / "written.txt").read_text().split()).values()) == 1


@pytest.fixture
def workers(tmp_path: Path, postgres_url: str) -> Iterator[list[Forked]]:
    """Two processes that are about to open the session."""
    work = tmp_path / "work"
    work.mkdir()
    with ExitStack() as stack:
        made = [stack.enter_context(Forked(count, work, postgres_url, STEPS, piped=True)) for _ in range(2)]
        assert [each.stdout.readline() for each in made] == ["ready\n"] * 2
        yield made


async def _heard(child: Forked) -> str:
    """Let it go on, to the next event that it records; the event's kind."""
    child.stdin.write("\n")
    return (await asyncio.to_thread(child.stdout.readline)).split()[1]


def _kept(url: str) -> list[str]:
    """The kinds of the events that are kept by now."""
    return [type(each).__name__ for each in DatabaseSession(ID, db_url=url).read()]


def _move_to_another_machine(url: str) -> None:
    """Have the lease say that its holder runs elsewhere: nobody sees whether it lives, and it was heard of just now."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        assert connection.execute(LEASES.update().values(machine="another", host="elsewhere")).rowcount == 1
