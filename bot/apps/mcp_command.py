"""Arguments of `codepilot mcp`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from agent_runtime import SandboxName
from bot.domain.access import Level


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    default=".",
    help="The directory to work in; default the current one.",
)
@click.option(
    "--level",
    type=click.Choice(["read-only", "ask", "auto"]),
    default="ask",
    show_default=True,
    help="What the tools may do: a permission level of the bot. Calls that require approval are refused.",
)
@click.option("--allow", multiple=True, metavar="PATTERN", help="Commands that need no approval, such as 'npm test *'.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "local"]),
    default="auto",
    show_default=True,
    help="Where commands run; local does not isolate them.",
)
def mcp(*, directory: Path, level: Level, allow: tuple[str, ...], sandbox: SandboxName) -> None:
    """Serve the agent's tools to other agents by MCP.

    The tools are those for files, searches and commands. The server uses standard input and output.
    """
    from bot.apps.tool_server import serve_tools  # noqa: PLC0415 - `codepilot --help` should not load it
    from bot.gate.repo_keys import command_pattern  # noqa: PLC0415 - as above

    try:
        patterns = tuple(command_pattern(each) for each in allow)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--allow") from None
    asyncio.run(serve_tools(directory, level=level, allow=patterns, sandbox=sandbox))
