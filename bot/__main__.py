"""The `codepilot` command.

Each command imports its modules when it runs, so that `codepilot --help` starts fast, and so that the step of a
workflow needs no package of the extra `service`.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from agent_runtime import AgentError, SandboxName
from bot.cli.chat import chat, import_session, run
from bot.cli.mcp import mcp
from bot.cli.screen import escape_invisible
from bot.domain.errors import BotError
from bot.evaluation.commands import evaluate

if TYPE_CHECKING:
    from bot.cli.doctor import Finding

T = TypeVar("T")

_SERVICE_PACKAGES = {"alembic", "dbos", "obstore", "opentelemetry", "prometheus_client", "psycopg", "sqlalchemy"}
"""Packages of the extra `service`: without it, the step of a workflow is installed faster."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="codepilot-bot", prog_name="codepilot")
def cli() -> None:
    """Codepilot: a GitHub bot you host yourself, with a coding agent in a sandbox."""


@contextmanager
def _loading() -> Iterator[None]:
    """Import without garbage collections, which go through all modules again and again, and exempt these for good."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _run_service(*, receives: bool, works: bool, jobs: int | None = None) -> None:
    with _loading():
        from bot.server import serve as server  # noqa: PLC0415 - `codepilot --help` should not load a web server
        from bot.server.build import redactor_for  # noqa: PLC0415 - as above
        from bot.server.process import (  # noqa: PLC0415 - as above
            ENDING_SECONDS,
            Watchdog,
            protect_process,
            start_log,
        )
        from bot.settings import load  # noqa: PLC0415 - as above

    settings = load.load()
    if jobs is not None:
        settings = replace(settings, jobs=jobs)
    protect_process(allow_root=settings.agent.allow_root)
    start_log(redactor_for(settings), settings.log_format)
    watchdog = Watchdog(ending_seconds=ENDING_SECONDS + settings.drain_seconds)
    service = server.serve(settings, watchdog, works=works) if receives else server.work(settings, watchdog)
    finish(service, stopping=watchdog.start_deadline)


@cli.command()
@click.option("--no-work", is_flag=True, help="Only receive; `codepilot work` works on the jobs.")
def serve(*, no_work: bool) -> None:
    """Receive webhooks and work on jobs.

    Settings come from CODEPILOT_* variables; `codepilot settings` lists them.
    """
    _run_service(receives=True, works=not no_work)


@cli.command()
@click.option("--concurrency", type=click.IntRange(1, 64), metavar="N", help="Jobs in parallel; see CODEPILOT_JOBS.")
def work(*, concurrency: int | None) -> None:
    """Work on the jobs that `codepilot serve` receives.

    Settings come from CODEPILOT_* variables, the same as those of `codepilot serve`, which may run on another machine.
    """
    _run_service(receives=False, works=True, jobs=concurrency)


@cli.command()
def act() -> None:
    """Handle the event of a GitHub workflow run.

    Only `action.yml` calls this.
    """
    with _loading():
        from bot.action.outputs import Conclusion, exit_code  # noqa: PLC0415 - as above
        from bot.action.step import take_step  # noqa: PLC0415 - as above
        from bot.settings import load  # noqa: PLC0415 - as above

    cancelled = asyncio.Event()
    code = finish(take_step(load.survey_action(), cancelled), stopping=cancelled.set, waits=True)
    sys.exit(exit_code(Conclusion.CANCELLED) if code is None else code)


@cli.command()
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Your git repository.",
)
@click.option("--issue", help="The description of the problem; the first line is the title.")
@click.option("--script", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Replies to replay.")
@click.option(
    "--base-url", default="", metavar="URL", help="The address of an OpenAI-compatible server, such as Ollama."
)
@click.option("--model", default="", metavar="NAME", help="The model's name.")
@click.option("--keep", is_flag=True, help="Keep the hub and the bot running afterwards.")
@click.option("--port", type=int, default=0, show_default="a free one", help="The hub's port.")
@click.option("--fast", is_flag=True, help="Show the scripted replies at full speed.")
def demo(*, repo: Path | None, issue: str | None, keep: bool, **rest: Any) -> None:  # noqa: ANN401 - the fields of DemoOptions
    """Watch the bot fix a real bug, on a local GitHub.

    With a model service's key in the environment, or with --base-url, a real model works; otherwise a scripted one.
    """
    if (repo is None) != (issue is None):
        raise click.UsageError("--repo and --issue require each other: codepilot demo --repo PATH --issue TEXT")

    with _loading():
        from bot.demo.director import DemoOptions, direct  # noqa: PLC0415 - as above
        from bot.domain.job import JobState  # noqa: PLC0415 - as above

    ended = finish(direct(DemoOptions(repo=repo, issue=issue, keep=keep, **rest)))
    # A demo that was kept is ended by the person, after the job.
    if ended is None or (ended is not JobState.DONE and not keep):
        sys.exit(1)


@cli.command()
@click.argument("source", required=False, type=click.Path(exists=True, resolve_path=True, path_type=Path))
@click.option("--repo", type=click.Path(exists=True, resolve_path=True, path_type=Path), help="The same as SOURCE.")
@click.option("--name", metavar="OWNER/NAME", help="The repository's name on the hub, if SOURCE is a single one.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The hub's port.")
@click.option("--webhook", metavar="URL", default="", help="The URL for the App's webhooks.")
@click.option("--secret", default="", show_default="a random one", help="The secret that signs the webhooks.")
@click.option(
    "--settings",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory for the App's key and the settings for `codepilot serve`; reused by later starts.",
)
@click.option("--person", "people", metavar="LOGIN:ROLE", multiple=True, help="Another account, such as eve:read.")
def hub(*, source: Path | None, repo: Path | None, settings: Path | None, people: tuple[str, ...], **rest: Any) -> None:  # noqa: ANN401 - the fields of HubOptions
    """Run a local GitHub with copies of your repositories.

    SOURCE is a git repository, a bundle, or a directory of repositories; by default a new repository with a README. It
    is copied and never changed. The hub answers REST and GraphQL, serves git and pages, and sends webhooks. It has an
    account and an App, and prints their addresses and tokens.
    """
    from bot.demo.hub import ROLES, HubOptions, serve_hub  # noqa: PLC0415 - as above

    roles: dict[str, Any] = dict(each.partition(":")[::2] for each in people)
    if source is not None and repo is not None:
        raise click.UsageError("SOURCE and --repo mean the same; give one of them")
    if wrong := [each for each in people if not each.partition(":")[0] or each.partition(":")[2] not in ROLES]:
        known = ", ".join(ROLES)
        raise click.BadParameter(f"must be LOGIN:ROLE, not {wrong[0]!r}; the roles are {known}", param_hint="--person")
    if settings is not None and not rest["webhook"]:
        rest["webhook"] = "http://127.0.0.1:8080/webhook"
    finish(serve_hub(HubOptions(source=source or repo, settings=settings, people=roles, **rest), click.echo))


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--work-dir",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="The directory in its state when the recording began; the replay uses a copy.",
)
@click.option("--compare", is_flag=True, help="Run no tools; show which requests the current code would change.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "local"]),
    default="auto",
    show_default=True,
    help="Where commands run.",
)
@click.option("--exact", is_flag=True, help="Also compare times, durations and process ids.")
def replay(*, file: Path, work_dir: Path | None, compare: bool, sandbox: SandboxName, exact: bool) -> None:
    """Run a recorded session again with the recorded replies.

    Commands of the recorded replies really run, in the sandbox. The exit code is 1 if a request differs.
    """
    from agent_runtime import SandboxSettings, compare_recording, pick_sandbox, replay_recording  # noqa: PLC0415 - as above
    from bot.cli.screen import comparison_report, replay_report  # noqa: PLC0415 - as above

    if compare:
        compared = finish(compare_recording(file))
        if compared is not None:
            click.echo(comparison_report(compared))
        sys.exit(0 if compared is not None and not compared.differences else 1)
    if work_dir is None:
        raise click.UsageError(
            "--work-dir DIR is required, the directory in its state when the recording began; or use --compare"
        )
    place = pick_sandbox(sandbox, SandboxSettings())
    found = finish(replay_recording(file, work_dir=work_dir, sandbox=place, exact=exact))
    if found is not None:
        click.echo(replay_report(found))
    sys.exit(0 if found is not None and found.is_same else 1)


@cli.command()
@click.option("--online", is_flag=True, help="Also ask the model one short question, at a small cost.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(*, online: bool, as_json: bool) -> None:
    """Check whether `codepilot serve` can work here.

    Says how to fix what is wrong. The exit code is 0 if no check failed; warnings do not count.
    """
    from bot.cli.doctor import examine  # noqa: PLC0415 - as above
    from bot.settings import load  # noqa: PLC0415 - as above

    _report(examine(load.survey(), online=online), as_json=as_json)


def _report(examination: Coroutine[object, object, list[Finding]], *, as_json: bool) -> NoReturn:
    """Print what was found, and exit."""
    from rich.console import Console  # noqa: PLC0415 - as above

    from bot.cli import doctor as report  # noqa: PLC0415 - as above

    found = _finish_or_exit(examination)
    if as_json:
        click.echo(report.as_json(found))
    elif sys.stdout.isatty():
        report.show(found, Console())
    else:
        click.echo(report.as_lines(found))
    sys.exit(0 if report.can_work(found) else 1)


@cli.command()
@click.argument("job")
def patch(job: str) -> None:
    """Print the patch of a JOB that was not published.

    `git apply` takes it. JOB is at the end of the status comment.
    """
    with _loading():
        from bot.server.build import open_blob_store, open_patches  # noqa: PLC0415 - as above
        from bot.settings import load  # noqa: PLC0415 - as above

    operator = load.load()
    blobs = None if operator.storage_url is None else open_blob_store(operator, operator.storage_url)
    path = open_patches(operator, blobs).file(Path(job).name)
    if path is None:
        why = "the id is wrong, the change was published, or the patch was removed because of its age"
        raise click.ClickException(f"There is no patch of job {job}: {why}.")
    sys.stdout.buffer.write(path.read_bytes())


@cli.group()
def app() -> None:
    """Register the bot's GitHub App, and check it."""


