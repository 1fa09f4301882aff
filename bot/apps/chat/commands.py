"""`codepilot run` and `codepilot chat` as the command line knows them: arguments, and nothing else."""

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
        raise click.BadParameter("a session needs a name; leave the option out for none that is kept.")
    return name


def _finite(_context: click.Context, _option: click.Parameter, amount: float | None) -> float | None:
    """The amount; nothing is more than `nan`, so that it would bound nothing."""
    if amount is not None and not math.isfinite(amount):
        raise click.BadParameter(f"{amount} is no amount of money.")
    return amount


_AGENT_OPTIONS = (
    click.option("--agent", type=_FILE, help="The agent file; ./agent.yaml when there is one."),
    click.option("--dir", "directory", type=_DIRECTORY, help="Where the agent works; the agent file's, or here."),
    click.option("--provider", help="The model service, instead of the agent file's."),
    click.option("--model", help="The model's name, instead of the agent file's."),
    click.option("--script", type=_FILE, help="Replies to replay instead of asking a model."),
    click.option("--session", callback=_named, help="Keep the conversation under this name, and go on with it."),
    click.option("--max-steps", type=click.IntRange(min=1), help="Model replies that may act, in one run."),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        help="US dollars that one run may cost.",
    ),
    click.option(
        "--permissions",
        type=click.Choice(PERMISSIONS),
        default="auto",
        show_default=True,
        help="auto: what the agent file says waits for approval, and commands without a sandbox. ask: every write and "
        "command as well. all: yes to whatever waits. none: no to it.",
    ),
    click.option("--record", type=_NEW_FILE, help="Keep every request and reply in this new file."),
)


def _about_the_agent(command: F) -> F:
    """The options that both commands share."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("task", required=False)
@_about_the_agent
@click.option("--approve", is_flag=True, help="Let the call that waits in the session be made, and go on.")
@click.option("--deny", is_flag=True, help="Do not let it be made, and go on.")
@click.option("--note", help="With --deny: a word to the agent.")
@click.option("--answer", help="Answer the question that waits in the session, and go on.")
def run(*, task: str | None, approve: bool, deny: bool, note: str | None, answer: str | None, **wishes: Any) -> None:  # noqa: ANN401 - the fields of Wishes
    """Have one TASK done in a directory; `-` reads it from the standard input.

    Ends with 0 when it is done, 1 when it is not, 2 when the settings are wrong, 3 when a call waits for an answer.
    """
    said = _said(approve=approve, deny=deny, note=note, answer=answer)
    if said is not None and task is not None:
        raise click.UsageError("An answer goes on with the run that waits; leave TASK out.")
    if task is not None and not task.strip():
        raise click.UsageError('TASK is empty. Say what to do, e.g. codepilot run "fix the tests".')
    if wishes["session"] is None and task is None:
        raise click.UsageError('Say what to do, e.g. codepilot run "fix the tests", or which --session to go on with.')
    from bot.apps.chat import console  # noqa: PLC0415 - `codepilot --help` should not load the agent

    text = console.read_task() if task == "-" else task
    sys.exit(console.run(ChatOptions(**wishes), text, said))


@click.command()
@_about_the_agent
@click.option("--list", "listed", is_flag=True, help="Show the sessions that are kept, and leave.")
def chat(*, listed: bool, **wishes: Any) -> None:  # noqa: ANN401 - the fields of Wishes
    """Talk with the agent about a directory, task after task."""
    from bot.apps.chat import console  # noqa: PLC0415 - as above

    if listed:
        console.list_sessions()
    else:
        sys.exit(console.chat(ChatOptions(**wishes)))


def _said(*, approve: bool, deny: bool, note: str | None, answer: str | None) -> ChatAnswer | None:
    """What the options answer to the call that waits; None when they answer nothing."""
    if approve + deny + (answer is not None) > 1:
        raise click.UsageError("Use only one of --approve, --deny and --answer.")
    if note is not None and not deny:
        raise click.UsageError("--note belongs to --deny.")
    if answer is not None:
        return ChatAnswer(approved=True, note=answer, answers=True)
    return ChatAnswer(approved=approve, note=note or "") if approve or deny else None
