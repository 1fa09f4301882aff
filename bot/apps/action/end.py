"""The end of a workflow's step, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bot.apps.action.conclusion import Conclusion, conclusion_of
from bot.domain.job import Job, JobState
from bot.engine.job_record import JobRecord
from bot.intake.deliveries import IgnoredDelivery
from bot.jobs.context import Ending
from bot.publishing.view import StatusView


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """How a workflow's step ended.

    Attributes:
        ended: the state of its job, or why there was none.
        job: its job, or None.
        ending: how the job ended; None where there was none, or its end was lost.
        record: what is recorded of the job.
        patch: the beginning of its change, published or not; empty where nothing changed.
        patch_file: the file with the whole of it; None where there is none.
        session_file: the file with the sealed state of a job that waits; None where none does.
        session_days: for how many days it is needed.
        seconds: how long the step took.
        server_url: GitHub's address for people.
    """

    ended: JobState | IgnoredDelivery
    job: Job | None = None
    ending: Ending | None = None
    record: JobRecord = field(default_factory=JobRecord)
    patch: str = ""
    patch_file: Path | None = None
    session_file: Path | None = None
    session_days: int = 1
    seconds: float = 0.0
    server_url: str = ""

    @property
    def view(self) -> StatusView | None:
        """What its comment says, where it says more than a word."""
        view = self.ending.view if self.ending is not None else None
        return view if isinstance(view, StatusView) else None

    @property
    def told(self) -> str:
        """Its comment, as it was written."""
        return self.record.ending.body if self.record.ending is not None else ""

    @property
    def why(self) -> str:
        """Why it ended as it did; empty where that needs no reason."""
        if isinstance(self.ended, IgnoredDelivery):
            return self.ended.reason
        return self.ending.reason if self.ending is not None else ""

    @property
    def conclusion(self) -> Conclusion:
        """What it came to."""
        return conclusion_of(
            self.ended,
            self.view.verdict if self.view is not None else None,
            misconfigured=self.ending is not None and self.ending.misconfigured,
        )
