"""`codepilot eval`; each command imports its modules when it runs, so that `codepilot --help` starts fast."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from bot.cli.screen import escape_invisible

if TYPE_CHECKING:
    from bot.evaluation.results import EvalResult

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_OUTPUT = click.option(
    "--output", type=_NEW_DIRECTORY, required=True, help="The suite's directory; new tasks are added."
)
_SETUP_HELP = "Runs before the tests, such as 'pip install -e .'; may be repeated."
_TESTS = click.option(
    "--test-command", default="python -m pytest -q", show_default=True, metavar="COMMAND", help="Runs the tests."
)
_JOBS = click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Parallel runs.")
_UNCHECKED = click.option("--no-validate", is_flag=True, help="Do not run tests; see `codepilot eval validate`.")
_RESULTS = click.option("--results", type=_DIRECTORY, required=True, help="The directory that `eval run` wrote to.")


@click.group("eval")
def evaluate() -> None:
    """Try configurations on your own merged changes.

    `mine` makes tasks of them, `run` lets the bot work on each, `report` compares the configurations.
    """


@evaluate.command()
@click.argument("repo", type=_DIRECTORY)
@_OUTPUT
@click.option("--limit", type=click.IntRange(1, 2000), default=20, show_default=True, help="Most new tasks.")
@click.option("--since", default="", metavar="DATE", help="Only changes after this date, as `git log` takes it.")
@click.option("--revision", default="HEAD", show_default=True, help="The branch or commit whose history is read.")
@click.option("--max-files", type=click.IntRange(1), default=20, show_default=True, help="Leave out larger changes.")
@click.option("--max-lines", type=click.IntRange(1), default=400, show_default=True, help="Leave out larger changes.")
@_TESTS
@click.option(
    "--setup", multiple=True, metavar="COMMAND", help=f"{_SETUP_HELP} Default: that of the repository's file."
)
@click.option("--repository", default="", metavar="OWNER/NAME", help="Default: that of the remote `origin`.")
@click.option(
    "--token",
    default="",
    envvar="GITHUB_TOKEN",
    show_envvar=True,
    help="Take the texts of pull requests and issues from GitHub, not from commit messages.",
)
@click.option("--api-url", default="https://api.github.com", show_default=True, help="The API of GitHub.")
@_JOBS
@_UNCHECKED
def mine(
    *,
    repo: Path,
    output: Path,
    repository: str,
    token: str,
    api_url: str,
    jobs: int,
    no_validate: bool,
    **rest: Any,  # noqa: ANN401 - the fields of MineOptions
) -> None:
    """Make tasks of the merged changes in REPO, a local clone.

    The agent gets the text and the files before a change; its tests stay hidden. Each task is validated in the sandbox:
    its tests fail before the change, and pass after it.
    """
    from bot.evaluation.mine import MineOptions  # noqa: PLC0415 - see above
    from bot.evaluation.mine import mine as mine_tasks  # noqa: PLC0415 - see above

    options = MineOptions(**{**rest, "setup": rest["setup"] or None})
    mined = asyncio.run(mine_tasks(repo, output, options, name=repository, token=token, api_url=api_url))
    present = mined.scanned - len(mined.tasks) - mined.without_tests - len(mined.refusals)
    click.echo(
        f"Commits: {mined.scanned:,}. New tasks: {len(mined.tasks):,}; known: {present:,}; without tests: "
        f"{mined.without_tests:,}; refused: {len(mined.refusals):,}."
    )
    _finish_suite(output, jobs=jobs, validates=not no_validate)


@evaluate.command("import")
@click.argument("file", type=_FILE)
@click.option("--repo", type=_DIRECTORY, required=True, help="A clone with the base commits.")
@_OUTPUT
@_TESTS
@click.option("--setup", multiple=True, metavar="COMMAND", help=_SETUP_HELP)
@_JOBS
@_UNCHECKED
def import_tasks(
    *, file: Path, repo: Path, output: Path, test_command: str, setup: tuple[str, ...], jobs: int, no_validate: bool
) -> None:
    """Make tasks of SWE-bench instances in FILE.

    FILE is JSON Lines or a JSON array.
    """
    from bot.evaluation.instances import import_instances  # noqa: PLC0415 - see above

    tasks = asyncio.run(import_instances(file, repo, output, test_command=test_command, setup=setup))
    click.echo(f"New tasks: {len(tasks):,}.")
    _finish_suite(output, jobs=jobs, validates=not no_validate)


@evaluate.command()
@click.argument("suite", type=_DIRECTORY)
@_JOBS
@click.option("--retry", is_flag=True, help="Try refused tasks again, even if nothing of them has changed.")
def validate(*, suite: Path, jobs: int, retry: bool) -> None:
    """Validate the tasks of a SUITE that are new or edited.

    The sandbox, toolchains and network are those of the CODEPILOT_* variables.
    """
    from bot.demo.director import own_toolchains  # noqa: PLC0415 - see above
    from bot.evaluation.run import open_place  # noqa: PLC0415 - see above
    from bot.evaluation.suite import REFUSALS  # noqa: PLC0415 - see above
    from bot.evaluation.validate import validate_suite  # noqa: PLC0415 - see above
    from bot.server.process import protect_process  # noqa: PLC0415 - see above
    from bot.settings.load import load_evaluation  # noqa: PLC0415 - see above

    values = {"CODEPILOT_PROVIDER": "scripted", "CODEPILOT_MODEL": "none"}
    agent = load_evaluation({"validation": values}, toolchains=own_toolchains())["validation"]
    protect_process(allow_root=agent.allow_root)
    result = asyncio.run(validate_suite(suite, open_place(agent), jobs=jobs, retry=retry, report=click.echo))
    reasons = f"; the reasons are in {suite / REFUSALS}" if result.refusals else ""
    click.echo(f"Valid tasks: {len(result.tasks) + result.settled:,}; refused: {len(result.refusals):,}{reasons}.")


def _finish_suite(suite: Path, *, jobs: int, validates: bool) -> None:
    """Validate new tasks, and those of an earlier command that was interrupted."""
    from bot.evaluation.suite import read_suite  # noqa: PLC0415 - see above

    tasks = read_suite(suite).tasks
    if tasks and validates:
        click.get_current_context().invoke(validate, suite=suite, jobs=jobs, retry=False)
    elif any(task.validated is None for task in tasks):
        click.echo(f"`eval run` takes validated tasks only: codepilot eval validate {suite}")


@evaluate.command()
@click.argument("suite", type=_DIRECTORY)
@click.option("--config", "configs", type=_FILE, multiple=True, required=True, help="A configuration; repeatable.")
@click.option("--results", type=_NEW_DIRECTORY, required=True, help="The results; continued if they exist.")
@click.option("--task", "tasks", multiple=True, metavar="ID", help="Only this task, or a pattern; repeatable.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Attempts at each task.")
@_JOBS
@click.option("--max-usd", type=click.FloatRange(0, min_open=True), help="The cost limit of all results together.")
@click.option("--record", is_flag=True, help="Record the model's replies in the results.")
@click.option("--replay", type=_DIRECTORY, help="Replay the recordings in this directory, at no cost.")
def run(*, configs: tuple[Path, ...], **rest: Any) -> None:  # noqa: ANN401 - the fields of RunOptions
    """Let the bot work on the tasks of a SUITE with each configuration.

    The same command continues what was interrupted. A configuration is a YAML file with operator settings.
    """
    from bot.demo.director import own_toolchains  # noqa: PLC0415 - see above
    from bot.evaluation.run import RunOptions, run_evaluation  # noqa: PLC0415 - see above
    from bot.evaluation.trial import read_configs  # noqa: PLC0415 - see above
    from bot.server.process import protect_process  # noqa: PLC0415 - see above

    options = RunOptions(**rest)
    contents = read_configs(configs, toolchains=own_toolchains())
    protect_process(allow_root=all(config.agent.allow_root for config in contents))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that both end alike
    try:
        # Errors of runs quote models and repositories.
        results = asyncio.run(run_evaluation(options, contents, lambda text: click.echo(escape_invisible(text))))
    except KeyboardInterrupt:
        click.echo("Interrupted. The finished runs are kept; the same command continues.", err=True)
        sys.exit(130)
    click.echo(f"Results in {options.results}: {len(results):,}. Compare the configurations:")
    click.echo(f"codepilot eval report {options.suite} --results {options.results}")
    if errors := sum(result.status == "error" for result in results):
        click.echo(f"Runs that ended with an error: {errors:,}. The same command repeats them.", err=True)
        sys.exit(1)


@evaluate.command()
@click.argument("suite", type=_DIRECTORY)
@_RESULTS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=click.File("w", encoding="utf-8", lazy=True), help="Write a page with the diffs, too.")
def report(*, suite: Path, results: Path, as_json: bool, html: TextIO | None) -> None:
    """Compare the configurations that ran on a SUITE.

    Prints Markdown: solved tasks with intervals, cost, time and honesty.
    """
    from bot.evaluation.rendering import render_html, render_json, render_markdown  # noqa: PLC0415 - see above
    from bot.evaluation.report import build_report  # noqa: PLC0415 - see above
    from bot.evaluation.results import ResultsError, read_patch  # noqa: PLC0415 - see above
    from bot.evaluation.suite import read_suite  # noqa: PLC0415 - see above
    from bot.evaluation.trial import read_models  # noqa: PLC0415 - see above

    content = read_suite(suite)
    tasks = {task.id: task for task in content.tasks}
    runs = _read_latest(results)
    figures = build_report(runs, content, read_models(results))

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
@click.option("--output", type=click.File("w", encoding="utf-8", lazy=True), default="-", help="Default: print.")
def export(*, results: Path, config: str, attempt: int, output: TextIO) -> None:
    """Write a configuration's changes for SWE-bench.

    One JSON object a task: instance_id, model_name_or_path, model_patch. A run with an error has none.
    """
    from bot.evaluation.results import read_patch  # noqa: PLC0415 - see above

    runs = _read_latest(results)
    names = dict.fromkeys(run.config for run in runs)
    if config not in names:
        raise click.BadParameter(f"there is no {config!r}; there is {', '.join(names)}", param_hint="--config")
    chosen = [result for result in runs if (result.config, result.attempt) == (config, attempt)]
    if not chosen:
        raise click.BadParameter(f"{config} has no attempt {attempt} in {results}", param_hint="--attempt")
    for result in chosen:
        if result.status != "error":
            patch = read_patch(results, result.patch).decode(errors="replace") if result.patch else ""
            prediction = {"instance_id": result.task, "model_name_or_path": config, "model_patch": patch}
            output.write(f"{json.dumps(prediction)}\n")


def _read_latest(results: Path) -> tuple[EvalResult, ...]:
    """Read the latest result of each run, in order; refuse a directory without results."""
    from bot.evaluation.results import ResultsError, read_results  # noqa: PLC0415 - see above

    latest = read_results(results)
    if not latest:
        raise ResultsError(f"{results} has no results; run the evaluation first: codepilot eval run SUITE")
    return tuple(sorted(latest, key=lambda result: result.key))
