"""MCP in both directions: the servers whose tools an agent uses, and the server that offers an agent's tools to others.

`Servers` starts the servers that an agent names and registers their tools; the session keeps their lists. `ToolServer`
serves the agent's own tools on standard input and output. The package `mcp` is an extra: it is imported when needed.
"""

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
from agent_runtime.run.calls import Calls
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

_CHANGED = (
    " (This server says that its tools have changed. The list of this session stays as it is; a call of a tool that is "
    "gone fails.)"
)
_KEPT_CALLS = 200
"""Calls after which their record is emptied: nobody reads it, and a server may run for days."""


class Servers:
    """The servers that an agent names.

    A session keeps the list that its first run was given, so that the conversation begins with the same words in every
    request and in every process. A server is started for its list, and again for the first call in a process that took
    the list from the session.
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
        """Prepare; nothing is started yet.

        Args:
            agent: names them, and says where they run.
            state: the log that holds the lists.
            registry: takes the tools.
            guard: of the workspace's repositories; None where programs may make and change them.
            sees_images: tells whether pictures in results reach the model.

        Raises:
            SettingsError: two have one name, or the package `mcp` is not installed.
        """
        names = [server.name for server in agent.mcp]
        if twice := {name for name in names if names.count(name) > 1}:
            raise SettingsError(f"two MCP servers have the name {min(twice)!r}; give one of them another")
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
        offered = await asyncio.gather(*(each.list_tools() for each in missing), return_exceptions=True)
        for connection, found in zip(missing, offered, strict=True):
            server = connection.server
            if isinstance(found, McpServerError):
                raise McpServerError(clean_text(server, str(found)))
            if isinstance(found, BaseException):
                raise found
            try:
                tools = select_tools(server, found)
            except McpServerError as error:
                raise McpServerError(clean_text(server, str(error))) from error
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

    def _serving(self, connection: McpConnection) -> CallServer:
        server = connection.server

        async def serve(served: ServedTool, arguments: dict[str, Plain]) -> ToolResult:
            try:
                result = await connection.call(served.served_as, dict(arguments))
            except McpServerError as error:
                late = isinstance(error.__cause__, TimeoutError)
                kind: ToolErrorKind = "TimeoutError" if late else "OSError"
                value = {"kind": kind, **({SERVER_DOWN: server.name} if error.down else {})}
                raise ToolError(clean_text(server, str(error)), kind=kind, value=value) from error
            note = _CHANGED if connection.has_new_tools and server.name not in self._told else ""
            if note:
                self._told.add(server.name)
            return convert_result(server, served, result, sees_images=self._sees_images(), note=note)

        return serve


def declare(registry: Registry, event: ToolsListed, serve: CallServer) -> None:
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
        registry.add_tool(build_tool(event.server, each, serve))


class ToolServer:
    """Answers calls of an agent's tools one after the other, by the agent's policy."""

    def __init__(self, agent: Agent, registry: Registry, state: RunState, gate: Gate) -> None:
        """Serve the tools of `registry`.

        Args:
            agent: whose policy and limits hold.
            registry: the tools.
            state: its listeners are notified of each call. Its log is not written to: nobody reads of calls there.
            gate: asks the handlers where the policy says so; a call that nobody answers for is refused.
        """
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
        self._turn = asyncio.Lock()

    async def serve(self) -> None:
        """Serve the client on standard input, until its end.

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
            Tool(name=each.name, description=each.description, input_schema=dict(each.parameters)) for each in declared
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
        """Make one call; what it shows, and whether it succeeded."""
        async with self._turn:
            if self._calls.number >= _KEPT_CALLS:
                self._record.reset()
                self._calls.number = 0
            self._calls.begin_step()
            try:
                given = {key: to_plain(value, f"{name}: {key}") for key, value in arguments.items()}
                args, named = call_arguments(self._registry.get(name), given)
                await self._calls(name, args, named, show=True)
            except (ToolError, NotPlainError, SandboxError) as error:
                return str(error), False
            except Suspend:
                waiting = self._gate.waiting
                return f"{name} requires approval, and nobody is asked here: {waiting and waiting.reason}", False
            return self._calls.shown.drain().text, True


_FIELD = 2
"""Parts of the place of a message's own field, as pydantic names it: the kind of message, and the field."""


@asynccontextmanager
async def _stdio() -> AsyncGenerator[TransportStreams]:
    """Give the streams of standard input and output; a line that the package cannot read is answered with an error."""
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
    """Return the answer to a line that is no message; None for one that asks for no answer.

    An answer without the request's id is for a line whose id cannot be read (https://www.jsonrpc.org/specification).
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
        if (place := find_surrogate(message)) is not None:
            code = INVALID_PARAMS
            reason = f"{place} is not valid Unicode: it holds half of a surrogate pair; send whole characters"
    else:
        code, reason = INVALID_REQUEST, "the message is not a JSON-RPC request, or its `params` are not an object"
        whole = (each["input"] for each in details if each["type"] == "missing" and len(each["loc"]) == _FIELD)
        message = next(whole, None)
    if isinstance(message, dict) and not {"id", "method"} <= message.keys():
        return None  # a notification, or an answer
    request_id = message["id"] if isinstance(message, dict) else None
    if type(request_id) not in {int, str} or find_surrogate(request_id) is not None:
        request_id = None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=reason))
