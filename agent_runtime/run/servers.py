"""The MCP servers of one runtime: their tools, listed once a session, and the connections that calls of them use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agent_runtime.agent.agent import Agent
from agent_runtime.core.calls import Plain, ToolResult
from agent_runtime.core.errors import McpServerError, SettingsError, ToolError, ToolErrorKind
from agent_runtime.core.events import SERVER_DOWN, NetworkUsed, ServedTool, ToolsListed
from agent_runtime.mcp.connection import McpConnection
from agent_runtime.mcp.sandboxed import ServerPlace
from agent_runtime.run.state import RunState
from agent_runtime.tools.registry import Registry
from agent_runtime.tools.served import Serve, cleaned, result_of, tool_of, tools_of

_CHANGED = (
    " (This server says that its tools have changed. The list of this session stays as it is; a call of a tool that is "
    "gone fails.)"
)


class Servers:
    """The servers that an agent names.

    A session keeps the list that its first run was given, so that the conversation begins with the same words in every
    request and in every process. A server is started for its list, and again for the first call in a process that took
    the list from the session.
    """

    def __init__(self, agent: Agent, state: RunState, registry: Registry, *, sees_images: Callable[[], bool]) -> None:
        """Prepare; nothing is started yet.

        Args:
            agent: names them, and says where they run.
            state: the log that holds the lists.
            registry: takes the tools.
            sees_images: tells whether pictures in results reach the model.

        Raises:
            SettingsError: two have one name, or the package `mcp` is not installed.
        """
        names = [server.name for server in agent.mcp]
        if twice := {name for name in names if names.count(name) > 1}:
            raise SettingsError(f"two MCP servers have the name {min(twice)!r}; give one of them another")
        place = ServerPlace(
            sandbox=agent.sandbox,
            workspace=agent.work_dir,
            network=agent.network,
            told=lambda connection: state.emit(NetworkUsed(connection=connection)),
        )
        self._connections = {server.name: McpConnection(server, place) for server in agent.mcp}
        self._state = state
        self._registry = registry
        self._sees_images = sees_images
        self._listed: dict[str, ToolsListed] = {}
        self._told: set[str] = set()

    def restore(self) -> None:
        """Take the lists that the session has.

        Raises:
            SettingsError: a tool of one has a name that is taken.
        """
        if not self._connections:
            return
        for event in self._state.events:
            if isinstance(event, ToolsListed) and event.server in self._connections:
                self._take(event)

    async def connect(self) -> None:
        """Start the servers whose lists the session does not have, and record what they offer.

        Raises:
            McpServerError: one does not start, or its tools cannot be used; the text is safe to be shown.
            SettingsError: a tool of one has a name that is taken.
        """
        recorded = {event.server for event in self._state.events if isinstance(event, ToolsListed)}
        missing = [each for name, each in self._connections.items() if name not in self._listed]
        offered = await asyncio.gather(*(each.tools() for each in missing), return_exceptions=True)
        for connection, found in zip(missing, offered, strict=True):
            server = connection.server
            if isinstance(found, McpServerError):
                raise McpServerError(cleaned(server, str(found)))
            if isinstance(found, BaseException):
                raise found
            try:
                tools = tools_of(server, found)
            except McpServerError as error:
                raise McpServerError(cleaned(server, str(error))) from error
            self._take(ToolsListed(server=server.name, tools=tools))
        for name, event in self._listed.items():
            if name not in recorded:
                self._state.record(event)

    async def close(self) -> None:
        """End them all; idempotent."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    def _take(self, event: ToolsListed) -> None:
        if event.server in self._listed:
            return
        connection = self._connections[event.server]
        chosen = connection.server.tools
        # The list may be older than the definition, which has since been given fewer tools.
        tools = tuple(each for each in event.tools if chosen is None or each.served_as in chosen)
        declare(self._registry, replace(event, tools=tools), self._serving(connection))
        self._listed[event.server] = event

    def _serving(self, connection: McpConnection) -> Serve:
        server = connection.server

        async def serve(served: ServedTool, arguments: dict[str, Plain]) -> ToolResult:
            try:
                result = await connection.call(served.served_as, dict(arguments))
            except McpServerError as error:
                late = isinstance(error.__cause__, TimeoutError)
                kind: ToolErrorKind = "TimeoutError" if late else "OSError"
                value = {"kind": kind, **({SERVER_DOWN: server.name} if error.down else {})}
                raise ToolError(cleaned(server, str(error)), kind=kind, value=value) from error
            note = _CHANGED if connection.changed and server.name not in self._told else ""
            if note:
                self._told.add(server.name)
            return result_of(server, served, result, sees_images=self._sees_images(), note=note)

        return serve


def declare(registry: Registry, event: ToolsListed, serve: Serve) -> None:
    """Register the tools of a list.

    Raises:
        SettingsError: the name of one is taken; nothing of the list is registered then.
    """
    if taken := [each.name for each in event.tools if each.name in registry]:
        raise SettingsError(
            f"MCP server {event.server!r}: its tool {taken[0]!r} has the name of a tool that the agent has already. "
            "Give the server another name, or leave the tool out with `tools`."
        )
    for each in event.tools:
        registry.add_tool(tool_of(event.server, each, serve))
