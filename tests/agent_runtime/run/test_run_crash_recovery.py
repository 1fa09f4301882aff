"""A run whose process is killed repeatedly continues each time and loses at most one step."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from agent_runtime import Ended, FileSession, Observed, Recovered, Replied, Started, Status
from tests.agent_runtime.run.crash_child import ID, count
from tests.forked import Forked

KILLS = 24
STEPS = 2 * KILLS
"""No process starts more than two before it is killed."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_survives_a_kill_every_few_events(tmp_path: Path) -> None:
    work, sessions = tmp_path / "work", tmp_path / "sessions"
    work.mkdir()
    chance = random.Random(20)  # noqa: S311 - where processes die is no secret
    killed = 0
    while True:
        survives = None if killed >= KILLS else chance.randint(0, 4)
        seen, ended = _leg(work, sessions, survives)
        kept = FileSession(ID, session_dir=sessions)
        assert len(kept.events) >= seen, "an event that was told is not in the log"
        _check_shape(kept)
        kept.close()
        if ended:
            break
        killed += 1
    session = FileSession(ID, session_dir=sessions)
    [outcome] = [event.outcome for event in session.events if isinstance(event, Ended)]
    assert (outcome.status, outcome.summary) == (Status.FINISHED, "All done.")
    assert outcome.steps >= STEPS
    assert killed == KILLS
    in_flight = _in_flight(session)
    session.close()
    for name in ("written.txt", "run.txt"):
        counted = Counter((work / name).read_text().split())
        assert max(counted.values()) == 1, f"{name}: a step's work was done twice"
        lost = {step for step in range(1, STEPS + 1) if str(step) not in counted}
        assert lost <= in_flight, f"{name}: lost {lost - in_flight}, which were not in flight when a process died"


def _leg(work: Path, sessions: Path, survives: int | None) -> tuple[int, bool]:
    """Run a process, kill it after `survives` events, and return the recorded events and whether the run ended.

    The process is then between that event and the next one.
    """
    with Forked(count, work, str(sessions), STEPS, piped=True) as child:
        seen = told = 0
        for line in child.stdout:
            first, _, rest = line.partition(" ")
            if first == "ended":
                assert rest.strip() == "finished"
                assert child.join() == 0
                return seen, True
            if first != "ready\n":
                seen, told = int(first), told + 1
            child.stdin.write("\n")
            if survives is not None and told > survives:
                child.kill()
                assert child.join() == -signal.SIGKILL
                return seen, False
        pytest.fail(f"it ended with {child.join()}")


def _check_shape(session: FileSession) -> None:
    """Check for one run with ordered, unique steps."""
    assert sum(isinstance(event, Started) for event in session.events) <= 1
    steps = [event.step for event in session.events if isinstance(event, Replied)]
    assert steps == list(range(1, len(steps) + 1))


def _in_flight(session: FileSession) -> set[int]:
    """Return the steps that were interrupted: a reply without an observation before the recovery."""
    cut, step = set[int](), 0
    for event in session.events:
        match event:
            case Replied():
                step = event.step
            case Observed():
                step = 0
            case Recovered() if step:
                cut.add(step)
            case _:
                pass
    return cut
