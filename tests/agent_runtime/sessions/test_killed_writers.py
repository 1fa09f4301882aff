"""A process is killed at any moment while it records: what it was told to be kept is kept, in order and whole."""

from __future__ import annotations

import random
import threading

import pytest

from agent_runtime.core.events import Observed
from tests.agent_runtime.sessions.stores import Store
from tests.agent_runtime.sessions.writer import write
from tests.forked import Forked

_ROUNDS = {"file": 10, "database": 5}
_MAX_LINES = 40
_MAX_SECONDS = 0.02


@pytest.mark.slow
def test_nothing_that_was_kept_is_lost_when_the_process_is_killed(store: Store) -> None:
    chance = random.Random(4)  # noqa: S311 - when to kill is no secret
    kept = 0
    rounds = _ROUNDS["file" if store.db_url is None else "database"]
    for _ in range(rounds):
        told = _killed_writer(store, lines=chance.randrange(4, _MAX_LINES), after=chance.uniform(0, _MAX_SECONDS))
        session = store.session()
        steps = [event.step for event in session.events if isinstance(event, Observed)]
        assert steps == list(range(1, len(steps) + 1))
        known = "appended" if store.db_url is None else "committed"
        kept = max([kept, *(number for what, number in told if what == known)])
        assert len(steps) >= kept, f"{kept} were {known}, {len(steps)} are there"
        session.close()
    assert kept > rounds


def _killed_writer(store: Store, *, lines: int, after: float) -> list[tuple[str, int]]:
    """Let a process record until it has said `lines` lines and `after` seconds more; what it said it had done."""
    with Forked(write, store.to_json(), 1_000_000, piped=True) as process:
        assert process.stdout.readline().startswith("open")
        said = [process.stdout.readline() for _ in range(lines)]
        timer = threading.Timer(after, process.kill)
        timer.start()
        said += process.stdout.readlines()
        timer.join()
    return [(what, int(number)) for what, number in (line.split() for line in said if line.endswith("\n"))]
