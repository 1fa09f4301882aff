"""Agents with servers, for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_runtime import Agent, Policy, Sandbox, SandboxLimits, SandboxSettings, ScriptedProvider, pick_sandbox
from agent_runtime.mcp.settings import McpServer

HERE = Path(__file__).parent


def python_sandbox(limits: SandboxLimits | None = None) -> Sandbox:
    """A sandbox that shows this Python, its packages and the servers here."""
    shown = {Path(sys.prefix), Path(sys.base_prefix), HERE}
    read_only = tuple(each for each in shown if not each.is_relative_to("/usr"))
    settings = SandboxSettings(read_only=read_only, limits=limits or SandboxLimits())
    return pick_sandbox("auto", settings)


def notes(**changes: Any) -> McpServer:  # noqa: ANN401 - whatever McpServer takes
    return McpServer(**{"name": "notes", "command": (sys.executable, str(HERE / "notes_server.py")), **changes})


def odd(way: str, **changes: Any) -> McpServer:  # noqa: ANN401 - the same
    command = (sys.executable, "-I", "-S", str(HERE / "odd_server.py"), way)
    return McpServer(**{"name": "odd", "command": command, "timeout": 20.0, **changes})


def agent_with(
    place: Path,
    sandbox: Sandbox,
    servers: Sequence[McpServer],
    *replies: str,
    policy: Policy | None = None,
) -> Agent:
    return Agent(
        provider=ScriptedProvider(replies),
        work_dir=place,
        sandbox=sandbox,
        policy=policy or Policy(),
        mcp=tuple(servers),
    )


def block(code: str, completion: str = "Done.") -> str:
    """A reply that runs some control code, and finishes."""
    return f"Working.\n```codepilot\n{code}\n```\n```completion\n{completion}\n```\n"
