"""`codepilot mcp`: serve the agent's tools to other agents, in a sandbox and by the bot's permission levels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from agent_runtime import (
    Agent,
    AsyncRuntime,
    RunLimits,
    Sandbox,
    SandboxName,
    SandboxSettings,
    ScriptedProvider,
    describe_toolchains,
    pick_sandbox,
    read_toolchains,
)
from bot.cli.screen import TOOLCHAINS
from bot.domain.access import Level
from bot.permissions.levels import build_policy, tools_for
from bot.permissions.repo_config import command_pattern

_NOBODY = (
    "nobody can approve calls here. Start `codepilot mcp` with --allow PATTERN to allow such commands, or "
    "all of them with --level auto"
)


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
@click.option("--toolchains", default="auto", show_default=True, help=TOOLCHAINS)
def mcp(*, directory: Path, level: Level, allow: tuple[str, ...], sandbox: SandboxName, toolchains: str) -> None:
    """Serve the agent's tools to other agents by MCP.

    The tools are those for files, searches and commands. The server uses standard input and output.
    """
    try:
        patterns = tuple(command_pattern(each) for each in allow)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--allow") from None
    place = pick_sandbox(sandbox, SandboxSettings(toolchains=read_toolchains(toolchains)))
    if line := describe_toolchains(place, directory):
        click.echo(line, err=True)
    asyncio.run(serve_tools(directory, level=level, allow=patterns, place=place))


async def serve_tools(directory: Path, *, level: Level, allow: tuple[str, ...], place: Sandbox) -> None:
    """Serve tools on standard input and output until the input ends.

    Args:
        allow: command patterns without approval, in addition to the built-in ones.

    Raises:
        SettingsError: the package `mcp` is missing.
    """
    policy = build_policy(
        level,
        limits=RunLimits(),
        commands=allow,
        reason="`codepilot mcp` was started with --level read-only",
        reach="" if place.is_isolated else "this machine, because no sandbox isolates it",
    )
    agent = Agent(
        provider=ScriptedProvider([]),
        work_dir=directory,
        sandbox=place,
        policy=policy,
        tools=tools_for(level, writes=True, asks=False),
        transport="tools",
    )
    async with AsyncRuntime(agent) as runtime:
        runtime.hooks.register("permission_request", lambda **_call: _NOBODY)
        runtime.hooks.register("security_error", lambda error, **_: click.echo(f"codepilot mcp: {error}", err=True))
        await runtime.serve_tools()
