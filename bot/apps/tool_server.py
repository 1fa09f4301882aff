"""`codepilot mcp`: our tools for other agents, in a sandbox and by our levels."""

from __future__ import annotations

from pathlib import Path

from agent_runtime import Agent, AsyncRuntime, RunLimits, SandboxName, SandboxSettings, ScriptedProvider, pick_sandbox
from bot.domain.access import Level
from bot.gate.levels import policy_for, tools_for

_NOBODY = (
    "nobody can approve calls here. Start `codepilot mcp` with --allow PATTERN to allow such commands, or "
    "all of them with --level auto"
)


async def serve_tools(directory: Path, *, level: Level, allow: tuple[str, ...], sandbox: SandboxName) -> None:
    """Serve tools on standard input and output, until the input ends.

    Args:
        directory: where they work.
        level: what they may do.
        allow: patterns of commands that need no approval, beside the built-in ones.
        sandbox: where commands run.

    Raises:
        SettingsError: the package `mcp` is missing.
        SandboxError: no sandbox works here.
    """
    place = pick_sandbox(sandbox, SandboxSettings())
    policy = policy_for(
        level,
        limits=RunLimits(),
        commands=allow,
        because="`codepilot mcp` was started with --level read-only",
        reachable="" if place.apart else "this machine, because no sandbox isolates it",
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
        await runtime.serve_tools()
