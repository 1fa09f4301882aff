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

INFLECTION = Path(__file__).parent / "inflection"
"""Results of a run with three scripted configurations on five old bugs of the package; without the tests' names."""
INFLECTION_MODELS = {name: f"scripts/{name}/{{task}}.yaml" for name in ("boastful", "careful", "quick")}
INFLECTION_SUITE = Suite(
    path=INFLECTION,
    head=SuiteHead(repository="inflection"),
    tasks=tuple(
        Task(id=task_id, title=title, test_command="pytest")
        for task_id, title in (
            ("21-give-11-12-and-13-the-suffix-th", "Give 11, 12 and 13 the suffix th"),
            ("24-keep-id-inside-a-word-when-a-name-is-hum", "Keep _id inside a word when a name is humanized"),
            ("27-match-uncountable-words-as-whole-words", "Match uncountable words as whole words"),
            ("30-parameterize-with-an-empty-separator", "Parameterize with an empty separator"),
            ("33-treat-dashes-as-word-borders-in-undersco", "Treat dashes as word borders in underscore"),
        )
    ),
)


def result(task: str, *, config: str = "a", attempt: int = 1, **fields: Any) -> EvalResult:  # noqa: ANN401 - the result's fields
    return EvalResult(**{"status": "done", "solved": True, **fields}, task=task, config=config, attempt=attempt)
