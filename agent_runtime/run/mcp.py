"""MCP in both directions: servers whose tools an agent uses, and a server of the agent's tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from agent_runtime.agent.agent import Agent
from agent_runtime.core.errors import McpServerError, SandboxError, SettingsError, Suspend, ToolError, ToolErrorKind
from agent_runtime.core.events import SERVER_DOWN, NetworkUsed, ServedTool, ToolsListed
from agent_runtime.core.text import find_surrogate
from agent_runtime.core.values import Plain, ToolResult
from agent_runtime.interpreter.source import NotPlainError, to_plain
from agent_runtime.run.approvals import Gate
from agent_runtime.run.loop import Calls
from agent_runtime.run.state import RunState
from agent_runtime.sandbox.repositories import RepositoryGuard
from agent_runtime.sessions.protocol import InMemorySession
from agent_runtime.tools.mcp import CallServer, build_tool, clean_text, convert_result, select_tools
from agent_runtime.tools.tool import Registry, call_arguments, tool_schema

if TYPE_CHECKING:  # the package is an extra, and a tenth of a second to import
    from mcp.client._transport import TransportStreams
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolRequestParams, CallToolResult, JSONRPCError, ListToolsResult

    from agent_runtime.mcp.client import McpConnection

_CHANGED_NOTE = (
    " (This server says that its tools have changed. The list of this session stays as it is; a call of a tool that is "
    "gone fails.)"
)
_MAX_RECORDED = 200
"""Calls after which the record is cleared: a server may run for days."""


class Servers:
    """The MCP servers of an agent.

    A session keeps the tool lists of its first run, so that every request has the same prefix.
    """

    def __init__(
        self,
        agent: Agent,
        state: RunState,
        registry: Registry,
        *,
        guard: RepositoryGuard | None,
        sees_images: Callable[[], bool],
    ) -> None:
        """Prepare connections without starting servers.

        Raises:
            SettingsError: two servers have the same name, or the package `mcp` is not installed.
        """
        names = [server.name for server in agent.mcp]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise SettingsError(f"two MCP servers have the name {min(duplicates)!r}; give one of them another")
        self._connections: dict[str, McpConnection] = {}
        if agent.mcp:
            from agent_runtime.mcp.client import McpConnection, ServerEnvironment  # noqa: PLC0415 - loads an HTTP client

            place = ServerEnvironment(
                sandbox=agent.sandbox,
                workspace=agent.work_dir,
                network=agent.network,
                guard=guard,
                on_connection=lambda connection: state.emit(NetworkUsed(connection=connection)),
            )
            self._connections = {server.name: McpConnection(server, place) for server in agent.mcp}
        self._state = state
        self._registry = registry
        self._sees_images = sees_images
        self._listed: dict[str, ToolsListed] = {}
        self._notified: set[str] = set()

    def restore(self) -> None:
        """Register the tools in the session's lists.

        Raises:
            SettingsError: a tool's name is used.
        """
        if not self._connections:
            return
        for event in self._state.events:
            if isinstance(event, ToolsListed) and event.server in self._connections:
                self._register(event)

    async def connect(self) -> None:
        """Start servers without a list in the session, and record their tools.

        Raises:
            McpServerError: a server fails; the text is safe to show.
            SettingsError: a tool's name is taken.
        """
        recorded = {event.server for event in self._state.events if isinstance(event, ToolsListed)}
        missing = [connection for name, connection in self._connections.items() if name not in self._listed]
        offered = await asyncio.gather(*(connection.list_tools() for connection in missing), return_exceptions=True)
        for connection, result in zip(missing, offered, strict=True):
            server = connection.server
            if isinstance(result, McpServerError):
                raise McpServerError(clean_text(server, str(result)))
            if isinstance(result, BaseException):
                raise result
            try:
                tools = select_tools(server, result)
            except McpServerError as error:
                raise McpServerError(clean_text(server, str(error))) from error
            self._register(ToolsListed(server=server.name, tools=tools))
        for name, event in self._listed.items():
            if name not in recorded:
                self._state.record(event)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    def _register(self, event: ToolsListed) -> None:
        if event.server in self._listed:
            return
        connection = self._connections[event.server]
        chosen = connection.server.tools
        # The settings may have fewer tools than the session's list.
        tools = tuple(tool for tool in event.tools if chosen is None or tool.served_as in chosen)
        register_tools(self._registry, replace(event, tools=tools), self._call_function(connection))
        self._listed[event.server] = event

    def _call_function(self, connection: McpConnection) -> CallServer:
        server = connection.server

        async def serve(served: ServedTool, arguments: dict[str, Plain]) -> ToolResult:
            try:
                result = await connection.call(served.served_as, dict(arguments))
            except McpServerError as error:
                late = isinstance(error.__cause__, TimeoutError)
                kind: ToolErrorKind = "TimeoutError" if late else "OSError"
                value = {"kind": kind, **({SERVER_DOWN: server.name} if error.down else {})}
                raise ToolError(clean_text(server, str(error)), kind=kind, value=value) from error
            note = _CHANGED_NOTE if connection.has_new_tools and server.name not in self._notified else ""
            if note:
                self._notified.add(server.name)
            return convert_result(server, served, result, sees_images=self._sees_images(), note=note)

        return serve


def register_tools(registry: Registry, event: ToolsListed, serve: CallServer) -> None:
    """Register the tools of a list, all or none.

    Raises:
        SettingsError: a tool's name is used.
    """
    if used := [tool.name for tool in event.tools if tool.name in registry]:
        raise SettingsError(
            f"MCP server {event.server!r}: its tool {used[0]!r} has the name of a tool that the agent has already. "
            "Give the server another name, or leave the tool out with `tools`."
        )
    for tool in event.tools:
        registry.add_tool(build_tool(event.server, tool, serve))


class ToolServer:
    """Server of an agent's tools; calls are made one by one under the agent's policy."""

    def __init__(self, agent: Agent, registry: Registry, state: RunState, gate: Gate) -> None:
        state.clock.start()  # the time of an earlier run is over
        self._registry = registry
        self._record = InMemorySession()
        self._gate = gate
        self._calls = Calls(
            registry=registry,
            policy=agent.policy,
            gate=gate,
            state=RunState(self._record, state.hooks, scrub=agent.scrub),
            max_output_chars=agent.max_output_chars,
            max_step_chars=agent.step_chars,
        )
        self._lock = asyncio.Lock()

    async def serve(self) -> None:
        """Serve the client on standard input until its end.

        Raises:
            SettingsError: the package `mcp` is not installed.
        """
        try:
            from mcp.server.lowlevel import Server  # noqa: PLC0415 - see TYPE_CHECKING above
            from mcp_types import CallToolResult as Result  # noqa: PLC0415 - the same
            from mcp_types import ListToolsResult, TextContent, Tool  # noqa: PLC0415 - the same
        except ImportError as error:
            raise SettingsError("The package `mcp` is missing; install codepilot-bot[mcp].") from error
        declared = [tool_schema(self._registry.get(name)) for name in self._registry.names]
        tools = [
            Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters)) for tool in declared
        ]

        async def list_tools(_context: object, _params: object) -> ListToolsResult:
            return ListToolsResult(tools=tools)

        async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
            text, ok = await self.call(params.name, params.arguments or {})
            return Result(content=[TextContent(text=text)], is_error=not ok)

        server: Server[dict[str, object]] = Server(
            "codepilot", version=version("codepilot-bot"), on_list_tools=list_tools, on_call_tool=call_tool
        )
        async with _stdio() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async def call(self, name: str, arguments: dict[str, object]) -> tuple[str, bool]:
        """Make one call; return its output and whether it succeeded."""
        async with self._lock:
            if self._calls.number >= _MAX_RECORDED:
                self._record.reset()
                self._calls.number = 0
            self._calls.begin_step()
            try:
                values = {key: to_plain(value, f"{name}: {key}") for key, value in arguments.items()}
                args, kwargs = call_arguments(self._registry.get(name), values)
                await self._calls(name, args, kwargs, show=True)
            except (ToolError, NotPlainError, SandboxError) as error:
                return str(error), False
            except Suspend:
                waiting = self._gate.waiting
                return f"{name} requires approval, and nobody is asked here: {waiting and waiting.reason}", False
            return self._calls.output.text(), True


_FIELD = 2
"""Length of the location of a message's own field in pydantic errors: the kind of message, and the field."""


