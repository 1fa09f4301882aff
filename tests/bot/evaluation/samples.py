"""Results of an evaluation, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.evaluation.results import EvalResult
from bot.evaluation.suite import Suite, SuiteHead, Task

SUITE = Suite(
    path=Path("nowhere"),
    head=SuiteHead(repository="mona/parcel"),
    tasks=(
        Task(
            id="t1",
            title="Parcels lose their weight",
            link="https://github.com/mona/parcel/pull/1",
            test_command="pytest",
        ),
        Task(id="t2", title="Rates round down", test_command="pytest"),
        Task(id="t3", title="An empty manifest raises KeyError", test_command="pytest"),
    ),
)


def result(task: str, *, config: str = "a", attempt: int = 1, **fields: Any) -> EvalResult:  # noqa: ANN401 - the result's fields
    return EvalResult(**{"status": "done", "solved": True, **fields}, task=task, config=config, attempt=attempt)
