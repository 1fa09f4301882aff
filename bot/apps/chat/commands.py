"""Arguments of `codepilot run` and `codepilot chat`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bot.apps.chat.answers import PERMISSIONS, ChatAnswer
from bot.apps.chat.setup import ChatOptions

F = TypeVar("F", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def _named(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """The session's name; an empty one is most likely a variable that is not set."""
    if name is not None and not name.strip():
        raise click.BadParameter("a session needs a name; omit the option to store no session.")
    return name


def _finite(_context: click.Context, _option: click.Parameter, amount: float | None) -> float | None:
    """The amount; nothing is more than `nan`, so that it would bound nothing."""
    if amount is not None and not math.isfinite(amount):
        raise click.BadParameter(f"{amount} is not an amount of money.")
    return amount


_AGENT_OPTIONS = (
    click.option("--agent", type=_FILE, help="The agent file; default ./agent.yaml if it exists."),
    click.option(
        "--dir",
        "directory",
        type=_DIRECTORY,
        help="The agent's directory; default from the agent file, or the current one.",
    ),
    click.option("--provider", help="The model service; overrides the agent file."),
    click.option("--model", help="The model; overrides the agent file."),
    click.option(
        "--base-url",
        envvar="CODEPILOT_BASE_URL",
        show_envvar=True,
        help="The address of an OpenAI-compatible server, such as Ollama or vLLM, or of another --provider. The only "
        "key that is sent there is CODEPILOT_API_KEY.",
    ),
    click.option("--script", type=_FILE, help="A script with replies, instead of a model."),
    click.option("--session", callback=_named, help="Store the conversation under this name, or continue it."),
    click.option("--max-steps", type=click.IntRange(min=1), help="The maximum number of steps in one run."),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        help="The cost limit of one run in US dollars.",
    ),
    click.option(
        "--permissions",
        type=click.Choice(PERMISSIONS),
        default="auto",
        show_default=True,
        help="auto: ask as the agent file says, and for commands without a sandbox. ask: also ask for every write "
        "and command. all: approve everything. none: deny everything that requires approval.",
    ),
    click.option("--record", type=_NEW_FILE, help="Record every request and reply in this new file."),
)


def _about_the_agent(command: F) -> F:
    """The options that both commands share."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("task", required=False)
@_about_the_agent
@click.option("--approve", is_flag=True, help="Approve the waiting call and resume.")
@click.option("--deny", is_flag=True, help="Deny the waiting call and resume.")
@click.option("--note", help="With --deny: the reason, for the agent.")
@click.option("--answer", help="Answer the waiting question and resume.")
def run(*, task: str | None, approve: bool, deny: bool, note: str | None, answer: str | None, **options: Any) -> None:  # noqa: ANN401 - the fields of ChatOptions
    """Do one TASK in a directory.

    `-` reads TASK from the standard input. Exit codes: 0 done, 1 not done, 2 invalid settings, 3 a call waits for an
    answer.
    """
    if approve + deny + (answer is not None) > 1:
        raise click.UsageError("Use only one of --approve, --deny and --answer.")
    if note is not None and not deny:
        raise click.UsageError("--note requires --deny.")
    said = ChatAnswer(approved=approve, note=note or "") if approve or deny else None
    if answer is not None:
        said = ChatAnswer(approved=True, note=answer, answers=True)
    if said is not None and task is not None:
        raise click.UsageError("An answer resumes the waiting run; leave TASK out.")
    if task is not None and not task.strip():
        raise click.UsageError('TASK is empty. Say what to do, e.g. codepilot run "fix the tests".')
    if options["session"] is None and task is None:
        raise click.UsageError('Say what to do, e.g. codepilot run "fix the tests", or which --session to continue.')
    from bot.apps.chat import console  # noqa: PLC0415 - `codepilot --help` should not load the agent

    text = console.read_task() if task == "-" else task
    sys.exit(console.run(ChatOptions(**options), text, said))


@click.command()
@_about_the_agent
@click.option("--list", "listed", is_flag=True, help="List the stored sessions and exit.")
def chat(*, listed: bool, **options: Any) -> None:  # noqa: ANN401 - the fields of ChatOptions
    """Work with the agent in a directory, interactively."""
    from bot.apps.chat import console  # noqa: PLC0415 - as above

    if listed:
        console.list_sessions()
    else:
        sys.exit(console.chat(ChatOptions(**options)))
