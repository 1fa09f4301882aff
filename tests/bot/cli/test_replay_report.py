from __future__ import annotations

from agent_runtime import Comparison, Outcome, Replayed, Status
from bot.cli.screen import comparison_report, replay_report

DONE = Outcome(status=Status.FINISHED, summary="Done.")


def found(*, left: int = 0, now: Outcome = DONE, same_start: bool = True, difference: str | None = None) -> Replayed:
    return Replayed(
        requests=2, left=left, outcomes=(now,), recorded=(DONE,), same_start=same_start, difference=difference
    )


def test_a_replay_that_went_as_recorded_says_so() -> None:
    assert replay_report(found()) == "2 of 2 requests were made as recorded.\nEvery run ended as in the recording."


def test_a_replay_that_left_the_recording_shows_where() -> None:
    told = replay_report(found(left=3, same_start=False, difference="Request 3 of 5 differs:\n-a\n+b"))
    assert told.startswith("note: the directory has changed since")
    assert "2 of 5 requests" in told
    assert told.endswith("Request 3 of 5 differs:\n-a\n+b")


def test_a_run_that_ended_otherwise_is_told_beside_how_it_ended_then() -> None:
    told = replay_report(found(now=Outcome(status=Status.MAX_STEPS, reason="Too long.")))
    assert told.splitlines()[1:] == ["then: finished (Done.)", "now:  max_steps (Too long.)"]


def test_a_comparison_counts_and_shows_each_difference() -> None:
    told = comparison_report(Comparison(requests=4, summaries=1, differences=("-a\n+b",)))
    assert told == "4 requests compared; 1 for a summary were not. 1 difference.\n\n-a\n+b"