@app.command()
@click.option("--name", required=True, help="The App's name; unique on the server.")
@click.option(
    "--webhook",
    required=True,
    metavar="URL",
    help="Where GitHub sends deliveries: https://HOST/webhook of `codepilot serve`.",
)
@click.option("--org", default="", help="The organisation that owns the App; default is your own account.")
@click.option("--server", default="https://github.com", show_default=True, help="The address of GitHub.")
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="A file with the certificate authorities of your own server; see CODEPILOT_CA_FILE.",
)
@click.option("--workflows", is_flag=True, help="Let the App change workflow files, after approval.")
@click.option("--dashboard", is_flag=True, help="Set up the dashboard, with sign-in through GitHub.")
@click.option("--public", is_flag=True, help="Let other accounts install the App.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("codepilot-app"),
    show_default=True,
    help="The directory for the App's key and settings.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The local page's port."
)
@click.option("--no-browser", is_flag=True, help="Only print the page's address.")
def create(*, no_browser: bool, name: str, webhook: str, org: str, server: str, **rest: Any) -> None:  # noqa: ANN401 - the fields of AppOptions
    """Register the App on GitHub, and write its key and settings.

    The App gets the permissions and events that it needs. You confirm on a page of GitHub.
    """
    import webbrowser  # noqa: PLC0415 - as above

    from bot.cli.app import AppOptions, check_options, create_app  # noqa: PLC0415 - as above

    try:
        options = check_options(AppOptions(name=name, webhook=webhook, organisation=org, server=server, **rest))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _finish_or_exit(create_app(options, click.echo, (lambda _url: None) if no_browser else webbrowser.open))


