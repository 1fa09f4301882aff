"""Results of an evaluation, made up."""

from __future__ import annotations

from typing import Any

from bot.evaluation.report import TaskInfo
from bot.evaluation.results import EvalResult

TASKS = (
    TaskInfo(id="t1", title="Parcels lose their weight", link="https://github.com/mona/parcel/pull/1"),
    TaskInfo(id="t2", title="Rates round down"),
    TaskInfo(id="t3", title="An empty manifest raises KeyError"),
)


def result(task: str, *, config: str = "a", attempt: int = 1, **fields: Any) -> EvalResult:  # noqa: ANN401 - the result's fields
    return EvalResult(**{"status": "done", "solved": True, **fields}, task=task, config=config, attempt=attempt)
