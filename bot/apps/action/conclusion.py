"""The conclusion of a workflow's step: the output `conclusion` and the exit code, which always agree. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from bot.domain.job import JobState
from bot.intake.deliveries import IgnoredDelivery
from bot.publishing.verdict import Verdict


class Conclusion(StrEnum):
    """What a step came to; those of a finished change are the same words as in `Verdict`."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    RED = "red"
    UNCHANGED = "unchanged"
    SETUP_FAILED = "setup_failed"
    DONE = "done"
    IGNORED = "ignored"
    REFUSED = "refused"
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISCONFIGURED = "misconfigured"


MEANINGS: Mapping[Conclusion, tuple[int, str]] = {
    Conclusion.VERIFIED: (0, "Files changed, and the last run of every check passed."),
    Conclusion.UNVERIFIED: (0, "Files changed, and no check passed on the final change."),
    Conclusion.UNCHANGED: (0, "The run finished, and nothing changed."),
    Conclusion.DONE: (0, "A review, an answer or a plan was published."),
    Conclusion.IGNORED: (0, "The event contains no command."),
    Conclusion.REFUSED: (0, "The command is not allowed; no run was started."),
    Conclusion.WAITING: (0, "The run waits for a person."),
    Conclusion.RED: (1, "Files changed, and the last run of at least one check failed."),
    Conclusion.SETUP_FAILED: (1, "A `setup` command of the repository failed."),
    Conclusion.STOPPED: (1, "Somebody stopped the run."),
    Conclusion.FAILED: (1, "The run did not finish; see the summary for the reason."),
    Conclusion.CANCELLED: (1, "The workflow was cancelled."),
    Conclusion.MISCONFIGURED: (2, "An input, a permission or the runner is misconfigured."),
}
"""The exit code of each, and what it means, in the order of the documentation."""

_STATES: Mapping[JobState, Conclusion] = {
    JobState.DONE: Conclusion.DONE,
    JobState.REFUSED: Conclusion.REFUSED,
    JobState.STOPPED: Conclusion.STOPPED,
    JobState.WAITING: Conclusion.WAITING,
}


def conclusion_of(
    ended: JobState | IgnoredDelivery | None, verdict: Verdict | None = None, *, misconfigured: bool = False
) -> Conclusion:
    """What a step came to.

    Args:
        ended: how its job ended, or why there was none; None when the workflow was cancelled.
        verdict: of a job that is done and was to change something.
        misconfigured: whether a job failed for lack of a permission.
    """
    if ended is None:
        return Conclusion.CANCELLED
    if isinstance(ended, IgnoredDelivery):
        return Conclusion.IGNORED
    if ended is JobState.DONE and verdict is not None:
        return Conclusion(verdict.value)
    if ended is JobState.FAILED and misconfigured:
        return Conclusion.MISCONFIGURED
    return _STATES.get(ended, Conclusion.FAILED)


def exit_code(conclusion: Conclusion) -> int:
    """With what the step's process ends."""
    return MEANINGS[conclusion][0]


def conclusions_table() -> str:
    """Every conclusion as a Markdown table, for the documentation."""
    rows = [f"| `{each}` | {code} | {meaning} |" for each, (code, meaning) in MEANINGS.items()]
    return "\n".join(["| `conclusion` | exit code | meaning |", "|---|---|---|", *rows, ""])