@app.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(*, as_json: bool) -> None:
    """Check the App's permissions, webhook and installations.

    Asks GitHub for the App's permissions and events, its webhook, the last deliveries, and where it is installed.
    """
    from bot.cli.doctor import examine_app  # noqa: PLC0415 - as above
    from bot.settings import load  # noqa: PLC0415 - as above

    _report(examine_app(load.survey()), as_json=as_json)


@cli.command("setup-repo")
@click.argument("repo", metavar="OWNER/NAME")
def setup_repo(repo: str) -> None:
    """Create the bot's labels in a repository.

    Also lists the permissions that the App is missing there. Acts as the App in the CODEPILOT_* variables, which must
    be installed in the repository.
    """
    from bot.cli.app import describe, set_up_repository  # noqa: PLC0415 - as above
    from bot.settings import load, parsing  # noqa: PLC0415 - as above

    try:
        name = parsing.repository(repo)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="OWNER/NAME") from None
    done = _finish_or_exit(asyncio.to_thread(set_up_repository, load.load(), name))
    for label in done.labels:
        state = "created" if label.is_new else "already has"
        click.echo(f"{name}: {state} the label {label.name} ({label.description})")
    for each in done.missing:
        click.echo(f"{name}: the App is missing {describe(each)}, which is {each.weight}: without it, {each.without}")
    if any(each.weight == "needed" for each in done.missing):
        sys.exit(1)


@cli.command()
def settings() -> None:
    """Print every setting with its meaning and default."""
    from bot.settings.models import render_settings_table  # noqa: PLC0415 - as above

    click.echo(render_settings_table())


cli.add_command(run)
cli.add_command(chat)
cli.add_command(evaluate)
cli.add_command(import_session)
cli.add_command(mcp)


def main() -> None:
    """Run the command line; deliberate errors are printed in one paragraph, without a traceback."""
    try:
        cli()
    except (BotError, AgentError) as error:
        click.echo(f"codepilot: {escape_invisible(str(error))}", err=True)  # it may quote a stranger's file
        sys.exit(2)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"localhub", *_SERVICE_PACKAGES}:
            raise
        remedy = "; install codepilot-bot[service]" if package in _SERVICE_PACKAGES else ""
        click.echo(f"codepilot: {error}{remedy}", err=True)
        sys.exit(2)


def finish(
    work: Coroutine[object, object, T], *, stopping: Callable[[], None] = lambda: None, waits: bool = False
) -> T | None:
    """Run to the end; SIGTERM and Ctrl+C cancel the work, so that running jobs return to the queue.

    A further one ends the process at once, without the event loop's help.

    Args:
        stopping: called at the first of these signals.
        waits: whether the first one only calls `stopping`, which asks the work to end by itself.
    """

    async def run() -> T | None:
        task = asyncio.ensure_future(work)
        loop, is_asked = asyncio.get_running_loop(), False

        def stop() -> None:
            nonlocal is_asked
            stopping()
            if waits and not is_asked:
                is_asked = True
                return
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    return asyncio.run(run())


def _finish_or_exit(work: Coroutine[object, object, T]) -> T:
    """Run to the end; exit at Ctrl+C."""
    result = finish(work)
    if result is None:
        sys.exit(130)
    return result


if __name__ == "__main__":
    main()
