"""The tools of an agent as an MCP server, for other agents: on standard input and output."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

from agent_runtime.agent.agent import Agent
from agent_runtime.core.errors import SandboxError, SettingsError, Suspend, ToolError
from agent_runtime.interpreter.source import NotPlainError, plain
from agent_runtime.run.approvals import Gate
from agent_runtime.run.calls import Calls
from agent_runtime.run.state import RunState
from agent_runtime.run.toolbox import Toolbox
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.tools.tool import call_arguments, tool_schema

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult

_KEPT_CALLS = 200
"""Calls after which their record is emptied: nobody reads it, and a server may run for days."""


class ToolServer:
    """Answers calls of an agent's tools one after the other, by the agent's policy."""

    def __init__(self, agent: Agent, toolbox: Toolbox, state: RunState, gate: Gate) -> None:
        """Serve the tools of `toolbox`.

        Args:
            agent: whose policy and limits hold.
            toolbox: the tools.
            state: its listeners are notified of each call. Its log is not written to: nobody reads of calls there.
            gate: asks the handlers where the policy says so; a call that nobody answers for is refused.
        """
        state.clock.start()  # the time of an earlier run is over
        self._toolbox = toolbox
        self._record = InMemorySession()
        self._gate = gate
        self._calls = Calls(
            registry=toolbox.registry,
            policy=agent.policy,
            gate=gate,
            state=RunState(self._record, state.hooks, scrub=agent.scrub),
            max_output_chars=agent.max_output_chars,
            max_step_chars=agent.step_chars,
        )
        self._turn = asyncio.Lock()

    async def serve(self) -> None:
        """Serve the client on standard input, until its end.

        Raises:
            SettingsError: the package `mcp` is not installed.
        """
        try:
            from mcp.server.lowlevel import Server  # noqa: PLC0415 - see TYPE_CHECKING above
            from mcp.server.stdio import stdio_server  # noqa: PLC0415 - the same
            from mcp_types import CallToolResult as Result  # noqa: PLC0415 - the same
            from mcp_types import ListToolsResult, TextContent, Tool  # noqa: PLC0415 - the same
        except ImportError as error:
            raise SettingsError("The package `mcp` is missing; install codepilot-bot[mcp].") from error
        registry = self._toolbox.registry
        declared = [tool_schema(registry.get(name)) for name in registry.names]
        tools = [
            Tool(name=each.name, description=each.description, input_schema=dict(each.parameters)) for each in declared
        ]

        async def listed(_context: object, _params: object) -> ListToolsResult:
            return ListToolsResult(tools=tools)

        async def called(_context: object, params: CallToolRequestParams) -> CallToolResult:
            text, ok = await self.call(params.name, params.arguments or {})
            return Result(content=[TextContent(text=text)], is_error=not ok)

        server: Server[dict[str, object]] = Server(
            "codepilot", version=version("codepilot-bot"), on_list_tools=listed, on_call_tool=called
        )
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async def call(self, name: str, arguments: dict[str, object]) -> tuple[str, bool]:
        """Make one call; what it shows, and whether it succeeded."""
        async with self._turn:
            if self._calls.number >= _KEPT_CALLS:
                self._record.reset()
                self._calls.number = 0
            self._calls.begin_step()
            try:
                given = {key: plain(value, f"{name}: {key}") for key, value in arguments.items()}
                args, named = call_arguments(self._toolbox.registry.get(name), given)
                await self._calls(name, args, named, shown=True)
            except (ToolError, NotPlainError, SandboxError) as error:
                return str(error), False
            except Suspend:
                waiting = self._gate.waiting
                return f"{name} requires approval, and nobody is asked here: {waiting and waiting.reason}", False
            return self._calls.shown.take().text, True
