"""`codepilot eval`: mine tasks from merged changes, run configurations on them, report."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from bot.evaluation.results import EvalResult

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_RESULTS = click.option("--results", type=_DIRECTORY, required=True, help="The directory that `eval run` wrote to.")


@click.group("eval")
def evaluate() -> None:
    """Try configurations on your own merged changes.

    `mine` makes tasks of them, `run` lets the bot work on each task, and `report` compares the configurations.
    """


@evaluate.command()
@click.argument("suite", type=_DIRECTORY)
@click.option("--config", "configs", type=_FILE, multiple=True, required=True, help="A configuration; repeatable.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("evaluation-results"),
    show_default=True,
    help="The directory for the results.",
)
@click.option(
    "--task", "tasks", multiple=True, metavar="ID", help="Only this task, or those that fit `12-*`; repeatable."
)
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Attempts at each task.")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Runs in parallel.")
@click.option(
    "--max-usd", type=click.FloatRange(0, min_open=True), help="The limit of the cost of all results together."
)
@click.option("--record", is_flag=True, help="Record the model's replies of each run in the results.")
@click.option("--replay", type=_DIRECTORY, help="The directory of recordings to replay in place of the models.")
def run(*, configs: tuple[Path, ...], **rest: Any) -> None:  # noqa: ANN401 - the fields of RunOptions
    """Let the bot work on the tasks of a SUITE with each configuration.

    The same command continues what was interrupted. A configuration is a YAML file with operator settings by their
    names in lower case, and `name`, `budget_usd`, `instructions` and `approvals`.
    """
    from bot.demo.director import own_toolchains  # noqa: PLC0415 - `codepilot --help` should not load it
    from bot.evaluation.run import RunOptions, run_evaluation  # noqa: PLC0415 - as above
    from bot.evaluation.trial import read_configs  # noqa: PLC0415 - as above
    from bot.server.process import protect_process  # noqa: PLC0415 - as above

    options = RunOptions(**rest)
    contents = read_configs(configs, toolchains=own_toolchains())
    protect_process(allow_root=all(config.agent.allow_root for config in contents))
    try:
        results = asyncio.run(run_evaluation(options, contents, click.echo))
    except KeyboardInterrupt:
        click.echo("Interrupted. The finished runs are kept; the same command continues.", err=True)
        sys.exit(130)
    click.echo(f"{len(results)} results in {options.results}. Compare the configurations:")
    click.echo(f"codepilot eval report {options.suite} --results {options.results}")
    if any(result.status == "error" for result in results):
        sys.exit(1)


@evaluate.command()
@click.argument("suite", type=_DIRECTORY)
@_RESULTS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=click.File("w", encoding="utf-8", lazy=True), help="Write a page with the diffs, too.")
def report(*, suite: Path, results: Path, as_json: bool, html: TextIO | None) -> None:
    """Compare the configurations that ran on a SUITE.

    Prints Markdown: solved tasks with intervals, cost, time, honesty, and each pair of configurations.
    """
    from bot.evaluation.rendering import (  # noqa: PLC0415 - `codepilot --help` should not load it
        render_html,
        render_json,
        render_markdown,
    )
    from bot.evaluation.report import build_report  # noqa: PLC0415 - as above
    from bot.evaluation.results import ResultsError, read_patch  # noqa: PLC0415 - as above
    from bot.evaluation.suite import read_suite  # noqa: PLC0415 - as above

    content = read_suite(suite)
    tasks = {task.id: task for task in content.tasks}
    runs = _read_latest(results)
    figures = build_report(runs, content, {})

    def read_texts(task: str) -> tuple[str, str]:
        if task not in tasks:
            return "", ""
        return content.read_issue(tasks[task]), content.read_reference(tasks[task]).decode(errors="replace")

    def read_change(name: str) -> str:
        try:
            return read_patch(results, name).decode(errors="replace")
        except ResultsError as error:
            return str(error)

    if html is not None:
        html.write(render_html(figures, runs, read_texts, read_change))
    click.echo(render_json(figures) if as_json else render_markdown(figures), nl=as_json)


@evaluate.command()
@_RESULTS
@click.option("--config", required=True, metavar="NAME", help="The configuration.")
@click.option("--attempt", type=click.IntRange(1), default=1, show_default=True, help="The repetition.")
@click.option(
    "--output", type=click.File("w", encoding="utf-8", lazy=True), default="-", help="Default is standard output."
)
def export(*, results: Path, config: str, attempt: int, output: TextIO) -> None:
    """Write a configuration's changes for SWE-bench.

    One JSON object a task: instance_id, model_name_or_path, model_patch. A run with an error has none.
    """
    from bot.evaluation.results import ResultsError, read_patch  # noqa: PLC0415 - as above

    runs = _read_latest(results)
    if not (names := dict.fromkeys(run.config for run in runs)):
        raise ResultsError(f"{results} has no results; run the evaluation first: codepilot eval run SUITE")
    if config not in names:
        raise click.BadParameter(f"there is no {config!r}; there is {', '.join(names)}", param_hint="--config")
    for run in runs:
        if (run.config, run.attempt) == (config, attempt) and run.status != "error":
            patch = read_patch(results, run.patch).decode(errors="replace") if run.patch else ""
            prediction = {"instance_id": run.task, "model_name_or_path": config, "model_patch": patch}
            output.write(f"{json.dumps(prediction)}\n")


def _read_latest(results: Path) -> tuple[EvalResult, ...]:
    """Read the results; a run that was repeated after an error has its last one."""
    from bot.evaluation.results import read_results  # noqa: PLC0415 - as above

    return tuple({run.key: run for run in read_results(results)}.values())