@asynccontextmanager
async def _stdio() -> AsyncGenerator[TransportStreams]:
    import anyio  # noqa: PLC0415 - see TYPE_CHECKING above
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - the same
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the same

    into, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with stdio_server() as (read, write), asyncio.TaskGroup() as tasks:

        async def relay() -> None:
            async with into:
                async for item in read:
                    if isinstance(item, SessionMessage):
                        await into.send(item)
                    elif (refusal := _refusal(item)) is not None:
                        await write.send(SessionMessage(refusal))

        task = tasks.create_task(relay())
        try:
            yield requests, write
        finally:
            task.cancel()


def _refusal(error: Exception) -> JSONRPCError | None:
    """Return the answer to an unreadable message; None for a notification.

    An id that cannot be read is null (https://www.jsonrpc.org/specification).
    """
    from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError  # noqa: PLC0415 - see above
    from pydantic import ValidationError  # noqa: PLC0415 - the same

    if not isinstance(error, ValidationError):
        raise error
    details = error.errors(include_url=False)
    message: object = None
    if details[0]["type"] == "json_invalid":
        line = details[0]["input"]
        if not line.strip():
            return None
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
        code, reason = PARSE_ERROR, f"the message cannot be read: {details[0]['msg']}"
        if (location := find_surrogate(message)) is not None:
            code = INVALID_PARAMS
            reason = f"{location} is not valid Unicode: it holds half of a surrogate pair; send whole characters"
    else:
        code, reason = INVALID_REQUEST, "the message is not a JSON-RPC request, or its `params` are not an object"
        whole = (detail["input"] for detail in details if detail["type"] == "missing" and len(detail["loc"]) == _FIELD)
        message = next(whole, None)
    if isinstance(message, dict) and not {"id", "method"} <= message.keys():
        return None  # a notification, or an answer
    request_id = message["id"] if isinstance(message, dict) else None
    if type(request_id) not in {int, str} or find_surrogate(request_id) is not None:
        request_id = None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason))
