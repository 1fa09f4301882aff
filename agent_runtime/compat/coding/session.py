"""The command `llm code`: a session with a `CodingAgent` on the terminal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import click
import llm
from llm.migrations import migrate
from sqlite_utils import Database

from agent_runtime.compat.coding.agent import CodingAgent, TerminalApproval
from agent_runtime.compat.coding.tools import NAMES, PREFIX
from agent_runtime.core.errors import AgentError
from agent_runtime.core.values import Usage
from agent_runtime.sandbox.select import SandboxName, describe_toolchains
from agent_runtime.tools.tool import visible

_SHOWN_CHARS = 120


class _Session:
    """A session: an agent, its approvals and its usage.

    Attributes:
        failed: whether the newest turn failed.
    """

    def __init__(self, agent: CodingAgent, approval: TerminalApproval, chain_limit: int) -> None:
        self.failed = False
        self._agent = agent
        self._approval = approval
        self._chain_limit = chain_limit
        self._used = Usage()

    def take(self, line: str) -> bool:
        """Handle a line; return whether the session goes on."""
        word, _, rest = line.partition(" ")
        match word:
            case "":
                pass
            case "!quit" | "!exit":
                return False
            case "!yolo":
                self._approval.approve_all = not self._approval.approve_all
                click.echo(f"Auto-approval {'on' if self._approval.approve_all else 'off'}")
            case "!model":
                self._switch(rest.strip())
            case "!tokens":
                used = self._used
                sent = used.input_tokens + used.cached_tokens + used.cache_write_tokens
                told = f"Token usage: {sent} input, {used.output_tokens} output"
                click.echo(told if used.total_tokens else "No token usage recorded")
            case _ if word.startswith("!") and word[1:].isalpha():
                click.echo(f"There is no {word}; there are !quit, !exit, !yolo, !model [MODEL] and !tokens")
            case _:
                self._run(line)
        return True

    def _switch(self, model: str) -> None:
        if not model:
            click.echo(f"Current model: {self._agent.model.model_id}")
            return
        try:
            self._agent.set_model(model)
        except (llm.UnknownModelError, AgentError) as error:
            click.echo(f"Error: {error}")
        else:
            click.echo(f"Switched to {model}")

    def _run(self, prompt: str) -> None:
        self.failed = False
        try:
            result = self._agent.run(prompt)
        except KeyboardInterrupt:
            click.echo("\nInterrupted")
            return
        except (AgentError, sqlite3.Error) as error:  # of a full disk, or a database that others keep locked
            self.failed = True
            click.secho(f"\nError: {visible(str(error))}", fg="red", err=True)
            return
        self._used += result.usage
        click.echo()
        if result.hit_limit:
            told = f"Chain limit of {self._chain_limit} reached - reply 'continue' to keep going"
            click.secho(told, fg="yellow")


@click.command()
@click.argument("prompt", required=False)
@click.option("model", "-m", "--model", help="LLM model to use")
@click.option("-s", "--system", help="Extra instructions, appended to the system prompt")
@click.option(
    "-d",
    "--directory",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Root directory of the session",
)
@click.option("--yolo", is_flag=True, help="Approve every tool call")
@click.option(
    "--allow",
    multiple=True,
    help="Approve these commands, e.g. 'pytest*' for pytest with any arguments, and nothing else",
)
@click.option("no_tools", "--no-tool", multiple=True, help=f"Leave out a tool: {', '.join(NAMES)}")
@click.option("--chain-limit", type=click.IntRange(min=0), default=25, help="Most replies that one prompt may act on")
@click.option("options", "-o", "--option", type=(str, str), multiple=True, help="key/value options for the model")
@click.option("--key", help="API key to use")
@click.option("is_continued", "-c", "--continue", is_flag=True, help="Continue the most recent conversation")
@click.option("conversation_id", "--cid", "--conversation", help="Continue the conversation with the given ID")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "docker", "local"]),
    default="auto",
    help="What commands run in; `local` isolates nothing",
)
@click.option("--toolchains", default="auto", help="auto, none, or directories of programs that commands find, too")
def code(  # noqa: PLR0913, PLR0917 - an option each
    prompt: str | None,
    model: str | None,
    system: str | None,
    directory: str,
    yolo: bool,  # noqa: FBT001 - a flag
    allow: tuple[str, ...],
    no_tools: tuple[str, ...],
    chain_limit: int,
    options: tuple[tuple[str, str], ...],
    key: str | None,
    is_continued: bool,  # noqa: FBT001 - the same
    conversation_id: str | None,
    sandbox: SandboxName,
    toolchains: str,
) -> None:
    """Work with a coding agent on a directory.

    The model reads, searches and edits files beneath the directory, and runs commands there, in a sandbox. It asks
    before it writes a file or runs a command: y approves the call, a approves calls of the kind that is shown for the
    rest of the session, anything else declines.

    In the session !quit and !exit leave, !yolo turns approval of everything on and off, !model [MODEL] switches the
    model, and !tokens tells what was used.
    """
    from llm.cli import load_conversation, logs_db_path  # noqa: PLC0415 - it loads plugins, and ours loads this module

    path: Path = logs_db_path()  # type: ignore[no-untyped-call]  # llm leaves these untyped
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = Database(path)
        migrate(db)  # type: ignore[no-untyped-call]  # the same
        found = load_conversation(conversation_id) if conversation_id or is_continued else None
        conversation = found if isinstance(found, llm.Conversation) else None
        approval = TerminalApproval(allow, approve_all=yolo)
        agent = CodingAgent(
            model,
            directory,
            approval,
            chain_limit,
            system,
            key,
            dict(options),
            no_tools,
            lambda text: click.echo(visible(text), nl=False),
            _show_call,
            conversation,
            db,
            sandbox=sandbox,
            toolchains=toolchains,
        )
    except (AgentError, llm.UnknownModelError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        told = f"The conversations of llm in {path} cannot be read: {error}. Repair the file, or move it away."
        raise click.ClickException(told) from error
    if line := describe_toolchains(agent.tools._actions.sandbox, agent.root):  # noqa: SLF001 - they belong together
        click.secho(line, dim=True, err=True)
    with agent:
        session = _Session(agent, approval, chain_limit)
        going = session.take(prompt) if prompt else True
        while going:
            try:
                going = session.take(input("> ").strip())
            except (EOFError, KeyboardInterrupt):
                click.echo()
                break
    if session.failed:
        raise click.exceptions.Exit(1)


def _show_call(call: llm.ToolCall, result: llm.ToolResult) -> None:
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    first = result.output.partition("\n")[0]
    told = f"\n> {call.name.removeprefix(PREFIX)}({_short(arguments)}) -> {_short(first)}"
    click.secho(told, dim=True)


def _short(text: str) -> str:
    shown = visible(text[: 2 * _SHOWN_CHARS])
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."
